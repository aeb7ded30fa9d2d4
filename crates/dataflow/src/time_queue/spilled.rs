//! The entries of a queue that are in files: sorted, read from the front.
//!
//! A file is a sequence of blocks; entries ascend by time from block to block and inside of them. Of each file it is
//! known in memory where the next block stands and which time it begins with, and nothing else; a block says both of the
//! one behind it. Several files overlap in time: the next block is that of the file with the earliest. A file is
//! removed with its last block.
//!
//! ```text
//! block    payload length u32 · CRC-32 of the rest · length of the next payload u32 (0: none) · its first time i64 · payload
//! payload  entries: time less that before (zigzag varint; the first: less 0) · hash u64 · key · namespace
//! ```
//!
//! Numbers are little-endian. The format is of one attempt: it needs no version.

use std::collections::BTreeMap;
use std::sync::Arc;

use millpond_core::codec::{CodecError, checksum, decode_prefix, encode_into, put_varint, take_varint};
use millpond_core::{Key, KeyHash};
use millpond_state::cold::ColdFile;
use millpond_state::{BesideRoom, ColdError, ColdFiles, StateError};

use super::{Bucket, Queued};

/// Bytes of a block before its payload.
const HEAD_BYTES: usize = 20;
/// All files together may have a block in memory: one is this part of what may be there, within bounds.
const BLOCK_PART: usize = 1_024;
const MOST_BLOCK_BYTES: usize = 16 << 10;
const LEAST_BLOCK_BYTES: usize = 128;
/// Blocks are appended when they are so many bytes.
const WRITE_BYTES: usize = 256 << 10;

/// A file that is not read to its end.
#[derive(Clone)]
struct Run {
    file: ColdFile,
    files: Arc<dyn ColdFiles>,
    /// Where the next block stands, and how long its payload is.
    next_at: u64,
    next_bytes: u32,
}

impl Run {
    /// Shows the entries of the next block and moves on to the one behind it; its first time, if there is one, and how
    /// many entries were shown.
    fn read<K: Key, N: Key>(
        &mut self,
        state: &str,
        block: &mut Vec<u8>,
        mut show: impl FnMut(i64, Queued<K, N>) -> Result<(), StateError>,
    ) -> Result<(Option<i64>, usize), StateError> {
        block.clear();
        block.resize(HEAD_BYTES + self.next_bytes as usize, 0);
        self.files.read(self.file, self.next_at, block).map_err(|error| cold(state, error))?;
        let damaged = |reason: &str| {
            let reason = format!("the block at byte {} of {:?}: {reason}", self.next_at, self.file);
            cold(state, ColdError::Damaged { place: format!("of what is due in {state:?}"), reason })
        };
        let (next_bytes, next_ms) = head_of(block, self.next_bytes).ok_or_else(|| damaged("its checksum differs"))?;
        let mut payload = &block[HEAD_BYTES..];
        let (mut time_ms, mut shown) = (0i64, 0);
        while !payload.is_empty() {
            let (entry, rest) = take(payload, &mut time_ms).ok_or_else(|| damaged("an entry makes no sense"))?;
            payload = rest;
            show(time_ms, entry)?;
            shown += 1;
        }
        self.next_at += block.len() as u64;
        self.next_bytes = next_bytes;
        Ok(((next_bytes > 0).then_some(next_ms), shown))
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Spilled {
    /// By the first time of the next block, and a number of the file.
    runs: BTreeMap<(i64, u64), Run>,
    made: u64,
    entries: usize,
    /// The earliest time of all.
    first: Option<i64>,
    block: Vec<u8>,
}

impl Spilled {
    pub(super) fn entries(&self) -> usize {
        self.entries
    }

    /// The earliest time.
    #[inline]
    pub(super) fn first(&self) -> Option<i64> {
        self.first
    }

    fn settle(&mut self) {
        self.first = self.runs.keys().next().map(|(first, _)| *first);
    }

    /// Writes entries, one or more, into a file of their own.
    pub(super) fn write<K: Key, N: Key>(
        &mut self,
        state: &str,
        room: &BesideRoom,
        entries: BTreeMap<i64, Bucket<K, N>>,
    ) -> Result<(), StateError> {
        let block_bytes = (room.limit_bytes / BLOCK_PART).clamp(LEAST_BLOCK_BYTES, MOST_BLOCK_BYTES);
        let write_bytes = (room.limit_bytes / 4).min(WRITE_BYTES);
        let file = room.files.create().map_err(|error| cold(state, error))?;
        let append = |bytes: &[u8]| room.files.append(file, bytes).map_err(|error| cold(state, error));
        let mut writer = Writer { block_bytes, ..Writer::default() };
        for (time_ms, bucket) in entries {
            for entry in bucket {
                writer.put(time_ms, &entry).map_err(|error| codec(state, error))?;
                if writer.out.len() >= write_bytes {
                    append(&writer.out)?;
                    writer.out.clear();
                }
            }
        }
        let Written { out, first_ms, first_bytes, entries } = writer.finish();
        append(&out)?;
        let run = Run { file, files: Arc::clone(&room.files), next_at: 0, next_bytes: first_bytes };
        self.runs.insert((first_ms, self.made), run);
        self.made += 1;
        self.entries += entries;
        self.settle();
        Ok(())
    }

    /// Shows the entries of the next block, which are gone then.
    pub(super) fn read_next<K: Key, N: Key>(
        &mut self,
        state: &str,
        mut show: impl FnMut(i64, Queued<K, N>),
    ) -> Result<(), StateError> {
        let Some(((_, number), mut run)) = self.runs.pop_first() else { return Ok(()) };
        let (next, shown) = run.read(state, &mut self.block, |time_ms, entry| {
            show(time_ms, entry);
            Ok(())
        })?;
        self.entries -= shown;
        match next {
            Some(next_ms) => {
                self.runs.insert((next_ms, number), run);
            }
            None => run.files.remove(run.file).map_err(|error| cold(state, error))?,
        }
        self.settle();
        Ok(())
    }

    /// Shows the entries up to `until_ms`, which stay.
    pub(super) fn for_each<K: Key, N: Key>(
        &mut self,
        state: &str,
        until_ms: i64,
        mut show: impl FnMut(i64, Queued<K, N>) -> Result<(), StateError>,
    ) -> Result<(), StateError> {
        for ((first_ms, _), run) in &self.runs {
            let (mut run, mut next) = (run.clone(), Some(*first_ms));
            while next.is_some_and(|next_ms| next_ms <= until_ms) {
                (next, _) =
                    run.read(
                        state,
                        &mut self.block,
                        |time_ms, entry| {
                            if time_ms <= until_ms { show(time_ms, entry) } else { Ok(()) }
                        },
                    )?;
            }
        }
        Ok(())
    }

    pub(super) fn clear(&mut self, state: &str) -> Result<(), StateError> {
        self.entries = 0;
        self.first = None;
        while let Some((_, run)) = self.runs.pop_first() {
            run.files.remove(run.file).map_err(|error| cold(state, error))?;
        }
        Ok(())
    }
}

#[cold]
fn cold(state: &str, source: ColdError) -> StateError {
    StateError::Cold { state: state.to_owned(), source: Box::new(source) }
}

#[cold]
fn codec(state: &str, source: CodecError) -> StateError {
    StateError::Codec { state: state.to_owned(), source: Box::new(source) }
}

/// Turns entries into blocks.
#[derive(Default)]
struct Writer {
    block_bytes: usize,
    /// Blocks that are whole.
    out: Vec<u8>,
    /// The payload before, which has yet to say what follows, and its first time.
    before: Vec<u8>,
    /// The payload that grows, its first time and its last.
    payload: Vec<u8>,
    payload_first_ms: i64,
    last_ms: i64,
    /// First time and length of the first payload.
    first: Option<(i64, u32)>,
    entries: usize,
}

struct Written {
    out: Vec<u8>,
    first_ms: i64,
    first_bytes: u32,
    entries: usize,
}

impl Writer {
    fn put<K: Key, N: Key>(&mut self, time_ms: i64, entry: &Queued<K, N>) -> Result<(), CodecError> {
        if self.payload.len() >= self.block_bytes {
            self.close();
        }
        if self.payload.is_empty() {
            (self.payload_first_ms, self.last_ms) = (time_ms, 0);
        }
        let step = time_ms.wrapping_sub(self.last_ms);
        put_varint(((step << 1) ^ (step >> 63)) as u64, &mut self.payload);
        self.last_ms = time_ms;
        self.payload.extend_from_slice(&entry.hash.0.to_le_bytes());
        encode_into(&entry.key, &mut self.payload)?;
        encode_into(&entry.namespace, &mut self.payload)?;
        self.entries += 1;
        Ok(())
    }

    /// The payload is whole: the one before can be written, for it is known what follows.
    fn close(&mut self) {
        let bytes = self.payload.len() as u32;
        self.first.get_or_insert((self.payload_first_ms, bytes));
        self.put_before(bytes, self.payload_first_ms);
        std::mem::swap(&mut self.before, &mut self.payload);
        self.payload.clear();
    }

    fn put_before(&mut self, next_bytes: u32, next_ms: i64) {
        if self.before.is_empty() {
            return;
        }
        self.out.extend_from_slice(&(self.before.len() as u32).to_le_bytes());
        let checked_at = self.out.len() + 4;
        self.out.extend_from_slice(&[0; 4]);
        self.out.extend_from_slice(&next_bytes.to_le_bytes());
        self.out.extend_from_slice(&next_ms.to_le_bytes());
        self.out.append(&mut self.before);
        let sum = checksum(&self.out[checked_at..]);
        self.out[checked_at - 4..checked_at].copy_from_slice(&sum.to_le_bytes());
    }

    fn finish(mut self) -> Written {
        if !self.payload.is_empty() {
            self.close();
        }
        self.put_before(0, 0);
        let (first_ms, first_bytes) = self.first.unwrap_or_default();
        Written { out: self.out, first_ms, first_bytes, entries: self.entries }
    }
}

/// Length of the next payload and its first time; `None` when the block is not what was written.
fn head_of(block: &[u8], payload_bytes: u32) -> Option<(u32, i64)> {
    let word = |at: usize| Some(u32::from_le_bytes(block.get(at..at + 4)?.try_into().ok()?));
    if word(0)? != payload_bytes || word(4)? != checksum(&block[8..]) {
        return None;
    }
    Some((word(8)?, i64::from_le_bytes(block.get(12..HEAD_BYTES)?.try_into().ok()?)))
}

/// The entry in front, and what follows it; `time_ms` moves on to its time.
fn take<'a, K: Key, N: Key>(bytes: &'a [u8], time_ms: &mut i64) -> Option<(Queued<K, N>, &'a [u8])> {
    let (step, rest) = take_varint(bytes)?;
    *time_ms = time_ms.wrapping_add((step >> 1) as i64 ^ -((step & 1) as i64));
    let (hash, rest) = rest.split_first_chunk::<8>()?;
    let (key, rest) = decode_prefix(rest).ok()?;
    let (namespace, rest) = decode_prefix(rest).ok()?;
    Some((Queued { hash: KeyHash(u64::from_le_bytes(*hash)), key, namespace }, rest))
}
