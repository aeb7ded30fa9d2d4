//! Objects as files of a local directory.
//!
//! Owns the order of file-system calls that makes `create` atomic and durable. Does *not* own the
//! calls themselves ([`disk`]) nor the names of unfinished writes ([`temporary`]).
//!
//! A create passes through: make missing directories, sync each one's parent → write a temporary
//! file under `.tmp` → sync it → hard-link it to its name (the one step that decides who wins) →
//! sync the directory → unlink the temporary.
//!
//! Invariants:
//! - A file is linked to an object's name only after its bytes are synced.
//! - No call reports that an object exists, or is gone, as a result before the directory is synced.

mod causes;
mod directories;
mod disk;
#[cfg(test)]
mod power_cut_tests;
#[cfg(test)]
mod simulated;
mod temporary;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Operation, StorageError, cause, check_range};
use crate::name::ObjectName;
use crate::read_only::ReadOnly;
use crate::storage::{ObjectInfo, Storage};
use causes::{absent, classify, refused};
use directories::{make_directory, make_root, sync_tree};
use disk::{Disk, EntryKind, FileSystem};
use temporary::{TEMPORARY_DIRECTORY, Temporaries};

/// How many directories are remembered as durable; beyond it the memory starts anew.
const MAX_REMEMBERED_DIRECTORIES: usize = 10_000;

/// Objects as files of a local directory, shared by any number of processes of one machine.
///
/// What it promises at a power cut is what POSIX and the usual Linux file systems (ext4, XFS,
/// btrfs) promise: `fsync` of a file makes its content durable, `fsync` of a directory makes its
/// entries durable, and the disk does not lie about either. On top of that:
/// - A created object, all directories above it up to the root of the file system included, stays.
/// - A create that was cut leaves the whole object or none; a delete that was cut likewise.
/// - An object left half-way by a killed process (linked, but not yet synced) is made durable by
///   `open`, before anybody can have acted on it, and by any `create` that finds the name taken.
///
/// A file system that refuses hard links (FAT, some network mounts) cannot hold it: `create` fails
/// as `Unsupported` or `PermissionDenied`. Network file systems whose `link` may be repeated by the
/// client are not supported. Directories that have become empty stay.
///
/// The directory may hold other files: those whose names cannot be object names are ignored.
pub struct LocalStorage {
    objects: ObjectFiles<FileSystem>,
}

impl LocalStorage {
    /// Opens `directory`, which is made, with its parents, if it is missing. Syncs every directory
    /// below it. Writes nothing else, so that a checkpoint may be opened without leave to write.
    ///
    /// # Errors
    /// When the directory cannot be made, read or synced, or is something else than a directory.
    pub fn open(directory: impl AsRef<Path>) -> Result<LocalStorage, StorageError> {
        Ok(LocalStorage { objects: ObjectFiles::open(FileSystem, directory.as_ref())? })
    }

    /// Opens `directory`, which must be there, to read from it: nothing is written or synced, now or later.
    /// What is read may be an object that its writer has not synced yet, or never will: a power cut may take
    /// it away again, so nothing that is to stay may be concluded from it.
    ///
    /// # Errors
    /// When the directory is missing or cannot be read.
    pub fn open_to_read(directory: impl AsRef<Path>) -> Result<ReadOnly<LocalStorage>, StorageError> {
        let objects = ObjectFiles::open_to_read(FileSystem, directory.as_ref())?;
        Ok(ReadOnly::new(LocalStorage { objects }))
    }

    /// The directory, as an absolute path.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.objects.root
    }

    /// Removes what dead processes left of unfinished writes, and returns how many files. Writes
    /// in progress, of this or any other live process, are left alone.
    ///
    /// # Errors
    /// When the directory of unfinished writes cannot be read or changed.
    pub fn clean_temporary(&self) -> Result<u64, StorageError> {
        self.objects.clean_temporary()
    }
}

impl Storage for LocalStorage {
    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), StorageError> {
        self.objects.create(name, bytes)
    }

    fn read(&self, name: &ObjectName) -> Result<Vec<u8>, StorageError> {
        self.objects.read(name)
    }

    fn read_range(&self, name: &ObjectName, offset: u64, length: u64) -> Result<Vec<u8>, StorageError> {
        self.objects.read_range(name, offset, length)
    }

    fn size(&self, name: &ObjectName) -> Result<u64, StorageError> {
        self.objects.size(name)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, StorageError> {
        self.objects.list(prefix)
    }

    fn delete(&self, name: &ObjectName) -> Result<(), StorageError> {
        self.objects.delete(name)
    }

    fn location(&self) -> String {
        self.objects.root.display().to_string()
    }
}

/// [`LocalStorage`] over any disk.
struct ObjectFiles<D: Disk> {
    disk: D,
    /// Absolute.
    root: PathBuf,
    temporaries: Temporaries<D>,
    /// Directories below the root that were made and whose parents were synced.
    durable: Mutex<HashSet<PathBuf>>,
}

impl<D: Disk> ObjectFiles<D> {
    fn open(disk: D, directory: &Path) -> Result<Self, StorageError> {
        ObjectFiles::at(disk, directory, |disk, root| {
            make_root(disk, root)?;
            sync_tree(disk, root)
        })
    }

    /// Makes, changes and syncs nothing; nothing may be created or deleted through it.
    fn open_to_read(disk: D, directory: &Path) -> Result<Self, StorageError> {
        ObjectFiles::at(disk, directory, |disk, root| disk.read_dir(root).map(drop))
    }

    fn at(disk: D, directory: &Path, prepare: impl FnOnce(&D, &Path) -> io::Result<()>) -> Result<Self, StorageError> {
        let open = || {
            let root = std::path::absolute(directory)?;
            prepare(&disk, &root)?;
            Ok(root)
        };
        let name = directory.display();
        let root = open().map_err(|error| classify(Operation::Open, &name.to_string(), error))?;
        let temporaries = Temporaries::new(root.join(TEMPORARY_DIRECTORY));
        Ok(ObjectFiles { disk, root, temporaries, durable: Mutex::default() })
    }

    fn clean_temporary(&self) -> Result<u64, StorageError> {
        let name = self.root.display().to_string();
        self.temporaries.clean(&self.disk).map_err(|error| classify(Operation::CleanTemporary, &name, error))
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), StorageError> {
        let fail = |error| classify(Operation::Create, name.as_str(), error);
        let path = self.path(name);
        let directory = parent_of(&path);
        self.make_directories(directory).map_err(fail)?;
        let temporary = self.temporaries.next_path(&self.disk).map_err(fail)?;
        let outcome = match self.write_temporary(&temporary, bytes) {
            Ok(()) => self.publish(name, &temporary, &path),
            Err(error) => Err(fail(error)),
        };
        // One that stays behind is harmless and found by `clean_temporary`.
        let _ = self.disk.unlink(&temporary);
        outcome
    }

    fn write_temporary(&self, temporary: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.disk.create_new(temporary)?;
        self.disk.write_all(&mut file, bytes)?;
        self.disk.sync_file(&file)
    }

    /// Gives the synced temporary file its name, if that is free, and makes the name durable.
    fn publish(&self, name: &ObjectName, temporary: &Path, path: &Path) -> Result<(), StorageError> {
        let fail = |error| classify(Operation::Create, name.as_str(), error);
        let uncertain = |error: io::Error| StorageError::Uncertain {
            operation: Operation::Create,
            name: name.to_string(),
            source: cause(error),
        };
        let directory = parent_of(path);
        let mut linked = self.disk.link(temporary, path);
        if matches!(&linked, Err(error) if error.kind() == io::ErrorKind::NotFound) {
            // Somebody removed the directory since it was remembered as durable.
            self.durable().clear();
            self.make_directories(directory).map_err(fail)?;
            linked = self.disk.link(temporary, path);
        }
        match linked {
            Ok(()) => self.disk.sync_dir(directory).map_err(uncertain),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(self.taken(name, path)),
            Err(error) if refused(error.kind()) => Err(fail(error)),
            Err(error) => Err(uncertain(error)),
        }
    }

    /// The error for a name that is taken. Its owner may not have synced it yet, and may be dead.
    fn taken(&self, name: &ObjectName, path: &Path) -> StorageError {
        match self.disk.open(path) {
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                classify(Operation::Create, name.as_str(), error)
            }
            _ => match self.disk.sync_dir(parent_of(path)) {
                Ok(()) => StorageError::AlreadyExists { name: name.clone() },
                Err(error) => classify(Operation::Create, name.as_str(), error),
            },
        }
    }

    fn read(&self, name: &ObjectName) -> Result<Vec<u8>, StorageError> {
        let mut file = self.open_object(Operation::Read, name)?;
        let size = self.size_of(Operation::Read, name, &file)?;
        self.read_exact(Operation::Read, name, &mut file, 0, size)
    }

    fn read_range(&self, name: &ObjectName, offset: u64, length: u64) -> Result<Vec<u8>, StorageError> {
        let mut file = self.open_object(Operation::ReadRange, name)?;
        check_range(name, offset, length, self.size_of(Operation::ReadRange, name, &file)?)?;
        self.read_exact(Operation::ReadRange, name, &mut file, offset, length)
    }

    fn size(&self, name: &ObjectName) -> Result<u64, StorageError> {
        let file = self.open_object(Operation::Size, name)?;
        self.size_of(Operation::Size, name, &file)
    }

    fn open_object(&self, operation: Operation, name: &ObjectName) -> Result<D::File, StorageError> {
        self.disk.open(&self.path(name)).map_err(|error| match error.kind() {
            kind if absent(kind) => StorageError::NotFound { name: name.clone() },
            _ => classify(operation, name.as_str(), error),
        })
    }

    fn size_of(&self, operation: Operation, name: &ObjectName, file: &D::File) -> Result<u64, StorageError> {
        self.disk.size(file).map_err(|error| classify(operation, name.as_str(), error))
    }

    /// Reads a range that lay inside the file a moment ago.
    fn read_exact(
        &self,
        operation: Operation,
        name: &ObjectName,
        file: &mut D::File,
        offset: u64,
        length: u64,
    ) -> Result<Vec<u8>, StorageError> {
        let mut bytes = vec![0; length as usize];
        match self.disk.read_exact(file, offset, &mut bytes) {
            Ok(()) => Ok(bytes),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                let size = self.size_of(operation, name, file)?;
                Err(StorageError::OutOfRange { name: name.clone(), offset, length, size })
            }
            Err(error) => Err(classify(operation, name.as_str(), error)),
        }
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, StorageError> {
        let mut found = Vec::new();
        // Only the directory that the prefix names in full, or the root, is walked.
        let directory = match prefix.rsplit_once('/') {
            None => None,
            Some((above, _)) => match ObjectName::new(above) {
                Ok(above) => Some(above),
                Err(_) => return Ok(found),
            },
        };
        let mut open = vec![directory];
        while let Some(directory) = open.pop() {
            self.list_directory(directory.as_ref(), prefix, &mut open, &mut found)
                .map_err(|error| classify(Operation::List, prefix, error))?;
        }
        found.sort_unstable_by(|a: &ObjectInfo, b| a.name.cmp(&b.name));
        Ok(found)
    }

    fn list_directory(
        &self,
        directory: Option<&ObjectName>,
        prefix: &str,
        open: &mut Vec<Option<ObjectName>>,
        found: &mut Vec<ObjectInfo>,
    ) -> io::Result<()> {
        let path = directory.map_or_else(|| self.root.clone(), |directory| self.path(directory));
        let entries = match self.disk.read_dir(&path) {
            Err(error) if absent(error.kind()) => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let name = directory.map_or_else(|| ObjectName::new(&entry.name), |above| above.join(&entry.name));
            let Ok(name) = name else { continue };
            let matches = name.as_str().starts_with(prefix);
            match entry.kind {
                EntryKind::File { bytes } if matches => found.push(ObjectInfo { name, bytes }),
                EntryKind::Directory if matches => open.push(Some(name)),
                _ => {}
            }
        }
        Ok(())
    }

    fn delete(&self, name: &ObjectName) -> Result<(), StorageError> {
        let path = self.path(name);
        match self.disk.unlink(&path) {
            Ok(()) => {}
            Err(error) if absent(error.kind()) => {}
            Err(error) if refused(error.kind()) => {
                return Err(classify(Operation::Delete, name.as_str(), error));
            }
            Err(error) => return Err(uncertain_delete(name, error)),
        }
        // Also when it was absent: who removed it may have died before syncing.
        match self.disk.sync_dir(parent_of(&path)) {
            Err(error) if !absent(error.kind()) => Err(uncertain_delete(name, error)),
            _ => Ok(()),
        }
    }

    /// Makes the directories from the root down to `directory`, all durable.
    fn make_directories(&self, directory: &Path) -> io::Result<()> {
        if directory == self.root || self.durable().contains(directory) {
            return Ok(());
        }
        let parent = parent_of(directory);
        self.make_directories(parent)?;
        make_directory(&self.disk, directory)?;
        // Also when it was there: who made it may not have synced yet.
        self.disk.sync_dir(parent)?;
        let mut durable = self.durable();
        if durable.len() >= MAX_REMEMBERED_DIRECTORIES {
            durable.clear();
        }
        durable.insert(directory.to_owned());
        Ok(())
    }

    fn durable(&self) -> MutexGuard<'_, HashSet<PathBuf>> {
        self.durable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, name: &ObjectName) -> PathBuf {
        self.root.join(name.as_str())
    }
}

/// Every path here lies below an absolute root, so only the root of the file system has no parent.
fn parent_of(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

fn uncertain_delete(name: &ObjectName, error: io::Error) -> StorageError {
    StorageError::Uncertain { operation: Operation::Delete, name: name.to_string(), source: cause(error) }
}
