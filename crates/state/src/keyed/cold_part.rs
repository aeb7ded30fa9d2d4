//! What one table knows about the part of it that lies in the cold store.
//!
//! Owns the number of entries that are in the store alone, the keys that must not be read there because their
//! deletion is still on its way, the keys known to be absent there, and the place of the eviction hand. While
//! no entry is in the store alone, the hot table holds everything and nothing is ever asked here.

use std::collections::{HashMap, HashSet, VecDeque};

use millpond_core::{KeyGroup, KeyHash};
use millpond_runs::StateIndex;

use super::any_table::damaged;
use crate::cold::{ColdError, ColdSide};
use crate::error::StateError;

/// See the module.
#[derive(Default)]
pub(crate) struct ColdPart {
    /// Entries that are in the cold store and not in the hot table.
    pub(crate) entries: usize,
    removed: Removed,
    /// Row keys that are in neither; forgotten with every batch.
    absent: HashSet<Box<[u8]>>,
    /// The next entry that the eviction hand looks at, and the item in it.
    pub(crate) hand: (u32, u32),
    /// Bytes that an element owns on the heap, by the last sample, and when to take the next one.
    pub(crate) sampled: Sampled,
    pub(crate) scratch: Vec<u8>,
}

impl ColdPart {
    /// Whether a row key is known not to be in the store, as of `applied`.
    pub(crate) fn is_gone(&self, row_key: &[u8], applied: u32) -> bool {
        self.removed.is_removed(row_key, applied) || self.absent.contains(row_key)
    }

    /// Whether a row key was removed, and its tombstone is not among the rows up to `applied`.
    pub(crate) fn is_removed(&self, row_key: &[u8], applied: u32) -> bool {
        self.removed.is_removed(row_key, applied)
    }

    pub(crate) fn note_removed(&mut self, row_key: &[u8], tag: u32) {
        self.removed.add(row_key, tag);
    }

    pub(crate) fn note_absent(&mut self, row_key: &[u8]) {
        self.absent.insert(row_key.into());
    }

    /// Forgets what the store knows by itself now, or some of it.
    pub(crate) fn purge(&mut self, applied: u32) {
        self.removed.purge(applied);
        self.absent.clear();
    }

    pub(crate) fn bytes(&self) -> usize {
        self.removed.bytes
    }
}

/// Memory of an entry of the map of removed keys, beside the key.
const REMOVED_BYTES: usize = 96;

/// Keys forgotten in one go, at most: more are left for the next time.
const PURGE_AT_ONCE: usize = 1_024;

/// Row keys whose tombstones are on their way, with the tag of the freeze that has them.
#[derive(Default)]
struct Removed {
    tags: HashMap<Box<[u8]>, u32>,
    order: VecDeque<(u32, Box<[u8]>)>,
    bytes: usize,
}

impl Removed {
    fn is_removed(&self, row_key: &[u8], applied: u32) -> bool {
        !self.tags.is_empty() && self.tags.get(row_key).is_some_and(|tag| *tag > applied)
    }

    fn add(&mut self, row_key: &[u8], tag: u32) {
        if self.tags.insert(row_key.into(), tag) == Some(tag) {
            return;
        }
        self.bytes += 2 * row_key.len() + REMOVED_BYTES;
        self.order.push_back((tag, row_key.into()));
    }

    fn purge(&mut self, applied: u32) {
        for _ in 0..PURGE_AT_ONCE {
            let Some((tag, row_key)) = self.order.pop_front_if(|(tag, _)| *tag <= applied) else { return };
            self.bytes -= 2 * row_key.len() + REMOVED_BYTES;
            if self.tags.get(&row_key) == Some(&tag) {
                self.tags.remove(&row_key);
            }
        }
    }
}

/// How often the size of elements is sampled: every so many looks.
const SAMPLE_EVERY: u32 = 16;

/// A sampled size.
#[derive(Default)]
pub(crate) struct Sampled {
    bytes: usize,
    elements: usize,
    looks: u32,
}

impl Sampled {
    /// Bytes of `elements`, where `sample` gives the bytes of some and how many they are.
    pub(crate) fn scale(&mut self, elements: usize, sample: impl FnOnce() -> (usize, usize)) -> usize {
        if self.looks.is_multiple_of(SAMPLE_EVERY) || self.elements == 0 {
            (self.bytes, self.elements) = sample();
        }
        self.looks = self.looks.wrapping_add(1);
        self.bytes.saturating_mul(elements).checked_div(self.elements).unwrap_or(0)
    }
}

/// Why an entry did not come out of the cold store.
pub(crate) enum FetchError {
    /// The store failed.
    Cold(ColdError),
    /// The row makes no sense.
    Damaged(String),
}

impl From<ColdError> for FetchError {
    fn from(error: ColdError) -> Self {
        FetchError::Cold(error)
    }
}

impl FetchError {
    #[cold]
    pub(crate) fn of(self, state: &str, group: KeyGroup) -> StateError {
        match self {
            FetchError::Cold(source) => StateError::cold(state, source),
            FetchError::Damaged(reason) => damaged(state, group, reason),
        }
    }
}

/// The value of one row, passed through `read`; `None` when there is no such row.
pub(crate) fn fetch_row<R>(
    side: &ColdSide,
    state: StateIndex,
    group: KeyGroup,
    row_key: &[u8],
    read: impl FnOnce(&[u8]) -> Result<R, String>,
) -> Result<Option<R>, FetchError> {
    let mut read = Some(read);
    let mut found = None;
    side.store().get_many(state, &[(group, row_key)], &mut |_, value| {
        if let Some((value, read)) = value.zip(read.take()) {
            found = Some(read(value));
        }
    })?;
    found.transpose().map_err(FetchError::Damaged)
}

/// Row keys of one state, side by side in one allocation.
#[derive(Default)]
pub(crate) struct RowKeys {
    bytes: Vec<u8>,
    ends: Vec<(KeyGroup, usize)>,
}

impl RowKeys {
    /// The buffer that the next key is appended to.
    pub(crate) fn open(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// What was appended since the key before.
    pub(crate) fn opened(&self) -> &[u8] {
        &self.bytes[self.ends.last().map_or(0, |(_, end)| *end)..]
    }

    /// Ends the key.
    pub(crate) fn close(&mut self, group: KeyGroup) {
        self.ends.push((group, self.bytes.len()));
    }

    /// Gives up the key.
    pub(crate) fn drop_opened(&mut self) {
        self.bytes.truncate(self.ends.last().map_or(0, |(_, end)| *end));
    }

    /// All keys, in order.
    pub(crate) fn slices(&self) -> Vec<(KeyGroup, &[u8])> {
        let mut start = 0;
        let slice = |(group, end): &(KeyGroup, usize)| {
            let key = &self.bytes[start..*end];
            start = *end;
            (*group, key)
        };
        self.ends.iter().map(slice).collect()
    }
}

/// What the eviction hand shall do in one call, and what it came to.
pub(crate) struct Eviction {
    /// Bytes to free.
    pub(crate) wanted: usize,
    /// Entries that may still be looked at.
    pub(crate) steps: usize,
    /// Bytes freed.
    pub(crate) freed: usize,
    /// Bytes that rows which wait for the next freeze may be: writing more frees nothing before those have gone.
    pub(crate) most_waiting: usize,
}

impl Eviction {
    pub(crate) fn is_over(&self) -> bool {
        self.freed >= self.wanted || self.steps == 0
    }
}

/// A key that comes in a batch.
pub(crate) type Coming<'a, K> = (KeyHash, &'a K);
