//! Changelog streams: streams that say how a set of rows changes.
//!
//! A [`Change`] adds a row to the set, or takes one out of it. Owns the type, the ways from plain streams to changes and
//! back, and aggregates that take back what has gone. Does *not* own ranking (see `ranking`, which emits and reads changes)
//! and no sink: a change is a record like any other.
//!
//! Invariants: a row is taken out only after it was put in, by the same subtask and under the same key, so that every
//! operator sees the two in this order; a row that is to be taken out and is not there ends the attempt
//! ([`ChangelogError::NothingToRetract`]).

mod aggregate;
mod change;
mod error;
mod extreme;
mod function;
mod keyed;
mod streams;
mod upsert;
mod view;

pub(crate) use change::emit_replacement;
pub use change::{Change, ChangeKind};
pub use error::ChangelogError;
pub use function::{Average, CountRows, RetractableAggregate, Sum};
pub use keyed::{KeyedChangelogOperators, KeyedInsertOperators, KeyedUpsertOperators};
pub use streams::{ChangelogOperators, InsertOperators};
pub use view::MaterializedView;
