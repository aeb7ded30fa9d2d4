//! From a key to a native value: the hot table.
//!
//! Owns entries (in a slab) and their index. Does *not* know what a value is or how it is written.
//! An access after another for the same record does not probe again: the last look-up is remembered
//! together with the record's sequence number. A key is cloned only when its entry is inserted.

use millpond_core::hash::stable_hash;
use millpond_core::{CodecError, Key, KeyGroup, KeyGroupRange, KeyHash, MaxParallelism};

use crate::epochs::{CLEAN, COLD};
use crate::index::ShardedIndex;
use crate::slab::{NO_ID, Slab, SlabFull};

/// How many entries are looked at to estimate memory.
const SAMPLES: u32 = 64;

/// Tables below this size stay in the processor's cache: prefetching them is wasted work.
const PREFETCH_ABOVE_BYTES: usize = 256 << 10;

/// The current key, for one access.
pub(crate) struct At<'a, K> {
    pub(crate) key: &'a K,
    pub(crate) hash: KeyHash,
    pub(crate) sequence: u64,
}

/// One key with what the table holds for it.
pub(crate) struct Entry<K, C> {
    pub(crate) key: K,
    pub(crate) cell: C,
    /// When the cell last changed, and whether that is written; see `epochs.rs`.
    pub(crate) tag: u32,
    pub(crate) group: KeyGroup,
    /// Whether rows of this entry are in a run or in rows handed over.
    pub(crate) persisted: bool,
    /// Whether it was used since the eviction hand last came by.
    pub(crate) seen: bool,
}

/// See the module.
pub(crate) struct KeyTable<K, C> {
    pub(crate) entries: Slab<Entry<K, C>>,
    index: ShardedIndex,
    seen_sequence: u64,
    seen_id: u32,
}

impl<K: Key, C> KeyTable<K, C> {
    pub(crate) fn new(range: KeyGroupRange) -> Self {
        KeyTable { entries: Slab::new(), index: ShardedIndex::new(range), seen_sequence: 0, seen_id: NO_ID }
    }

    /// The id of the current key's entry.
    #[inline(always)]
    pub(crate) fn look_up(&mut self, at: &At<'_, K>) -> Option<u32> {
        if self.seen_sequence != at.sequence {
            self.seen_id = self.find(at.key, at.hash).unwrap_or(NO_ID);
            self.seen_sequence = at.sequence;
        }
        (self.seen_id != NO_ID).then_some(self.seen_id)
    }

    #[inline(always)]
    pub(crate) fn find(&self, key: &K, hash: KeyHash) -> Option<u32> {
        let is_it = |id| self.entries.get(id).is_some_and(|entry| entry.key == *key);
        self.index.shard(hash)?.find(hash.bits32(), is_it)
    }

    /// Adds the current key, which has no entry yet.
    pub(crate) fn insert(&mut self, at: &At<'_, K>, cell: C, tag: u32) -> Result<u32, SlabFull> {
        let id = self.add(at.key.clone(), at.hash, cell, tag)?;
        self.seen_sequence = at.sequence;
        self.seen_id = id;
        Ok(id)
    }

    fn add(&mut self, key: K, hash: KeyHash, cell: C, tag: u32) -> Result<u32, SlabFull> {
        let Some(shard) = self.index.shard_mut(hash) else {
            return Err(SlabFull);
        };
        let entry = Entry { key, cell, tag, group: hash.group(), persisted: tag == CLEAN || tag == COLD, seen: true };
        let id = self.entries.insert(entry)?;
        shard.insert(hash.bits32(), id);
        if self.index.is_one_too_large() {
            self.index.split(|id| self.entries.get(id).map(|entry| entry.group));
        }
        Ok(id)
    }

    /// Adds an entry that came out of the cold store, of a key that need not be the current one.
    pub(crate) fn add_cold(&mut self, key: K, hash: KeyHash, cell: C) -> Result<u32, SlabFull> {
        self.seen_sequence = 0;
        self.add(key, hash, cell, COLD)
    }

    /// Bytes of memory that one entry takes, without what key and cell own on the heap.
    pub(crate) const fn entry_bytes() -> usize {
        size_of::<Entry<K, C>>() + 2 * size_of::<u64>()
    }

    /// Removes an entry.
    pub(crate) fn remove(&mut self, id: u32, hash: KeyHash) -> Option<Entry<K, C>> {
        self.unlink(id, hash);
        self.entries.remove(id)
    }

    /// Removes an entry whose content was taken from the slab.
    pub(crate) fn remove_taken(&mut self, id: u32, hash: KeyHash) {
        self.unlink(id, hash);
        self.entries.free_taken(id);
    }

    fn unlink(&mut self, id: u32, hash: KeyHash) {
        if let Some(shard) = self.index.shard_mut(hash) {
            shard.remove(hash.bits32(), id);
        }
        if self.seen_id == id {
            self.seen_id = NO_ID;
        }
    }

    /// Asks for the entries of the keys that come `soon`, whose index slots were asked for one call
    /// earlier, and for the index slots of those that come `later`. Two calls, because looking into a
    /// slot that is still on its way would wait for it.
    pub(crate) fn prefetch(&self, soon: &[KeyHash], later: &[KeyHash]) {
        if self.entries.len() * size_of::<Entry<K, C>>() < PREFETCH_ABOVE_BYTES {
            return;
        }
        for hash in later {
            if let Some(shard) = self.index.shard(*hash) {
                shard.prefetch(hash.bits32());
            }
        }
        for hash in soon {
            if let Some(shard) = self.index.shard(*hash) {
                self.entries.prefetch(shard.candidate(hash.bits32()));
            }
        }
    }

    /// Bytes of memory held, without what keys and cells own on the heap.
    pub(crate) fn bytes(&self) -> usize {
        self.entries.bytes() + self.index.bytes()
    }

    /// What keys and cells own on the heap, estimated from a sample.
    pub(crate) fn sampled_heap_bytes(&self, owned: impl Fn(&Entry<K, C>) -> usize) -> usize {
        let (bytes, count) = self.sample(|entry| (owned(entry), 1));
        bytes * self.entries.len() / count.max(1)
    }

    /// The sums of both numbers over some entries.
    pub(crate) fn sample(&self, measure: impl Fn(&Entry<K, C>) -> (usize, usize)) -> (usize, usize) {
        let bound = self.entries.bound();
        let step = (bound / SAMPLES).max(1) as usize;
        let sample = (0..bound).step_by(step).filter_map(|id| self.entries.get(id));
        sample.map(measure).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// The id of a restored key, which is added with the given cell when it is not there.
    pub(crate) fn restore(&mut self, key: RestoredKey<K>, cell: impl FnOnce() -> C) -> Result<u32, SlabFull> {
        self.seen_sequence = 0;
        match self.find(&key.key, key.hash) {
            Some(id) => Ok(id),
            None => self.add(key.key, key.hash, cell(), CLEAN),
        }
    }
}

/// A key decoded from a row, with its hash.
pub(crate) struct RestoredKey<K> {
    pub(crate) key: K,
    pub(crate) hash: KeyHash,
}

impl<K: Key> RestoredKey<K> {
    pub(crate) fn decode(bytes: &[u8], max: MaxParallelism, scratch: &mut Vec<u8>) -> Result<Self, CodecError> {
        let key: K = millpond_core::codec::decode(bytes)?;
        let hash = KeyHash::from_stable(stable_hash(&key, scratch)?, max);
        Ok(RestoredKey { key, hash })
    }
}
