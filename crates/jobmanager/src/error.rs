//! Why a job failed.

use std::path::PathBuf;

use millpond_checkpoint::{CheckpointError, FailReason};
use millpond_cluster::{ClusterError, TlsError};
use millpond_core::key_group::ParallelismError;
use millpond_core::{Epoch, ErrorKind};
use millpond_engine::EngineError;
use millpond_runtime::{Cause, RestoreError, SubtaskError};
use millpond_state::ColdError;

use crate::settings::Backend;

/// Why a job failed.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// Something went wrong in the running job.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A checkpoint could not be read, or the job not be claimed.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// Checkpointing went so wrong that the attempt had to end.
    #[error("checkpointing failed: {0}")]
    Checkpointing(FailReason),
    /// The object to start from is no manifest of the job.
    #[error("{object:?} is no manifest of job {job:?}")]
    NotAManifest {
        /// The object.
        object: String,
        /// The job.
        job: String,
    },
    /// The manifest to start from holds an epoch that was taken again after a start from an older one.
    #[error(
        "manifest {object:?} holds an {epoch} that was given up; the {epoch} of the job is that of manifest {newer}"
    )]
    OlderHistory {
        /// The object.
        object: String,
        /// Its epoch.
        epoch: Epoch,
        /// The newer manifest with this epoch.
        newer: u64,
    },
    /// The job is to start from elsewhere, and was not told where that is.
    #[error("the job is to start from {object:?} elsewhere, and has no storage to find it in")]
    NoOrigin {
        /// The manifest.
        object: String,
    },
    /// Only a savepoint can be claimed, and only by a job that keeps checkpoints.
    #[error("{object:?} cannot be claimed: {reason}")]
    Unclaimable {
        /// The manifest.
        object: String,
        /// Why.
        reason: &'static str,
    },
    /// The job was to stop with a savepoint, which could not be written: it must not end (RS-26).
    #[error("cannot stop: the savepoint could not be written")]
    StopWithoutSavepoint {
        /// What went wrong.
        #[source]
        source: CheckpointError,
    },
    /// The settings ask for a backend that this program was built without.
    #[error("this program was built without the backend {backend}")]
    NoBackend {
        /// The backend.
        backend: Backend,
    },
    /// The processes of the job do not come together.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// Another process of the job is lost.
    #[error("process {process} at {address} is lost: {reason}")]
    Lost {
        /// Its index.
        process: u32,
        /// Its address.
        address: String,
        /// How that was noticed.
        reason: String,
    },
    /// Something went wrong in another process of the job.
    #[error("process {process}: {reason}")]
    Member {
        /// Its index.
        process: u32,
        /// The class of the failure.
        kind: ErrorKind,
        /// What it said, with all causes.
        reason: String,
    },
    /// The leading process has ended the job with an error.
    #[error("process 0 has ended the job: {reason}")]
    Ended {
        /// The class of the failure.
        kind: ErrorKind,
        /// What it said, with all causes.
        reason: String,
    },
    /// A process does not see the checkpoints of the leading process.
    #[error(
        "{location} does not hold the checkpoints of process 0: all processes must reach the same checkpoint storage"
    )]
    NotShared {
        /// The storage of this process.
        location: String,
    },
    /// State that memory does not hold has no place.
    #[error(transparent)]
    Cold(#[from] ColdError),
    /// A number of workers or key groups that cannot be.
    #[error(transparent)]
    Parallelism(#[from] ParallelismError),
    /// A thread of the job manager could not be started.
    #[error("cannot start a thread of the job manager")]
    Thread(#[source] std::io::Error),
    /// The directory for local copies of checkpoints cannot be had.
    #[error("cannot keep local copies of checkpoints in {}", directory.display())]
    LocalCopies {
        /// The directory.
        directory: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The restart budget is used up.
    #[error("the job failed again after {restarts} restarts; the last failure")]
    Exhausted {
        /// How often it was restarted.
        restarts: u32,
        /// The last failure.
        #[source]
        last: Box<JobError>,
    },
    /// A job without checkpoints could not commit all of its output.
    #[error(
        "the output is complete but only partly committed, and without checkpoints a restart would write it \
         again; what is left uncommitted stays in prepared files"
    )]
    PartlyCommitted {
        /// What went wrong.
        #[source]
        source: Box<JobError>,
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
            JobError::PartlyCommitted { .. } | JobError::StopWithoutSavepoint { .. } => ErrorKind::Unavailable,
            JobError::Engine(error) => error.kind(),
            JobError::Checkpoint(error) => error.kind(),
            JobError::NotAManifest { .. }
            | JobError::OlderHistory { .. }
            | JobError::NoOrigin { .. }
            | JobError::NoBackend { .. }
            | JobError::Unclaimable { .. } => ErrorKind::Invalid,
            JobError::Cluster(error) => error.kind(),
            JobError::Lost { .. } => ErrorKind::Unavailable,
            JobError::Member { kind, .. } | JobError::Ended { kind, .. } => *kind,
            JobError::NotShared { .. } => ErrorKind::Invalid,
            JobError::Cold(error) => error.kind(),
            JobError::Checkpointing(reason) => reason.kind(),
            JobError::Thread(_) | JobError::LocalCopies { .. } => ErrorKind::Unavailable,
            JobError::Parallelism(error) => error.kind(),
            JobError::Exhausted { last, .. } => last.kind(),
            JobError::Silent => ErrorKind::Bug,
        }
    }

    /// Whether TLS is asked for in a program that was built without it.
    #[must_use]
    pub fn is_tls_not_built(&self) -> bool {
        matches!(self, JobError::Cluster(ClusterError::Tls(TlsError::NotBuilt)))
    }

    /// Whether the checkpoint holds state that the job does not know; it may be dropped.
    #[must_use]
    pub fn is_unknown_state(&self) -> bool {
        let error = self.restore_error();
        matches!(error, Some(RestoreError::UnknownOperator { .. } | RestoreError::UnknownState { .. }))
    }

    /// Whether the error is about stored checkpoints, rather than the job's input or output.
    #[must_use]
    pub fn is_about_a_checkpoint(&self) -> bool {
        matches!(self, JobError::Checkpoint(_)) || self.restore_error().is_some()
    }

    fn restore_error(&self) -> Option<&RestoreError> {
        match self {
            JobError::Engine(EngineError::Restore(error)) => Some(error),
            JobError::Engine(EngineError::Subtask(SubtaskError { cause: Cause::Error(error), .. })) => {
                error.downcast_ref()
            }
            JobError::Exhausted { last, .. } => last.restore_error(),
            _ => None,
        }
    }

    /// Whether another attempt may succeed where this one failed.
    #[must_use]
    pub fn is_restartable(&self) -> bool {
        let may_pass = matches!(self.kind(), ErrorKind::Unavailable | ErrorKind::Uncertain | ErrorKind::Bug);
        may_pass && !matches!(self, JobError::PartlyCommitted { .. })
    }
}
