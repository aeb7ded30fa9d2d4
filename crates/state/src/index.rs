//! From a hash to an id: open addressing over 32 hash bits, cut into shards that grow on their own.
//!
//! Owns the slots. Does *not* own keys: the caller compares them. A slot is one `u64`, the hash bits
//! above and the id plus one below; 0 is an empty slot. Probing is linear, deletion shifts back, so
//! there are no tombstones. A small table has one index, which fits the
//! processor's cache, a large one has shards. Growing a shard moves slots without touching a key, and a shard holds a
//! thousandth of the table, so that no growth pauses a worker for long.

use millpond_core::{KeyGroup, KeyGroupRange, KeyHash};

use crate::prefetch::prefetch;

const SMALLEST: usize = 4;
/// Slots looked at together; about half a cache line.
const LOOK: usize = 4;

/// One open-addressing index.
#[derive(Default)]
pub(crate) struct Index {
    slots: Box<[u64]>,
    used: u32,
}

#[inline]
const fn slot(hash: u32, id: u32) -> u64 {
    (hash as u64) << 32 | (id as u64 + 1)
}

#[inline]
const fn hash_of(slot: u64) -> u32 {
    (slot >> 32) as u32
}

#[inline]
const fn id_of(slot: u64) -> u32 {
    (slot as u32).wrapping_sub(1)
}

/// Where probing for `hash` begins among `slots` slots: at the first of [`LOOK`] slots that lie in one cache
/// line, so that most look-ups touch one line.
#[inline(always)]
const fn home(hash: u32, slots: usize) -> usize {
    hash as usize & slots.wrapping_sub(1) & !(LOOK - 1)
}

impl Index {
    /// Bytes of memory held.
    pub(crate) fn bytes(&self) -> usize {
        self.slots.len() * size_of::<u64>()
    }

    /// The id under `hash` for which `is_it` holds.
    #[inline(always)]
    pub(crate) fn find(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let likely = self.likely_slot(hash);
        if hash_of(likely) == hash && likely != 0 && is_it(id_of(likely)) {
            return Some(id_of(likely));
        }
        self.probe(hash, is_it)
    }

    /// The first of the [`LOOK`] slots from home on that carries `hash`, else any of them; chosen
    /// without branching. A branch per slot could not be predicted, and a wrong prediction waits
    /// for the slot's cache line and takes the work on the records behind it with it.
    #[inline(always)]
    fn likely_slot(&self, hash: u32) -> u64 {
        let home = home(hash, self.slots.len());
        let Some(look) = self.slots.get(home..home + LOOK) else { return 0 };
        look.iter().rev().fold(0, |found, &slot| {
            let here = u64::from(hash_of(slot) == hash).wrapping_neg();
            (slot & here) | (found & !here)
        })
    }

    #[inline(never)]
    fn probe(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let mask = self.slots.len().wrapping_sub(1);
        let mut at = home(hash, self.slots.len());
        while let Some(&slot) = self.slots.get(at) {
            if slot == 0 {
                return None;
            }
            if hash_of(slot) == hash && is_it(id_of(slot)) {
                return Some(id_of(slot));
            }
            at = (at + 1) & mask;
        }
        None
    }

    /// Asks for the cache line where probing for `hash` begins.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u32) {
        if let Some(slot) = self.slots.get(home(hash, self.slots.len())) {
            prefetch(slot);
        }
    }

    /// Probably the id under `hash`, unchecked by the key.
    #[inline]
    pub(crate) fn candidate(&self, hash: u32) -> u32 {
        id_of(self.likely_slot(hash))
    }

    /// Adds an id that is not in the index yet.
    pub(crate) fn insert(&mut self, hash: u32, id: u32) {
        if (self.used as usize + 1) * 8 > self.slots.len() * 5 {
            self.resize((self.slots.len() * 2).max(SMALLEST));
        }
        place(&mut self.slots, slot(hash, id));
        self.used += 1;
    }

    /// Removes an id; it must have been inserted under `hash`.
    pub(crate) fn remove(&mut self, hash: u32, id: u32) {
        let mask = self.slots.len().wrapping_sub(1);
        let wanted = slot(hash, id);
        let mut hole = home(hash, self.slots.len());
        while self.slots.get(hole).is_some_and(|slot| *slot != wanted && *slot != 0) {
            hole = (hole + 1) & mask;
        }
        if self.slots.get(hole) != Some(&wanted) {
            return;
        }
        let mut at = (hole + 1) & mask;
        while self.slots[at] != 0 {
            let home = home(hash_of(self.slots[at]), self.slots.len());
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.slots[hole] = self.slots[at];
                hole = at;
            }
            at = (at + 1) & mask;
        }
        self.slots[hole] = 0;
        self.used -= 1;
        if self.slots.len() > 64 && (self.used as usize) * 8 < self.slots.len() {
            self.resize(self.slots.len() / 2);
        }
    }

    /// Forgets all ids, but keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.slots.fill(0);
        self.used = 0;
    }

    /// Every hash with its id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        self.slots.iter().filter(|slot| **slot != 0).map(|slot| (hash_of(*slot), id_of(*slot)))
    }

    fn resize(&mut self, slots: usize) {
        let mut grown = vec![0u64; slots].into_boxed_slice();
        for slot in self.slots.iter().filter(|slot| **slot != 0) {
            place(&mut grown, *slot);
        }
        self.slots = grown;
    }
}

#[inline]
fn place(slots: &mut [u64], slot: u64) {
    let mask = slots.len().wrapping_sub(1);
    let mut at = home(hash_of(slot), slots.len());
    while slots[at] != 0 {
        at = (at + 1) & mask;
    }
    slots[at] = slot;
}

/// At least this many shards per table, once it is large.
const SHARDS: u32 = 1_024;
/// Ids up to which one index is quicker than shards: it fits the processor's cache.
const SPLIT_ABOVE: u32 = 16_384;

/// An index over the key groups of one subtask: one while it is small, then cut into shards, of
/// which every key group has one or more of its own.
pub(crate) struct ShardedIndex {
    shards: Box<[Index]>,
    range: KeyGroupRange,
    /// Bits of the hash that choose a shard within the group; `None` while there is one index.
    shift: Option<u32>,
}

impl ShardedIndex {
    pub(crate) fn new(range: KeyGroupRange) -> Self {
        ShardedIndex { shards: Box::new([Index::default()]), range, shift: None }
    }

    #[inline]
    fn shard_of(&self, hash: KeyHash) -> usize {
        let Some(shift) = self.shift else { return 0 };
        let group = u32::from(hash.group().0).wrapping_sub(self.range.start) as usize;
        let within = (u64::from(hash.bits32()) << shift >> 32) as usize;
        group << shift | within
    }

    /// The shard of `hash`; `None` for a group that is not owned.
    #[inline]
    pub(crate) fn shard(&self, hash: KeyHash) -> Option<&Index> {
        self.shards.get(self.shard_of(hash))
    }

    /// The shard of `hash`; `None` for a group that is not owned.
    #[inline]
    pub(crate) fn shard_mut(&mut self, hash: KeyHash) -> Option<&mut Index> {
        let at = self.shard_of(hash);
        self.shards.get_mut(at)
    }

    /// Whether [`ShardedIndex::split`] is due.
    #[inline]
    pub(crate) fn is_one_too_large(&self) -> bool {
        self.shift.is_none() && self.shards[0].used > SPLIT_ABOVE
    }

    /// Cuts the one index into shards; `group_of` tells the group of an id.
    pub(crate) fn split(&mut self, group_of: impl Fn(u32) -> Option<KeyGroup>) {
        let groups = self.range.len().max(1);
        let per_group = SHARDS.div_ceil(groups).next_power_of_two();
        let shards = (0..groups * per_group).map(|_| Index::default()).collect();
        let small = std::mem::replace(&mut self.shards, shards);
        self.shift = Some(per_group.trailing_zeros());
        for (hash, id) in small.iter().flat_map(Index::iter) {
            let Some(group) = group_of(id) else { continue };
            let whole = KeyHash(u64::from(group.0) << 48 | u64::from(hash));
            if let Some(shard) = self.shard_mut(whole) {
                shard.insert(hash, id);
            }
        }
    }

    /// Bytes of memory held.
    pub(crate) fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.bytes() + size_of::<Index>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_index_agrees_with_a_map_under_clashing_hashes(operations in prop::collection::vec((0u32..12, 0u32..200, any::<bool>()), 0..400)) {
            let mut index = Index::default();
            let mut model: BTreeMap<u32, u32> = BTreeMap::new();
            for (hash, id, insert) in operations {
                let hash = hash.wrapping_mul(0x4000_0001) ^ (id % 3);
                match model.get(&id).copied() {
                    None if insert => {
                        index.insert(hash, id);
                        model.insert(id, hash);
                    }
                    Some(hash) if !insert => {
                        index.remove(hash, id);
                        model.remove(&id);
                    }
                    _ => {}
                }
                for (id, hash) in &model {
                    prop_assert_eq!(index.find(*hash, |found| found == *id), Some(*id));
                }
            }
            prop_assert_eq!(index.iter().count(), model.len());
        }
    }

    #[test]
    fn shards_shrink_after_mass_deletion() {
        let mut index = Index::default();
        (0..10_000).for_each(|id| index.insert(id * 7, id));
        let full = index.bytes();
        (0..10_000).for_each(|id| index.remove(id * 7, id));
        assert!(index.bytes() < full / 50);
    }
}
