//! How a map state becomes rows and comes back: one row per map entry.

use std::mem::needs_drop;
use std::sync::Arc;

use millpond_core::codec::{decode, encode_into};
use millpond_core::{CodecError, Data, Key, KeyGroup, KeyHash, MaxParallelism};
use millpond_runs::StateIndex;

use super::any_table::{AnyTable, Budget, StoredRow, damaged};
use super::cold_part::{Coming, Eviction};
use super::map_cell::{MapCell, MapItem};
use super::map_clear::Clear;
use super::map_table::MapTable;
use super::sweep::Sweep;
use super::tracked::{ALLOCATION_BYTES, encoded_bytes};
use crate::cold::ColdSide;
use crate::epochs::{Epochs, Frozen, WRITTEN};
use crate::error::StateError;
use crate::rows::{RowTarget, without_suffix};
use crate::slab::SlabFull;
use crate::table::{At, Entry, KeyTable};

/// How many entries ahead the writer asks for.
const AHEAD: usize = 8;
/// How many entries of one map are looked at to estimate memory.
const SAMPLES: usize = 16;

/// Writes an entry as it is now.
pub(super) fn write_item<K: Key, UK: Key, UV: Data>(
    key: &K,
    item: &MapItem<UK, UV>,
    target: &mut RowTarget<'_>,
) -> Result<(), CodecError> {
    target.put(key, |bytes| encode_into(&item.key, bytes), |bytes| encode_into(&item.value, bytes))
}

/// Writes an entry into the frozen epoch that waits for it.
#[inline]
pub(super) fn freeze_item<K: Key, UK: Key, UV: Data>(
    key: &K,
    item: &mut MapItem<UK, UV>,
    state: StateIndex,
    group: KeyGroup,
    frozen: &mut Frozen,
) -> Result<(), CodecError> {
    write_item(key, item, &mut RowTarget { rows: &mut frozen.rows, state, group })?;
    frozen.whole_entries += 1;
    item.persisted = true;
    item.tag |= WRITTEN;
    Ok(())
}

impl<K: Key, UK: Key, UV: Data> AnyTable<K> for MapTable<K, UK, UV> {
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
        let keys = self.keys.entries.len() * KeyTable::<K, MapCell<UK, UV>>::entry_bytes();
        let entries = self.entries * (size_of::<MapItem<UK, UV>>() + 3 * size_of::<u64>());
        let Some(cold) = &mut self.cold else { return keys + entries + self.dirty.bytes() };
        let table = &self.keys;
        let owned = cold.sampled.scale(self.entries, || {
            table.sample(|entry| {
                let key = if needs_drop::<K>() { encoded_bytes(&entry.key) + ALLOCATION_BYTES } else { 0 };
                let sample = entry.cell.items.iter().take(SAMPLES);
                sample.fold((key, 0), |(bytes, items), (_, item)| (bytes + item_bytes(item), items + 1))
            })
        });
        keys + entries + self.dirty.bytes() + owned + cold.bytes() + self.clears.len() * size_of::<Clear>()
    }

    fn evict(&mut self, epochs: &mut Epochs, max: MaxParallelism, eviction: &mut Eviction) -> Result<(), StateError> {
        self.evict_items(epochs, max, eviction)
    }

    fn dirty_entries(&self) -> usize {
        self.dirty.len() + self.clears.len()
    }

    fn purge(&mut self, applied: u32) {
        if let Some(cold) = &mut self.cold {
            cold.purge(applied);
        }
    }

    fn fetch(&mut self, _: &[Coming<'_, K>], _: &Epochs) -> Result<(), StateError> {
        // Which user keys a record will ask for is not known before it does.
        Ok(())
    }

    fn add_cold_entries(&mut self, entries: usize) {
        if let Some(cold) = &mut self.cold {
            cold.entries += entries;
        }
    }

    fn cold_entries(&self) -> usize {
        self.cold.as_ref().map_or(0, |cold| cold.entries)
    }

    fn is_gone(&self, row_key: &[u8], applied: u32) -> bool {
        let Some(cold) = &self.cold else { return false };
        cold.is_removed(row_key, applied) || cold.is_removed(without_suffix(row_key), applied)
    }

    fn has_clears(&self, tag: u32) -> bool {
        self.clears.front().is_some_and(|clear| clear.tag() == tag)
    }

    fn write_slice(
        &mut self,
        frozen: &mut Frozen,
        cold: Option<&ColdSide>,
        budget: &mut Budget,
    ) -> Result<bool, StateError> {
        if let Some(side) = cold
            && !self.write_clears(frozen, side, budget)?
        {
            return Ok(false);
        }
        while !budget.is_spent() {
            let Some((id, item)) = self.dirty.next(frozen.tag) else {
                return Ok(true);
            };
            if let Some((ahead, _)) = self.dirty.ahead(AHEAD) {
                self.keys.entries.prefetch(ahead);
            }
            let before = frozen.rows.bytes();
            if let Some(Entry { key, cell, group, .. }) = self.keys.entries.get_mut(id)
                && let Some(found) = cell.items.get_mut(item)
                && found.tag == frozen.tag
            {
                let written = freeze_item(key, found, self.state, *group, frozen);
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
        let name = Arc::clone(&self.name);
        let fault = |reason| damaged(&name, row.group, reason);
        let (key, suffix) = row.place::<K>(max, scratch).map_err(fault)?;
        let user_key: UK = decode(suffix).map_err(|error| fault(error.to_string()))?;
        let hash = key.hash;
        if let Some(value) = row.value {
            let value = decode(value).map_err(|error| fault(error.to_string()))?;
            let id = self.keys.restore(key, || MapCell::new(true)).map_err(|SlabFull| self.full())?;
            return self.restore_item(id, row.group, user_key, value);
        }
        let Some(id) = self.keys.find(&key.key, hash) else {
            return Ok(());
        };
        let user_hash = self.hash(&user_key)?;
        let Some(entry) = self.keys.entries.get_mut(id) else {
            return Ok(());
        };
        if let Some(item) = entry.cell.find(&user_key, user_hash) {
            entry.cell.remove(item);
            self.entries -= 1;
            self.drop_if_empty(id, hash);
        }
        Ok(())
    }

    fn finish_restore(&mut self, _: MaxParallelism, _: &mut Vec<u8>) -> Result<(), StateError> {
        Ok(())
    }

    fn keys(&self) -> usize {
        self.keys.entries.len()
    }

    fn entries(&self) -> usize {
        self.entries + self.cold_entries()
    }

    fn memory_bytes(&self) -> usize {
        let owned = self.keys.sampled_heap_bytes(|entry| {
            let key = if needs_drop::<K>() { encoded_bytes(&entry.key) } else { 0 };
            let items = &entry.cell.items;
            let mut owned = 0;
            if needs_drop::<UK>() || needs_drop::<UV>() {
                let sample = items.iter().take(SAMPLES);
                owned = sample.map(|(_, item)| encoded_bytes(&item.key) + encoded_bytes(&item.value)).sum();
                owned = owned * items.len() / items.len().clamp(1, SAMPLES);
            }
            key + entry.cell.bytes() + owned
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
        self.is_present(at, epochs)
    }

    fn sweep(&mut self, sweep: &mut Sweep<'_>) -> Result<(), StateError> {
        self.sweep_items(sweep)
    }

    fn clear(&mut self, at: &At<'_, K>, epochs: &mut Epochs) -> Result<(), StateError> {
        self.clear_map(at, epochs)
    }
}

/// What an entry owns on the heap.
fn item_bytes<UK: Key, UV: Data>(item: &MapItem<UK, UV>) -> usize {
    let key = if needs_drop::<UK>() { encoded_bytes(&item.key) + ALLOCATION_BYTES } else { 0 };
    key + if needs_drop::<UV>() { encoded_bytes(&item.value) + ALLOCATION_BYTES } else { 0 }
}
