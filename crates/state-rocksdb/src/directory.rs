//! The directory of a database: held by one attempt, empty at its start, gone at its end.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use millpond_state::ColdError;

/// Name of the lock file.
const LOCK_FILE: &str = "lock";
/// The database inside.
const DATABASE: &str = "database";
/// Files on their way into the database.
const LOADING: &str = "loading";
/// What operators keep beside their rows.
const BESIDE: &str = "beside";

/// A directory that nobody else uses. Dropping it deletes what is in it.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// Closing the file gives the lock back.
    _lock: File,
    /// A directory of our own making, for jobs without a state directory.
    _temporary: Option<tempfile::TempDir>,
}

impl Directory {
    /// Takes the directory `given`, or a temporary one, and empties it.
    pub(crate) fn take(given: Option<&Path>) -> Result<Directory, ColdError> {
        let temporary = match given {
            Some(_) => None,
            None => {
                let made = tempfile::Builder::new().prefix("millpond-").tempdir();
                Some(made.map_err(|error| refused(&std::env::temp_dir(), &error))?)
            }
        };
        let own = temporary.as_ref().map(tempfile::TempDir::path);
        let path = given.or(own).unwrap_or(Path::new(".")).to_owned();
        std::fs::create_dir_all(&path).map_err(|error| refused(&path, &error))?;
        let lock = lock(&path)?;
        let directory = Directory { path, _lock: lock, _temporary: temporary };
        directory.empty().map_err(|error| refused(&directory.path, &error))?;
        std::fs::create_dir(directory.loading()).map_err(|error| refused(&directory.path, &error))?;
        Ok(directory)
    }

    /// Where the database is.
    pub(crate) fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }

    /// Where files are written that the database takes over.
    pub(crate) fn loading(&self) -> PathBuf {
        self.path.join(LOADING)
    }

    /// Where the files beside the rows of a store are; `number` is of the store alone.
    pub(crate) fn beside(&self, number: u64) -> PathBuf {
        self.path.join(BESIDE).join(number.to_string())
    }

    /// Nothing that is found is trusted: it is of another attempt.
    fn empty(&self) -> io::Result<()> {
        for inside in [self.database(), self.loading(), self.path.join(BESIDE)] {
            match std::fs::remove_dir_all(&inside) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Err(error) = self.empty() {
            tracing::warn!(directory = %self.path.display(), %error, "local state could not be deleted");
        }
    }
}

fn lock(directory: &Path) -> Result<File, ColdError> {
    let path = directory.join(LOCK_FILE);
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    let file = file.map_err(|error| refused(directory, &error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(refused(directory, &io::Error::other("another process or attempt uses it")))
        }
        Err(TryLockError::Error(error)) => Err(refused(directory, &error)),
    }
}

#[cold]
fn refused(directory: &Path, error: &io::Error) -> ColdError {
    ColdError::Directory { place: directory.display().to_string(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_emptied_held_by_one_and_left_empty() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("cold");
        std::fs::create_dir_all(path.join(DATABASE)).unwrap();
        std::fs::write(path.join(DATABASE).join("000001.sst"), "of a dead process").unwrap();
        let first = Directory::take(Some(&path)).unwrap();
        assert!(!first.database().exists());
        let second = Directory::take(Some(&path)).unwrap_err();
        assert!(second.to_string().contains("another process or attempt uses it"), "{second}");
        std::fs::create_dir(first.database()).unwrap();
        drop(first);
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1, "only the lock file is left");
        Directory::take(Some(&path)).unwrap();
    }

    #[test]
    fn without_a_directory_a_temporary_one_is_made_and_removed() {
        let directory = Directory::take(None).unwrap();
        let path = directory.path.clone();
        assert!(path.exists());
        drop(directory);
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_that_cannot_be_is_named() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = Directory::take(Some(&file)).unwrap_err();
        assert!(error.to_string().contains(file.to_str().unwrap()), "{error}");
    }
}
