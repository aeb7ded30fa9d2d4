//! Savepoints: a checkpoint by itself, which its owner may keep, copy and move.
//!
//! A savepoint is a storage (a directory, a prefix) of its own: one manifest, called `savepoint`, and all
//! runs and blobs that it names, with names relative to it. Nothing in it refers to the job's log, and no
//! job ever deletes from it, unless it was told to claim it.
//!
//! Owns what a savepoint says, its bytes (`docs/formats/savepoint.md`), and the copies into and out of
//! one. Does *not* own when one is taken or restored (see `jobmanager`).
//!
//! ```text
//! checkpoint → write: copy every object, checked → create `savepoint`  (the one commit point)
//! import: copy every object under the job's own names → fence with that content  (the one commit point)
//! ```
//!
//! Invariants: the manifest is written last, so that what has none is no savepoint; every copied byte was
//! compared with the checksum in the manifest; a copy that ends early leaves nothing that counts.

mod copy;
mod import;
mod shelf;
mod write;

use millpond_core::{Attempt, Epoch};
use millpond_storage::{ObjectName, Storage, StorageError};
use serde::{Deserialize, Serialize};

use crate::error::CheckpointError;
use crate::format::{frame, unframe};
use crate::log::WriterId;
use crate::manifest::{Blob, Manifest, ManifestKind, OperatorManifest, operators_fault};
pub(crate) use import::Import;
pub use shelf::{Shelved, dispose, is_savepoint_object, list};
pub use write::{SavepointReport, check_target, write};

/// The version that is written, and the newest that is read.
pub const VERSION: u32 = 1;
/// Name of the manifest inside a savepoint.
pub const MANIFEST_NAME: &str = "savepoint";
const MAGIC: &str = "millpond-savepoint";

/// What a savepoint says: everything needed to restore.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Savepoint {
    /// Name of the job that it was taken of.
    pub job: String,
    /// Version of Millpond that wrote it.
    pub millpond_version: String,
    /// The epoch that it holds.
    pub epoch: Epoch,
    /// The execution that took the epoch.
    pub attempt: Attempt,
    /// When the epoch was triggered, in milliseconds since 1970 UTC.
    pub created_ms: i64,
    /// When the savepoint was written, in milliseconds since 1970 UTC.
    pub written_ms: i64,
    /// Whether the job had finished with this epoch.
    pub finished: bool,
    /// Number of key groups.
    pub max_parallelism: u32,
    /// State, per operator, sorted by name; names of objects are relative to the savepoint.
    pub operators: Vec<OperatorManifest>,
}

impl Savepoint {
    /// The savepoint of `manifest`, whose objects' names begin with `prefix`.
    ///
    /// # Errors
    /// [`CheckpointError::Encode`] when an object is called otherwise.
    pub fn of(manifest: &Manifest, prefix: &str, written_ms: i64) -> Result<Savepoint, CheckpointError> {
        let mut operators = manifest.operators.clone();
        rename(&mut operators, |_, object| {
            let relative = object.as_str().strip_prefix(prefix).and_then(|below| ObjectName::new(below).ok());
            relative.filter(is_savepoint_object).ok_or_else(|| CheckpointError::Encode {
                epoch: manifest.epoch,
                reason: format!("object {object} does not lie below {prefix:?}"),
            })
        })?;
        Ok(Savepoint {
            job: manifest.job.clone(),
            millpond_version: env!("CARGO_PKG_VERSION").to_owned(),
            epoch: manifest.epoch,
            attempt: manifest.attempt,
            created_ms: manifest.created_ms,
            written_ms,
            finished: manifest.finished,
            max_parallelism: manifest.max_parallelism,
            operators,
        })
    }

    /// The savepoint in `storage`.
    ///
    /// # Errors
    /// [`CheckpointError::NoSavepoint`] when there is none, [`CheckpointError::Damaged`] or
    /// [`CheckpointError::UnsupportedVersion`] when it cannot be read; else when storage fails.
    pub fn read<S: Storage>(storage: &S) -> Result<Savepoint, CheckpointError> {
        let object = manifest_name();
        match storage.read(&object) {
            Ok(bytes) => Savepoint::decode(&bytes),
            Err(StorageError::NotFound { .. }) => Err(CheckpointError::NoSavepoint),
            Err(other) => Err(other.into()),
        }
    }

    /// The same as a manifest: its objects lie in the savepoint's own storage.
    #[must_use]
    pub fn to_manifest(&self) -> Manifest {
        Manifest {
            job: self.job.clone(),
            millpond_version: self.millpond_version.clone(),
            sequence: 1,
            retained_from: 1,
            attempt: self.attempt,
            writer: WriterId(0),
            kind: ManifestKind::Checkpoint,
            epoch: self.epoch,
            created_ms: self.created_ms,
            duration_ms: 0,
            finished: self.finished,
            committed: false,
            max_parallelism: self.max_parallelism,
            operators: self.operators.clone(),
        }
    }

    /// Its bytes.
    ///
    /// # Errors
    /// [`CheckpointError::Encode`] when it is impossible.
    pub fn encode(&self) -> Result<Vec<u8>, CheckpointError> {
        let refused = |reason| CheckpointError::Encode { epoch: self.epoch, reason };
        match self.fault() {
            Some(reason) => Err(refused(reason)),
            None => frame(MAGIC, VERSION, self).map_err(refused),
        }
    }

    /// Reads the bytes of a savepoint's manifest.
    ///
    /// # Errors
    /// [`CheckpointError::Damaged`] when anything does not fit, [`CheckpointError::UnsupportedVersion`]
    /// when it was written by a newer Millpond.
    pub fn decode(bytes: &[u8]) -> Result<Savepoint, CheckpointError> {
        let object = manifest_name();
        let savepoint: Savepoint = unframe(MAGIC, VERSION, &object, bytes)?;
        match savepoint.fault() {
            Some(reason) => Err(CheckpointError::Damaged { object, reason }),
            None => Ok(savepoint),
        }
    }

    fn fault(&self) -> Option<String> {
        let stray =
            self.operators.iter().flat_map(OperatorManifest::objects).find(|object| !is_savepoint_object(object));
        if let Some(object) = stray {
            return Some(format!("object {object} cannot lie in a savepoint"));
        }
        operators_fault(&self.operators, self.max_parallelism, self.epoch)
    }
}

/// The name of a savepoint's manifest.
#[must_use]
pub fn manifest_name() -> ObjectName {
    ObjectName::new(MANIFEST_NAME).expect("the name is a plain word")
}

/// What an object holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Run,
    Blob,
}

/// Gives every object of `operators` another name.
fn rename(
    operators: &mut [OperatorManifest],
    mut to: impl FnMut(Part, &ObjectName) -> Result<ObjectName, CheckpointError>,
) -> Result<(), CheckpointError> {
    for operator in operators {
        for run in &mut operator.runs {
            run.object = to(Part::Run, &run.object)?;
        }
        for blob in operator.subtasks.iter_mut().flatten() {
            if let Blob::Object { object, .. } = blob {
                *object = to(Part::Blob, object)?;
            }
        }
    }
    Ok(())
}
