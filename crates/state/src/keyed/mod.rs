//! Keyed state: tables of native values under a current key.
//!
//! Two sides: [`KeyedStates`] is what user code sees through its context, with handles such as
//! [`ValueState`]; [`KeyedBackend`] is what the runtime drives: the current key, snapshots, restore.

mod aggregating;
mod any_table;
mod backend;
mod budget;
mod cold_part;
mod cold_restore;
mod declare;
mod description;
mod list;
mod list_cell;
mod map;
mod map_cell;
mod map_clear;
mod map_cold;
mod map_rows;
mod map_table;
mod migration;
mod reducing;
mod states;
mod tracked;
mod tracked_cold;
mod value;
mod walk;

pub use aggregating::{AggregateFunction, AggregatingState};
pub use backend::{KeyedBackend, KeyedBackendControl, SliceProgress, StateSize};
pub use budget::Pressure;
pub use cold_restore::{ColdEntries, ColdFilling, ColdRestore};
pub use declare::StateDeclarer;
pub use description::{StateDescription, StateKind};
pub use list::{CHUNK_ELEMENTS, ListState};
pub use map::{MapEntry, MapState};
pub use migration::RowVersion;
pub(crate) use migration::schema_changed;
pub use reducing::ReducingState;
pub use states::KeyedStates;
pub use value::ValueState;
