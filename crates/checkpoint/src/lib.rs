//! The checkpoint protocol: pure decisions, and one thin edge that writes.
//!
//! Owns the manifest and its file format, the names of all objects of a job, the log of manifests
//! with its fencing, savepoints, the coordinator, the planning of compactions and the choice of garbage. Does
//! *not* own the content of data files, the way to the subtasks, or any thread, clock or chance.
//!
//! An epoch passes through like this: [`Coordinator`] says `Trigger`, collects acknowledgements,
//! builds a [`Manifest`] and says `Publish`; [`Publisher::publish`] creates the next object of the
//! log, which is the one commit point; the coordinator hears the outcome and says
//! `NotifyCompleted`, then `Delete` for what no retained manifest names any more.
//!
//! Invariants: one manifest per sequence number; attempts never fall and epochs of an attempt
//! always grow along the log; a manifest names every run that its epoch needs; nothing that a
//! retained manifest names is deleted. The argument is in `docs/decisions/0001-manifest-log.md`,
//! the bytes are in `docs/formats/manifest.md`.

pub mod compaction;
pub mod coordinator;
pub mod error;
pub mod format;
pub mod garbage;
pub mod history;
pub mod log;
pub mod manifest;
pub mod names;
pub mod publisher;
pub mod savepoint;

pub use compaction::{CompactionPlan, CompactionPolicy, Excess};
pub use coordinator::Coordinator;
pub use coordinator::protocol::{
    AbortReason, Action, DeclineReason, Event, Facts, FailReason, PublishOutcome, Reason, Settings, SubtaskId,
    TriggerKind,
};
pub use error::CheckpointError;
pub use history::{Entry, History};
pub use log::WriterId;
pub use manifest::{
    Blob, KeyedStateInfo, Manifest, ManifestKind, OperatorManifest, OperatorPiece, RunRef, Stated, Whole,
};
pub use names::{DataObject, JobObject, Names, Writer};
pub use publisher::{PublishRight, Publisher, RestoreFrom, Started};
pub use savepoint::{Savepoint, SavepointReport};
