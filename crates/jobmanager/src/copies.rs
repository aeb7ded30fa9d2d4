//! Local recovery: copies of the data objects of checkpoints on a local disk.
//!
//! Owns which objects are copied and which copies an attempt may read. Does *not* own the files: see
//! [`LocalCopies`].

use std::path::Path;
use std::sync::Arc;

use millpond_checkpoint::{Blob, Manifest, Names};
use millpond_storage::{LocalCopies, Storage, Wanted};

use crate::error::JobError;

/// Objects of a job that are copied when they are written and read from their copies when it is restored.
pub(crate) type Copies = Arc<LocalCopies<Arc<dyn Storage>>>;

/// Wraps `storage`. Manifests are not copied: what they say must be what the storage says.
///
/// # Errors
/// When the directory cannot be made.
pub(crate) fn wrap(storage: Arc<dyn Storage>, directory: &Path, job: &str) -> Result<Copies, JobError> {
    let manifests = Names::new(job)?.manifest_prefix();
    let copied = move |object: &millpond_storage::ObjectName| !object.as_str().starts_with(&manifests);
    let copies = LocalCopies::new(storage, directory, copied);
    let copies = copies.map_err(|source| JobError::LocalCopies { directory: directory.to_owned(), source })?;
    Ok(Arc::new(copies))
}

/// Lets the attempt that goes on from `base` read the copies of its objects, as far as they are intact.
pub(crate) fn keep(copies: &Copies, base: &Manifest) {
    let runs = base.operators.iter().flat_map(|operator| &operator.runs);
    let runs = runs.map(|run| Wanted { object: &run.object, bytes: run.bytes, checksum: run.checksum, hash: None });
    let blobs = base.operators.iter().flat_map(|operator| operator.subtasks.iter().flatten());
    let blobs = blobs.filter_map(|blob| match blob {
        Blob::Inline(_) => None,
        Blob::Object { object, bytes, checksum, hash } => {
            Some(Wanted { object, bytes: *bytes, checksum: *checksum, hash: *hash })
        }
    });
    let kept = copies.keep(runs.chain(blobs));
    if kept.intact + kept.absent + kept.damaged > 0 {
        tracing::info!(
            intact = kept.intact,
            bytes = kept.bytes,
            absent = kept.absent,
            damaged = kept.damaged,
            "restoring from local copies"
        );
    }
    if kept.damaged > 0 {
        tracing::warn!(
            damaged = kept.damaged,
            "local copies are damaged; what they held is read from checkpoint storage"
        );
    }
}
