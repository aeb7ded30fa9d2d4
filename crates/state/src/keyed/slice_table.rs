//! A hot table laid out by slice of time first, and by key within a slice.
//!
//! Owns the entries of each slice, one after the other, and an index over them. What is stored is what a map state
//! from slice to value stores, row by row; only the layout in memory differs: a slice that is over is handed out
//! from end to end, without looking for a key, and its memory serves the next one.
//!
//! The touch rule is that of `tracked.rs`. A slice stays in memory whole: with a cold store, operators keep such
//! state in a map.

use std::collections::HashSet;
use std::sync::Arc;

use millpond_core::codec::{decode, encode_into};
use millpond_core::hash::stable_hash;
use millpond_core::{CodecError, Data, Key, KeyGroup, KeyGroupRange, KeyHash, MaxParallelism};
use millpond_runs::StateIndex;

use super::any_table::{AnyTable, Budget, StoredRow, damaged};
use super::cold_part::{Coming, Eviction};
use super::sweep::Sweep;
use super::tracked::encoded_bytes;
use crate::cold::ColdSide;
use crate::epochs::{CLEAN, DirtyLists, Epochs, Frozen, WRITTEN};
use crate::error::StateError;
use crate::index::Index;
use crate::prefetch::prefetch;
use crate::rows::RowTarget;
use crate::table::{At, RestoredKey};

/// What a slice holds for a key.
struct SliceEntry<K, V> {
    key: K,
    value: V,
    /// When the value last changed, and whether that is written; see `epochs.rs`.
    tag: u32,
    group: KeyGroup,
    persisted: bool,
}

/// One slice of time.
struct Slice<K, V> {
    start: i64,
    index: Index,
    entries: Vec<SliceEntry<K, V>>,
    /// Entries that there were when the slice began to be handed out.
    peak: usize,
    /// Whether the index names entries that were handed out: their places must not be taken before it is built anew.
    stale: bool,
}

impl<K: Key, V> Slice<K, V> {
    #[inline(always)]
    fn find(&self, key: &K, hash: u32) -> Option<u32> {
        // A stale index names entries that were handed out.
        self.index.find(hash, |id| self.entries.get(id as usize).is_some_and(|entry| entry.key == *key))
    }

    /// Builds the index anew where it is stale.
    #[inline]
    fn refresh(&mut self, scratch: &mut Vec<u8>) -> Result<(), CodecError> {
        if self.stale {
            self.index.clear();
            for (id, entry) in self.entries.iter().enumerate() {
                self.index.insert(stable_hash(&entry.key, scratch)? as u32, id as u32);
            }
            self.stale = false;
        }
        Ok(())
    }

    /// Removes the entry of a key with this hash; the last entry takes its place.
    fn take_out(&mut self, id: u32, hash: u32, scratch: &mut Vec<u8>) -> Result<(), CodecError> {
        self.refresh(scratch)?;
        let last = self.entries.len() as u32 - 1;
        self.index.remove(hash, id);
        if id != last {
            let moved = stable_hash(&self.entries[last as usize].key, scratch)? as u32;
            self.index.remove(moved, last);
            self.index.insert(moved, id);
        }
        self.entries.swap_remove(id as usize);
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.index.bytes() + self.entries.capacity() * size_of::<SliceEntry<K, V>>()
    }
}

/// See the module.
pub(crate) struct SliceTable<K, V> {
    name: Arc<str>,
    state: StateIndex,
    /// By start, in order.
    slices: Vec<Slice<K, V>>,
    /// Position of the slice that was used last.
    last: usize,
    /// The memory of a slice that is over.
    spare: Option<Slice<K, V>>,
    dirty: DirtyLists<(i64, u32)>,
    scratch: Vec<u8>,
}

/// Writes an entry into the frozen epoch that waits for it.
#[inline]
fn freeze_entry<K: Key, V: Data>(
    start: i64,
    entry: &mut SliceEntry<K, V>,
    state: StateIndex,
    frozen: &mut Frozen,
) -> Result<(), CodecError> {
    let mut target = RowTarget { rows: &mut frozen.rows, state, group: entry.group };
    target.put(&entry.key, |bytes| encode_into(&start, bytes), |bytes| encode_into(&entry.value, bytes))?;
    frozen.whole_entries += 1;
    entry.persisted = true;
    entry.tag |= WRITTEN;
    Ok(())
}

/// Writes the entry into the frozen epoch that still waits for it, if there is one.
#[inline]
fn settle<K: Key, V: Data>(
    state: StateIndex,
    start: i64,
    entry: &mut SliceEntry<K, V>,
    epochs: &mut Epochs,
) -> Result<(), CodecError> {
    if entry.tag == CLEAN || entry.tag & WRITTEN != 0 || entry.tag == epochs.tag() {
        return Ok(());
    }
    if let Some(frozen) = epochs.frozen_at(entry.tag) {
        freeze_entry(start, entry, state, frozen)?;
    } else {
        entry.tag = CLEAN;
    }
    Ok(())
}

/// An entry is about to go: what a frozen epoch still wants of it is written, and a tombstone where it is stored.
#[inline]
fn take_leave<K: Key, V: Data>(
    state: StateIndex,
    start: i64,
    entry: &mut SliceEntry<K, V>,
    epochs: &mut Epochs,
) -> Result<(), CodecError> {
    settle(state, start, entry, epochs)?;
    if !entry.persisted {
        return Ok(());
    }
    let mut target = RowTarget { rows: epochs.current_rows(), state, group: entry.group };
    target.delete(&entry.key, |bytes| encode_into(&start, bytes))
}

impl<K: Key, V: Data> SliceTable<K, V> {
    pub(crate) fn new(name: Arc<str>, state: StateIndex, _: KeyGroupRange) -> Self {
        let (slices, dirty) = (Vec::new(), DirtyLists::new());
        SliceTable { name, state, slices, last: 0, spare: None, dirty, scratch: Vec::new() }
    }

    #[inline(always)]
    fn position(&mut self, start: i64) -> Option<usize> {
        if self.slices.get(self.last).is_some_and(|slice| slice.start == start) {
            return Some(self.last);
        }
        let at = self.slices.binary_search_by_key(&start, |slice| slice.start).ok()?;
        self.last = at;
        Some(at)
    }

    #[inline(always)]
    fn position_or_new(&mut self, start: i64) -> usize {
        match self.position(start) {
            Some(at) => at,
            None => self.add_slice(start),
        }
    }

    #[inline(never)]
    fn add_slice(&mut self, start: i64) -> usize {
        let slice = match self.spare.take() {
            Some(spare) => Slice { start, peak: 0, stale: false, ..spare },
            None => Slice { start, index: Index::default(), entries: Vec::new(), peak: 0, stale: false },
        };
        let at = self.slices.partition_point(|slice| slice.start < start);
        self.slices.insert(at, slice);
        self.last = at;
        at
    }

    /// Changes the current key's value in a slice in place, beginning with `first` where there is none.
    #[inline(always)]
    pub(crate) fn modify_or<R>(
        &mut self,
        at: &At<'_, K>,
        epochs: &mut Epochs,
        start: i64,
        first: impl FnOnce() -> V,
        change: impl FnOnce(&mut V) -> R,
    ) -> Result<R, StateError> {
        let position = self.position_or_new(start);
        let slice = &mut self.slices[position];
        let hash = at.hash.bits32();
        if let Some(id) = slice.find(at.key, hash) {
            let entry = &mut slice.entries[id as usize];
            if entry.tag != epochs.tag() {
                settle(self.state, start, entry, epochs).map_err(|source| StateError::codec(&self.name, source))?;
                entry.tag = epochs.tag();
                self.dirty.push((start, id));
            }
            return Ok(change(&mut entry.value));
        }
        let mut value = first();
        let result = change(&mut value);
        slice.refresh(&mut self.scratch).map_err(|source| StateError::codec(&self.name, source))?;
        let id = u32::try_from(slice.entries.len()).map_err(|_| StateError::full(&self.name))?;
        let (tag, group) = (epochs.tag(), at.hash.group());
        slice.entries.push(SliceEntry { key: at.key.clone(), value, tag, group, persisted: false });
        slice.index.insert(hash, id);
        self.dirty.push((start, id));
        Ok(result)
    }

    /// The current key's value in a slice.
    pub(crate) fn get(&mut self, at: &At<'_, K>, start: i64) -> Option<&V> {
        let position = self.position(start)?;
        let slice = &self.slices[position];
        let id = slice.find(at.key, at.hash.bits32())?;
        slice.entries.get(id as usize).map(|entry| &entry.value)
    }

    /// Where the slices begin, in order.
    pub(crate) fn starts(&self) -> impl Iterator<Item = i64> {
        self.slices.iter().map(|slice| slice.start)
    }

    /// Whether the slice holds anything.
    #[inline]
    pub(crate) fn has(&mut self, start: i64) -> bool {
        self.position(start).is_some()
    }

    /// The values of several slices put together, key by key.
    pub(crate) fn merged(
        &mut self,
        starts: &[i64],
        mut merge: impl FnMut(V, V) -> V,
    ) -> Result<Vec<(K, V)>, StateError> {
        let mut index = Index::default();
        let mut all: Vec<(K, Option<V>)> = Vec::new();
        for slice in self.slices.iter_mut().filter(|slice| starts.binary_search(&slice.start).is_ok()) {
            slice.refresh(&mut self.scratch).map_err(|source| StateError::codec(&self.name, source))?;
            for (hash, id) in slice.index.iter() {
                let Some(entry) = slice.entries.get(id as usize) else { continue };
                let found = index.find(hash, |at| all[at as usize].0 == entry.key);
                let Some(at) = found else {
                    index.insert(hash, all.len() as u32);
                    all.push((entry.key.clone(), Some(entry.value.clone())));
                    continue;
                };
                let held = &mut all[at as usize].1;
                *held = held.take().map(|before| merge(before, entry.value.clone()));
            }
        }
        Ok(all.into_iter().filter_map(|(key, value)| Some((key, value?))).collect())
    }

    /// Hands out up to `limit` entries of a slice, which are gone then; false when none is left.
    pub(crate) fn drain<E: From<StateError>>(
        &mut self,
        epochs: &mut Epochs,
        start: i64,
        limit: usize,
        mut visit: impl FnMut(K, V) -> Result<(), E>,
    ) -> Result<bool, E> {
        let Some(position) = self.position(start) else { return Ok(false) };
        let slice = &mut self.slices[position];
        slice.peak = slice.peak.max(slice.entries.len());
        let from = slice.entries.len().saturating_sub(limit);
        slice.stale |= from < slice.entries.len();
        for mut entry in slice.entries.drain(from..) {
            let left = take_leave(self.state, start, &mut entry, epochs);
            left.map_err(|source| StateError::codec(&self.name, source))?;
            visit(entry.key, entry.value)?;
        }
        if from > 0 {
            return Ok(true);
        }
        let mut slice = self.slices.remove(position);
        // A slice that used little of its memory gives it back; else it serves the next.
        if slice.peak.saturating_mul(8) >= slice.entries.capacity() {
            slice.index.clear();
            self.spare = Some(slice);
        }
        Ok(false)
    }

    /// Removes the current key's value from the slice at a position; the last entry takes its place.
    fn remove_at(&mut self, position: usize, at: &At<'_, K>, epochs: &mut Epochs) -> Result<(), CodecError> {
        let SliceTable { state, slices, dirty, scratch, .. } = self;
        let slice = &mut slices[position];
        let hash = at.hash.bits32();
        let Some(id) = slice.find(at.key, hash) else { return Ok(()) };
        take_leave(*state, slice.start, &mut slice.entries[id as usize], epochs)?;
        let last = slice.entries.len() as u32 - 1;
        if id != last {
            // The moved entry is on dirty lists under its old place only.
            let moved = &mut slice.entries[last as usize];
            settle(*state, slice.start, moved, epochs)?;
            if moved.tag == epochs.tag() {
                dirty.push((slice.start, id));
            }
        }
        slice.take_out(id, hash, scratch)
    }
}

impl<K: Key, V: Data> AnyTable<K> for SliceTable<K, V> {
    fn freeze(&mut self, tag: u32) {
        self.dirty.freeze(tag);
    }

    fn set_tracking(&mut self, tracking: bool) {
        self.dirty.tracking = tracking;
    }

    fn attach_cold(&mut self) {}

    fn hot_bytes(&mut self) -> usize {
        self.memory_bytes()
    }

    fn dirty_entries(&self) -> usize {
        self.dirty.len()
    }

    fn evict(&mut self, _: &mut Epochs, _: MaxParallelism, _: &mut Eviction) -> Result<(), StateError> {
        Ok(())
    }

    fn purge(&mut self, _: u32) {}

    fn fetch(&mut self, _: &[Coming<'_, K>], _: &Epochs) -> Result<(), StateError> {
        Ok(())
    }

    fn add_cold_entries(&mut self, _: usize) {}

    fn cold_entries(&self) -> usize {
        0
    }

    fn is_gone(&self, _: &[u8], _: u32) -> bool {
        false
    }

    fn write_slice(
        &mut self,
        frozen: &mut Frozen,
        _: Option<&ColdSide>,
        budget: &mut Budget,
    ) -> Result<bool, StateError> {
        while !budget.is_spent() {
            let Some((start, id)) = self.dirty.next(frozen.tag) else {
                return Ok(true);
            };
            let before = frozen.rows.bytes();
            let found = self.slices.binary_search_by_key(&start, |slice| slice.start).ok();
            if let Some(entry) = found.and_then(|at| self.slices[at].entries.get_mut(id as usize))
                && entry.tag == frozen.tag
            {
                let written = freeze_entry(start, entry, self.state, frozen);
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
        let (RestoredKey { key, hash }, suffix) = row.place::<K>(max, scratch).map_err(fault)?;
        let start: i64 = decode(suffix).map_err(|error| fault(error.to_string()))?;
        let Some(value) = row.value else {
            let Some(position) = self.position(start) else { return Ok(()) };
            let slice = &mut self.slices[position];
            let Some(id) = slice.find(&key, hash.bits32()) else { return Ok(()) };
            let taken_out = slice.take_out(id, hash.bits32(), scratch);
            return taken_out.map_err(|source| StateError::codec(&name, source));
        };
        let value = decode(value).map_err(|error| fault(error.to_string()))?;
        let position = self.position_or_new(start);
        let slice = &mut self.slices[position];
        if let Some(id) = slice.find(&key, hash.bits32()) {
            slice.entries[id as usize].value = value;
            return Ok(());
        }
        slice.refresh(scratch).map_err(|source| StateError::codec(&name, source))?;
        let id = u32::try_from(slice.entries.len()).map_err(|_| StateError::full(&name))?;
        slice.entries.push(SliceEntry { key, value, tag: CLEAN, group: row.group, persisted: true });
        slice.index.insert(hash.bits32(), id);
        Ok(())
    }

    fn finish_restore(&mut self, _: MaxParallelism, _: &mut Vec<u8>) -> Result<(), StateError> {
        self.slices.retain(|slice| !slice.entries.is_empty());
        self.last = 0;
        Ok(())
    }

    fn keys(&self) -> usize {
        self.entries()
    }

    fn entries(&self) -> usize {
        self.slices.iter().map(|slice| slice.entries.len()).sum()
    }

    fn memory_bytes(&self) -> usize {
        let owned = if std::mem::needs_drop::<K>() || std::mem::needs_drop::<V>() {
            let sample = self.slices.iter().filter_map(|slice| slice.entries.last());
            let sample = sample.map(|entry| encoded_bytes(&entry.key) + encoded_bytes(&entry.value));
            sample.max().unwrap_or(0) * self.entries()
        } else {
            0
        };
        let slices: usize = self.slices.iter().chain(&self.spare).map(Slice::bytes).sum();
        slices + self.dirty.bytes() + owned
    }

    fn prefetch(&self, soon: &[KeyHash], later: &[KeyHash]) {
        // Most records belong to the slice that was used last.
        let Some(slice) = self.slices.get(self.last) else { return };
        later.iter().for_each(|hash| slice.index.prefetch(hash.bits32()));
        for hash in soon {
            if let Some(entry) = slice.entries.get(slice.index.candidate(hash.bits32()) as usize) {
                prefetch(entry);
            }
        }
    }

    fn visit_keys(&self, visit: &mut dyn FnMut(&K)) {
        let mut seen = HashSet::new();
        for entry in self.slices.iter().flat_map(|slice| &slice.entries) {
            let mut bytes = Vec::new();
            // A key that is stored encodes; one that does not could only be shown twice.
            if encode_into(&entry.key, &mut bytes).is_err() || seen.insert(bytes) {
                visit(&entry.key);
            }
        }
    }

    fn contains(&mut self, at: &At<'_, K>, _: &Epochs) -> Result<bool, StateError> {
        Ok(self.slices.iter().any(|slice| slice.find(at.key, at.hash.bits32()).is_some()))
    }

    fn sweep(&mut self, _: &mut Sweep<'_>) -> Result<(), StateError> {
        Ok(())
    }

    fn clear(&mut self, at: &At<'_, K>, epochs: &mut Epochs) -> Result<(), StateError> {
        for position in 0..self.slices.len() {
            self.remove_at(position, at, epochs).map_err(|source| StateError::codec(&self.name, source))?;
        }
        self.finish_restore(MaxParallelism::default(), &mut Vec::new())
    }
}
