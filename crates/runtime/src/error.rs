//! What can end a subtask, and where.

use std::fmt;

use millpond_checkpoint::CheckpointError;
use millpond_core::error::{Classified, chain};
use millpond_core::{ErrorKind, UserError};
use millpond_runs::RunError;
use millpond_state::StateError;
use millpond_storage::StorageError;

/// Why user code or an operator failed.
#[derive(Debug)]
pub enum Cause {
    /// It returned an error.
    Error(UserError),
    /// It panicked with this message.
    Panic(String),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Error(error) => f.write_str(&chain(error.as_ref())),
            Cause::Panic(message) => write!(f, "panicked: {message}"),
        }
    }
}

/// An operator's subtask failed: the attempt ends.
#[derive(Debug, thiserror::Error)]
#[error("operator {operator:?}, subtask {index} of {parallelism}, while {doing}: {cause}")]
pub struct SubtaskError {
    /// The operator.
    pub operator: String,
    /// Which parallel instance.
    pub index: u32,
    /// Out of how many.
    pub parallelism: u32,
    /// What it was doing.
    pub doing: &'static str,
    /// What went wrong.
    pub cause: Cause,
}

impl SubtaskError {
    /// A state error of the wrong kind of state will not go away by trying again; the rest may.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match &self.cause {
            Cause::Error(error) => error_kind(error.as_ref()),
            Cause::Panic(_) => ErrorKind::Unavailable,
        }
    }
}

/// The class of a user-facing error, when it is one of ours.
fn error_kind(error: &(dyn std::error::Error + 'static)) -> ErrorKind {
    if let Some(error) = error.downcast_ref::<Classified>() {
        error.kind()
    } else if let Some(error) = error.downcast_ref::<StateError>() {
        error.kind()
    } else if let Some(error) = error.downcast_ref::<RestoreError>() {
        error.kind()
    } else {
        ErrorKind::Unavailable
    }
}

/// A checkpoint that the job cannot start from.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The checkpoint holds state of an operator that the job does not have (RS-11).
    #[error(
        "the checkpoint of {epoch} holds state of operator {operator:?}, which the job does not have; \
         rename the operator back, or allow its state to be dropped"
    )]
    UnknownOperator {
        /// The operator.
        operator: String,
        /// Of which checkpoint.
        epoch: millpond_core::Epoch,
    },
    /// The job has another number of key groups than the checkpoint (RS-07).
    #[error("the checkpoint has max parallelism {stored}, the job asks for {given}; it never changes for a job")]
    MaxParallelism {
        /// In the checkpoint.
        stored: u32,
        /// What the job asks for.
        given: u32,
    },
    /// The job runs with more subtasks than there are key groups (RS-06).
    #[error("parallelism {given} is above the max parallelism {stored} of the checkpoint")]
    Parallelism {
        /// In the checkpoint.
        stored: u32,
        /// What the job asks for.
        given: u32,
    },
    /// State in the checkpoint that the operator no longer declares.
    #[error(
        "the checkpoint holds state {state:?} of operator {operator:?}, which the operator does not declare; \
         declare it, or allow it to be dropped"
    )]
    UnknownState {
        /// The operator.
        operator: String,
        /// The state.
        state: String,
    },
    /// A data file could not be read.
    #[error("operator {operator:?}: cannot read run {object}")]
    Run {
        /// The operator.
        operator: String,
        /// The object.
        object: String,
        /// What went wrong.
        #[source]
        source: RunError,
    },
    /// An object is not the one that the manifest describes.
    #[error("operator {operator:?}: object {object} is damaged: {reason}")]
    OtherObject {
        /// The operator.
        operator: String,
        /// The object.
        object: String,
        /// In which way it differs.
        reason: String,
    },
    /// Storage failed.
    #[error("operator {operator:?}: cannot read {object}")]
    Storage {
        /// The operator.
        operator: String,
        /// The object.
        object: String,
        /// What went wrong.
        #[source]
        source: StorageError,
    },
    /// State could not be put back.
    #[error("operator {operator:?}: cannot restore its state")]
    State {
        /// The operator.
        operator: String,
        /// What went wrong.
        #[source]
        source: StateError,
    },
    /// The checkpoint protocol failed.
    #[error("cannot read the checkpoint")]
    Checkpoint(#[from] CheckpointError),
}

impl RestoreError {
    /// What to do next.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            RestoreError::UnknownOperator { .. }
            | RestoreError::MaxParallelism { .. }
            | RestoreError::Parallelism { .. }
            | RestoreError::UnknownState { .. } => ErrorKind::Invalid,
            RestoreError::OtherObject { .. } => ErrorKind::Corrupt,
            RestoreError::Run { source, .. } => source.kind(),
            RestoreError::Storage { source, .. } => source.kind(),
            RestoreError::State { source, .. } => source.kind(),
            RestoreError::Checkpoint(source) => source.kind(),
        }
    }
}
