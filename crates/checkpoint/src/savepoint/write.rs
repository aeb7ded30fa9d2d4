//! Writing a savepoint: copy everything, then create its manifest.

use std::collections::BTreeSet;

use millpond_core::Epoch;
use millpond_storage::{ObjectName, Storage, StorageError};
use serde::Serialize;

use super::copy::{Copying, contents, copy_all};
use super::{Savepoint, manifest_name};
use crate::error::CheckpointError;
use crate::manifest::Manifest;

/// How often the manifest is created when the answer is lost.
const CREATE_TRIES: u32 = 3;

/// A savepoint that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SavepointReport {
    /// The epoch that it holds.
    pub epoch: Epoch,
    /// Objects in it, its manifest not counted.
    pub objects: u64,
    /// Their size, in bytes.
    pub bytes: u64,
}

/// Whether a savepoint can be written to `target`: it must be empty, or hold nothing but part of the
/// same savepoint.
///
/// # Errors
/// [`CheckpointError::SavepointExists`] or [`CheckpointError::NotEmpty`] when it cannot; else when
/// storage fails.
pub fn check_target<T: Storage>(target: &T) -> Result<(), CheckpointError> {
    check_empty(target, &BTreeSet::new())
}

fn check_empty<T: Storage>(target: &T, expected: &BTreeSet<&ObjectName>) -> Result<(), CheckpointError> {
    let manifest = manifest_name();
    let listed = target.list("")?;
    if listed.iter().any(|info| info.name == manifest) {
        return Err(CheckpointError::SavepointExists);
    }
    match listed.into_iter().find(|info| !expected.contains(&info.name)) {
        Some(info) => Err(CheckpointError::NotEmpty { object: info.name }),
        None => Ok(()),
    }
}

/// Writes a savepoint of `manifest` to `target`; the names of its objects in `source` begin with
/// `prefix`. *Atomic*: there is a savepoint once its manifest is created, which happens last, and of two
/// writers one wins. What a failed call has made is deleted again as far as possible.
///
/// # Errors
/// [`CheckpointError::Gone`] when an object is no longer there: the epoch was subsumed meanwhile, take a
/// newer one. [`CheckpointError::DamagedObject`] when one is not what the manifest says.
/// [`CheckpointError::SavepointExists`] and [`CheckpointError::NotEmpty`] when `target` is in use;
/// [`CheckpointError::Uncertain`] when the savepoint may exist. Else when storage fails.
pub fn write<S: Storage, T: Storage>(
    source: &S,
    manifest: &Manifest,
    prefix: &str,
    target: &T,
    written_ms: i64,
) -> Result<SavepointReport, CheckpointError> {
    let savepoint = Savepoint::of(manifest, prefix, written_ms)?;
    let bytes = savepoint.encode()?;
    let pairs = contents(&manifest.operators).zip(contents(&savepoint.operators));
    let copies: Vec<Copying> =
        pairs.map(|((from, stated), (to, _))| Copying { from: from.clone(), to: to.clone(), stated }).collect();
    check_empty(target, &copies.iter().map(|copying| &copying.to).collect())?;
    let mut made = Vec::new();
    let outcome = copy_all(source, target, &copies, &mut made).and_then(|()| create_manifest(target, &bytes));
    match outcome {
        Ok(()) => Ok(SavepointReport {
            epoch: savepoint.epoch,
            objects: copies.len() as u64,
            bytes: copies.iter().map(|copying| copying.stated.bytes).fold(0, u64::saturating_add),
        }),
        // The savepoint may exist, by us or by another: then it needs what was copied.
        Err(error @ (CheckpointError::Uncertain { .. } | CheckpointError::SavepointExists)) => Err(error),
        Err(error) => {
            for object in &made {
                let _ = target.delete(object);
            }
            Err(error)
        }
    }
}

fn create_manifest<T: Storage>(target: &T, bytes: &[u8]) -> Result<(), CheckpointError> {
    let object = manifest_name();
    let mut reason = String::new();
    for attempt in 0..CREATE_TRIES {
        match target.create(&object, bytes) {
            Ok(()) => return Ok(()),
            Err(StorageError::AlreadyExists { .. }) => {
                let found = target.read(&object);
                return match found {
                    Ok(found) if found == bytes && attempt > 0 => Ok(()),
                    Ok(_) => Err(CheckpointError::SavepointExists),
                    Err(error) => Err(CheckpointError::Uncertain { object, reason: error.to_string() }),
                };
            }
            Err(error) if error.kind() == millpond_core::ErrorKind::Uncertain => reason = error.to_string(),
            Err(error) if attempt == 0 => return Err(error.into()),
            Err(error) => reason = error.to_string(),
        }
    }
    Err(CheckpointError::Uncertain { object, reason })
}
