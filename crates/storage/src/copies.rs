//! A layer that keeps local copies of what is written, for reading it again soon.
//!
//! Owns a directory of copies, one file per object. Does *not* decide what is kept: whoever knows which objects
//! a job goes on from says so, with their checksums ([`LocalCopies::keep`]). A copy is read only after its
//! size and checksum were found right by this very layer; whatever is wrong with it, the storage beneath
//! is asked, as if there were no copy.
//!
//! Copies are not synced: what a power cut takes or damages is found by the checksum.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use crate::error::{StorageError, check_range};
use crate::name::ObjectName;
use crate::storage::{ObjectInfo, Storage};

/// Ends the names of files that are being written; no object name contains it.
const UNFINISHED: &str = "#unfinished";
/// Bytes read at a time for a checksum.
const CHECK_BYTES: usize = 256 << 10;

/// An object that the job goes on from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// Its name.
    pub object: &'a ObjectName,
    /// Its size, in bytes.
    pub bytes: u64,
    /// CRC-32 of its bytes.
    pub checksum: u32,
    /// XXH3-64 of its bytes, where that is known: objects that end with their own CRC-32 all have the same checksum.
    pub hash: Option<u64>,
}

/// What [`LocalCopies::keep`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Copies that are whole and will be read.
    pub intact: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Copies whose size or checksum was wrong; they are gone.
    pub damaged: u64,
    /// Objects without a copy.
    pub absent: u64,
    /// Copies of other objects; they are gone.
    pub removed: u64,
}

/// See the module.
pub struct LocalCopies<S> {
    storage: S,
    directory: PathBuf,
    /// Which objects are copied when they are written.
    copied: Box<dyn Fn(&ObjectName) -> bool + Send + Sync>,
    /// Objects whose copies were found intact.
    trusted: RwLock<HashSet<ObjectName>>,
    next_unfinished: AtomicU64,
    told: AtomicBool,
}

impl<S: Storage> LocalCopies<S> {
    /// Copies what is written to `storage` and accepted by `copied` into `directory`, which is made if it is
    /// missing, and which nobody else may use at the same time.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn new(
        storage: S,
        directory: impl Into<PathBuf>,
        copied: impl Fn(&ObjectName) -> bool + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let directory = directory.into();
        fs::create_dir_all(&directory)?;
        Ok(LocalCopies {
            storage,
            directory,
            copied: Box::new(copied),
            trusted: RwLock::default(),
            next_unfinished: AtomicU64::new(0),
            told: AtomicBool::new(false),
        })
    }

    /// Checks the copies of `wanted`, which are read from now on as far as they are intact, and removes every
    /// other file of the directory. Reads all copies once.
    pub fn keep<'a>(&self, wanted: impl IntoIterator<Item = Wanted<'a>>) -> Kept {
        let mut kept = Kept::default();
        let mut trusted = HashSet::new();
        for Wanted { object, bytes, checksum, hash } in wanted {
            match is_intact(&self.path(object), bytes, checksum, hash) {
                Ok(true) => {
                    kept.intact += 1;
                    kept.bytes += bytes;
                    trusted.insert(object.clone());
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => kept.absent += 1,
                Ok(false) | Err(_) => kept.damaged += 1,
            }
        }
        let stay: HashSet<PathBuf> = trusted.iter().map(|object| self.path(object)).collect();
        kept.removed = remove_others(&self.directory, &stay).saturating_sub(kept.damaged);
        *self.trusted.write().unwrap_or_else(PoisonError::into_inner) = trusted;
        kept
    }

    fn path(&self, name: &ObjectName) -> PathBuf {
        self.directory.join(name.as_str())
    }

    fn trusts(&self, name: &ObjectName) -> bool {
        self.trusted.read().unwrap_or_else(PoisonError::into_inner).contains(name)
    }

    fn forget(&self, name: &ObjectName) {
        self.trusted.write().unwrap_or_else(PoisonError::into_inner).remove(name);
        // What cannot be removed now goes with the next `keep`.
        let _ = fs::remove_file(self.path(name));
    }

    /// Reads from a copy that was found intact; `None` means: ask the storage.
    fn read_copy<T>(&self, name: &ObjectName, read: impl FnOnce(&mut File) -> io::Result<T>) -> Option<T> {
        if !self.trusts(name) {
            return None;
        }
        match File::open(self.path(name)).and_then(|mut file| read(&mut file)) {
            Ok(content) => Some(content),
            Err(_) => {
                self.forget(name);
                None
            }
        }
    }

    /// A copy is a gift: when it cannot be made, the job goes on without.
    fn copy(&self, name: &ObjectName, bytes: &[u8]) {
        let unfinished = format!("{}{UNFINISHED}", self.next_unfinished.fetch_add(1, Ordering::Relaxed));
        let unfinished = self.directory.join(unfinished);
        if let Err(error) = write_whole(&unfinished, &self.path(name), bytes) {
            let _ = fs::remove_file(&unfinished);
            if !self.told.swap(true, Ordering::Relaxed) {
                let directory = self.directory.display();
                tracing::warn!(%error, "cannot keep local copies of checkpoints in {directory}; restores will read the storage");
            }
        }
    }
}

impl<S: Storage> Storage for LocalCopies<S> {
    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), StorageError> {
        self.storage.create(name, bytes)?;
        if (self.copied)(name) {
            self.copy(name, bytes);
        }
        Ok(())
    }

    fn read(&self, name: &ObjectName) -> Result<Vec<u8>, StorageError> {
        let whole = |file: &mut File| {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).map(|_| bytes)
        };
        self.read_copy(name, whole).map_or_else(|| self.storage.read(name), Ok)
    }

    fn read_range(&self, name: &ObjectName, offset: u64, length: u64) -> Result<Vec<u8>, StorageError> {
        let range = |file: &mut File| {
            let size = file.metadata()?.len();
            if check_range(name, offset, length, size).is_err() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            file.seek(SeekFrom::Start(offset))?;
            let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
            file.read_exact(&mut bytes).map(|()| bytes)
        };
        self.read_copy(name, range).map_or_else(|| self.storage.read_range(name, offset, length), Ok)
    }

    fn size(&self, name: &ObjectName) -> Result<u64, StorageError> {
        self.read_copy(name, |file| Ok(file.metadata()?.len())).map_or_else(|| self.storage.size(name), Ok)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, StorageError> {
        self.storage.list(prefix)
    }

    fn delete(&self, name: &ObjectName) -> Result<(), StorageError> {
        self.forget(name);
        self.storage.delete(name)
    }

    fn location(&self) -> String {
        self.storage.location()
    }

    fn ends_calls(&self) -> bool {
        self.storage.ends_calls()
    }
}

fn write_whole(unfinished: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(unfinished)?;
    file.write_all(bytes)?;
    drop(file);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::rename(unfinished, path)
}

fn is_intact(path: &Path, bytes: u64, checksum: u32, hash: Option<u64>) -> io::Result<bool> {
    if let Some(hash) = hash {
        let found = std::fs::read(path)?;
        return Ok(found.len() as u64 == bytes && millpond_core::hash::hash_bytes(&found) == hash);
    }
    let mut file = File::open(path)?;
    if file.metadata()?.len() != bytes {
        return Ok(false);
    }
    let mut hasher = crc32fast::Hasher::new();
    let mut piece = vec![0; CHECK_BYTES];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hasher.finalize() == checksum),
            read => hasher.update(&piece[..read]),
        }
    }
}

/// Removes all files below `directory` but those that stay, and directories that are empty then; returns how many files.
fn remove_others(directory: &Path, stay: &HashSet<PathBuf>) -> u64 {
    let mut removed = 0;
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        // What cannot be removed takes room and nothing else: it is not trusted.
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => {
                removed += remove_others(&path, stay);
                let _ = fs::remove_dir(&path);
            }
            _ if stay.contains(&path) => {}
            _ => removed += u64::from(fs::remove_file(&path).is_ok()),
        }
    }
    removed
}

#[cfg(test)]
mod tests;
