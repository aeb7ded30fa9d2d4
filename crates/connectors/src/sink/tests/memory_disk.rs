//! A file system in memory that can stop at every step.

use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::sink::disk::Disk;

/// A file system in memory that stops at a chosen step, and can lose what was not synced.
#[derive(Clone, Default)]
pub(super) struct MemoryDisk(Rc<RefCell<Memory>>);

#[derive(Default)]
struct Memory {
    contents: Vec<Content>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    steps: u64,
    stop_at: Option<u64>,
    full: bool,
    writers: u64,
}

#[derive(Default)]
struct Content {
    bytes: Vec<u8>,
    durable: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Crash {
    /// The process ends; what it did stays.
    Process,
    /// The machine stops; what was not synced is gone.
    Power,
}

impl MemoryDisk {
    /// Takes one step of the process; from the chosen one on, all fail.
    fn step(&self) -> io::Result<RefMut<'_, Memory>> {
        let mut memory = self.0.borrow_mut();
        if memory.stop_at.is_some_and(|at| memory.steps >= at) {
            return Err(io::Error::other("stopped"));
        }
        memory.steps += 1;
        Ok(memory)
    }

    /// From now on the disk is full, or has space again.
    pub(super) fn set_full(&self, full: bool) {
        self.0.borrow_mut().full = full;
    }

    /// Only so many more steps succeed.
    pub(super) fn stop_after(&self, steps: Option<u64>) {
        let mut memory = self.0.borrow_mut();
        memory.stop_at = steps.map(|steps| memory.steps + steps);
    }

    /// What a crash leaves is all there is.
    pub(super) fn crash(&self, crash: Crash) {
        let memory = &mut *self.0.borrow_mut();
        if let Crash::Power = crash {
            memory.names = memory.durable_names.clone();
            for content in &mut memory.contents {
                content.bytes.clone_from(&content.durable);
            }
        }
    }

    /// Names and contents of the files that are hidden, or of those that are not.
    pub(super) fn files(&self, hidden: bool) -> Vec<(String, String)> {
        let memory = self.0.borrow();
        let named = memory.names.iter().map(|(path, index)| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, String::from_utf8(memory.contents[*index].bytes.clone()).unwrap())
        });
        named.filter(|(name, _)| name.starts_with('.') == hidden).collect()
    }
}

impl Disk for MemoryDisk {
    type File = usize;

    fn create_directory(&mut self, _path: &Path) -> io::Result<()> {
        self.step().map(drop)
    }

    fn create(&mut self, path: &Path) -> io::Result<usize> {
        let mut memory = self.step()?;
        if memory.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let index = memory.contents.len();
        memory.contents.push(Content::default());
        memory.names.insert(path.to_owned(), index);
        Ok(index)
    }

    fn append(&mut self, file: &mut usize, bytes: &[u8]) -> io::Result<()> {
        let half = &bytes[..bytes.len() / 2];
        let outcome = self.step().map(drop);
        let mut memory = self.0.borrow_mut();
        let full = memory.full;
        // A write that fails may have been done by half.
        let written = if outcome.is_err() || full { half } else { bytes };
        memory.contents[*file].bytes.extend_from_slice(written);
        if full { Err(io::ErrorKind::StorageFull.into()) } else { outcome }
    }

    fn sync_file(&mut self, file: &mut usize) -> io::Result<()> {
        let mut memory = self.step()?;
        let content = &mut memory.contents[*file];
        content.durable.clone_from(&content.bytes);
        Ok(())
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let mut memory = self.step()?;
        let index = memory.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        memory.names.insert(to.to_owned(), index);
        Ok(())
    }

    fn sync_directory(&mut self, _path: &Path) -> io::Result<()> {
        let mut memory = self.step()?;
        memory.durable_names = memory.names.clone();
        Ok(())
    }

    fn exists(&mut self, path: &Path) -> io::Result<bool> {
        Ok(self.step()?.names.contains_key(path))
    }

    fn list(&mut self, _path: &Path) -> io::Result<Vec<String>> {
        let memory = self.step()?;
        Ok(memory.names.keys().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect())
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.step()?.names.remove(path).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn unique(&mut self) -> u64 {
        let mut memory = self.0.borrow_mut();
        memory.writers += 1;
        memory.writers
    }
}
