//! The few file-system calls that local storage is made of.
//!
//! Owns nothing but the calls, so that a simulated disk can stand in and lose what was not synced.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// An entry of a directory that may be an object or lead to some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) kind: EntryKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    File { bytes: u64 },
    Directory,
}

/// A file system. Paths are absolute. Nothing is durable before it is synced.
pub(super) trait Disk: Send + Sync + 'static {
    /// An open file.
    type File;
    /// A lock, held until dropped or until the process dies.
    type Lock: Send + Sync;

    /// Makes one directory; its parent must exist.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes an empty file; `AlreadyExists` if there is anything of that name.
    fn create_new(&self, path: &Path) -> io::Result<Self::File>;
    /// Appends to a file.
    fn write_all(&self, file: &mut Self::File, bytes: &[u8]) -> io::Result<()>;
    /// Makes a file's content durable, not its name.
    fn sync_file(&self, file: &Self::File) -> io::Result<()>;
    /// Makes a directory's entries durable, not what they lead to.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Gives a file one more name; `AlreadyExists` if there is anything of that name.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Takes a name from a file.
    fn unlink(&self, path: &Path) -> io::Result<()>;
    /// Opens a file for reading; `IsADirectory` if it is none.
    fn open(&self, path: &Path) -> io::Result<Self::File>;
    /// The size of an open file, in bytes.
    fn size(&self, file: &Self::File) -> io::Result<u64>;
    /// Fills `bytes` from `offset`; `UnexpectedEof` if the file is shorter.
    fn read_exact(&self, file: &mut Self::File, offset: u64, bytes: &mut [u8]) -> io::Result<()>;
    /// The files and directories in a directory, in any order; other things are left out.
    fn read_dir(&self, path: &Path) -> io::Result<Vec<Entry>>;
    /// Locks a file, which is made if missing; `None` if somebody holds the lock.
    fn try_lock(&self, path: &Path) -> io::Result<Option<Self::Lock>>;
}

/// The file system of this machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileSystem;

impl Disk for FileSystem {
    type File = File;
    type Lock = File;

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir(path)
    }

    fn create_new(&self, path: &Path) -> io::Result<File> {
        File::create_new(path)
    }

    fn write_all(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    fn sync_file(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        match File::open(path)?.sync_all() {
            // File systems without such a thing (some network and user-space ones) say so; there,
            // entries are as durable as they will ever be.
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
            result => result,
        }
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::hard_link(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        let file = File::open(path)?;
        if file.metadata()?.is_dir() { Err(io::ErrorKind::IsADirectory.into()) } else { Ok(file) }
    }

    fn size(&self, file: &File) -> io::Result<u64> {
        Ok(file.metadata()?.len())
    }

    fn read_exact(&self, file: &mut File, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(bytes)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            match entry.metadata() {
                Ok(found) if found.is_file() => {
                    entries.push(Entry { name, kind: EntryKind::File { bytes: found.len() } })
                }
                Ok(found) if found.is_dir() => entries.push(Entry { name, kind: EntryKind::Directory }),
                Ok(_) => {}
                // Deleted since it was seen.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(entries)
    }

    fn try_lock(&self, path: &Path) -> io::Result<Option<File>> {
        let file = File::options().create(true).truncate(false).write(true).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}
