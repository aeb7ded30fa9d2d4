//! Finding savepoints, and throwing them away.

use millpond_storage::{ObjectName, Storage, StorageError};

use super::{MANIFEST_NAME, Savepoint, manifest_name};
use crate::error::CheckpointError;

/// A savepoint that was found.
#[derive(Clone, Debug)]
pub struct Shelved {
    /// Where its manifest lies in the storage that was searched, without the manifest's own name; empty
    /// when the storage itself is the savepoint.
    pub place: String,
    /// What it says, or why it cannot be read.
    pub savepoint: Result<Savepoint, CheckpointError>,
}

/// Whether an object with this name may lie in a savepoint, apart from its manifest.
#[must_use]
pub fn is_savepoint_object(object: &ObjectName) -> bool {
    matches!(object.as_str().split_once('/'), Some(("runs" | "blobs", below)) if below.contains('/'))
}

/// All savepoints in `storage` and below, sorted by place, damaged ones included.
///
/// # Errors
/// When storage cannot be listed.
pub fn list<S: Storage>(storage: &S) -> Result<Vec<Shelved>, CheckpointError> {
    let mut found = Vec::new();
    for info in storage.list("")? {
        let name = info.name.as_str();
        let place = match name.rsplit_once('/') {
            None if name == MANIFEST_NAME => "",
            Some((place, MANIFEST_NAME)) => place,
            _ => continue,
        };
        let savepoint = match storage.read(&info.name) {
            Ok(bytes) => Savepoint::decode(&bytes),
            // Disposed of since it was listed.
            Err(StorageError::NotFound { .. }) => continue,
            Err(other) => Err(other.into()),
        };
        found.push(Shelved { place: place.to_owned(), savepoint });
    }
    Ok(found)
}

/// Deletes the savepoint in `storage`, whole or half-written: the manifest first, so that it never exists
/// without something that it names. Returns how many objects went.
///
/// # Errors
/// [`CheckpointError::NotEmpty`] when something else lies there, before anything is deleted;
/// [`CheckpointError::NoSavepoint`] when nothing lies there; else when storage fails: call again.
pub fn dispose<S: Storage>(storage: &S) -> Result<u64, CheckpointError> {
    let manifest = manifest_name();
    let listed = storage.list("")?;
    if let Some(foreign) = listed.iter().find(|info| info.name != manifest && !is_savepoint_object(&info.name)) {
        return Err(CheckpointError::NotEmpty { object: foreign.name.clone() });
    }
    if listed.is_empty() {
        return Err(CheckpointError::NoSavepoint);
    }
    storage.delete(&manifest)?;
    for info in listed.iter().filter(|info| info.name != manifest) {
        storage.delete(&info.name)?;
    }
    Ok(listed.len() as u64)
}
