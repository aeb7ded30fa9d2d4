//! The words between the coordinator and the edge that drives it.

use std::collections::BTreeSet;
use std::fmt;

use millpond_core::{Attempt, Epoch, ErrorKind};
use millpond_storage::ObjectName;
use serde::{Deserialize, Serialize};

use crate::compaction::{CompactionPlan, CompactionPolicy};
use crate::error::CheckpointError;
use crate::manifest::{Manifest, OperatorPiece, RunRef};
use crate::publisher::Started;

/// How checkpoints are taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Time between two periodic triggers, in milliseconds; `None` for none.
    pub interval_ms: Option<u64>,
    /// Least time between a completion and the next periodic trigger, in milliseconds.
    pub min_pause_ms: u64,
    /// An epoch that is not acknowledged this long after its trigger is aborted; a publication that
    /// is not resolved within it fails the attempt. In milliseconds.
    pub timeout_ms: u64,
    /// Number of epochs that may be in flight, at least 1.
    pub max_concurrent: u32,
    /// Number of consecutive counted failures that the job survives.
    pub tolerable_failures: u32,
    /// Number of completed epochs that are kept, at least 1.
    pub retained: u32,
    /// Pause before a publication of unknown outcome is repeated, in milliseconds.
    pub publish_retry_ms: u64,
    /// With more deletions than this under way, no periodic trigger happens (CR-06).
    pub max_cleanups: u32,
    /// When runs are merged.
    pub compaction: CompactionPolicy,
    /// With more than this beside live state, in percent of it, periodic triggers wait for merges, though not longer
    /// than ten intervals; 0 for never.
    pub excess_limit_percent: u32,
    /// Whether keyed state that operators no longer declare is dropped for good, by merging all runs that
    /// may hold it.
    pub drop_undeclared: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            interval_ms: None,
            min_pause_ms: 0,
            timeout_ms: 600_000,
            max_concurrent: 1,
            tolerable_failures: 0,
            retained: 3,
            publish_retry_ms: 1_000,
            max_cleanups: 4,
            compaction: CompactionPolicy::default(),
            excess_limit_percent: 200,
            drop_undeclared: false,
        }
    }
}

/// One parallel instance of a chain of operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SubtaskId {
    /// Which chain of operators.
    pub chain: u32,
    /// Which instance, from 0.
    pub index: u32,
}

impl fmt::Display for SubtaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "subtask {} of chain {}", self.index, self.chain)
    }
}

/// What the coordinator of one attempt begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Everybody who must acknowledge. The indexes of a chain are `0..parallelism`.
    pub subtasks: BTreeSet<SubtaskId>,
    /// The log of manifests, oldest first; the last one is the attempt's own fence.
    pub log: Vec<Manifest>,
    /// Sequence numbers in the log that cannot be read. As long as one is retained, nothing is
    /// deleted: it might name anything.
    pub unreadable: BTreeSet<u64>,
}

impl Facts {
    /// The facts of a freshly started attempt with these subtasks.
    #[must_use]
    pub fn new(started: &Started, subtasks: BTreeSet<SubtaskId>) -> Facts {
        Facts { subtasks, log: started.log.clone(), unreadable: started.unreadable.iter().copied().collect() }
    }
}

/// Why somebody asks for an epoch now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Reason {
    /// A person or a test wants one.
    Manual,
    /// The job is to stop after it; it can be resumed.
    Stop,
    /// The job is to stop after it, and its operators are told of the end: they emit what they hold.
    Drain,
    /// The job is to end after it: sources have ended, event time goes to its end.
    Final,
}

/// Why an epoch was triggered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TriggerKind {
    /// The interval has passed.
    Periodic,
    /// Somebody asked.
    Manual,
    /// The last one before a stop: subtasks process nothing after their snapshot.
    Stop,
    /// The last one before a stop, after operators have emitted what they hold; input is left.
    Drain,
    /// The last one of all: sources have ended.
    Final,
}

impl TriggerKind {
    /// Whether subtasks process nothing after it.
    #[must_use]
    pub fn is_last(self) -> bool {
        matches!(self, TriggerKind::Stop | TriggerKind::Drain | TriggerKind::Final)
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// Time passes. Needed at least as often as triggers and timeouts are to be noticed.
    Tick,
    /// Somebody wants an epoch as soon as possible.
    TriggerNow(Reason),
    /// All bounded sources have ended: the final epoch follows as soon as nothing prevents it.
    SourcesExhausted,
    /// A subtask has stored its part of an epoch.
    Acknowledged {
        /// Who.
        subtask: SubtaskId,
        /// Which epoch.
        epoch: Epoch,
        /// One for each stateful operator of its chain, even if empty.
        pieces: Vec<OperatorPiece>,
    },
    /// A subtask cannot do its part of an epoch.
    Declined {
        /// Who.
        subtask: SubtaskId,
        /// Which epoch.
        epoch: Epoch,
        /// Why.
        reason: DeclineReason,
    },
    /// A `Publish` has ended.
    PublishFinished {
        /// Which epoch.
        epoch: Epoch,
        /// How.
        outcome: PublishOutcome,
    },
    /// A `Compact` has ended.
    Compacted {
        /// Number of the plan.
        plan: u64,
        /// The outputs, in key order; or what went wrong.
        outcome: Result<Vec<RunRef>, String>,
    },
    /// All objects of the job, as listed by this attempt: orphans among them are to be deleted.
    Found {
        /// Their names.
        existing: Vec<ObjectName>,
    },
    /// A `Delete` has ended, successfully or not.
    CleanupFinished,
    /// A copy for which [`crate::Coordinator::pin`] was called has ended.
    Unpin {
        /// Its sequence number.
        sequence: u64,
    },
    /// The attempt ends: nothing more is decided (CT-17).
    Shutdown,
}

/// Why a subtask cannot do its part.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DeclineReason {
    /// Serialising or uploading failed. Counted.
    Failed(String),
    /// The subtask is not ready, or is closing. Not counted.
    NotReady,
    /// The subtask already took part in a newer epoch. Not counted.
    Superseded,
}

/// How a publication ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PublishOutcome {
    /// The epoch exists.
    Ok,
    /// A newer attempt owns the job.
    Fenced {
        /// Which, if known.
        theirs: Option<Attempt>,
    },
    /// It certainly did not happen.
    Failed(String),
    /// It may have happened or may still happen.
    Uncertain(String),
}

impl PublishOutcome {
    /// What the result of [`crate::Publisher::publish`] means.
    #[must_use]
    pub fn of(result: &Result<(), CheckpointError>) -> PublishOutcome {
        match result {
            Ok(()) => PublishOutcome::Ok,
            Err(CheckpointError::Fenced { theirs, .. }) => PublishOutcome::Fenced { theirs: *theirs },
            Err(error) if error.kind() == ErrorKind::Uncertain => PublishOutcome::Uncertain(error.to_string()),
            Err(error) => PublishOutcome::Failed(error.to_string()),
        }
    }
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Close the epoch at the sources.
    Trigger {
        /// Which epoch.
        epoch: Epoch,
        /// Why.
        kind: TriggerKind,
    },
    /// Publish this manifest and report `PublishFinished`. Only one is under way at a time.
    Publish {
        /// The manifest.
        manifest: Box<Manifest>,
    },
    /// Tell all subtasks that the epoch exists: sinks commit up to it.
    NotifyCompleted {
        /// Which epoch.
        epoch: Epoch,
    },
    /// Tell all subtasks that the epoch will not exist.
    NotifyAborted {
        /// Which epoch.
        epoch: Epoch,
        /// Why.
        reason: AbortReason,
    },
    /// Delete these objects, in this order, and report `CleanupFinished`.
    Delete {
        /// Their names.
        objects: Vec<ObjectName>,
    },
    /// Merge runs and report `Compacted`.
    Compact {
        /// What to merge.
        plan: CompactionPlan,
    },
    /// End the attempt as failed. The coordinator decides nothing any more.
    Fail {
        /// Why.
        reason: FailReason,
    },
    /// The stop or final epoch exists: end the attempt as finished.
    Finished {
        /// The last epoch.
        epoch: Epoch,
        /// Whether the job is at its end, rather than stopped.
        at_end: bool,
    },
}

/// Why an epoch was aborted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum AbortReason {
    /// Not everybody acknowledged in time. Counted.
    #[error("expired after {timeout_ms} ms, {missing} acknowledgements missing")]
    Expired {
        /// The time allowed, in milliseconds.
        timeout_ms: u64,
        /// How many acknowledgements were missing.
        missing: usize,
    },
    /// A subtask declined. Counted when the subtask failed.
    #[error("declined by {subtask}: {reason:?}")]
    Declined {
        /// Who.
        subtask: SubtaskId,
        /// Why.
        reason: DeclineReason,
    },
    /// The manifest could not be written. Counted.
    #[error("cannot publish: {0}")]
    PublishFailed(String),
    /// A later epoch completed first. Not counted.
    #[error("subsumed by {0}")]
    Subsumed(Epoch),
    /// The attempt ends. Not counted.
    #[error("the attempt ends")]
    Shutdown,
}

impl AbortReason {
    /// Whether it counts against the tolerable failures (CF-02).
    #[must_use]
    pub fn is_counted(&self) -> bool {
        match self {
            AbortReason::Expired { .. } | AbortReason::PublishFailed(_) => true,
            AbortReason::Declined { reason, .. } => matches!(reason, DeclineReason::Failed(_)),
            AbortReason::Subsumed(_) | AbortReason::Shutdown => false,
        }
    }
}

/// Why the attempt must end.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum FailReason {
    /// More consecutive failures than tolerated.
    #[error("{failures} checkpoints in a row failed, {tolerated} are tolerated; the last one: {last}")]
    TooManyFailures {
        /// How many.
        failures: u32,
        /// How many are tolerated.
        tolerated: u32,
        /// Why the last one failed.
        last: AbortReason,
    },
    /// A newer attempt owns the job.
    #[error("{ours} is fenced by {}", theirs.map_or("another attempt".to_owned(), |a| a.to_string()))]
    Fenced {
        /// Our attempt.
        ours: Attempt,
        /// Theirs, if known.
        theirs: Option<Attempt>,
    },
    /// It stayed unknown whether an epoch was published; a new attempt finds out.
    #[error("after {waited_ms} ms it is still unknown whether {epoch} was published")]
    PublishUnresolved {
        /// Which epoch.
        epoch: Epoch,
        /// How long was waited, in milliseconds.
        waited_ms: u64,
    },
    /// The epoch of a stop failed: subtasks have stopped and cannot go on (RS-26, CF-04).
    #[error("cannot stop with {epoch}: {reason}")]
    StopFailed {
        /// Which epoch.
        epoch: Epoch,
        /// Why.
        reason: AbortReason,
    },
    /// A subtask broke the rule that an acknowledgement carries all runs since the last epoch known
    /// to be completed.
    #[error("{subtask} added run {object:?} of {of} to {epoch}, after {completed} was completed without it")]
    StrayRun {
        /// Who.
        subtask: SubtaskId,
        /// The run.
        object: ObjectName,
        /// The run's epoch.
        of: Epoch,
        /// The acknowledged epoch.
        epoch: Epoch,
        /// The newest completed epoch.
        completed: Epoch,
    },
}

impl FailReason {
    /// What to do next.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            FailReason::TooManyFailures { .. } | FailReason::StopFailed { .. } => ErrorKind::Unavailable,
            FailReason::Fenced { .. } => ErrorKind::Fenced,
            FailReason::PublishUnresolved { .. } => ErrorKind::Uncertain,
            FailReason::StrayRun { .. } => ErrorKind::Bug,
        }
    }
}
