//! Files of bytes beside the rows of a cold store: working space of one subtask, as the rows are.
//!
//! What an operator keeps in memory beside its keyed state, and could find again there, goes to such files when it
//! takes too much: the order in which timers are due, say. Owns the contract ([`ColdFiles`]), and files in memory and in
//! a directory. Does *not* know what is in them; who writes them checks what it reads.

use std::any::Any;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::ColdError;

/// A file of [`ColdFiles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ColdFile(u64);

/// Files that are appended to, read anywhere, and removed. Nothing needs to be durable; what is left goes with the value.
/// After an error a file may be cut off or damaged: its bytes are to be checked when they are read.
pub trait ColdFiles: Send + Sync {
    /// A new, empty file.
    ///
    /// # Errors
    /// When it cannot be made.
    fn create(&self) -> Result<ColdFile, ColdError>;

    /// Puts bytes at the end of a file.
    ///
    /// # Errors
    /// When they cannot be written: the disk is full, say. Some of them may have been.
    fn append(&self, file: ColdFile, bytes: &[u8]) -> Result<(), ColdError>;

    /// Fills `into` with the bytes of a file from the byte `from` on.
    ///
    /// # Errors
    /// When they cannot be read, or the file ends before.
    fn read(&self, file: ColdFile, from: u64, into: &mut [u8]) -> Result<(), ColdError>;

    /// Removes a file, and gives its bytes back.
    ///
    /// # Errors
    /// When it cannot be removed.
    fn remove(&self, file: ColdFile) -> Result<(), ColdError>;
}

/// Files in memory: for tests and the simulator.
#[derive(Debug, Default)]
pub struct MemoryFiles {
    files: Mutex<HashMap<u64, Vec<u8>>>,
    made: AtomicU64,
}

const IN_MEMORY: &str = "in memory";

impl MemoryFiles {
    /// The bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.with(|files| files.values().map(Vec::len).sum())
    }

    /// Shows all files, to damage them.
    pub fn for_each(&self, mut visit: impl FnMut(&mut Vec<u8>)) {
        self.with(|files| files.values_mut().for_each(&mut visit));
    }

    fn with<R>(&self, look: impl FnOnce(&mut HashMap<u64, Vec<u8>>) -> R) -> R {
        look(&mut self.files.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ColdFiles for MemoryFiles {
    fn create(&self) -> Result<ColdFile, ColdError> {
        let file = self.made.fetch_add(1, Ordering::Relaxed);
        self.with(|files| files.insert(file, Vec::new()));
        Ok(ColdFile(file))
    }

    fn append(&self, file: ColdFile, bytes: &[u8]) -> Result<(), ColdError> {
        self.with(|files| files.entry(file.0).or_default().extend_from_slice(bytes));
        Ok(())
    }

    fn read(&self, file: ColdFile, from: u64, into: &mut [u8]) -> Result<(), ColdError> {
        let read = self.with(|files| {
            let found = files.get(&file.0)?.get(from as usize..)?.get(..into.len())?;
            into.copy_from_slice(found);
            Some(())
        });
        read.ok_or_else(|| {
            let reason = format!("file {} ends before byte {}", file.0, from + into.len() as u64);
            ColdError::Read { place: IN_MEMORY.to_owned(), reason }
        })
    }

    fn remove(&self, file: ColdFile) -> Result<(), ColdError> {
        self.with(|files| files.remove(&file.0));
        Ok(())
    }
}

/// Files in a directory of their own, which is made with the first and goes with the value.
pub struct LocalFiles {
    directory: PathBuf,
    made: AtomicU64,
    /// Lives as long as the files: what holds the directory above, say.
    _holder: Arc<dyn Any + Send + Sync>,
}

impl LocalFiles {
    /// Files in `directory`, which does not exist yet. `holder` is dropped after they are gone.
    #[must_use]
    pub fn new(directory: PathBuf, holder: Arc<dyn Any + Send + Sync>) -> Self {
        LocalFiles { directory, made: AtomicU64::new(0), _holder: holder }
    }

    fn path(&self, file: ColdFile) -> PathBuf {
        self.directory.join(file.0.to_string())
    }

    fn opened(&self, file: ColdFile, options: &OpenOptions) -> io::Result<File> {
        options.open(self.path(file))
    }
}

#[cold]
fn unreadable(path: &Path, error: &io::Error) -> ColdError {
    ColdError::Read { place: path.display().to_string(), reason: error.to_string() }
}

#[cold]
fn unwritable(path: &Path, error: &io::Error) -> ColdError {
    ColdError::Write { place: path.display().to_string(), reason: error.to_string() }
}

impl ColdFiles for LocalFiles {
    fn create(&self) -> Result<ColdFile, ColdError> {
        let file = ColdFile(self.made.fetch_add(1, Ordering::Relaxed));
        if file.0 == 0 {
            std::fs::create_dir_all(&self.directory).map_err(|error| unwritable(&self.directory, &error))?;
        }
        let made = self.opened(file, OpenOptions::new().write(true).create_new(true));
        made.map_err(|error| unwritable(&self.path(file), &error))?;
        Ok(file)
    }

    fn append(&self, file: ColdFile, bytes: &[u8]) -> Result<(), ColdError> {
        let opened = self.opened(file, OpenOptions::new().append(true));
        let written = opened.and_then(|mut opened| opened.write_all(bytes));
        written.map_err(|error| unwritable(&self.path(file), &error))
    }

    fn read(&self, file: ColdFile, from: u64, into: &mut [u8]) -> Result<(), ColdError> {
        let opened = self.opened(file, OpenOptions::new().read(true));
        let read = opened.and_then(|mut opened| {
            opened.seek(SeekFrom::Start(from))?;
            opened.read_exact(into)
        });
        read.map_err(|error| unreadable(&self.path(file), &error))
    }

    fn remove(&self, file: ColdFile) -> Result<(), ColdError> {
        std::fs::remove_file(self.path(file)).map_err(|error| unwritable(&self.path(file), &error))
    }
}

impl Drop for LocalFiles {
    fn drop(&mut self) {
        if *self.made.get_mut() == 0 {
            return;
        }
        // What cannot be removed goes with the directory above, or when the next attempt begins.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
