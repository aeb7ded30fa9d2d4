//! What the runtime drives: the current key, snapshots, restore, sizes.
//!
//! Does *not* know where rows go, when an epoch is complete, or what keys mean. A snapshot passes as
//! `freeze` (O(1)) → `serialise_slice` between batches → the epoch's rows, oldest epoch first. The
//! mirror is `set_stored_sections` → declare → `restore_row`, oldest run first → `finish_restore`.

use std::any::Any;

use millpond_core::hash::stable_hash;
use millpond_core::{Epoch, Key, KeyGroup, KeyGroupRange, KeyHash, MaxParallelism};
use millpond_runs::{RowBuffer, SectionInfo};

use super::any_table::{Budget, StoredRow};
use super::declare::StateDeclarer;
use super::description::StateKind;
use super::states::{KeyedStates, Phase};
use crate::error::StateError;

/// Most records that one call of [`KeyedBackend::prefetch`] looks at.
const PREFETCH_WINDOW: usize = 64;

/// What one slice of writing came to.
#[derive(Debug)]
pub enum SliceProgress {
    /// No epoch is frozen.
    Idle,
    /// The budget was used up; there is more to write.
    More,
    /// An epoch is complete: its rows, to be put on top of those of every earlier epoch.
    Done {
        /// Which epoch.
        epoch: Epoch,
        /// Everything that changed in it; indexes refer to [`KeyedBackendControl::sections`].
        rows: RowBuffer,
    },
}

/// How much one state holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateSize {
    /// Name of the state.
    pub name: String,
    /// Kind of the state.
    pub kind: StateKind,
    /// Keys with something present.
    pub keys: usize,
    /// Values, lists or map entries.
    pub entries: usize,
    /// Estimate of the memory held, in bytes.
    pub memory_bytes: usize,
}

/// The side of keyed state that the runtime drives, without the key's type.
pub trait KeyedBackendControl: Send {
    /// The backend with its key's type, for tests and tools that know it: a [`KeyedBackend`].
    fn as_any_mut(&mut self) -> &mut dyn Any;

    /// Ends the current epoch: what it changed is frozen as `epoch`. O(1) in the size of the state.
    ///
    /// # Errors
    /// When `epoch` is not above the last one, or a restore is not finished.
    fn freeze(&mut self, epoch: Epoch) -> Result<(), StateError>;

    /// Writes about `budget_bytes` of what is frozen, the oldest epoch first; looking at an entry
    /// counts as 16 bytes.
    ///
    /// # Errors
    /// When a value cannot be encoded.
    fn serialise_slice(&mut self, budget_bytes: usize) -> Result<SliceProgress, StateError>;

    /// Number of epochs that are frozen and not handed over.
    fn frozen_epochs(&self) -> usize;

    /// Says that no epoch will be frozen, for a job without checkpoints: what changes is not
    /// remembered from now on, and [`Self::freeze`] fails.
    fn stop_tracking(&mut self);

    /// Name and description of every declared state, by the index that rows carry.
    fn sections(&self) -> Vec<SectionInfo>;

    /// Says which states the checkpoint holds, once per name and description, before states are
    /// declared. Declarations are checked against it.
    fn set_stored_sections(&mut self, stored: Vec<SectionInfo>);

    /// The stored states that were not declared. Their rows need not be restored: they stay in their
    /// runs, and so in every later checkpoint.
    fn undeclared_sections(&self) -> Vec<SectionInfo>;

    /// Applies one stored row. Rows of older runs come first; within a run in any order.
    ///
    /// # Errors
    /// When the state is not declared, the group is not owned, or the row is damaged.
    fn restore_row(&mut self, state: &str, group: KeyGroup, key: &[u8], value: Option<&[u8]>)
    -> Result<(), StateError>;

    /// Ends a restore; keys may be set afterwards. Needed only after [`Self::restore_row`].
    ///
    /// # Errors
    /// When rows are missing.
    fn finish_restore(&mut self) -> Result<(), StateError>;

    /// The key groups owned here.
    fn key_groups(&self) -> KeyGroupRange;

    /// Values, lists and map entries of all states.
    fn live_entries(&self) -> usize;

    /// Estimate of the memory held by all states and by rows not handed over, in bytes.
    fn memory_bytes(&self) -> usize;

    /// Sizes state by state.
    fn state_sizes(&self) -> Vec<StateSize>;
}

/// The keyed states of one operator subtask, as the runtime drives them.
pub struct KeyedBackend<K> {
    states: KeyedStates<K>,
}

impl<K: Key> KeyedBackend<K> {
    /// An empty backend that owns `range` of a job with `max` key groups.
    #[must_use]
    pub fn new(max: MaxParallelism, range: KeyGroupRange) -> Self {
        KeyedBackend { states: KeyedStates::new(max, range) }
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

    /// Every key with something present in a state, once; nothing for an unknown name. The order is
    /// not promised.
    #[must_use]
    pub fn keys(&self, state: &str) -> Vec<K> {
        let mut keys = Vec::new();
        if let Some(index) = self.states.position(state) {
            self.states.tables[index].visit_keys(&mut |key| keys.push(key.clone()));
        }
        keys
    }

    /// Makes each key with something present in a state current in turn. `visit` may change and
    /// clear any state; keys that it adds are not visited. The current key is afterwards as before.
    ///
    /// # Errors
    /// What `visit` returns, which ends the walk, or when a key cannot be encoded.
    pub fn for_each_key<E: From<StateError>>(
        &mut self,
        state: &str,
        mut visit: impl FnMut(&mut KeyedStates<K>) -> Result<(), E>,
    ) -> Result<(), E> {
        let keys = self.keys(state);
        let Some(index) = self.states.position(state) else {
            return Ok(());
        };
        let (before, before_hash) = (self.states.current.take(), self.states.hash);
        let outcome = keys.into_iter().try_for_each(|key| {
            let hash = self.states.hash_of(&key)?;
            if !self.states.tables[index].contains(&key, hash) {
                return Ok(());
            }
            self.set_current_key(hash, key)?;
            visit(&mut self.states)
        });
        self.states.current = before;
        self.states.hash = before_hash;
        self.states.sequence += 1;
        outcome
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
    fn hash_of(&mut self, key: &K) -> Result<KeyHash, StateError> {
        let stable = stable_hash(key, &mut self.scratch);
        let stable = stable.map_err(|source| StateError::codec("of every name", source))?;
        Ok(KeyHash::from_stable(stable, self.max))
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

impl<K: Key> KeyedBackendControl for KeyedBackend<K> {
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn freeze(&mut self, epoch: Epoch) -> Result<(), StateError> {
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
        states.epochs.freeze(epoch);
        Ok(())
    }

    fn serialise_slice(&mut self, budget_bytes: usize) -> Result<SliceProgress, StateError> {
        let mut budget = Budget::new(budget_bytes);
        let Some(frozen) = self.states.epochs.oldest_mut() else {
            return Ok(SliceProgress::Idle);
        };
        while let Some(table) = self.states.tables.get_mut(frozen.next_table) {
            if !table.write_slice(frozen, &mut budget)? {
                return Ok(SliceProgress::More);
            }
            frozen.next_table += 1;
        }
        match self.states.epochs.take_oldest() {
            Some(frozen) => Ok(SliceProgress::Done { epoch: frozen.epoch, rows: frozen.rows }),
            None => Ok(SliceProgress::Idle),
        }
    }

    fn stop_tracking(&mut self) {
        self.states.tables.iter_mut().for_each(|table| table.stop_tracking());
        self.states.tracking = false;
    }

    fn frozen_epochs(&self) -> usize {
        self.states.epochs.frozen()
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
        let declared = |name: &str| self.states.position(name).is_some();
        self.states.stored.iter().filter(|section| !declared(&section.name)).cloned().collect()
    }

    fn restore_row(
        &mut self,
        state: &str,
        group: KeyGroup,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), StateError> {
        let states = &mut self.states;
        if !states.range.contains(group) {
            return Err(StateError::OutsideRange { group, range: states.range });
        }
        states.phase = Phase::Restoring;
        let Some(index) = states.position(state) else {
            return Err(StateError::NotDeclared { state: state.to_owned() });
        };
        let row = StoredRow { group, key, value };
        states.tables[index].restore_row(row, states.max, &mut states.scratch)
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
        tables + self.states.epochs.bytes()
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
