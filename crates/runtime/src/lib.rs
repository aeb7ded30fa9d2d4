//! One subtask as a step machine: no threads, no clocks of its own, no sockets.
//!
//! Owns: running the operators of a chain over batches, aligning epochs, freezing and serialising state
//! in slices, turning a snapshot into objects, restoring, and verifying. Does *not* own: how batches travel between
//! subtasks (the engine, or the simulator), when an epoch is triggered (the coordinator).
//!
//! How a batch passes through: `receive` puts it into the queue of its epoch; `run` takes batches of the
//! open epoch, drives them through the chain, and leaves what comes out as [`Shipment`]s. When the inputs
//! have closed the open epoch and its queue is empty, the chain freezes its state and the next epoch
//! opens; batches of later epochs wait in the queue until then.
//!
//! Invariants: a batch of epoch e is processed between the freezes of e-1 and e; shipments carry the
//! epoch in which they were produced; nothing is shipped for an epoch that was closed.

mod chain;
mod compact;
mod error;
mod flow;
pub mod query;
mod queue;
mod restore;
mod snapshot;
mod step;
mod subtask;
mod upload;
mod valve;
mod verify;

pub use compact::compact;
pub use error::{Cause, RestoreError, SubtaskError};
pub use flow::{ChannelCredits, FlowLimits, ReturnedCredit};
pub use millpond_core::error::panic_message;
pub use millpond_runs::{RunSettings, set_spare_limit};
pub use millpond_state::ColdBacking;
pub use query::{QueryBoard, QueryError, StateQuery};
pub use queue::InputQueue;
pub use restore::{RestorePoint, RestoredOperator};
pub use snapshot::{OperatorSnapshot, SnapshotKind, SubtaskSnapshot};
pub use subtask::{EndKind, Gate, Progress, RunLimits, Shipment, Subtask, SubtaskSpec, Trigger};
pub use upload::{SubtaskUploads, UploadError, UploadSettings, apply_cold};
pub use verify::{Damage, Problem, Verifier};
