//! The standard operators, as methods on streams.
//!
//! Owns: what each operator does with a record. Does *not* own: state (see `state`), chaining and
//! exchange (see `dataflow` and `runtime`).
//!
//! [`StreamOperators`] and [`KeyedStreamOperators`] bring the methods; one file holds one operator.

mod aggregate;
mod connect;
mod key_by;
mod keyed_process;
mod process;
mod record;
mod reduce;
mod sink;
mod source;
mod stateless;

pub use aggregate::{Aggregate, Fold};
pub use connect::{
    BroadcastConnected, BroadcastProcess, CoProcess, Connected, KeyedBroadcastConnected, KeyedBroadcastProcess,
    KeyedCoProcess, KeyedConnected,
};
pub use keyed_process::{KeyedProcess, KeyedStreamOperators};
pub use process::Process;
pub use sink::SinkOperators;
pub use source::SourceOperators;
pub use stateless::StreamOperators;
