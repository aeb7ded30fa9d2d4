//! The job's local directory belongs to one process at a time.
//!
//! Owns the lock file in it. The lock is the operating system's: it ends with the process, however
//! that ends. The process id in the file is for messages only.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use crate::error::CliError;

/// Name of the lock file.
const LOCK_FILE: &str = "lock";

/// The right to use a state directory; given back when dropped.
#[derive(Debug)]
pub(crate) struct StateLock {
    // Closing the file gives the lock back.
    _file: File,
}

impl StateLock {
    /// Makes `directory` if it is missing, and locks it.
    ///
    /// # Errors
    /// [`CliError::InUse`] when another process (or another lock in this one) holds it,
    /// [`CliError::StateDirectory`] when the system refuses.
    pub(crate) fn acquire(directory: &Path) -> Result<StateLock, CliError> {
        let refused = |source| CliError::StateDirectory { directory: directory.to_owned(), source };
        std::fs::create_dir_all(directory).map_err(refused)?;
        let path: PathBuf = directory.join(LOCK_FILE);
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(refused)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(CliError::InUse { directory: directory.to_owned(), holder: read_holder(&mut file) });
            }
            Err(TryLockError::Error(source)) => return Err(refused(source)),
        }
        write_holder(&mut file).map_err(refused)?;
        Ok(StateLock { _file: file })
    }
}

fn write_holder(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn read_holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lock_is_refused_with_the_directory_and_the_holder() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("state");
        let first = StateLock::acquire(&directory).unwrap();
        match StateLock::acquire(&directory) {
            Err(CliError::InUse { directory: named, holder }) => {
                assert_eq!((named, holder), (directory.clone(), Some(std::process::id())));
            }
            other => panic!("{other:?}"),
        }
        drop(first);
        StateLock::acquire(&directory).unwrap();
    }

    #[test]
    fn a_lock_file_of_a_dead_process_does_not_matter() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(LOCK_FILE), "4000000000 and more\n").unwrap();
        let _lock = StateLock::acquire(directory.path()).unwrap();
        let text = std::fs::read_to_string(directory.path().join(LOCK_FILE)).unwrap();
        assert_eq!(text, format!("{}\n", std::process::id()));
    }
}
