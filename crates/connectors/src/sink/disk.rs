//! The few file system calls that the file sink makes, so that a test can stop after each of them.

use std::collections::hash_map::RandomState;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Write};
use std::path::Path;

/// What a file sink needs of a file system.
///
/// Names of paths are durable once `sync_directory` returns, contents once `sync_file` returns; what
/// was not synced may be there or not after a crash. `rename` is atomic.
pub(crate) trait Disk: 'static {
    /// A file open for writing.
    type File;

    /// Makes sure that there is a directory, durably.
    fn create_directory(&mut self, path: &Path) -> io::Result<()>;
    /// Creates a file; fails when the name is taken.
    fn create(&mut self, path: &Path) -> io::Result<Self::File>;
    /// Appends all bytes, or fails with any part of them appended.
    fn append(&mut self, file: &mut Self::File, bytes: &[u8]) -> io::Result<()>;
    /// Makes the content of a file durable.
    fn sync_file(&mut self, file: &mut Self::File) -> io::Result<()>;
    /// Gives a file another name in the same directory, replacing what has that name.
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_directory(&mut self, path: &Path) -> io::Result<()>;
    /// Whether anything has this name.
    fn exists(&mut self, path: &Path) -> io::Result<bool>;
    /// The names in a directory that are valid UTF-8.
    fn list(&mut self, path: &Path) -> io::Result<Vec<String>>;
    /// Removes a file.
    fn remove(&mut self, path: &Path) -> io::Result<()>;
    /// A number that no other writer has. It decides nothing but names of hidden files.
    fn unique(&mut self) -> u64;
}

/// The file system of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LocalDisk;

impl Disk for LocalDisk {
    type File = File;

    fn create_directory(&mut self, path: &Path) -> io::Result<()> {
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => return Ok(()),
            Ok(_) => return Err(io::ErrorKind::NotADirectory.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        self.create_directory(parent)?;
        match fs::create_dir(path) {
            Ok(()) => self.sync_directory(parent),
            // Another subtask was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn create(&mut self, path: &Path) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).open(path)
    }

    fn append(&mut self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    fn sync_file(&mut self, file: &mut File) -> io::Result<()> {
        file.sync_all()
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_directory(&mut self, path: &Path) -> io::Result<()> {
        if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
    }

    fn exists(&mut self, path: &Path) -> io::Result<bool> {
        match fs::symlink_metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn list(&mut self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(path)? {
            names.extend(entry?.file_name().into_string());
        }
        names.sort();
        Ok(names)
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn unique(&mut self) -> u64 {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u32(std::process::id());
        hasher.finish()
    }
}
