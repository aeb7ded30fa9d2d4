//! Operator (non-keyed) state: lists that are split or united over subtasks, and broadcast maps.
//!
//! [`OperatorStates`] is live, one per subtask; [`OperatorStateSnapshot`] is its content at a freeze,
//! plain data that a background thread encodes; [`redistribute`] decides who gets what when the
//! parallelism changes, and is pure.

mod broadcast;
mod encode;
mod list;
mod pieces;
mod redistribute;
mod snapshot;
mod states;
#[cfg(test)]
mod tests;

pub use broadcast::{BroadcastReader, BroadcastState, BroadcastView};
pub use encode::OPERATOR_STATE_FORMAT_VERSION;
pub use list::OperatorListState;
pub use pieces::{Entries, Pieces};
pub use redistribute::redistribute;
pub use snapshot::{BroadcastSnapshot, ListMode, ListSnapshot, OperatorStateSnapshot};
pub use states::OperatorStates;
