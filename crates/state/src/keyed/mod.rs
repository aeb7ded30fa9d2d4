//! Keyed state: tables of native values under a current key.
//!
//! Two sides: [`KeyedStates`] is what user code sees through its context, with handles such as
//! [`ValueState`]; [`KeyedBackend`] is what the runtime drives: the current key, snapshots, restore.

mod aggregating;
mod any_table;
mod backend;
mod beside;
mod budget;
mod cold_part;
mod cold_restore;
mod control;
mod declare;
mod declare_expiring;
mod description;
mod expired_rows;
mod expiring;
mod list;
mod list_cell;
mod map;
mod map_cell;
mod map_clear;
mod map_cold;
mod map_fetch;
mod map_rows;
mod map_table;
mod migration;
mod peek;
mod reducing;
mod slice_table;
mod slices;
mod states;
mod sweep;
mod sweep_tables;
mod tracked;
mod tracked_cold;
mod value;
mod walk;

pub use aggregating::{AggregateFunction, AggregatingState};
pub use backend::KeyedBackend;
pub use beside::BesideRoom;
pub use budget::Pressure;
pub use cold_restore::{ColdEntries, ColdFilling, ColdRestore};
pub use control::{KeyedBackendControl, SliceProgress, StateSize};
pub use declare::StateDeclarer;
pub use description::{StateDescription, StateKind};
pub use expired_rows::ExpiredRows;
pub use expiring::{ExpiringAggregating, ExpiringList, ExpiringMap, ExpiringReducing, ExpiringValue, Timed, Ttl};
pub use list::{CHUNK_ELEMENTS, ListState};
pub use map::{MapEntry, MapState};
pub use migration::RowVersion;
pub(crate) use migration::schema_changed;
pub use reducing::ReducingState;
pub use slices::SliceState;
pub use states::KeyedStates;
pub use value::ValueState;
