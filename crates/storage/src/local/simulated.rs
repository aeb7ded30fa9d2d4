//! A disk that forgets what was not synced when the power is cut.
//!
//! Owns a tree in which every directory and file has two contents: what is seen and what is
//! durable. Syncing a file or directory makes *its* seen content durable, nothing else's. A power
//! cut either loses all the rest, or lets an arbitrary part of it survive. The disk can also be
//! stopped before its n-th change, full, or told to fail a call.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use millpond_core::SplitMix64;

use super::disk::{Disk, Entry, EntryKind};

type Id = usize;
type Names = BTreeMap<String, Id>;

#[derive(Clone, Debug)]
enum Inode {
    File { seen: Vec<u8>, durable: Vec<u8> },
    Directory { seen: Names, durable: Names },
}

/// The calls that change the disk or make changes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    CreateDir,
    CreateNew,
    Write,
    SyncFile,
    SyncDir,
    Link,
    Unlink,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum PowerCut {
    /// Everything that was not synced is lost.
    LosesAll,
    /// Of every unsynced entry and content it is drawn whether, and how much of it, survives.
    LosesSome { seed: u64 },
}

struct State {
    inodes: Vec<Inode>,
    locks: HashSet<PathBuf>,
    /// Changes that may still be made before the disk stops answering.
    changes_left: u64,
    free_bytes: usize,
    failures: Vec<(Change, io::ErrorKind)>,
}

/// Clones share the disk.
#[derive(Clone)]
pub(super) struct SimulatedDisk {
    state: Arc<Mutex<State>>,
}

pub(super) struct SimulatedLock {
    path: PathBuf,
    state: Arc<Mutex<State>>,
}

impl Drop for SimulatedLock {
    fn drop(&mut self) {
        self.state.lock().unwrap().locks.remove(&self.path);
    }
}

const ROOT: Id = 0;

fn fails<T>(kind: io::ErrorKind) -> io::Result<T> {
    Err(kind.into())
}

impl SimulatedDisk {
    pub(super) fn new() -> Self {
        let state = State {
            inodes: vec![Inode::Directory { seen: Names::new(), durable: Names::new() }],
            locks: HashSet::new(),
            changes_left: u64::MAX,
            free_bytes: usize::MAX,
            failures: Vec::new(),
        };
        SimulatedDisk { state: Arc::new(Mutex::new(state)) }
    }

    /// Lets `changes` more changes happen; all later calls fail, as for a process that is killed.
    pub(super) fn stop_after(&self, changes: u64) {
        self.state().changes_left = changes;
    }

    /// The disk answers again: the process was killed, the power stayed.
    pub(super) fn start_again(&self) {
        self.stop_after(u64::MAX);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.state().changes_left == 0
    }

    pub(super) fn set_free_bytes(&self, bytes: usize) {
        self.state().free_bytes = bytes;
    }

    /// The next `change` fails, without having happened.
    pub(super) fn fail_next(&self, change: Change, kind: io::ErrorKind) {
        self.state().failures.push((change, kind));
    }

    /// Forgets what was not synced and answers again.
    pub(super) fn cut_power(&self, cut: PowerCut) {
        let mut state = self.state();
        let mut random = match cut {
            PowerCut::LosesAll => None,
            PowerCut::LosesSome { seed } => Some(SplitMix64::new(seed)),
        };
        for inode in &mut state.inodes {
            match inode {
                Inode::File { seen, durable } => {
                    if let Some(random) = &mut random
                        && random.chance(500)
                    {
                        // Files are only appended to.
                        let unsynced = seen.len() - durable.len();
                        seen.truncate(durable.len() + random.below(unsynced as u64 + 1) as usize);
                        durable.clone_from(seen);
                    }
                    seen.clone_from(durable);
                }
                Inode::Directory { seen, durable } => {
                    let names: Vec<String> = seen.keys().chain(durable.keys()).cloned().collect();
                    for name in names {
                        let survives = random.as_mut().is_some_and(|random| random.chance(500));
                        if survives && seen.get(&name) != durable.get(&name) {
                            match seen.get(&name) {
                                Some(id) => durable.insert(name, *id),
                                None => durable.remove(&name),
                            };
                        }
                    }
                    seen.clone_from(durable);
                }
            }
        }
        state.changes_left = u64::MAX;
        state.locks.clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The state, if this change may be made now.
    fn change(&self, change: Change) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        if state.changes_left == 0 {
            return fails(io::ErrorKind::Other);
        }
        state.changes_left = state.changes_left.saturating_sub(u64::from(state.changes_left != u64::MAX));
        if let Some(index) = state.failures.iter().position(|(of, _)| *of == change) {
            return fails(state.failures.remove(index).1);
        }
        Ok(state)
    }
}

impl State {
    fn find(&self, path: &Path) -> io::Result<Id> {
        let mut id = ROOT;
        for component in path.components().skip(1) {
            let name = component.as_os_str().to_str().unwrap();
            match &self.inodes[id] {
                Inode::File { .. } => return fails(io::ErrorKind::NotADirectory),
                Inode::Directory { seen, .. } => id = *seen.get(name).ok_or(io::ErrorKind::NotFound)?,
            }
        }
        Ok(id)
    }

    fn directory_mut(&mut self, path: &Path) -> io::Result<(&mut Names, &mut Names)> {
        let id = self.find(path)?;
        match &mut self.inodes[id] {
            Inode::Directory { seen, durable } => Ok((seen, durable)),
            Inode::File { .. } => fails(io::ErrorKind::NotADirectory),
        }
    }

    fn add_name(&mut self, path: &Path, id: Id) -> io::Result<()> {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let (seen, _) = self.directory_mut(path.parent().unwrap())?;
        if seen.contains_key(&name) {
            return fails(io::ErrorKind::AlreadyExists);
        }
        seen.insert(name, id);
        Ok(())
    }

    fn add(&mut self, path: &Path, inode: Inode) -> io::Result<Id> {
        let id = self.inodes.len();
        self.add_name(path, id)?;
        self.inodes.push(inode);
        Ok(id)
    }

    fn file(&self, id: Id) -> &Vec<u8> {
        match &self.inodes[id] {
            Inode::File { seen, .. } => seen,
            Inode::Directory { .. } => panic!("only files are opened"),
        }
    }
}

impl Disk for SimulatedDisk {
    type File = Id;
    type Lock = SimulatedLock;

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let inode = Inode::Directory { seen: Names::new(), durable: Names::new() };
        self.change(Change::CreateDir)?.add(path, inode).map(|_| ())
    }

    fn create_new(&self, path: &Path) -> io::Result<Id> {
        self.change(Change::CreateNew)?.add(path, Inode::File { seen: Vec::new(), durable: Vec::new() })
    }

    /// In two halves, each a change of its own.
    fn write_all(&self, file: &mut Id, bytes: &[u8]) -> io::Result<()> {
        let (first, second) = bytes.split_at(bytes.len() / 2);
        for half in [first, second] {
            let mut state = self.change(Change::Write)?;
            let fits = half.len().min(state.free_bytes);
            state.free_bytes -= if state.free_bytes == usize::MAX { 0 } else { fits };
            if let Inode::File { seen, .. } = &mut state.inodes[*file] {
                seen.extend_from_slice(&half[..fits]);
            }
            if fits < half.len() {
                return fails(io::ErrorKind::StorageFull);
            }
        }
        Ok(())
    }

    fn sync_file(&self, file: &Id) -> io::Result<()> {
        if let Inode::File { seen, durable } = &mut self.change(Change::SyncFile)?.inodes[*file] {
            durable.clone_from(seen);
        }
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.change(Change::SyncDir)?;
        let (seen, durable) = state.directory_mut(path)?;
        durable.clone_from(seen);
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.change(Change::Link)?;
        let id = state.find(from)?;
        state.add_name(to, id)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        let mut state = self.change(Change::Unlink)?;
        let id = state.find(path)?;
        if matches!(state.inodes[id], Inode::Directory { .. }) {
            return fails(io::ErrorKind::IsADirectory);
        }
        let (seen, _) = state.directory_mut(path.parent().unwrap())?;
        seen.remove(path.file_name().unwrap().to_str().unwrap());
        Ok(())
    }

    fn open(&self, path: &Path) -> io::Result<Id> {
        let state = self.state();
        let id = state.find(path)?;
        match &state.inodes[id] {
            Inode::File { .. } => Ok(id),
            Inode::Directory { .. } => fails(io::ErrorKind::IsADirectory),
        }
    }

    fn size(&self, file: &Id) -> io::Result<u64> {
        Ok(self.state().file(*file).len() as u64)
    }

    fn read_exact(&self, file: &mut Id, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        let range = offset as usize..offset as usize + bytes.len();
        bytes.copy_from_slice(state.file(*file).get(range).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let mut state = self.state();
        let names = state.directory_mut(path)?.0.clone();
        let kind = |id: Id| match &state.inodes[id] {
            Inode::File { seen, .. } => EntryKind::File { bytes: seen.len() as u64 },
            Inode::Directory { .. } => EntryKind::Directory,
        };
        Ok(names.into_iter().map(|(name, id)| Entry { name, kind: kind(id) }).collect())
    }

    fn try_lock(&self, path: &Path) -> io::Result<Option<SimulatedLock>> {
        let mut state = self.state();
        match state.add(path, Inode::File { seen: Vec::new(), durable: Vec::new() }) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let free = state.locks.insert(path.to_owned());
        Ok(free.then(|| SimulatedLock { path: path.to_owned(), state: self.state.clone() }))
    }
}
