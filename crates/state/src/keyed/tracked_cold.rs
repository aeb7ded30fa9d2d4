//! The part of a whole-entry table that is in the cold store: fetched one by one or for a batch, evicted.

use std::mem::needs_drop;

use millpond_core::hash::stable_hash;
use millpond_core::{CodecError, Key, KeyGroup, KeyHash, MaxParallelism};
use millpond_runs::StateIndex;

use super::any_table::damaged;
use super::cold_part::{ColdPart, Coming, Eviction, FetchError, RowKeys};
use super::tracked::{ALLOCATION_BYTES, Cell, Tracked, encoded_bytes};
use crate::cold::ColdSide;
use crate::epochs::{COLD, Epochs, Place, WRITTEN};
use crate::error::StateError;
use crate::rows::{RowTarget, put_key};
use crate::slab::SlabFull;
use crate::table::{At, KeyTable};

impl<K: Key, C: Cell, F: Send + 'static> Tracked<K, C, F> {
    #[inline(never)]
    pub(super) fn find_cold(
        &mut self,
        found: Option<u32>,
        at: &At<'_, K>,
        epochs: &Epochs,
    ) -> Result<Option<u32>, StateError> {
        if let Some(entry) = found.and_then(|id| self.keys.entries.get_mut(id)) {
            entry.seen = true;
            return Ok(found);
        }
        let (Some(cold), Some(side)) = (&mut self.cold, &epochs.cold) else { return Ok(None) };
        if cold.entries == 0 {
            return Ok(None);
        }
        let group = at.hash.group();
        cold.scratch.clear();
        put_key(at.key, &mut cold.scratch).map_err(|source| StateError::codec(&self.name, source))?;
        if cold.is_gone(&cold.scratch, side.applied()) {
            return Ok(None);
        }
        let cell = C::fetch(side, self.state, group, &cold.scratch).map_err(|error| error.of(&self.name, group))?;
        let Some(cell) = cell else {
            let row_key = std::mem::take(&mut cold.scratch);
            cold.note_absent(&row_key);
            cold.scratch = row_key;
            return Ok(None);
        };
        cold.entries -= 1;
        self.elements += cell.elements();
        self.keys.insert(at, cell, COLD).map(Some).map_err(|SlabFull| self.full())
    }

    /// The current key's cell, for changes of what is in memory that change no content.
    pub(crate) fn fill(
        &mut self,
        at: &At<'_, K>,
        epochs: &Epochs,
        fill: impl FnOnce(&mut C, &ColdSide, StateIndex, KeyGroup, &[u8]) -> Result<(), FetchError>,
    ) -> Result<Option<&C>, StateError> {
        let Some(id) = self.find(at, epochs)? else { return Ok(None) };
        if let (Some(cold), Some(side), Some(entry)) = (&mut self.cold, &epochs.cold, self.keys.entries.get_mut(id)) {
            cold.scratch.clear();
            put_key(at.key, &mut cold.scratch).map_err(|source| StateError::codec(&self.name, source))?;
            let before = entry.cell.elements();
            let filled = fill(&mut entry.cell, side, self.state, entry.group, &cold.scratch);
            filled.map_err(|error| error.of(&self.name, entry.group))?;
            self.elements += entry.cell.elements() - before;
        }
        Ok(self.keys.entries.get(id).map(|entry| &entry.cell))
    }

    /// Memory that live entries take, estimated.
    pub(super) fn estimate_hot_bytes(&mut self) -> usize {
        let entries = self.keys.entries.len() * KeyTable::<K, C>::entry_bytes();
        let Some(cold) = &mut self.cold else { return entries + self.dirty.bytes() };
        let owned = if needs_drop::<K>() || needs_drop::<C>() {
            let keys = &self.keys;
            cold.sampled.scale(self.elements, || {
                keys.sample(|entry| {
                    let key = if needs_drop::<K>() { encoded_bytes(&entry.key) + ALLOCATION_BYTES } else { 0 };
                    (key + entry.cell.heap_bytes(), entry.cell.elements())
                })
            })
        } else {
            0
        };
        entries + self.dirty.bytes() + owned + cold.bytes()
    }

    /// Moves the eviction hand on.
    pub(super) fn evict_entries(
        &mut self,
        epochs: &mut Epochs,
        max: MaxParallelism,
        eviction: &mut Eviction,
    ) -> Result<(), StateError> {
        let bound = self.keys.entries.bound();
        let hot_bytes = self.estimate_hot_bytes();
        let each = hot_bytes.checked_div(self.keys.entries.len()).unwrap_or(0);
        let per_element = hot_bytes.checked_div(self.elements).unwrap_or(0);
        for _ in 0..bound {
            let Some(cold) = self.cold.as_mut().filter(|_| !eviction.is_over()) else { return Ok(()) };
            eviction.steps -= 1;
            let id = cold.hand.0 % bound;
            cold.hand.0 = id + 1;
            let Some(entry) = self.keys.entries.get_mut(id) else { continue };
            if entry.seen {
                entry.seen = false;
                continue;
            }
            match epochs.place(entry.tag) {
                Place::Dirty => {
                    let trimmed = entry.cell.trim(|tag| epochs.place(tag));
                    self.elements -= trimmed;
                    eviction.freed += trimmed * per_element;
                }
                Place::InFlight => {}
                Place::Cold => {
                    let hash = stable_hash(&entry.key, &mut cold.scratch);
                    let hash = hash.map_err(|source| StateError::codec(&self.name, source))?;
                    self.elements -= entry.cell.elements();
                    eviction.freed += each;
                    cold.entries += 1;
                    self.keys.remove(id, KeyHash::from_stable(hash, max));
                }
                Place::HotOnly if epochs.waiting_bytes() >= eviction.most_waiting => {}
                Place::HotOnly => {
                    let tag = epochs.tag();
                    let mut target = RowTarget { rows: epochs.transfer_rows(), state: self.state, group: entry.group };
                    let written = entry.cell.write_whole(&entry.key, &mut target);
                    written.map_err(|source| StateError::codec(&self.name, source))?;
                    entry.persisted = true;
                    entry.tag = tag | WRITTEN;
                }
            }
        }
        Ok(())
    }

    /// Brings in what a batch with these keys will ask for.
    pub(super) fn fetch_many(&mut self, keys: &[Coming<'_, K>], epochs: &Epochs) -> Result<(), StateError> {
        let (Some(cold), Some(side)) = (&mut self.cold, &epochs.cold) else { return Ok(()) };
        if cold.entries == 0 || C::MANY_ROWS {
            return Ok(());
        }
        let applied = side.applied();
        let (mut rows, mut wanted) = (RowKeys::default(), Vec::new());
        for (hash, key) in keys {
            if let Some(entry) = self.keys.find(key, *hash).and_then(|id| self.keys.entries.get_mut(id)) {
                // Whatever is used in this batch stays for it.
                entry.seen = true;
                continue;
            }
            put_key(*key, rows.open()).map_err(|source| StateError::codec(&self.name, source))?;
            if cold.is_gone(rows.opened(), applied) {
                rows.drop_opened();
                continue;
            }
            rows.close(hash.group());
            wanted.push((*hash, *key));
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let slices = rows.slices();
        let mut found = Vec::with_capacity(wanted.len());
        let read = side.store().get_many(self.state, &slices, &mut |_, value| {
            found.push(value.map(|value| C::restored(&[], value)));
        });
        read.map_err(|source| StateError::cold(&self.name, source))?;
        for ((found, (hash, key)), (group, row_key)) in found.into_iter().zip(wanted).zip(slices) {
            match found {
                None => cold.note_absent(row_key),
                Some(Err(reason)) => return Err(damaged(&self.name, group, reason)),
                Some(Ok(_)) if self.keys.find(key, hash).is_some() => {}
                Some(Ok(cell)) => {
                    self.elements += cell.elements();
                    cold.entries -= 1;
                    let added = self.keys.add_cold(key.clone(), hash, cell);
                    added.map_err(|SlabFull| StateError::full(&self.name))?;
                }
            }
        }
        Ok(())
    }
}

/// The deletion of what is persisted under `key` is on its way to the cold store.
pub(super) fn note_removed<K: Key>(
    cold: &mut Option<Box<ColdPart>>,
    epochs: &Epochs,
    key: &K,
) -> Result<(), CodecError> {
    let Some(cold) = cold.as_mut().filter(|_| epochs.spills()) else { return Ok(()) };
    let mut row_key = std::mem::take(&mut cold.scratch);
    row_key.clear();
    put_key(key, &mut row_key)?;
    cold.note_removed(&row_key, epochs.tag());
    cold.scratch = row_key;
    Ok(())
}
