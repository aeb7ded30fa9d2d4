//! What the engine tells the job manager.

use std::collections::BTreeSet;

use millpond_checkpoint::{OperatorPiece, SubtaskId};
use millpond_core::{Epoch, ErrorKind};

use crate::error::EngineError;

/// What the engine tells the job manager.
#[derive(Debug)]
pub enum EngineEvent {
    /// All subtasks of this process are open and restored; records flow.
    Running {
        /// Everybody who will acknowledge, in all processes.
        subtasks: BTreeSet<SubtaskId>,
    },
    /// A subtask's part of an epoch is stored.
    Acknowledged {
        /// Who.
        subtask: SubtaskId,
        /// Which epoch.
        epoch: Epoch,
        /// What it stored.
        pieces: Vec<OperatorPiece>,
    },
    /// A subtask's part of an epoch could not be stored.
    Declined {
        /// Who.
        subtask: SubtaskId,
        /// Which epoch.
        epoch: Epoch,
        /// The class of the failure.
        kind: ErrorKind,
        /// What went wrong, with all causes.
        reason: String,
    },
    /// An operator wants a checkpoint before its time.
    CheckpointWanted,
    /// All sources of this process have nothing more to give; told at once by one of several processes that has no source.
    SourcesExhausted,
    /// The attempt has failed; all workers stop.
    Failed(EngineError),
}
