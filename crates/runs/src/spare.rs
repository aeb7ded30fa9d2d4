//! Memory of emptied row buffers and of stored files, kept for the next ones.
//!
//! Owns empty chunks and file buffers for the whole process, together at most [`set_spare_limit`] bytes. Workers fill
//! chunks, background threads empty them and fill files: given back to the allocator, that memory returns to the
//! operating system, and whoever takes it again waits for pages to be cleared, a worker in the middle of a checkpoint.
//!
//! What is kept follows use: what lay here unneeded through all of the last [`EPOCHS`] epochs is freed when the next one
//! begins ([`spare_epoch`]). Does *not* own memory that is in use, nor know what lies in it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use millpond_core::Epoch;

/// Room of a new chunk; it grows beyond this for a large last row.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;
/// Chunks that have grown more than this are not kept.
const MAX_CHUNK_BYTES: usize = 4 * CHUNK_BYTES;
/// Files in smaller buffers are left to the allocator.
pub(crate) const MIN_FILE_BYTES: usize = 1 << 20;
/// A file buffer is not used for a file that is expected to be more than this many times smaller.
const MAX_SLACK: usize = 4;
/// Most bytes kept, unless set otherwise: 256 MiB.
const DEFAULT_LIMIT: usize = 256 << 20;
/// What was not needed for so many epochs is freed.
const EPOCHS: usize = 4;

static SPARE: Mutex<Spare> = Mutex::new(Spare::new(DEFAULT_LIMIT));

/// Bounds the memory kept for the next snapshots, for the whole process, in bytes: row buffers and file buffers
/// together, of which the latter have at most half. Default 256 MiB; with 0 nothing is kept. What is kept above the
/// limit is freed at once.
pub fn set_spare_limit(bytes: usize) {
    let freed = spare().set_limit(bytes);
    drop(freed);
}

/// Tells that a snapshot of `epoch` is about to be encoded. When it is another epoch than before, memory is freed that
/// lay unneeded through all of the last four. A process that never tells keeps what it once needed, up to the limit.
pub fn spare_epoch(epoch: Epoch) {
    let freed = spare().begin_epoch(epoch);
    drop(freed);
}

/// Gives back the buffer of an [`crate::EncodedRun`] that is stored, to be used for another file. A buffer that is small,
/// or too many, is freed.
pub fn give_back(file: Vec<u8>) {
    let freed = spare().give_file(file);
    drop(freed);
}

/// An empty chunk with room for [`CHUNK_BYTES`].
pub(crate) fn take() -> Vec<u8> {
    let chunk = spare().take_chunk();
    chunk.unwrap_or_else(|| Vec::with_capacity(CHUNK_BYTES))
}

/// Gives back a chunk whose rows are no longer needed; one that is small, or too many, is freed.
pub(crate) fn give(chunk: Vec<u8>) {
    let freed = spare().give_chunk(chunk);
    drop(freed);
}

/// An empty buffer for a file that is expected to have `bytes`.
pub(crate) fn take_file(bytes: usize) -> Vec<u8> {
    let file = if bytes < MIN_FILE_BYTES { None } else { spare().take_file(bytes) };
    file.unwrap_or_else(|| Vec::with_capacity(bytes))
}

/// Every change is complete when the lock is let go of.
fn spare() -> MutexGuard<'static, Spare> {
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory that is to be freed when nobody waits for the lock.
type Freed = Vec<Vec<u8>>;

struct Spare {
    limit: usize,
    chunks: Pile,
    files: Pile,
    epoch: Option<Epoch>,
}

impl Spare {
    const fn new(limit: usize) -> Self {
        Spare { limit, chunks: Pile::new(), files: Pile::new(), epoch: None }
    }

    const fn bytes(&self) -> usize {
        self.chunks.bytes + self.files.bytes
    }

    fn set_limit(&mut self, limit: usize) -> Freed {
        self.limit = limit;
        let mut freed = self.make_room(0);
        while self.files.bytes > limit / 2 {
            freed.extend(self.files.take_at(0));
        }
        freed
    }

    /// Takes chunks away until `bytes` more fit, if that can be.
    fn make_room(&mut self, bytes: usize) -> Freed {
        let mut freed = Freed::new();
        while self.bytes() + bytes > self.limit
            && let Some(chunk) = self.chunks.take_last()
        {
            freed.push(chunk);
        }
        freed
    }

    fn begin_epoch(&mut self, epoch: Epoch) -> Freed {
        if self.epoch.replace(epoch) == Some(epoch) {
            return Freed::new();
        }
        let mut freed = self.chunks.begin_epoch();
        freed.append(&mut self.files.begin_epoch());
        freed
    }

    fn take_chunk(&mut self) -> Option<Vec<u8>> {
        self.chunks.take_last()
    }

    fn give_chunk(&mut self, mut chunk: Vec<u8>) -> Freed {
        let usual = (CHUNK_BYTES..=MAX_CHUNK_BYTES).contains(&chunk.capacity());
        if !usual || self.bytes() + chunk.capacity() > self.limit {
            return vec![chunk];
        }
        chunk.clear();
        self.chunks.add(self.chunks.buffers.len(), chunk);
        Freed::new()
    }

    /// The smallest buffer with room for `bytes`.
    fn take_file(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let index = self.files.buffers.partition_point(|file| file.capacity() < bytes);
        let fits = self.files.buffers.get(index).is_some_and(|file| file.capacity() / MAX_SLACK <= bytes);
        if fits { self.files.take_at(index) } else { None }
    }

    /// Files are filled many times in a snapshot, chunks once: chunks make room.
    fn give_file(&mut self, mut file: Vec<u8>) -> Freed {
        let bytes = file.capacity();
        if bytes < MIN_FILE_BYTES || self.files.bytes + bytes > self.limit / 2 {
            return vec![file];
        }
        let freed = self.make_room(bytes);
        file.clear();
        let index = self.files.buffers.partition_point(|other| other.capacity() < bytes);
        self.files.add(index, file);
        freed
    }
}

/// Buffers of one kind that wait to be used.
struct Pile {
    buffers: Vec<Vec<u8>>,
    /// Sum of their capacities.
    bytes: usize,
    /// The fewest there were in the current epoch, then in those before it: so many of today's were not needed.
    fewest: [usize; EPOCHS],
}

impl Pile {
    const fn new() -> Self {
        Pile { buffers: Vec::new(), bytes: 0, fewest: [0; EPOCHS] }
    }

    fn add(&mut self, index: usize, buffer: Vec<u8>) {
        self.bytes += buffer.capacity();
        self.buffers.insert(index, buffer);
    }

    fn take_at(&mut self, index: usize) -> Option<Vec<u8>> {
        if index >= self.buffers.len() {
            return None;
        }
        let buffer = self.buffers.remove(index);
        self.bytes -= buffer.capacity();
        self.fewest[0] = self.fewest[0].min(self.buffers.len());
        Some(buffer)
    }

    fn take_last(&mut self) -> Option<Vec<u8>> {
        self.take_at(self.buffers.len().checked_sub(1)?)
    }

    /// Frees what was not needed in any of the last epochs; the rest is counted anew.
    fn begin_epoch(&mut self) -> Freed {
        let unneeded = self.fewest.into_iter().min().unwrap_or(0);
        let freed: Freed = self.buffers.drain(..unneeded).collect();
        self.bytes -= freed.iter().map(Vec::capacity).sum::<usize>();
        self.fewest.rotate_right(1);
        for fewest in &mut self.fewest {
            *fewest = fewest.saturating_sub(unneeded);
        }
        self.fewest[0] = self.buffers.len();
        freed
    }
}

#[cfg(test)]
mod tests;
