//! Why a job failed.

use millpond_checkpoint::{CheckpointError, FailReason};
use millpond_core::ErrorKind;
use millpond_core::key_group::ParallelismError;
use millpond_engine::EngineError;

/// Why a job failed.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// Something went wrong in the running job.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A checkpoint could not be read, or the job not be claimed.
    #[error("checkpoint storage")]
    Checkpoint(#[from] CheckpointError),
    /// Checkpointing went so wrong that the attempt had to end.
    #[error("checkpointing failed: {0}")]
    Checkpointing(FailReason),
    /// A number of workers or key groups that cannot be.
    #[error(transparent)]
    Parallelism(#[from] ParallelismError),
    /// A thread of the job manager could not be started.
    #[error("cannot start a thread of the job manager")]
    Thread(#[source] std::io::Error),
    /// The restart budget is used up.
    #[error("the job failed again after {restarts} restarts; the last failure")]
    Exhausted {
        /// How often it was restarted.
        restarts: u32,
        /// The last failure.
        #[source]
        last: Box<JobError>,
    },
    /// Somebody asked the job to stop while it waited for a restart.
    #[error("stopped while waiting for a restart; the failure before")]
    StoppedWhileFailing {
        /// The last failure.
        #[source]
        last: Box<JobError>,
    },
    /// The engine ended without saying why.
    #[error("the engine ended without a reason")]
    Silent,
}

impl JobError {
    /// What to do next.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            JobError::Engine(error) => error.kind(),
            JobError::Checkpoint(error) => error.kind(),
            JobError::Checkpointing(FailReason::Fenced { .. }) => ErrorKind::Fenced,
            JobError::Checkpointing(_) | JobError::Thread(_) => ErrorKind::Unavailable,
            JobError::Parallelism(error) => error.kind(),
            JobError::Exhausted { last, .. } | JobError::StoppedWhileFailing { last } => last.kind(),
            JobError::Silent => ErrorKind::Bug,
        }
    }

    /// Whether another attempt may succeed where this one failed.
    #[must_use]
    pub fn is_restartable(&self) -> bool {
        matches!(self.kind(), ErrorKind::Unavailable | ErrorKind::Uncertain | ErrorKind::Bug)
    }
}
