//! The hot table of a map state: one map per key, tracked entry by entry.
//!
//! Owns the touch rule for map entries, as `tracked.rs` does for whole cells: the first change in an
//! epoch puts (key, entry) on the dirty list, after its old content went to the frozen epoch that
//! still waited for it.

use std::collections::VecDeque;
use std::sync::Arc;

use millpond_core::codec::encode_into;
use millpond_core::hash::stable_hash;
use millpond_core::{Data, Key, KeyGroup, KeyGroupRange, KeyHash};
use millpond_runs::StateIndex;

use super::any_table::damaged;
use super::cold_part::ColdPart;
use super::map_cell::{MapCell, MapItem};
use super::map_clear::Clear;
use super::map_rows::freeze_item;
use super::sweep::Expiry;
use crate::epochs::{CLEAN, DirtyLists, Epochs, WRITTEN};
use crate::error::StateError;
use crate::rows::{RowTarget, put_key};
use crate::slab::SlabFull;
use crate::table::{At, Entry, KeyTable};

/// See the module.
pub(crate) struct MapTable<K, UK, UV> {
    pub(super) name: Arc<str>,
    pub(super) state: StateIndex,
    pub(super) keys: KeyTable<K, MapCell<UK, UV>>,
    /// Number of map entries of all keys.
    pub(super) entries: usize,
    pub(super) dirty: DirtyLists<(u32, u32)>,
    pub(super) cold: Option<Box<ColdPart>>,
    /// What was cleared and is still in the cold store, oldest first.
    pub(super) clears: VecDeque<Clear>,
    pub(super) expiry: Option<Box<Expiry<UV>>>,
    scratch: Vec<u8>,
}

impl<K: Key, UK: Key, UV: Data> MapTable<K, UK, UV> {
    pub(crate) fn new(name: Arc<str>, state: StateIndex, range: KeyGroupRange) -> Self {
        let (keys, dirty) = (KeyTable::new(range), DirtyLists::new());
        let (clears, scratch) = (VecDeque::new(), Vec::new());
        MapTable { name, state, keys, entries: 0, dirty, cold: None, clears, expiry: None, scratch }
    }

    /// The same, of values that expire.
    pub(crate) fn expiring(self, expiry: Expiry<UV>) -> Self {
        MapTable { expiry: Some(Box::new(expiry)), ..self }
    }

    /// 32 hash bits of a user key.
    pub(super) fn hash(&mut self, user_key: &UK) -> Result<u32, StateError> {
        let hash = stable_hash(user_key, &mut self.scratch);
        Ok(hash.map_err(|source| StateError::codec(&self.name, source))? as u32)
    }

    /// The current key's map, as far as it is in memory.
    #[inline]
    pub(crate) fn map(&mut self, at: &At<'_, K>) -> Option<&MapCell<UK, UV>> {
        let id = self.keys.look_up(at)?;
        self.keys.entries.get(id).map(|entry| &entry.cell)
    }

    /// Where an entry of the current key's map is; it is fetched when it is cold.
    #[inline]
    pub(super) fn find(
        &mut self,
        at: &At<'_, K>,
        epochs: &Epochs,
        user_key: &UK,
        hash: u32,
    ) -> Result<Option<(u32, u32)>, StateError> {
        let id = self.keys.look_up(at);
        let found = id.and_then(|id| Some((id, self.keys.entries.get(id)?.cell.find(user_key, hash)?)));
        if self.cold.is_none() { Ok(found) } else { self.find_cold(found, at, epochs, user_key, hash) }
    }

    /// One entry of the current key's map.
    #[inline]
    pub(crate) fn item(
        &mut self,
        at: &At<'_, K>,
        epochs: &Epochs,
        user_key: &UK,
    ) -> Result<Option<&MapItem<UK, UV>>, StateError> {
        if self.cold.is_none() && self.keys.look_up(at).is_none() {
            return Ok(None);
        }
        let hash = self.hash(user_key)?;
        let Some((id, item)) = self.find(at, epochs, user_key, hash)? else { return Ok(None) };
        Ok(self.item_at(id, item))
    }

    /// The ids of every entry of the current key's map.
    pub(crate) fn item_ids(&mut self, at: &At<'_, K>) -> Option<(u32, u32)> {
        let id = self.keys.look_up(at)?;
        Some((id, self.keys.entries.get(id)?.cell.items.bound()))
    }

    pub(crate) fn item_at(&self, id: u32, item: u32) -> Option<&MapItem<UK, UV>> {
        self.keys.entries.get(id)?.cell.items.get(item)
    }

    /// Sets an entry of the current key's map.
    pub(crate) fn put(
        &mut self,
        at: &At<'_, K>,
        epochs: &mut Epochs,
        user_key: UK,
        value: UV,
    ) -> Result<(), StateError> {
        let hash = self.hash(&user_key)?;
        if let Some((id, item)) = self.find(at, epochs, &user_key, hash)? {
            return self.set_at(id, item, epochs, value);
        }
        self.insert(at, epochs, user_key, hash, value)
    }

    fn insert(&mut self, at: &At<'_, K>, epochs: &Epochs, key: UK, hash: u32, value: UV) -> Result<(), StateError> {
        let item = MapItem { key, value, hash, tag: epochs.tag(), persisted: false, seen: true };
        let place = self.add_item(at, item)?;
        self.dirty.push(place);
        Ok(())
    }

    /// Adds an entry to the current key's map, which does not have it.
    pub(super) fn add_item(&mut self, at: &At<'_, K>, item: MapItem<UK, UV>) -> Result<(u32, u32), StateError> {
        let id = self.cell_id(at)?;
        let Some(entry) = self.keys.entries.get_mut(id) else { return Err(self.full()) };
        let item = entry.cell.insert(item).map_err(|SlabFull| StateError::full(&self.name))?;
        self.entries += 1;
        Ok((id, item))
    }

    /// The id of the current key's map, which is added when nothing of it is in memory.
    pub(super) fn cell_id(&mut self, at: &At<'_, K>) -> Result<u32, StateError> {
        if let Some(id) = self.keys.look_up(at) {
            return Ok(id);
        }
        let complete = self.cold.as_ref().is_none_or(|cold| cold.entries == 0);
        self.keys.insert(at, MapCell::new(complete), CLEAN).map_err(|SlabFull| self.full())
    }

    /// Sets an entry that is there.
    pub(crate) fn set_at(&mut self, id: u32, item: u32, epochs: &mut Epochs, value: UV) -> Result<(), StateError> {
        self.touch(id, item, epochs)?;
        if let Some(found) = self.keys.entries.get_mut(id).and_then(|entry| entry.cell.items.get_mut(item)) {
            found.value = value;
        }
        Ok(())
    }

    /// Takes an entry through `change`, one look-up; nothing afterwards removes it.
    pub(crate) fn change<R>(
        &mut self,
        at: &At<'_, K>,
        epochs: &mut Epochs,
        user_key: UK,
        change: impl FnOnce(&mut Option<UV>) -> R,
    ) -> Result<R, StateError> {
        let hash = self.hash(&user_key)?;
        let Some((id, item)) = self.find(at, epochs, &user_key, hash)? else {
            let mut value = None;
            let result = change(&mut value);
            if let Some(value) = value {
                self.insert(at, epochs, user_key, hash, value)?;
            }
            return Ok(result);
        };
        self.touch(id, item, epochs)?;
        let cell = self.keys.entries.get_mut(id).map(|entry| &mut entry.cell);
        let Some((cell, taken)) = cell.and_then(|cell| cell.items.take(item).map(|taken| (cell, taken))) else {
            return Ok(change(&mut None));
        };
        let MapItem { key, value, hash, tag, persisted, seen } = taken;
        let mut value = Some(value);
        let result = change(&mut value);
        if let Some(value) = value {
            cell.items.put_back(item, MapItem { key, value, hash, tag, persisted, seen });
            return Ok(result);
        }
        cell.remove_taken(item, hash);
        self.removed(id, &key, persisted, epochs)?;
        self.drop_if_empty(id, at.hash);
        Ok(result)
    }

    /// Removes an entry of the current key's map.
    pub(crate) fn remove(
        &mut self,
        at: &At<'_, K>,
        epochs: &mut Epochs,
        user_key: &UK,
    ) -> Result<Option<UV>, StateError> {
        if self.cold.is_none() && self.keys.look_up(at).is_none() {
            return Ok(None);
        }
        let hash = self.hash(user_key)?;
        let Some((id, item)) = self.find(at, epochs, user_key, hash)? else { return Ok(None) };
        let value = self.remove_at(id, item, epochs)?;
        self.drop_if_empty(id, at.hash);
        Ok(value)
    }

    /// Removes an entry; the key stays, even when its map is empty.
    pub(crate) fn remove_at(&mut self, id: u32, item: u32, epochs: &mut Epochs) -> Result<Option<UV>, StateError> {
        let Some(MapItem { key, value, persisted, .. }) = self.take_out(id, item, epochs)? else {
            return Ok(None);
        };
        self.removed(id, &key, persisted, epochs)?;
        Ok(Some(value))
    }

    /// Takes an entry out of memory; to count it, and to leave a tombstone, is the caller's business.
    pub(super) fn take_out(
        &mut self,
        id: u32,
        item: u32,
        epochs: &mut Epochs,
    ) -> Result<Option<MapItem<UK, UV>>, StateError> {
        self.settle(id, item, epochs)?;
        Ok(self.keys.entries.get_mut(id).and_then(|entry| entry.cell.remove(item)))
    }

    /// An entry is gone, and must not be read from the cold store either.
    fn removed(&mut self, id: u32, user_key: &UK, persisted: bool, epochs: &mut Epochs) -> Result<(), StateError> {
        if let Some(entry) = self.keys.entries.get(id).filter(|_| persisted)
            && let Some(cold) = self.cold.as_mut().filter(|_| epochs.spills())
        {
            self.scratch.clear();
            put_key(&entry.key, &mut self.scratch)
                .and_then(|()| encode_into(user_key, &mut self.scratch))
                .map_err(|source| StateError::codec(&self.name, source))?;
            cold.note_removed(&self.scratch, epochs.tag());
        }
        self.bury(id, user_key, persisted, epochs)
    }

    /// Counts an entry that is gone, and leaves a tombstone where a row is persisted.
    pub(super) fn bury(
        &mut self,
        id: u32,
        user_key: &UK,
        persisted: bool,
        epochs: &mut Epochs,
    ) -> Result<(), StateError> {
        self.entries -= 1;
        let Some(entry) = self.keys.entries.get(id).filter(|_| persisted) else {
            return Ok(());
        };
        let mut target = RowTarget { rows: epochs.current_rows(), state: self.state, group: entry.group };
        let deleted = target.delete(&entry.key, |bytes| encode_into(user_key, bytes));
        deleted.map_err(|source| StateError::codec(&self.name, source))
    }

    /// A key without entries is not listed and takes no space.
    pub(crate) fn drop_if_empty(&mut self, id: u32, hash: KeyHash) {
        if self.keys.entries.get(id).is_some_and(|entry| entry.cell.items.len() == 0) {
            self.keys.remove(id, hash);
        }
    }

    /// The touch rule; must come before every change of an entry's value.
    #[inline]
    pub(crate) fn touch(&mut self, id: u32, item: u32, epochs: &mut Epochs) -> Result<(), StateError> {
        if self.item_at(id, item).is_none_or(|found| found.tag == epochs.tag()) {
            return Ok(());
        }
        self.settle(id, item, epochs)?;
        if let Some(found) = self.keys.entries.get_mut(id).and_then(|entry| entry.cell.items.get_mut(item)) {
            found.tag = epochs.tag();
            self.dirty.push((id, item));
        }
        Ok(())
    }

    /// Writes the entry into the frozen epoch that still waits for it, if there is one.
    fn settle(&mut self, id: u32, item: u32, epochs: &mut Epochs) -> Result<(), StateError> {
        let Some(Entry { key, cell, group, .. }) = self.keys.entries.get_mut(id) else {
            return Ok(());
        };
        let Some(found) = cell.items.get_mut(item) else {
            return Ok(());
        };
        if found.tag == CLEAN || found.tag & WRITTEN != 0 || found.tag == epochs.tag() {
            return Ok(());
        }
        if let Some(frozen) = epochs.frozen_at(found.tag) {
            let written = freeze_item(key, found, self.state, *group, frozen);
            written.map_err(|source| StateError::codec(&self.name, source))?;
        } else {
            found.tag = CLEAN;
        }
        Ok(())
    }

    pub(super) fn full(&self) -> StateError {
        StateError::full(&self.name)
    }

    pub(super) fn restore_item(&mut self, id: u32, group: KeyGroup, user_key: UK, value: UV) -> Result<(), StateError> {
        let hash = self.hash(&user_key)?;
        let Some(entry) = self.keys.entries.get_mut(id) else {
            return Ok(());
        };
        if let Some(item) = entry.cell.find(&user_key, hash).and_then(|item| entry.cell.items.get_mut(item)) {
            item.value = value;
            return Ok(());
        }
        let item = MapItem { key: user_key, value, hash, tag: CLEAN, persisted: true, seen: true };
        entry.cell.insert(item).map_err(|SlabFull| damaged(&self.name, group, "too many entries".to_owned()))?;
        self.entries += 1;
        Ok(())
    }
}
