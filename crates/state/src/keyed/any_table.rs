//! What the backend asks of every table, whatever it holds.

use std::any::Any;

use millpond_core::{Key, KeyGroup, KeyHash, MaxParallelism};

use super::cold_part::{Coming, Eviction};
use super::sweep::Sweep;
use crate::cold::ColdSide;
use crate::epochs::{Epochs, Frozen};
use crate::error::StateError;
use crate::rows::split_key;
use crate::table::{At, RestoredKey};

/// A row as it comes out of a run.
#[derive(Clone, Copy)]
pub(crate) struct StoredRow<'a> {
    pub(crate) group: KeyGroup,
    pub(crate) key: &'a [u8],
    pub(crate) value: Option<&'a [u8]>,
}

impl<'a> StoredRow<'a> {
    /// The key it belongs to, which must be of the row's group, and the suffix of its row key; else what is damaged.
    pub(crate) fn place<K: Key>(
        &self,
        max: MaxParallelism,
        scratch: &mut Vec<u8>,
    ) -> Result<(RestoredKey<K>, &'a [u8]), String> {
        let (key, suffix) = split_key(self.key).ok_or("the key is cut off")?;
        let key = RestoredKey::<K>::decode(key, max, scratch).map_err(|error| error.to_string())?;
        if key.hash.group() != self.group {
            return Err(format!("its key belongs to {}", key.hash.group()));
        }
        Ok((key, suffix))
    }
}

/// How much of a slice is left, in bytes.
pub(crate) struct Budget(usize);

/// Looking at an entry costs as much as writing this many bytes.
const ENTRY_COST_BYTES: usize = 16;

impl Budget {
    pub(crate) fn new(bytes: usize) -> Self {
        Budget(bytes.max(1))
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.0 == 0
    }

    /// One entry was looked at and wrote `bytes`.
    pub(crate) fn spend(&mut self, bytes: usize) {
        self.0 = self.0.saturating_sub(bytes + ENTRY_COST_BYTES);
    }
}

/// A table without its types.
pub(crate) trait AnyTable<K: Key>: Any + Send {
    /// Ends the epoch with this tag. O(1).
    fn freeze(&mut self, tag: u32);
    /// Whether changes are remembered for a freeze.
    fn set_tracking(&mut self, tracking: bool);
    /// There is a cold store beneath.
    fn attach_cold(&mut self);
    /// Estimate of the memory that live entries take, cheap enough for every batch; the free space between
    /// them does not count.
    fn hot_bytes(&mut self) -> usize;
    /// Entries that changed in the current epoch, roughly.
    fn dirty_entries(&self) -> usize;
    /// Moves the eviction hand on.
    fn evict(&mut self, epochs: &mut Epochs, max: MaxParallelism, eviction: &mut Eviction) -> Result<(), StateError>;
    /// The cold store has all rows up to this tag, and a batch is over.
    fn purge(&mut self, applied: u32);
    /// Brings in what a batch with these keys will ask for.
    fn fetch(&mut self, keys: &[Coming<'_, K>], epochs: &Epochs) -> Result<(), StateError>;
    /// A restore has put entries into the cold store.
    fn add_cold_entries(&mut self, entries: usize);
    /// Entries that are in the cold store alone.
    fn cold_entries(&self) -> usize;
    /// Whether a row of the cold store is deleted, although the tombstone is not among the rows up to `applied`.
    fn is_gone(&self, row_key: &[u8], applied: u32) -> bool;
    /// Whether tombstones of the frozen epoch with this tag are yet to be written that are older than its rows.
    fn has_clears(&self, tag: u32) -> bool {
        let _ = tag;
        false
    }
    /// Writes entries of the oldest frozen epoch; true when none is left.
    fn write_slice(
        &mut self,
        frozen: &mut Frozen,
        cold: Option<&ColdSide>,
        budget: &mut Budget,
    ) -> Result<bool, StateError>;
    /// Applies one row; rows of older runs come first.
    fn restore_row(&mut self, row: StoredRow<'_>, max: MaxParallelism, scratch: &mut Vec<u8>)
    -> Result<(), StateError>;
    /// All rows have passed.
    fn finish_restore(&mut self, max: MaxParallelism, scratch: &mut Vec<u8>) -> Result<(), StateError>;
    /// Number of keys with something present.
    fn keys(&self) -> usize;
    /// Number of values, lists or map entries.
    fn entries(&self) -> usize;
    /// Estimate of all memory held.
    fn memory_bytes(&self) -> usize;
    /// Asks for the memory of keys that come soon, when the table is large.
    fn prefetch(&self, soon: &[KeyHash], later: &[KeyHash]);
    /// Shows every key in memory once.
    fn visit_keys(&self, visit: &mut dyn FnMut(&K));
    /// Whether anything is present for the current key.
    fn contains(&mut self, at: &At<'_, K>, epochs: &Epochs) -> Result<bool, StateError>;
    /// Looks at up to `sweep.steps` further entries, round and round, and removes those whose time is over. Nothing
    /// for states without a time to live.
    fn sweep(&mut self, sweep: &mut Sweep<'_>) -> Result<(), StateError>;
    /// Removes all that is present for the current key.
    fn clear(&mut self, at: &At<'_, K>, epochs: &mut Epochs) -> Result<(), StateError>;
}

/// A row that makes no sense.
pub(crate) fn damaged(state: &str, group: KeyGroup, reason: String) -> StateError {
    StateError::DamagedRow { state: state.to_owned(), group, reason }
}
