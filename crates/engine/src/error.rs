//! Why an attempt failed in the engine.

use millpond_core::ErrorKind;
use millpond_dataflow::GraphError;
use millpond_runtime::{RestoreError, SubtaskError};

/// Why an attempt failed in the engine.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The job cannot be built.
    #[error("the job cannot be built")]
    Graph(#[from] GraphError),
    /// The job cannot start from its checkpoint.
    #[error("the job cannot start from its checkpoint")]
    Restore(#[from] RestoreError),
    /// An operator failed.
    #[error(transparent)]
    Subtask(#[from] SubtaskError),
    /// The job function builds different graphs on different workers.
    #[error(
        "the job function built different graphs: on one worker {first:?}, on worker {worker} {other:?}; \
         it must build the same one every time"
    )]
    Plan {
        /// The worker that differs.
        worker: usize,
        /// The first line of the plan in which they differ, on the worker that was first.
        first: String,
        /// The same line on the other worker.
        other: String,
    },
    /// The parallelism is out of bounds.
    #[error(transparent)]
    Parallelism(#[from] millpond_core::key_group::ParallelismError),
    /// Worker threads could not be started.
    #[error("cannot start {workers} worker threads: {reason}")]
    Start {
        /// How many.
        workers: u32,
        /// What the engine underneath said.
        reason: String,
    },
    /// Snapshots of checkpoints that failed wait for storage and take too much memory.
    #[error(
        "{waiting} bytes of snapshots of failed checkpoints wait for {store}, {limit} are allowed (upload-kept-bytes)"
    )]
    UploadsBehind {
        /// Bytes that wait.
        waiting: u64,
        /// How many are allowed.
        limit: u64,
        /// The storage.
        store: String,
    },
    /// Another process of the job is lost.
    #[error("process {process} is lost: {reason}")]
    Peer {
        /// Its index.
        process: u32,
        /// How that was noticed.
        reason: String,
    },
    /// A worker thread panicked outside user code.
    #[error("worker {worker} panicked outside user code: {message}")]
    Worker {
        /// Which.
        worker: usize,
        /// The panic's message.
        message: String,
    },
}

impl EngineError {
    /// What to do next.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            EngineError::Graph(error) => error.kind(),
            EngineError::Restore(error) => error.kind(),
            EngineError::Subtask(error) => error.kind(),
            EngineError::Plan { .. } => ErrorKind::Invalid,
            EngineError::Parallelism(error) => error.kind(),
            EngineError::Start { .. } | EngineError::UploadsBehind { .. } | EngineError::Peer { .. } => {
                ErrorKind::Unavailable
            }
            EngineError::Worker { .. } => ErrorKind::Bug,
        }
    }
}
