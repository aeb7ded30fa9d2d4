//! What can go wrong at the edge of the protocol, and what to do next.

use millpond_core::{Attempt, Epoch, ErrorKind};
use millpond_storage::{ObjectName, StorageError};

/// An operation on manifests that did not succeed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CheckpointError {
    /// A newer attempt owns the job. This one must stop: it may neither publish nor commit.
    #[error("{ours} is fenced by {} at manifest {sequence}", theirs.map_or("another attempt".to_owned(), |a| a.to_string()))]
    Fenced {
        /// The attempt that wanted to publish.
        ours: Attempt,
        /// The attempt that owns the job, when its manifest could be read.
        theirs: Option<Attempt>,
        /// Sequence number of the manifest that proves it.
        sequence: u64,
    },
    /// The bytes of a manifest are damaged.
    #[error("manifest {object:?} is damaged: {reason}")]
    Damaged {
        /// The object.
        object: ObjectName,
        /// What is wrong with it.
        reason: String,
    },
    /// The newest manifest cannot be used. An older one is not taken silently.
    #[error("newest manifest {object:?} is damaged ({reason}); {}", older_words(*.older))]
    NewestDamaged {
        /// The damaged object.
        object: ObjectName,
        /// What is wrong with it.
        reason: String,
        /// The newest completed epoch that can still be read; restore from it explicitly.
        older: Option<Epoch>,
    },
    /// The manifest was written by a newer Millpond.
    #[error("manifest {object:?} has format version {found}, this program reads up to {supported}")]
    UnsupportedVersion {
        /// The object.
        object: ObjectName,
        /// Its version.
        found: u32,
        /// The newest version that can be read.
        supported: u32,
    },
    /// Manifests of the log have been taken away: a start would silently go back behind them, and write again
    /// what was committed since.
    #[error(
        "the newest manifests of job {job:?} are gone: object {object:?} is of a later attempt than all that are left"
    )]
    LogCut {
        /// The job.
        job: String,
        /// What proves it.
        object: ObjectName,
    },
    /// No manifest of the log holds the epoch.
    #[error("job {job:?} has no retained checkpoint of {epoch}")]
    NoSuchEpoch {
        /// The job.
        job: String,
        /// The epoch that was asked for.
        epoch: Epoch,
    },
    /// There is no manifest where one was named (RS-27).
    #[error("there is no manifest at {object:?}")]
    NoManifest {
        /// The place.
        object: ObjectName,
    },
    /// There is no savepoint where one was named (RS-27).
    #[error("there is no savepoint: it has no object \"savepoint\"")]
    NoSavepoint,
    /// There is a savepoint already where one was to be written.
    #[error("there is a savepoint already")]
    SavepointExists,
    /// Something else lies where a savepoint was to be written or disposed of.
    #[error("{object:?} is there, which is no part of the savepoint")]
    NotEmpty {
        /// What lies there.
        object: ObjectName,
    },
    /// An object that a manifest names is not there.
    #[error("object {object:?} is gone")]
    Gone {
        /// The object.
        object: ObjectName,
    },
    /// An object is not what its manifest says.
    #[error("object {object:?} is damaged: {reason}")]
    DamagedObject {
        /// The object.
        object: ObjectName,
        /// What is wrong with it.
        reason: String,
    },
    /// The manifest may or may not have been written. Ask again with the same manifest.
    #[error("cannot tell whether manifest {object:?} was written: {reason}")]
    Uncertain {
        /// The object.
        object: ObjectName,
        /// What storage said.
        reason: String,
    },
    /// The log moved under every look at it; somebody else is starting this job over and over.
    #[error("gave up starting job {job:?}: the log of manifests moved {looks} times")]
    Contended {
        /// The job.
        job: String,
        /// How often it was looked at.
        looks: u32,
    },
    /// Storage did not let the execution start. Nothing is owned; start again.
    #[error("cannot start job {job:?}: {reason}")]
    NotStarted {
        /// The job.
        job: String,
        /// What storage said.
        reason: String,
    },
    /// A name of a job or operator cannot stand in an object name.
    #[error("{what} {name:?} cannot stand in an object name")]
    Name {
        /// `job` or `operator`.
        what: &'static str,
        /// The refused name.
        name: String,
    },
    /// The manifest handed in does not belong to the right it is published with.
    #[error("manifest of {given} cannot be published with the right of {right}")]
    WrongRight {
        /// Attempt in the manifest.
        given: Attempt,
        /// Attempt of the right.
        right: Attempt,
    },
    /// The manifest could not be turned into bytes.
    #[error("cannot encode the manifest of {epoch}: {reason}")]
    Encode {
        /// Its epoch.
        epoch: Epoch,
        /// What the encoder said.
        reason: String,
    },
    /// Storage failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl CheckpointError {
    /// What to do next.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            CheckpointError::Fenced { .. } => ErrorKind::Fenced,
            CheckpointError::Damaged { .. }
            | CheckpointError::NewestDamaged { .. }
            | CheckpointError::LogCut { .. }
            | CheckpointError::Gone { .. }
            | CheckpointError::DamagedObject { .. } => ErrorKind::Corrupt,
            CheckpointError::UnsupportedVersion { .. }
            | CheckpointError::NoSuchEpoch { .. }
            | CheckpointError::NoManifest { .. }
            | CheckpointError::NoSavepoint
            | CheckpointError::SavepointExists
            | CheckpointError::NotEmpty { .. }
            | CheckpointError::Name { .. } => ErrorKind::Invalid,
            CheckpointError::Uncertain { .. } => ErrorKind::Uncertain,
            CheckpointError::Contended { .. } | CheckpointError::NotStarted { .. } => ErrorKind::Unavailable,
            CheckpointError::WrongRight { .. } | CheckpointError::Encode { .. } => ErrorKind::Bug,
            CheckpointError::Storage(error) => error.kind(),
        }
    }

    /// What is wrong with a manifest that cannot be read, for a sentence that names it already.
    pub(crate) fn without_object(&self) -> String {
        match self {
            CheckpointError::Damaged { reason, .. } => reason.clone(),
            CheckpointError::UnsupportedVersion { found, supported, .. } => {
                format!("it has format version {found}, this program reads up to {supported}")
            }
            other => other.to_string(),
        }
    }
}

fn older_words(older: Option<Epoch>) -> String {
    match older {
        Some(epoch) => format!("{epoch} is the newest that can be read"),
        None => "no older one can be read".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_newest_manifest_says_what_can_still_be_read() {
        let words = |older| {
            let (object, reason) = (ObjectName::new("job/manifests/7").unwrap(), "torn".to_owned());
            CheckpointError::NewestDamaged { object, reason, older }.to_string()
        };
        assert!(words(Some(Epoch(5))).ends_with("(torn); epoch 5 is the newest that can be read"));
        assert!(words(None).ends_with("(torn); no older one can be read"));
    }
}
