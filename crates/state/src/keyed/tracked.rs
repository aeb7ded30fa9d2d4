//! A hot table whose entries are tracked as a whole: value, list, reducing and aggregating state.
//!
//! Owns the touch rule: the first change of an entry in an epoch puts it on that epoch's dirty list;
//! if a frozen epoch still waits for the entry, its old content is written there first. What a cell
//! writes is its own business ([`Cell`]).

use std::mem::needs_drop;
use std::sync::Arc;

use millpond_core::{CodecError, Key, KeyGroup, KeyGroupRange, KeyHash, MaxParallelism};

use super::any_table::{AnyTable, Budget, StoredRow, damaged};
use super::cold_part::{ColdPart, Coming, Eviction, FetchError};
use super::sweep::{Expiry, Sweep};
use super::tracked_cold::note_removed;
use crate::cold::ColdSide;
use crate::epochs::{CLEAN, DirtyLists, Epochs, Frozen, Place, WRITTEN};
use crate::error::StateError;
use crate::rows::{RowTarget, without_suffix};
use crate::slab::SlabFull;
use crate::table::{At, Entry, KeyTable};
use millpond_runs::StateIndex;

/// How many entries ahead the writer asks for.
const AHEAD: usize = 8;

/// What one key holds, and how it becomes rows.
pub(crate) trait Cell: Send + Sized + 'static {
    /// Whether a cell may have more than one row.
    const MANY_ROWS: bool = false;

    /// The first change of a new epoch is about to happen to an entry whose tag is `before`.
    #[inline]
    fn begin_epoch(&mut self, before: u32) {
        let _ = before;
    }

    /// Whether [`Cell::write`] would write all of it.
    fn is_all_changed(&self) -> bool {
        true
    }

    /// Writes what changed since [`Cell::begin_epoch`].
    fn write<K: Key>(&mut self, key: &K, target: &mut RowTarget<'_>) -> Result<(), CodecError>;

    /// Writes everything, as it is now, for a cold store that has nothing of the cell.
    fn write_whole<K: Key>(&mut self, key: &K, target: &mut RowTarget<'_>) -> Result<(), CodecError>;

    /// What has to be in memory of the cell under `row_key`, which has no suffix.
    fn fetch(side: &ColdSide, state: StateIndex, group: KeyGroup, row_key: &[u8]) -> Result<Option<Self>, FetchError>;

    /// Gives back the memory of what is in the cold store for sure, although the cell has changed; returns the
    /// number of elements.
    fn trim(&mut self, place: impl Fn(u32) -> Place) -> usize {
        let _ = place;
        0
    }

    /// Elements in memory.
    fn elements(&self) -> usize {
        1
    }

    /// Writes tombstones for every row that is persisted.
    fn write_removed<K: Key>(&self, key: &K, persisted: bool, target: &mut RowTarget<'_>) -> Result<(), CodecError>;

    /// The cell of a row whose key has no cell yet.
    fn restored(suffix: &[u8], value: &[u8]) -> Result<Self, String>;

    /// Applies a newer row.
    fn restore(&mut self, suffix: &[u8], value: &[u8]) -> Result<(), String>;

    /// Applies a newer tombstone; says whether anything is left.
    fn restore_removed(&mut self, suffix: &[u8]) -> Result<bool, String>;

    /// All rows have passed; says whether anything is left.
    fn finish_restore(&mut self) -> Result<bool, String> {
        Ok(true)
    }

    /// Bytes owned on the heap, estimated.
    fn heap_bytes(&self) -> usize;
}

/// See the module. `F` is the state's function, where it has one.
pub(crate) struct Tracked<K, C, F = ()> {
    pub(super) name: Arc<str>,
    pub(super) state: StateIndex,
    pub(super) keys: KeyTable<K, C>,
    pub(super) dirty: DirtyLists<u32>,
    /// Elements in memory, where cells have many.
    pub(crate) elements: usize,
    pub(super) cold: Option<Box<ColdPart>>,
    pub(super) expiry: Option<Box<Expiry<C>>>,
    pub(crate) function: F,
}

impl<K: Key, C: Cell, F: Send + 'static> Tracked<K, C, F> {
    pub(crate) fn new(name: Arc<str>, state: StateIndex, range: KeyGroupRange, function: F) -> Self {
        let (keys, dirty) = (KeyTable::new(range), DirtyLists::new());
        Tracked { name, state, keys, dirty, elements: 0, cold: None, expiry: None, function }
    }

    /// The same, of cells that expire.
    pub(crate) fn expiring(self, expiry: Expiry<C>) -> Self {
        Tracked { expiry: Some(Box::new(expiry)), ..self }
    }

    /// The id of the current key's entry, which is fetched when it is cold.
    #[inline(always)]
    pub(super) fn find(&mut self, at: &At<'_, K>, epochs: &Epochs) -> Result<Option<u32>, StateError> {
        let found = self.keys.look_up(at);
        if self.cold.is_none() { Ok(found) } else { self.find_cold(found, at, epochs) }
    }

    /// The current key's cell and the state's function, for reading.
    #[inline(always)]
    pub(crate) fn read(&mut self, at: &At<'_, K>, epochs: &Epochs) -> Result<Option<(&C, &F)>, StateError> {
        let Some(id) = self.find(at, epochs)? else { return Ok(None) };
        Ok(self.keys.entries.get(id).map(|entry| (&entry.cell, &self.function)))
    }

    /// The current key's cell, for writing; `None` when there is none.
    #[inline(always)]
    pub(crate) fn write(&mut self, at: &At<'_, K>, epochs: &mut Epochs) -> Result<Option<(&mut C, &F)>, StateError> {
        let Some(id) = self.find(at, epochs)? else {
            return Ok(None);
        };
        self.touch(id, epochs)?;
        Ok(self.keys.entries.get_mut(id).map(|entry| (&mut entry.cell, &self.function)))
    }

    /// Adds a cell for the current key, which has none.
    #[inline]
    pub(crate) fn insert(&mut self, at: &At<'_, K>, epochs: &Epochs, cell: C) -> Result<u32, StateError> {
        self.elements += cell.elements();
        let id = self.keys.insert(at, cell, epochs.tag()).map_err(|SlabFull| self.full())?;
        self.dirty.push(id);
        Ok(id)
    }

    /// Takes the current key's cell through `change`, one look-up; nothing afterwards removes it.
    /// Only for cells that are written as one row.
    #[inline(always)]
    pub(crate) fn change<R>(
        &mut self,
        at: &At<'_, K>,
        epochs: &mut Epochs,
        change: impl FnOnce(&mut Option<C>, &F) -> R,
    ) -> Result<R, StateError> {
        let Some(id) = self.find(at, epochs)? else {
            let mut cell = None;
            let result = change(&mut cell, &self.function);
            if let Some(cell) = cell {
                self.insert(at, epochs, cell)?;
            }
            return Ok(result);
        };
        self.touch(id, epochs)?;
        let Some(Entry { key, cell, tag, group, persisted, seen }) = self.keys.entries.take(id) else {
            let mut none = None;
            return Ok(change(&mut none, &self.function));
        };
        let mut cell = Some(cell);
        let result = change(&mut cell, &self.function);
        if let Some(cell) = cell {
            self.keys.entries.put_back(id, Entry { key, cell, tag, group, persisted, seen });
        } else {
            self.elements -= 1;
            if persisted {
                note_removed(&mut self.cold, epochs, &key).map_err(|source| StateError::codec(&self.name, source))?;
                let mut target = RowTarget { rows: epochs.current_rows(), state: self.state, group };
                target.delete(&key, crate::rows::no_suffix).map_err(|source| StateError::codec(&self.name, source))?;
            }
            self.keys.remove_taken(id, at.hash);
        }
        Ok(result)
    }

    /// Removes the current key's cell, if there is one.
    pub(crate) fn remove(&mut self, at: &At<'_, K>, epochs: &mut Epochs) -> Result<(), StateError> {
        match self.find(at, epochs)? {
            Some(id) => self.remove_at(id, at.hash, epochs),
            None => Ok(()),
        }
    }

    pub(super) fn remove_at(&mut self, id: u32, hash: KeyHash, epochs: &mut Epochs) -> Result<(), StateError> {
        self.settle(id, epochs)?;
        let Some(entry) = self.keys.remove(id, hash) else {
            return Ok(());
        };
        self.elements -= entry.cell.elements();
        if entry.persisted {
            note_removed(&mut self.cold, epochs, &entry.key).map_err(|source| StateError::codec(&self.name, source))?;
        }
        let mut target = RowTarget { rows: epochs.current_rows(), state: self.state, group: entry.group };
        let removed = entry.cell.write_removed(&entry.key, entry.persisted, &mut target);
        removed.map_err(|source| StateError::codec(&self.name, source))
    }

    /// The touch rule; must come before every change of a cell.
    #[inline(always)]
    pub(super) fn touch(&mut self, id: u32, epochs: &mut Epochs) -> Result<(), StateError> {
        match self.keys.entries.get(id) {
            Some(entry) if entry.tag != epochs.tag() => self.touch_first(id, epochs),
            _ => Ok(()),
        }
    }

    #[inline(never)]
    fn touch_first(&mut self, id: u32, epochs: &mut Epochs) -> Result<(), StateError> {
        self.settle(id, epochs)?;
        if let Some(entry) = self.keys.entries.get_mut(id) {
            let mut before = entry.tag;
            if C::MANY_ROWS && epochs.spills() && epochs.place(before) == Place::HotOnly {
                // The rows to come hold only what changes: the rest has to get to the cold store as well.
                let tag = epochs.tag();
                let mut target = RowTarget { rows: epochs.transfer_rows(), state: self.state, group: entry.group };
                let written = entry.cell.write_whole(&entry.key, &mut target);
                written.map_err(|source| StateError::codec(&self.name, source))?;
                entry.persisted = true;
                before = tag | WRITTEN;
            }
            entry.tag = epochs.tag();
            entry.cell.begin_epoch(before);
            self.dirty.push(id);
        }
        Ok(())
    }

    /// Writes the entry into the frozen epoch that still waits for it, if there is one.
    fn settle(&mut self, id: u32, epochs: &mut Epochs) -> Result<(), StateError> {
        let Some(entry) = self.keys.entries.get_mut(id) else {
            return Ok(());
        };
        if entry.tag == CLEAN || entry.tag & WRITTEN != 0 || entry.tag == epochs.tag() {
            return Ok(());
        }
        if let Some(frozen) = epochs.frozen_at(entry.tag) {
            let written = write_entry(entry, self.state, frozen);
            written.map_err(|source| StateError::codec(&self.name, source))?;
        } else {
            entry.tag = CLEAN;
        }
        Ok(())
    }

    pub(super) fn full(&self) -> StateError {
        StateError::full(&self.name)
    }
}

/// Writes what changed of an entry into the frozen epoch that waits for it.
#[inline]
fn write_entry<K: Key, C: Cell>(
    entry: &mut Entry<K, C>,
    state: StateIndex,
    frozen: &mut Frozen,
) -> Result<(), CodecError> {
    let whole = entry.cell.is_all_changed();
    let mut target = RowTarget { rows: &mut frozen.rows, state, group: entry.group };
    entry.cell.write(&entry.key, &mut target)?;
    frozen.whole_entries += usize::from(whole);
    entry.persisted = true;
    entry.tag |= WRITTEN;
    Ok(())
}

impl<K: Key, C: Cell, F: Send + 'static> AnyTable<K> for Tracked<K, C, F> {
    fn freeze(&mut self, tag: u32) {
        self.dirty.freeze(tag);
    }

    fn set_tracking(&mut self, tracking: bool) {
        self.dirty.tracking = tracking;
    }

    fn attach_cold(&mut self) {
        self.cold = Some(Box::default());
    }

    fn hot_bytes(&mut self) -> usize {
        self.estimate_hot_bytes()
    }

    fn evict(&mut self, epochs: &mut Epochs, max: MaxParallelism, eviction: &mut Eviction) -> Result<(), StateError> {
        self.evict_entries(epochs, max, eviction)
    }

    fn dirty_entries(&self) -> usize {
        self.dirty.len()
    }

    fn purge(&mut self, applied: u32) {
        if let Some(cold) = &mut self.cold {
            cold.purge(applied);
        }
    }

    fn fetch(&mut self, keys: &[Coming<'_, K>], epochs: &Epochs) -> Result<(), StateError> {
        self.fetch_many(keys, epochs)
    }

    fn add_cold_entries(&mut self, entries: usize) {
        if let Some(cold) = &mut self.cold {
            cold.entries += entries;
        }
    }

    fn is_gone(&self, row_key: &[u8], applied: u32) -> bool {
        // A cell is removed as a whole, with all its rows.
        self.cold.as_ref().is_some_and(|cold| cold.is_removed(without_suffix(row_key), applied))
    }

    fn cold_entries(&self) -> usize {
        self.cold.as_ref().map_or(0, |cold| cold.entries)
    }

    fn write_slice(
        &mut self,
        frozen: &mut Frozen,
        _: Option<&ColdSide>,
        budget: &mut Budget,
    ) -> Result<bool, StateError> {
        while !budget.is_spent() {
            let Some(id) = self.dirty.next(frozen.tag) else {
                return Ok(true);
            };
            if let Some(ahead) = self.dirty.ahead(AHEAD) {
                self.keys.entries.prefetch(ahead);
            }
            let before = frozen.rows.bytes();
            if let Some(entry) = self.keys.entries.get_mut(id)
                && entry.tag == frozen.tag
            {
                let written = write_entry(entry, self.state, frozen);
                written.map_err(|source| StateError::codec(&self.name, source))?;
            }
            budget.spend(frozen.rows.bytes() - before);
        }
        Ok(false)
    }

    fn restore_row(
        &mut self,
        row: StoredRow<'_>,
        max: MaxParallelism,
        scratch: &mut Vec<u8>,
    ) -> Result<(), StateError> {
        let fault = |reason| damaged(&self.name, row.group, reason);
        let (key, suffix) = row.place::<K>(max, scratch).map_err(fault)?;
        let hash = key.hash;
        match (self.keys.find(&key.key, hash), row.value) {
            (Some(id), Some(value)) => match self.keys.entries.get_mut(id) {
                Some(entry) => entry.cell.restore(suffix, value).map_err(fault),
                None => Ok(()),
            },
            (None, Some(value)) => {
                let cell = C::restored(suffix, value).map_err(fault)?;
                self.elements += 1;
                self.keys.restore(key, || cell).map(|_| ()).map_err(|SlabFull| self.full())
            }
            (Some(id), None) => {
                let Some(entry) = self.keys.entries.get_mut(id) else {
                    return Ok(());
                };
                if !entry.cell.restore_removed(suffix).map_err(fault)? {
                    self.elements -= 1;
                    self.keys.remove(id, hash);
                }
                Ok(())
            }
            (None, None) => Ok(()),
        }
    }

    fn finish_restore(&mut self, max: MaxParallelism, scratch: &mut Vec<u8>) -> Result<(), StateError> {
        self.elements = 0;
        for id in 0..self.keys.entries.bound() {
            let Some(entry) = self.keys.entries.get_mut(id) else {
                continue;
            };
            let group = entry.group;
            if !entry.cell.finish_restore().map_err(|reason| damaged(&self.name, group, reason))? {
                let stable = millpond_core::hash::stable_hash(&entry.key, scratch);
                let stable = stable.map_err(|source| StateError::codec(&self.name, source))?;
                self.keys.remove(id, KeyHash::from_stable(stable, max));
            } else {
                self.elements += entry.cell.elements();
            }
        }
        Ok(())
    }

    fn keys(&self) -> usize {
        self.keys.entries.len() + self.cold_entries()
    }

    fn entries(&self) -> usize {
        self.keys.entries.len() + self.cold_entries()
    }

    fn memory_bytes(&self) -> usize {
        let owned = self.keys.sampled_heap_bytes(|entry| {
            let key = if needs_drop::<K>() { encoded_bytes(&entry.key) } else { 0 };
            key + entry.cell.heap_bytes()
        });
        self.keys.bytes() + self.dirty.bytes() + owned
    }

    fn prefetch(&self, soon: &[KeyHash], later: &[KeyHash]) {
        self.keys.prefetch(soon, later);
    }

    fn visit_keys(&self, visit: &mut dyn FnMut(&K)) {
        self.keys.entries.iter().for_each(|(_, entry)| visit(&entry.key));
    }

    fn contains(&mut self, at: &At<'_, K>, epochs: &Epochs) -> Result<bool, StateError> {
        self.find(at, epochs).map(|found| found.is_some())
    }

    fn sweep(&mut self, sweep: &mut Sweep<'_>) -> Result<(), StateError> {
        self.sweep_entries(sweep)
    }

    fn clear(&mut self, at: &At<'_, K>, epochs: &mut Epochs) -> Result<(), StateError> {
        self.remove(at, epochs)
    }
}

/// What an allocation takes beside its content, roughly.
pub(crate) const ALLOCATION_BYTES: usize = 16;

/// Bytes of the encoding, as an estimate of what a value owns on the heap.
pub(crate) fn encoded_bytes<T: serde::Serialize>(value: &T) -> usize {
    millpond_core::codec::encode(value).map_or(0, |bytes| bytes.len())
}
