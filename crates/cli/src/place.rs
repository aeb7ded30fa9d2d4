//! Where checkpoints and savepoints lie: from what the user writes to a storage and an object in it.
//!
//! Owns the forms in which a place may be written. Does *not* own what is found there.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use millpond_checkpoint::names::job_of_manifest;
use millpond_checkpoint::savepoint::MANIFEST_NAME;
use millpond_jobmanager::StartFrom;
use millpond_storage::{ObjectName, Storage, StorageAddress};

use crate::error::CliError;
use crate::settings::{Place, Start};
use crate::storage::{Opened, Opening};

/// What to start from, and where that is if it is not the job's own storage.
pub(crate) struct Origin {
    /// What to start from.
    pub(crate) from: StartFrom,
    /// Where [`StartFrom::Foreign`] lies.
    pub(crate) storage: Option<Arc<dyn Storage>>,
}

/// Opens a place that a user wrote, to look at.
pub(crate) fn open(path: &Path, opening: Opening<'_>) -> Result<Arc<dyn Storage>, CliError> {
    Ok(opening.for_reading(&place(path)?)?.storage)
}

/// Opens a place that a user wrote, to delete from it.
pub(crate) fn open_to_delete(path: &Path, opening: Opening<'_>) -> Result<Arc<dyn Storage>, CliError> {
    Ok(opening.for_deleting(&place(path)?)?.storage)
}

/// Opens a place that a user wrote, and makes a directory that is missing.
pub(crate) fn create(path: &Path, opening: Opening<'_>) -> Result<Arc<dyn Storage>, CliError> {
    Ok(opening.for_writing(&place(path)?)?.storage)
}

fn place(path: &Path) -> Result<Place, CliError> {
    let address = path.to_str().map(StorageAddress::parse).transpose();
    let address = address.map_err(|source| CliError::Storage { place: path.display().to_string(), source })?;
    Ok(address.flatten().map_or_else(|| Place::Directory(path.to_owned()), Place::Address))
}

/// What the user's wish to start from means for the job `job`, whose checkpoints are in `own`. A path may
/// be that of a savepoint or its manifest, of a manifest in any checkpoint directory, or the name of an
/// object in the job's own storage (as `checkpoints --json` prints it); an address that of a savepoint, or
/// of a manifest in the job's own storage.
///
/// # Errors
/// When there is no such thing.
pub(crate) fn resolve(
    start: &Start,
    claim: bool,
    job: &str,
    own: Option<&Opened>,
    opening: Opening<'_>,
) -> Result<Origin, CliError> {
    let from = match (start, own) {
        (Start::Latest, _) => StartFrom::Latest,
        (Start::Nothing, _) => StartFrom::Nothing,
        (Start::Epoch(_), None) => return Err(CliError::NoCheckpointDirectory),
        (Start::Epoch(epoch), Some(_)) => StartFrom::Epoch(*epoch),
        (Start::Path(path), own) => match at_path(path, Some(job), own)? {
            Found::Own(object) => StartFrom::Object(object.to_string()),
            Found::Foreign(root, object) => {
                // What is claimed is deleted in the end.
                let storage = Some(if claim { open_to_delete(&root, opening)? } else { open(&root, opening)? });
                return Ok(Origin { from: StartFrom::Foreign { object, claim }, storage });
            }
        },
    };
    if claim { Err(CliError::NothingToClaim) } else { Ok(Origin { from, storage: None }) }
}

/// What a path leads to.
pub(crate) enum Found {
    /// A manifest in the storage that is the job's own.
    Own(ObjectName),
    /// A manifest in the storage at this place; of a savepoint, or of a job.
    Foreign(PathBuf, String),
}

/// Finds the manifest that `path` leads to, of the job `job` or, without one, of any.
///
/// # Errors
/// [`CliError::NoSuchCheckpoint`] when nothing is there, [`CliError::NotACheckpoint`] when it is something else.
pub(crate) fn at_path(path: &Path, job: Option<&str>, own: Option<&Opened>) -> Result<Found, CliError> {
    let savepoint = |root: &Path| Ok(Found::Foreign(root.to_owned(), MANIFEST_NAME.to_owned()));
    let text = path.to_str().unwrap_or_default();
    let location = own.map(|own| own.storage.location()).unwrap_or_default();
    let below = text.strip_prefix(&location).and_then(|below| below.strip_prefix('/')).unwrap_or(text);
    let own_object = manifest_of(job, below).filter(|_| own.is_some());
    if StorageAddress::is_address(text) {
        return match own_object {
            Some(object) => Ok(Found::Own(object)),
            None => savepoint(Path::new(text.strip_suffix("/savepoint").unwrap_or(text))),
        };
    }
    let found = match (path.canonicalize(), own_object) {
        (Ok(found), _) => found,
        (Err(_), Some(object)) => return Ok(Found::Own(object)),
        (Err(source), None) => return Err(CliError::NoSuchCheckpoint { path: path.to_owned(), source }),
    };
    let foreign = || CliError::NotACheckpoint { path: path.to_owned() };
    if found.is_dir() {
        return if found.join(MANIFEST_NAME).is_file() { savepoint(&found) } else { Err(foreign()) };
    }
    if found.file_name().is_some_and(|name| name == MANIFEST_NAME)
        && let Some(directory) = found.parent()
    {
        return savepoint(directory);
    }
    let (root, object) = manifest_file(&found).ok_or_else(foreign)?;
    let directory = own.and_then(|own| own.directory.as_deref()).and_then(|own| own.canonicalize().ok());
    match manifest_of(job, object.as_str()) {
        Some(object) if directory.is_some_and(|own| own == root) => Ok(Found::Own(object)),
        _ => Ok(Found::Foreign(root.to_owned(), object.to_string())),
    }
}

/// Checkpoint directory and object of a manifest, of whatever job, if `file` stands where one stands:
/// three levels below the directory, wherever that is.
fn manifest_file(file: &Path) -> Option<(&Path, ObjectName)> {
    let root = file.ancestors().nth(3)?;
    let object = object_below(file, root)?;
    Some((root, manifest_of(None, object.as_str())?))
}

/// The name of a manifest of `job`, or of any, if `text` is one.
fn manifest_of(job: Option<&str>, text: &str) -> Option<ObjectName> {
    let object = ObjectName::new(text).ok()?;
    let owner = job_of_manifest(&object)?;
    job.is_none_or(|job| job == owner).then_some(object)
}

fn object_below(file: &Path, root: &Path) -> Option<ObjectName> {
    let inside = file.strip_prefix(root).ok()?;
    let name: Option<Vec<&str>> = inside.components().map(|component| component.as_os_str().to_str()).collect();
    ObjectName::new(name?.join("/")).ok()
}

/// A path that means the same in every directory; an address does so as it is.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    match path.to_str() {
        Some(text) if StorageAddress::is_address(text) => path.to_owned(),
        _ => std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extensions::Extensions;

    fn resolve(start: &Start, claim: bool, job: &str, own: Option<&Path>) -> Result<Origin, CliError> {
        let opening = Opening { extensions: &Extensions::default(), timeout_ms: 1_000 };
        let own = own.map(|own| opening.for_writing(&Place::Directory(own.to_owned())).unwrap());
        super::resolve(start, claim, job, own.as_ref(), opening)
    }

    fn path(path: &Path) -> Start {
        Start::Path(path.to_owned())
    }

    #[test]
    fn rs_27_a_path_becomes_the_object_of_that_file() {
        let directory = tempfile::tempdir().unwrap();
        let own = directory.path().join("checkpoints");
        let manifests = own.join("job/manifests");
        std::fs::create_dir_all(&manifests).unwrap();
        let name = "00000000000000000007";
        std::fs::write(manifests.join(name), "").unwrap();
        let object = format!("job/manifests/{name}");
        for start in [path(&manifests.join("../manifests").join(name)), Start::Path(PathBuf::from(&object))] {
            let origin = resolve(&start, false, "job", Some(&own)).unwrap();
            assert_eq!(origin.from, StartFrom::Object(object.clone()), "{start:?}");
            assert!(origin.storage.is_none());
        }
        let other = resolve(&path(&manifests.join(name)), false, "another", None).unwrap();
        assert_eq!(other.from, StartFrom::Foreign { object, claim: false });
        let missing = resolve(&path(&manifests.join("9")), false, "job", Some(&own));
        assert!(matches!(missing, Err(CliError::NoSuchCheckpoint { .. })));
    }

    #[test]
    fn a_manifest_is_found_whatever_its_job_is_called() {
        let directory = tempfile::tempdir().unwrap();
        for job in ["flight delays", ".größe/1"] {
            let object = millpond_checkpoint::Names::new(job).unwrap().manifest(7).to_string();
            let file = directory.path().join(&object);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, "").unwrap();
            let foreign = resolve(&path(&file), false, "another", None).unwrap();
            assert_eq!(foreign.from, StartFrom::Foreign { object: object.clone(), claim: false });
            let own = resolve(&path(&file), false, job, Some(directory.path())).unwrap();
            assert_eq!(own.from, StartFrom::Object(object));
        }
    }

    #[test]
    fn a_savepoint_is_named_by_its_directory_or_its_manifest() {
        let directory = tempfile::tempdir().unwrap();
        let manifest = directory.path().join(MANIFEST_NAME);
        std::fs::write(&manifest, "").unwrap();
        for start in [path(directory.path()), path(&manifest)] {
            let origin = resolve(&start, true, "job", None).unwrap();
            assert_eq!(origin.from, StartFrom::Foreign { object: MANIFEST_NAME.to_owned(), claim: true });
            assert!(origin.storage.is_some());
        }
    }

    #[test]
    fn what_does_not_look_like_a_checkpoint_is_not_opened() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("a/b")).unwrap();
        std::fs::write(directory.path().join("a/b/lock"), "").unwrap();
        for start in ["a", "a/b", "a/b/lock"] {
            let refused = resolve(&path(&directory.path().join(start)), false, "job", None);
            assert!(matches!(refused, Err(CliError::NotACheckpoint { .. })), "{start}");
        }
    }

    #[test]
    fn an_epoch_can_only_be_found_in_a_checkpoint_directory_and_never_claimed() {
        let directory = tempfile::tempdir().unwrap();
        let own = Some(directory.path());
        assert_eq!(resolve(&Start::Epoch(7), false, "job", own).unwrap().from, StartFrom::Epoch(7));
        assert!(matches!(resolve(&Start::Epoch(7), false, "job", None), Err(CliError::NoCheckpointDirectory)));
        assert_eq!(resolve(&Start::Latest, false, "job", None).unwrap().from, StartFrom::Latest);
        assert!(matches!(resolve(&Start::Latest, true, "job", own), Err(CliError::NothingToClaim)));
    }
}
