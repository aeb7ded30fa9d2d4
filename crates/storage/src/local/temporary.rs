//! Names for unfinished writes, and what dead writers left of theirs.
//!
//! Owns the directory `.tmp`. A storage that writes takes the first free *lane* `n` there by
//! locking `n.lock` for its life; its files are `n-0`, `n-1`, … The system drops the lock when the
//! process dies, so files of a lane that can be locked have no writer. Lock files stay: there are
//! as many as there ever were writers at one time.
//!
//! Nothing here needs to be durable.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::directories::make_directory;
use super::disk::Disk;

/// Below the root; no object name begins with a dot.
pub(super) const TEMPORARY_DIRECTORY: &str = ".tmp";

pub(super) struct Temporaries<D: Disk> {
    directory: PathBuf,
    /// Taken at the first write.
    lane: Mutex<Option<Arc<Lane<D>>>>,
}

struct Lane<D: Disk> {
    number: u64,
    /// Files with smaller numbers were left by earlier owners.
    first: u64,
    next: AtomicU64,
    _lock: D::Lock,
}

impl<D: Disk> Temporaries<D> {
    pub(super) fn new(directory: PathBuf) -> Self {
        Temporaries { directory, lane: Mutex::new(None) }
    }

    /// A path that no live writer uses and at which there is no file.
    pub(super) fn next_path(&self, disk: &D) -> io::Result<PathBuf> {
        let lane = self.lane(disk)?;
        let file = lane.next.fetch_add(1, Ordering::Relaxed);
        Ok(self.directory.join(format!("{}-{file}", lane.number)))
    }

    /// Removes the files of all lanes that have no live owner and those that earlier owners of the
    /// own lane left. Returns how many.
    pub(super) fn clean(&self, disk: &D) -> io::Result<u64> {
        let own = self.current();
        let mut removed = 0;
        // A lane is looked at with its lock held, else its files could be of a new owner.
        for lane in self.lanes(disk)? {
            let (lock, before) = match &own {
                Some(own) if own.number == lane => (None, own.first),
                _ => match disk.try_lock(&self.lock_path(lane))? {
                    Some(lock) => (Some(lock), u64::MAX),
                    None => continue,
                },
            };
            for file in self.files(disk, lane)?.into_iter().filter(|file| *file < before) {
                match disk.unlink(&self.directory.join(format!("{lane}-{file}"))) {
                    Ok(()) => removed += 1,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
            drop(lock);
        }
        Ok(removed)
    }

    fn current(&self) -> Option<Arc<Lane<D>>> {
        self.lane.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lane(&self, disk: &D) -> io::Result<Arc<Lane<D>>> {
        let mut current = self.lane.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = &*current {
            return Ok(lane.clone());
        }
        let lane = Arc::new(self.take_lane(disk)?);
        *current = Some(lane.clone());
        Ok(lane)
    }

    fn take_lane(&self, disk: &D) -> io::Result<Lane<D>> {
        make_directory(disk, &self.directory)?;
        let mut number = 0;
        loop {
            if let Some(lock) = disk.try_lock(&self.lock_path(number))? {
                let first = self.files(disk, number)?.into_iter().max().map_or(0, |last| last + 1);
                return Ok(Lane { number, first, next: AtomicU64::new(first), _lock: lock });
            }
            number += 1;
        }
    }

    fn lock_path(&self, lane: u64) -> PathBuf {
        self.directory.join(format!("{lane}.lock"))
    }

    /// The numbers of all lanes that were ever taken, or have files.
    fn lanes(&self, disk: &D) -> io::Result<Vec<u64>> {
        let lane_of =
            |name: &str| name.strip_suffix(".lock").or(name.split_once('-').map(|(lane, _)| lane))?.parse().ok();
        let mut lanes: Vec<u64> = names(disk, &self.directory)?.iter().filter_map(|name| lane_of(name)).collect();
        lanes.sort_unstable();
        lanes.dedup();
        Ok(lanes)
    }

    /// The numbers of the files of `lane`.
    fn files(&self, disk: &D, lane: u64) -> io::Result<Vec<u64>> {
        let file_of = |name: &str| {
            let (of, file) = name.split_once('-')?;
            if of.parse() == Ok(lane) { file.parse().ok() } else { None }
        };
        Ok(names(disk, &self.directory)?.iter().filter_map(|name| file_of(name)).collect())
    }
}

fn names<D: Disk>(disk: &D, directory: &Path) -> io::Result<Vec<String>> {
    match disk.read_dir(directory) {
        Ok(entries) => Ok(entries.into_iter().map(|entry| entry.name).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
