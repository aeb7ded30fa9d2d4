//! What can go wrong when a job runs here.

use millpond_checkpoint::{CheckpointError, FailReason};
use millpond_core::ErrorKind;
use millpond_core::key_group::ParallelismError;
use millpond_dataflow::GraphError;
use millpond_runtime::{RestoreError, SubtaskError, UploadError};

/// What can go wrong when a job runs in the simulator or the test driver.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The job cannot be built.
    #[error("the job cannot be built")]
    Graph(#[from] GraphError),
    /// The job builds another graph every time.
    #[error("the job function built another graph on worker {worker} than on worker 0")]
    Plan {
        /// The worker that differs.
        worker: u32,
    },
    /// The number of subtasks or key groups is out of bounds.
    #[error(transparent)]
    Parallelism(#[from] ParallelismError),
    /// The job cannot start from its checkpoint.
    #[error("the job cannot start from its checkpoint")]
    Restore(#[from] RestoreError),
    /// An operator failed.
    #[error(transparent)]
    Subtask(#[from] SubtaskError),
    /// A snapshot could not be stored.
    #[error("a snapshot could not be stored")]
    Upload(#[from] UploadError),
    /// The log of checkpoints could not be read or written.
    #[error("checkpoint storage")]
    Checkpoint(#[from] CheckpointError),
    /// The coordinator gave up.
    #[error("checkpointing failed: {0}")]
    Checkpointing(FailReason),
    /// The job does not come to rest.
    #[error("the job is not at rest after {steps} steps")]
    Restless {
        /// How many steps were made.
        steps: u64,
    },
    /// The end of the input waits for work that operators have elsewhere, and that does not come to an end.
    #[error("operators have waited longer than {seconds} s for work that is done elsewhere")]
    Waiting {
        /// How long, in seconds.
        seconds: u64,
    },
    /// Something was asked of a job that has ended or failed.
    #[error("the job has ended")]
    Ended,
    /// There is no such operator or keyed state, or its key has another type.
    #[error("operator {operator:?} has no keyed state {state:?} with these types")]
    NoSuchState {
        /// The operator.
        operator: String,
        /// The state.
        state: String,
    },
    /// A state could not be read.
    #[error("cannot read state")]
    State(#[from] millpond_state::StateError),
    /// A rule of the network between subtasks was broken.
    #[error("{0}")]
    Network(String),
}

impl SimError {
    /// What to do next.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            SimError::Graph(error) => error.kind(),
            SimError::Parallelism(error) => error.kind(),
            SimError::Restore(error) => error.kind(),
            SimError::Subtask(error) => error.kind(),
            SimError::Upload(error) => error.kind(),
            SimError::Checkpoint(error) => error.kind(),
            SimError::Checkpointing(reason) => reason.kind(),
            SimError::State(error) => error.kind(),
            SimError::Plan { .. } | SimError::Ended | SimError::NoSuchState { .. } | SimError::Restless { .. } => {
                ErrorKind::Invalid
            }
            SimError::Waiting { .. } => ErrorKind::Unavailable,
            SimError::Network(_) => ErrorKind::Bug,
        }
    }
}
