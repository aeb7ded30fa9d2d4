//! What the runtime drives: the current key, snapshots, restore, sizes.
//!
//! Does *not* know where rows go, when an epoch is complete, or what keys mean.

use std::any::Any;
use std::sync::Arc;

use millpond_core::{Clock, Epoch, Key, KeyGroup, KeyGroupRange, KeyHash, MaxParallelism};
use millpond_runs::SectionInfo;

use super::any_table::{Budget, StoredRow};
use super::budget::{BudgetKeeper, Pressure};
use super::cold_restore::{ColdEntries, ColdRestore};
use super::control::{KeyedBackendControl, SliceProgress, StateSize};
use super::declare::StateDeclarer;
use super::migration::{RowVersion, row_of_today};
use super::states::{KeyedStates, Phase};
use crate::cold::{BudgetShare, ColdSide, ColdStore};
use crate::epochs::Written;
use crate::error::StateError;

/// Most records that one call of [`KeyedBackend::prefetch`] looks at.
const PREFETCH_WINDOW: usize = 64;

/// The keyed states of one operator subtask, as the runtime drives them.
pub struct KeyedBackend<K> {
    pub(super) states: KeyedStates<K>,
}

impl<K: Key> KeyedBackend<K> {
    /// An empty backend that owns `range` of a job with `max` key groups.
    #[must_use]
    pub fn new(max: MaxParallelism, range: KeyGroupRange) -> Self {
        KeyedBackend { states: KeyedStates::new(max, range) }
    }

    /// With the clock that tells states with a time to live the time; the system's, if not set.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.states.clock = clock;
        self
    }

    /// Hands over the rows of a snapshot in pieces of about this many bytes, instead of 64 MiB or less where memory is
    /// bounded.
    #[must_use]
    pub fn with_piece_bytes(mut self, bytes: usize) -> Self {
        self.states.piece_bytes = Some(bytes);
        self
    }

    /// Puts a cold store, which is empty, beneath the hot tables, and bounds their memory. Before any state is
    /// declared.
    ///
    /// # Errors
    /// When a state is declared already.
    pub fn attach_cold(&mut self, store: Arc<dyn ColdStore>, share: BudgetShare) -> Result<(), StateError> {
        if let Some(declared) = self.states.declared.first() {
            return Err(StateError::DeclaredTooLate { state: declared.name.as_ref().to_owned() });
        }
        self.states.epochs.cold = Some(ColdSide::new(store));
        self.states.keeper = Some(BudgetKeeper::new(share));
        Ok(())
    }

    /// Brings the state of the keys of a batch into memory, one look into the cold store per state. Does
    /// nothing while everything is in memory.
    ///
    /// # Errors
    /// When the cold store fails, or holds a damaged row.
    #[inline]
    pub fn fetch<'a>(&mut self, keys: impl Iterator<Item = (KeyHash, &'a K)>) -> Result<(), StateError>
    where
        K: 'a,
    {
        if self.states.epochs.spills() { self.fetch_cold(keys.collect()) } else { Ok(()) }
    }

    #[inline(never)]
    fn fetch_cold(&mut self, mut keys: Vec<(KeyHash, &K)>) -> Result<(), StateError> {
        let KeyedStates { tables, epochs, range, .. } = &mut self.states;
        keys.retain(|(hash, _)| range.contains(hash.group()));
        tables.iter_mut().try_for_each(|table| table.fetch(&keys, epochs))
    }

    /// For the operator to declare its states with.
    pub fn declarer(&mut self) -> StateDeclarer<'_, K> {
        StateDeclarer::new(&mut self.states)
    }

    /// What user code sees.
    #[inline]
    #[must_use]
    pub fn states(&self) -> &KeyedStates<K> {
        &self.states
    }

    /// What user code sees.
    #[inline]
    pub fn states_mut(&mut self) -> &mut KeyedStates<K> {
        &mut self.states
    }

    /// Makes `key` current, once per record. `hash` must be the key's.
    ///
    /// # Errors
    /// When the key's group is not owned, or a restore is not finished; the current key stays.
    #[inline]
    pub fn set_current_key(&mut self, hash: KeyHash, key: K) -> Result<(), StateError> {
        self.admit(hash)?;
        self.states.current = Some(key);
        Ok(())
    }

    /// As [`KeyedBackend::set_current_key`], from a borrowed key; reuses the memory of the last one.
    ///
    /// # Errors
    /// As [`KeyedBackend::set_current_key`].
    #[inline]
    pub fn set_current_key_ref(&mut self, hash: KeyHash, key: &K) -> Result<(), StateError> {
        self.admit(hash)?;
        match &mut self.states.current {
            Some(current) => current.clone_from(key),
            None => self.states.current = Some(key.clone()),
        }
        Ok(())
    }

    /// As [`KeyedBackend::set_current_key`], for callers without the hash.
    ///
    /// # Errors
    /// As [`KeyedBackend::set_current_key`], or when the key cannot be encoded.
    pub fn set_current_key_of(&mut self, key: K) -> Result<(), StateError> {
        let hash = self.states.hash_of(&key)?;
        self.set_current_key(hash, key)
    }

    /// Ends the record: no key is current.
    pub fn clear_current_key(&mut self) {
        self.states.current = None;
        self.states.sequence += 1;
    }

    #[inline]
    fn admit(&mut self, hash: KeyHash) -> Result<(), StateError> {
        let states = &mut self.states;
        if !states.range.contains(hash.group()) || states.phase != Phase::Running {
            states.refuse(hash)?;
        }
        states.hash = hash;
        states.sequence += 1;
        Ok(())
    }

    /// Asks for the memory of keys that come soon. Call it once per window of 16 to 32 records: `soon` are
    /// the records of the next window, which were `later` in the call before; `later` are those of the
    /// window after it. Does nothing for tables that stay in the processor's cache.
    #[inline]
    pub fn prefetch(&self, soon: impl Iterator<Item = KeyHash>, later: impl Iterator<Item = KeyHash>) {
        let (mut next, mut far) = ([KeyHash(0); PREFETCH_WINDOW], [KeyHash(0); PREFETCH_WINDOW]);
        let next = fill(&mut next, soon);
        let far = fill(&mut far, later);
        for table in &self.states.tables {
            table.prefetch(next, far);
        }
    }
}

#[inline]
fn fill(window: &mut [KeyHash; PREFETCH_WINDOW], hashes: impl Iterator<Item = KeyHash>) -> &[KeyHash] {
    let mut filled = 0;
    for (hash, place) in hashes.zip(window.iter_mut()) {
        *place = hash;
        filled += 1;
    }
    &window[..filled]
}

impl<K: Key> KeyedStates<K> {
    /// The stored states that were not declared.
    fn undeclared(&self) -> impl Iterator<Item = &SectionInfo> {
        self.stored.iter().filter(|section| self.position(&section.name).is_none())
    }

    /// Whether the tables hold every row that is stored of the key groups owned here.
    fn all_in_memory(&self) -> bool {
        !self.epochs.spills() && self.undeclared().next().is_none()
    }

    /// Why a key is refused; the first key of all is not.
    #[cold]
    fn refuse(&mut self, hash: KeyHash) -> Result<(), StateError> {
        if !self.range.contains(hash.group()) {
            return Err(StateError::OutsideRange { group: hash.group(), range: self.range });
        }
        if self.phase == Phase::Restoring {
            return Err(StateError::RestoreNotFinished);
        }
        self.phase = Phase::Running;
        Ok(())
    }
}

#[cold]
fn foreign_version(version: RowVersion) -> StateError {
    StateError::NotDeclared { state: format!("number {}", version.state) }
}

impl<K: Key> KeyedBackendControl for KeyedBackend<K> {
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn freeze(&mut self, epoch: Epoch) -> Result<(), StateError> {
        self.sweep_at_rest()?;
        let states = &mut self.states;
        if states.phase == Phase::Restoring {
            return Err(StateError::RestoreNotFinished);
        }
        if !states.tracking {
            return Err(StateError::NotTracked { epoch });
        }
        if let Some(newest) = states.epochs.newest().filter(|newest| epoch <= *newest) {
            return Err(StateError::EpochOrder { given: epoch.0, newest: newest.0 });
        }
        let tag = states.epochs.tag();
        states.tables.iter_mut().for_each(|table| table.freeze(tag));
        let live = states.all_in_memory().then(|| states.tables.iter().map(|table| table.entries()).sum());
        states.epochs.freeze(epoch, live);
        Ok(())
    }

    fn serialise_slice(&mut self, budget_bytes: usize) -> Result<SliceProgress, StateError> {
        if let Some(piece) = self.states.hand_over_clears().or_else(|| self.states.hand_over_piece()) {
            return Ok(piece);
        }
        let mut budget = Budget::new(budget_bytes);
        let Some((frozen, cold)) = self.states.epochs.oldest_mut() else {
            return Ok(SliceProgress::Idle);
        };
        while let Some(table) = self.states.tables.get_mut(frozen.next_table) {
            if !table.write_slice(frozen, cold, &mut budget)? {
                return Ok(SliceProgress::More);
            }
            frozen.next_table += 1;
        }
        match self.states.epochs.take_oldest() {
            Some(Written { epoch: Some(epoch), rows, cold, whole }) => {
                Ok(SliceProgress::Done { epoch, rows, cold, whole })
            }
            Some(Written { epoch: None, rows, cold, .. }) => Ok(SliceProgress::Part { rows, cold, continued: false }),
            None => Ok(SliceProgress::Idle),
        }
    }

    fn stop_tracking(&mut self) {
        let spills = self.states.epochs.spills();
        self.states.tables.iter_mut().for_each(|table| table.set_tracking(spills));
        self.states.tracking = false;
    }

    fn frozen_epochs(&self) -> usize {
        self.states.epochs.frozen()
    }

    fn frozen_parts(&self) -> usize {
        self.states.epochs.frozen_parts()
    }

    fn keep_budget(&mut self) -> Result<Pressure, StateError> {
        self.sweep_after_batch()?;
        self.states.keep_budget()
    }

    fn spills(&self) -> bool {
        self.states.epochs.spills()
    }

    fn cold_restore(&mut self, bytes: u64) -> Option<ColdRestore> {
        let states = &mut self.states;
        let limit = states.keeper.as_mut()?.limit();
        if bytes <= limit as u64 {
            return None;
        }
        let declared = states.declared.iter();
        let kinds = declared.map(|declared| (declared.name.as_ref().to_owned(), declared.description.kind)).collect();
        let store = Arc::clone(states.epochs.cold.as_ref()?.store());
        states.phase = Phase::Restoring;
        Some(ColdRestore::new(store, kinds, states.range))
    }

    fn finish_cold_restore(&mut self, entries: ColdEntries) {
        self.states.start_spilling();
        for (table, entries) in self.states.tables.iter_mut().zip(entries.0) {
            table.add_cold_entries(entries);
        }
        self.states.phase = Phase::Running;
    }

    fn sections(&self) -> Vec<SectionInfo> {
        let sections = self.states.declared.iter().map(|declared| SectionInfo {
            name: declared.name.as_ref().to_owned(),
            description: declared.description.to_json(),
        });
        sections.collect()
    }

    fn set_stored_sections(&mut self, stored: Vec<SectionInfo>) {
        self.states.stored = stored;
    }

    fn undeclared_sections(&self) -> Vec<SectionInfo> {
        self.states.undeclared().cloned().collect()
    }

    fn row_version(&mut self, state: &str, description: &str) -> Result<RowVersion, StateError> {
        let not_declared = || StateError::NotDeclared { state: state.to_owned() };
        let index = self.states.position(state).ok_or_else(not_declared)?;
        let version = self.states.declared[index].version(description)?;
        Ok(RowVersion { state: index as u16, version: version as u16 })
    }

    fn restore_row(
        &mut self,
        version: RowVersion,
        group: KeyGroup,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), StateError> {
        let states = &mut self.states;
        if !states.range.contains(group) {
            return Err(StateError::OutsideRange { group, range: states.range });
        }
        states.phase = Phase::Restoring;
        let KeyedStates { tables, declared, migrated, scratch, max, clock, .. } = states;
        let index = usize::from(version.state);
        let (Some(table), Some(declared)) = (tables.get_mut(index), declared.get(index)) else {
            return Err(foreign_version(version));
        };
        let now = || clock.now_ms();
        let value = value.map(|value| row_of_today(declared, version, group, now, value, migrated)).transpose()?;
        table.restore_row(StoredRow { group, key, value }, *max, scratch)
    }

    fn migrated<'a>(
        &'a mut self,
        version: RowVersion,
        group: KeyGroup,
        value: &'a [u8],
    ) -> Result<&'a [u8], StateError> {
        let KeyedStates { declared, migrated, clock, .. } = &mut self.states;
        let declared = declared.get(usize::from(version.state)).ok_or_else(|| foreign_version(version))?;
        row_of_today(declared, version, group, || clock.now_ms(), value, migrated)
    }

    fn finish_restore(&mut self) -> Result<(), StateError> {
        let states = &mut self.states;
        for table in &mut states.tables {
            table.finish_restore(states.max, &mut states.scratch)?;
        }
        states.phase = Phase::Running;
        Ok(())
    }

    fn key_groups(&self) -> KeyGroupRange {
        self.states.range
    }

    fn live_entries(&self) -> usize {
        self.states.tables.iter().map(|table| table.entries()).sum()
    }

    fn memory_bytes(&self) -> usize {
        let tables: usize = self.states.tables.iter().map(|table| table.memory_bytes()).sum();
        tables + self.states.beside_bytes + self.states.epochs.bytes() + self.states.in_flight_bytes()
    }

    fn state_sizes(&self) -> Vec<StateSize> {
        let all = self.states.declared.iter().zip(&self.states.tables);
        let sizes = all.map(|(declared, table)| StateSize {
            name: declared.name.as_ref().to_owned(),
            kind: declared.description.kind,
            keys: table.keys(),
            entries: table.entries(),
            memory_bytes: table.memory_bytes(),
        });
        sizes.collect()
    }
}
