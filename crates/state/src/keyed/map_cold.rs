//! The part of a map state that is in the cold store: fetched, walked through, evicted entry by entry.
//!
//! A walk reads the store in windows. An entry that is in memory as well is newer there and was shown before; one
//! whose deletion is on its way is passed over. Which deletions the store has is read before each window, so
//! that the background thread may apply rows at any time.

use std::ops::ControlFlow;

use millpond_core::codec::{decode, encode_into};
use millpond_core::hash::stable_hash;
use millpond_core::{Data, Key, KeyHash, MaxParallelism};

use super::any_table::damaged;
use super::cold_part::{Eviction, fetch_row};
use super::map_cell::MapItem;
use super::map_rows::write_item;
use super::map_table::MapTable;
use crate::epochs::{COLD, Epochs, Place, WRITTEN};
use crate::error::StateError;
use crate::rows::{RowTarget, put_key};
use crate::table::{At, Entry};

/// Rows read at a time.
const WINDOW_ROWS: usize = 256;
/// Bytes after which a window is full.
const WINDOW_BYTES: usize = 256 << 10;

/// Where a walk through the cold rows of one key is.
pub(super) struct Walk {
    pub(super) prefix: Vec<u8>,
    /// The first row key that was not shown; `None` at the end.
    pub(super) next: Option<Vec<u8>>,
}

/// One cold row.
pub(super) struct ColdItem<UK> {
    pub(super) key: UK,
    value: Vec<u8>,
}

impl<K: Key, UK: Key, UV: Data> MapTable<K, UK, UV> {
    #[inline(never)]
    pub(super) fn find_cold(
        &mut self,
        found: Option<(u32, u32)>,
        at: &At<'_, K>,
        epochs: &Epochs,
        user_key: &UK,
        hash: u32,
    ) -> Result<Option<(u32, u32)>, StateError> {
        if let Some((id, item)) = found {
            if let Some(item) = self.keys.entries.get_mut(id).and_then(|entry| entry.cell.items.get_mut(item)) {
                item.seen = true;
            }
            return Ok(found);
        }
        let complete = self.map(at).is_some_and(|map| map.complete);
        let (Some(cold), Some(side)) = (&mut self.cold, &epochs.cold) else { return Ok(None) };
        if cold.entries == 0 || complete {
            return Ok(None);
        }
        let group = at.hash.group();
        let mut row_key = std::mem::take(&mut cold.scratch);
        row_key.clear();
        put_key(at.key, &mut row_key).map_err(|source| StateError::codec(&self.name, source))?;
        let applied = side.applied();
        let cleared = cold.is_removed(&row_key, applied);
        encode_into(user_key, &mut row_key).map_err(|source| StateError::codec(&self.name, source))?;
        let gone = cleared || cold.is_gone(&row_key, applied);
        let read = |value: &[u8]| decode::<UV>(value).map_err(|error| error.to_string());
        let value = if gone { Ok(None) } else { fetch_row(side, self.state, group, &row_key, read) };
        let value = value.map_err(|error| error.of(&self.name, group))?;
        if value.is_some() {
            cold.entries -= 1;
        } else if !gone {
            cold.note_absent(&row_key);
        }
        cold.scratch = row_key;
        let Some(value) = value else { return Ok(None) };
        let item = MapItem { key: user_key.clone(), value, hash, tag: COLD, persisted: true, seen: true };
        self.add_item(at, item).map(Some)
    }

    /// Begins to walk through the entries of the current key that are in the cold store alone; `None` when
    /// there cannot be any.
    pub(super) fn walk_cold(&mut self, at: &At<'_, K>) -> Result<Option<Walk>, StateError> {
        let complete = self.map(at).is_some_and(|map| map.complete);
        if complete || self.cold.as_ref().is_none_or(|cold| cold.entries == 0) {
            return Ok(None);
        }
        let mut prefix = Vec::new();
        put_key(at.key, &mut prefix).map_err(|source| StateError::codec(&self.name, source))?;
        Ok(Some(Walk { next: Some(prefix.clone()), prefix }))
    }

    /// The next entries that are in the cold store alone; an empty window is not the end, `None` is.
    pub(super) fn next_cold(
        &mut self,
        walk: &mut Walk,
        at: &At<'_, K>,
        epochs: &Epochs,
    ) -> Result<Option<Vec<ColdItem<UK>>>, StateError> {
        let (Some(side), Some(from)) = (&epochs.cold, walk.next.take()) else { return Ok(None) };
        let (group, applied) = (at.hash.group(), side.applied());
        let (mut rows, mut bytes) = (Vec::new(), 0);
        let scanned = side.store().scan(self.state, group, &walk.prefix, Some(from.as_slice()), &mut |key, value| {
            if rows.len() == WINDOW_ROWS || bytes > WINDOW_BYTES {
                walk.next = Some(key.to_vec());
                return ControlFlow::Break(());
            }
            bytes += key.len() + value.len();
            rows.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        });
        scanned.map_err(|source| StateError::cold(&self.name, source))?;
        let cleared = self.cold.as_ref().is_some_and(|cold| cold.is_removed(&walk.prefix, applied));
        let mut items = Vec::with_capacity(rows.len());
        for (row_key, value) in rows {
            if cleared || self.cold.as_ref().is_some_and(|cold| cold.is_removed(&row_key, applied)) {
                continue;
            }
            let key = decode::<UK>(&row_key[walk.prefix.len()..]);
            let key = key.map_err(|error| damaged(&self.name, group, error.to_string()))?;
            let hash = self.hash(&key)?;
            if self.map(at).is_none_or(|map| map.find(&key, hash).is_none()) {
                items.push(ColdItem { key, value });
            }
        }
        Ok(Some(items))
    }

    /// Brings a cold entry into memory.
    pub(super) fn take_in(&mut self, at: &At<'_, K>, item: ColdItem<UK>) -> Result<(u32, u32), StateError> {
        let ColdItem { key, value } = item;
        let value = decode(&value).map_err(|error| damaged(&self.name, at.hash.group(), error.to_string()))?;
        let hash = self.hash(&key)?;
        let place = self.add_item(at, MapItem { key, value, hash, tag: COLD, persisted: true, seen: false })?;
        if let Some(cold) = &mut self.cold {
            cold.entries -= 1;
        }
        Ok(place)
    }

    /// Lets go of an entry that was taken in, unless it has changed.
    pub(super) fn let_go(&mut self, id: u32, item: u32) {
        let Some(entry) = self.keys.entries.get_mut(id) else { return };
        if entry.cell.items.get(item).is_some_and(|item| item.tag == COLD) {
            entry.cell.remove(item);
            entry.cell.complete = false;
            self.entries -= 1;
            if let Some(cold) = &mut self.cold {
                cold.entries += 1;
            }
        }
    }

    /// Brings the whole map of the current key into memory.
    pub(crate) fn load(&mut self, at: &At<'_, K>, epochs: &Epochs) -> Result<(), StateError> {
        let Some(mut walk) = self.walk_cold(at)? else { return Ok(()) };
        while let Some(items) = self.next_cold(&mut walk, at, epochs)? {
            for item in items {
                self.take_in(at, item)?;
            }
        }
        if let Some(id) = self.keys.look_up(at)
            && let Some(entry) = self.keys.entries.get_mut(id)
        {
            entry.cell.complete = true;
        }
        Ok(())
    }

    /// Number of entries of the current key's map.
    pub(crate) fn count(&mut self, at: &At<'_, K>, epochs: &Epochs) -> Result<usize, StateError> {
        let mut count = self.map(at).map_or(0, |map| map.items.len());
        let Some(mut walk) = self.walk_cold(at)? else { return Ok(count) };
        while let Some(items) = self.next_cold(&mut walk, at, epochs)? {
            count += items.len();
        }
        Ok(count)
    }

    /// Whether the current key's map has an entry.
    pub(crate) fn is_present(&mut self, at: &At<'_, K>, epochs: &Epochs) -> Result<bool, StateError> {
        if self.map(at).is_some_and(|map| map.items.len() > 0) {
            return Ok(true);
        }
        let Some(mut walk) = self.walk_cold(at)? else { return Ok(false) };
        while let Some(items) = self.next_cold(&mut walk, at, epochs)? {
            if !items.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) fn evict_items(
        &mut self,
        epochs: &mut Epochs,
        max: MaxParallelism,
        eviction: &mut Eviction,
    ) -> Result<(), StateError> {
        let bound = self.keys.entries.bound();
        let each = super::any_table::AnyTable::hot_bytes(self).checked_div(self.entries).unwrap_or(0);
        let mut maps = 0;
        while maps < bound && !eviction.is_over() {
            let Some(cold) = &mut self.cold else { return Ok(()) };
            eviction.steps -= 1;
            let (id, item) = (cold.hand.0 % bound, cold.hand.1);
            cold.hand = (id, item + 1);
            let Some(Entry { key, cell, group, .. }) = self.keys.entries.get_mut(id) else {
                cold.hand = (id + 1, 0);
                maps += 1;
                continue;
            };
            if item >= cell.items.bound() {
                cold.hand = (id + 1, 0);
                maps += 1;
                continue;
            }
            let Some(found) = cell.items.get_mut(item) else { continue };
            if found.seen {
                found.seen = false;
                continue;
            }
            match epochs.place(found.tag) {
                Place::Dirty | Place::InFlight => {}
                Place::HotOnly if epochs.waiting_bytes() >= eviction.most_waiting => {}
                Place::HotOnly => {
                    let tag = epochs.tag();
                    let mut target = RowTarget { rows: epochs.transfer_rows(), state: self.state, group: *group };
                    write_item(key, found, &mut target).map_err(|source| StateError::codec(&self.name, source))?;
                    found.persisted = true;
                    found.tag = tag | WRITTEN;
                }
                Place::Cold => {
                    cell.remove(item);
                    cell.complete = false;
                    cold.entries += 1;
                    self.entries -= 1;
                    eviction.freed += each;
                    if cell.items.len() == 0 {
                        let hash = stable_hash(key, &mut cold.scratch);
                        let hash = hash.map_err(|source| StateError::codec(&self.name, source))?;
                        self.keys.remove(id, KeyHash::from_stable(hash, max));
                    }
                }
            }
        }
        Ok(())
    }
}
