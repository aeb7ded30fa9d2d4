//! Typed state: keyed state in a hot table of native values, and operator state.
//!
//! Owns what an operator remembers while it runs, and turns what changed into rows. Does *not* know
//! where rows or snapshots go, when an epoch ends, or who else holds state.
//!
//! ```text
//! record    set_current_key → handle.get / set / modify → entry
//! snapshot  freeze (O(1)) → serialise_slice … → RowBuffer        (operator state: freeze → snapshot)
//! restore   set_stored_sections → declare → row_version, restore_row … → finish_restore
//! ```
//!
//! Invariants: values are native, nothing is serialised on access; a frozen epoch shows every entry
//! as it was at the freeze, whatever happens to it later; freezing costs O(number of states); an
//! epoch's rows hold what changed in it and nothing else.

pub mod cold;
mod epochs;
mod error;
mod index;
pub mod keyed;
pub mod operator;
mod prefetch;
mod rows;
mod slab;
mod table;

pub use cold::{
    BudgetShare, ColdBackend, ColdBacking, ColdError, ColdFiles, ColdLoader, ColdRow, ColdRows, ColdStore, ColdStores,
    MemoryBudget, MemoryCold, MemoryColdStores,
};
pub use error::StateError;
pub use keyed::{
    AggregateFunction, AggregatingState, BesideRoom, ColdEntries, ColdFilling, ColdRestore, ExpiredRows,
    ExpiringAggregating, ExpiringList, ExpiringMap, ExpiringReducing, ExpiringValue, KeyedBackend, KeyedBackendControl,
    KeyedStates, ListState, MapEntry, MapState, Pressure, ReducingState, RowVersion, SliceProgress, SliceState,
    StateDeclarer, StateDescription, StateKind, StateSize, Timed, Ttl, ValueState,
};
pub use operator::{
    BroadcastReader, BroadcastSnapshot, BroadcastState, BroadcastView, ListMode, ListSnapshot, OperatorListState,
    OperatorStateSnapshot, OperatorStates, redistribute,
};
