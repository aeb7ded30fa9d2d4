//! Drives the subtasks of an attempt on worker threads. The only room that knows the `timely` crate.
//!
//! Owns: threads, the exchange of batches, progress (timely's frontier is the aligned barrier), waking,
//! the background upload of snapshots. Does *not* own: what a subtask does (see `runtime`), when an epoch
//! is triggered or complete (see `checkpoint` and `jobmanager`).
//!
//! The timestamp of every message is its epoch, nothing else. A source subtask emits at its capability's
//! epoch and closes an epoch by downgrading the capability; every other subtask sees the frontier of its
//! inputs pass the epoch, freezes, and downgrades in turn.
//!
//! Engine and job manager meet in messages only: the job manager sets a trigger, a completed epoch or
//! the abort flag; the engine answers with [`EngineEvent`]s.

mod control;
mod dataflow;
mod error;
mod event;
mod handle;
mod mesh;
mod parcel;
mod pause;
mod thread;
mod upload;
mod waiting;
mod worker;

pub use control::SharedValues;
pub use error::EngineError;
pub use event::EngineEvent;
pub use handle::{Engine, EngineSpec, Job};
pub use mesh::{Heartbeat, Mesh, PeerSockets};
pub use pause::{PauseHistogram, PauseSnapshot};
pub use thread::run_in_background;
pub use upload::UploadLimits;
