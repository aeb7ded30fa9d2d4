//! Copies objects from one storage to another, each compared with its checksum.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use millpond_storage::{ObjectName, Storage, StorageError};

use crate::error::CheckpointError;
use crate::manifest::{Blob, OperatorManifest, Stated};

/// Copies under way at once, at most: each holds one object in memory.
const COPIES: usize = 4;

/// An object to copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Copying {
    pub(super) from: ObjectName,
    pub(super) to: ObjectName,
    pub(super) stated: Stated,
}

/// The objects of `operators` with what each must be.
pub(super) fn contents(operators: &[OperatorManifest]) -> impl Iterator<Item = (&ObjectName, Stated)> {
    operators.iter().flat_map(|operator| {
        let runs = operator.runs.iter().map(|run| (&run.object, run.stated()));
        runs.chain(operator.subtasks.iter().flatten().filter_map(Blob::stated))
    })
}

/// Carries out all copies, or as many as it takes to fail. Every object that may have been made is
/// added to `made`.
pub(super) fn copy_all<S: Storage, T: Storage>(
    source: &S,
    target: &T,
    copies: &[Copying],
    made: &mut Vec<ObjectName>,
) -> Result<(), CheckpointError> {
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let outcome = Mutex::new((std::mem::take(made), None));
    let work = || {
        while !stop.load(Ordering::Relaxed)
            && let Some(copying) = copies.get(next.fetch_add(1, Ordering::Relaxed))
        {
            let copied = copy(source, target, copying);
            let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
            match copied {
                Ok(true) => outcome.0.push(copying.to.clone()),
                Ok(false) => {}
                Err(error) => {
                    stop.store(true, Ordering::Relaxed);
                    if error.kind() == millpond_core::ErrorKind::Uncertain {
                        outcome.0.push(copying.to.clone());
                    }
                    outcome.1.get_or_insert(error);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..COPIES.min(copies.len()) {
            scope.spawn(work);
        }
        work();
    });
    let (all, failure) = outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
    *made = all;
    failure.map_or(Ok(()), Err)
}

/// Copies one object; says whether it was made, rather than there already with the same content.
fn copy<S: Storage, T: Storage>(source: &S, target: &T, copying: &Copying) -> Result<bool, CheckpointError> {
    let bytes = match source.read(&copying.from) {
        Ok(bytes) => bytes,
        Err(StorageError::NotFound { .. }) => return Err(CheckpointError::Gone { object: copying.from.clone() }),
        Err(other) => return Err(other.into()),
    };
    if let Err(reason) = copying.stated.check(&bytes) {
        return Err(CheckpointError::DamagedObject { object: copying.from.clone(), reason });
    }
    match target.create(&copying.to, &bytes) {
        Ok(()) => Ok(true),
        Err(StorageError::AlreadyExists { .. }) if target.read(&copying.to)? == bytes => Ok(false),
        Err(StorageError::AlreadyExists { .. }) => Err(CheckpointError::NotEmpty { object: copying.to.clone() }),
        Err(other) => Err(other.into()),
    }
}
