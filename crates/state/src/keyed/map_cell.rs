//! The entries of one key's map.
//!
//! Owns user keys, their values and an index that suits the size: none for a few entries, one up to
//! [`SPLIT_ABOVE`], then many, so that no growth of a huge map pauses a worker for long. Every entry
//! has its own epoch tag, so that a changed entry costs one row.

use millpond_core::Key;

use crate::index::Index;
use crate::slab::{Slab, SlabFull};

/// Entries looked through one by one, without an index.
const SCAN_UP_TO: usize = 8;
/// Entries in one index; more are split over [`PARTS`].
const SPLIT_ABOVE: usize = 32_768;
const PARTS_BITS: u32 = 8;
const PARTS: usize = 1 << PARTS_BITS;

/// One entry of a map.
pub(crate) struct MapItem<UK, UV> {
    pub(crate) key: UK,
    pub(crate) value: UV,
    pub(crate) hash: u32,
    /// When the entry last changed, and whether that is written; see `epochs.rs`.
    pub(crate) tag: u32,
    /// Whether a row of this entry is in a run or in rows handed over.
    pub(crate) persisted: bool,
    /// Whether it was used since the eviction hand last came by.
    pub(crate) seen: bool,
}

enum Lookup {
    Scan,
    One(Index),
    Many(Box<[Index]>),
}

/// See the module.
pub(crate) struct MapCell<UK, UV> {
    pub(crate) items: Slab<MapItem<UK, UV>>,
    /// Whether all entries of the map are here; none may be in the cold store alone.
    pub(crate) complete: bool,
    lookup: Lookup,
}

fn part_of(hash: u32) -> usize {
    (hash >> (u32::BITS - PARTS_BITS)) as usize
}

impl<UK: Key, UV> MapCell<UK, UV> {
    pub(crate) fn new(complete: bool) -> Self {
        MapCell { items: Slab::new(), complete, lookup: Lookup::Scan }
    }

    pub(crate) fn find(&self, key: &UK, hash: u32) -> Option<u32> {
        let is_it = |id| self.items.get(id).is_some_and(|item| item.key == *key);
        match &self.lookup {
            Lookup::Scan => {
                let found = self.items.iter().find(|(_, item)| item.hash == hash && item.key == *key);
                found.map(|(id, _)| id)
            }
            Lookup::One(index) => index.find(hash, is_it),
            Lookup::Many(parts) => parts[part_of(hash)].find(hash, is_it),
        }
    }

    /// Adds an entry whose key is not there yet.
    pub(crate) fn insert(&mut self, item: MapItem<UK, UV>) -> Result<u32, SlabFull> {
        let hash = item.hash;
        let id = self.items.insert(item)?;
        match &mut self.lookup {
            Lookup::Scan if self.items.bound() as usize > SCAN_UP_TO => {
                let mut index = Index::default();
                self.items.iter().for_each(|(id, item)| index.insert(item.hash, id));
                self.lookup = Lookup::One(index);
            }
            Lookup::Scan => {}
            Lookup::One(index) => {
                index.insert(hash, id);
                if self.items.len() > SPLIT_ABOVE {
                    let mut parts: Box<[Index]> = (0..PARTS).map(|_| Index::default()).collect();
                    index.iter().for_each(|(hash, id)| parts[part_of(hash)].insert(hash, id));
                    self.lookup = Lookup::Many(parts);
                }
            }
            Lookup::Many(parts) => parts[part_of(hash)].insert(hash, id),
        }
        Ok(id)
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<MapItem<UK, UV>> {
        let item = self.items.remove(id)?;
        self.unlink(id, item.hash);
        Some(item)
    }

    /// Removes an entry whose content was taken from the slab.
    pub(crate) fn remove_taken(&mut self, id: u32, hash: u32) {
        self.items.free_taken(id);
        self.unlink(id, hash);
    }

    fn unlink(&mut self, id: u32, hash: u32) {
        match &mut self.lookup {
            Lookup::Scan => {}
            Lookup::One(index) => index.remove(hash, id),
            Lookup::Many(parts) => parts[part_of(hash)].remove(hash, id),
        }
    }

    /// Bytes of memory held, without what keys and values own on the heap.
    pub(crate) fn bytes(&self) -> usize {
        let index = match &self.lookup {
            Lookup::Scan => 0,
            Lookup::One(index) => index.bytes(),
            Lookup::Many(parts) => parts.iter().map(|part| part.bytes() + size_of::<Index>()).sum(),
        };
        self.items.bytes() + index
    }
}

#[cfg(test)]
mod tests {
    use millpond_core::seed::mix64;

    use super::*;

    #[test]
    fn ks_33_results_do_not_depend_on_how_entries_are_found() {
        let mut cell = MapCell::new(true);
        let hash = |key: u64| mix64(key) as u32 & 0xff00_3fff;
        for key in 0..40_000u64 {
            let item = MapItem { key, value: key * 3, hash: hash(key), tag: 0, persisted: false, seen: true };
            cell.insert(item).unwrap();
            for probe in [0, key / 2, key] {
                let id = cell.find(&probe, hash(probe)).unwrap();
                assert_eq!(cell.items.get(id).unwrap().value, probe * 3);
            }
            assert_eq!(cell.find(&(key + 1), hash(key + 1)), None);
        }
        for key in 0..40_000u64 {
            let id = cell.find(&key, hash(key)).unwrap();
            cell.remove(id).unwrap();
            assert_eq!(cell.find(&key, hash(key)), None);
        }
        assert_eq!(cell.items.len(), 0);
    }
}
