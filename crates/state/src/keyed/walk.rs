//! Listing keys, and making each of them current in turn, over the hot table and the cold store.
//!
//! The keys in memory come first, then those of the cold store, which is read in windows; a key that was in
//! memory at the start is not shown again.

use std::collections::HashSet;
use std::ops::ControlFlow;

use millpond_core::codec::{decode, encode_into};
use millpond_core::{Key, KeyGroup, KeyHash};
use millpond_runs::StateIndex;

use super::any_table::damaged;
use super::backend::KeyedBackend;
use super::states::KeyedStates;
use crate::error::StateError;
use crate::rows::split_key;
use crate::table::At;

/// Rows read at a time.
const WINDOW_ROWS: usize = 1_024;

/// Where a walk through the cold keys of a state is.
struct ColdKeys {
    table: usize,
    group: u32,
    /// The first row key that was not looked at.
    from: Vec<u8>,
    /// The encoded keys that were in memory at the start.
    hot: HashSet<Box<[u8]>>,
    /// The encoded key that was shown last.
    last: Option<Box<[u8]>>,
}

impl<K: Key> KeyedBackend<K> {
    /// Every key with something present in a state, once; nothing for an unknown name. The order is
    /// not promised. All keys are in memory at once: [`KeyedBackend::for_each_key`] needs less.
    ///
    /// # Errors
    /// When the cold store fails, or holds a damaged row.
    pub fn keys(&mut self, state: &str) -> Result<Vec<K>, StateError> {
        let Some(table) = self.states.position(state) else { return Ok(Vec::new()) };
        let mut keys = self.states.hot_keys(table);
        let mut cold = self.states.cold_keys(table, &keys)?;
        while let Some(window) = self.states.next_keys(&mut cold)? {
            keys.extend(window);
        }
        Ok(keys)
    }

    /// Makes each key with something present in a state current in turn. `visit` may change and
    /// clear any state; keys that it adds are not visited. The current key is afterwards as before.
    ///
    /// # Errors
    /// What `visit` returns, which ends the walk, or when a key cannot be encoded or the cold store fails.
    pub fn for_each_key<E: From<StateError>>(
        &mut self,
        state: &str,
        mut visit: impl FnMut(&mut KeyedStates<K>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(table) = self.states.position(state) else { return Ok(()) };
        let (before, before_hash) = (self.states.current.take(), self.states.hash);
        let outcome = self.walk_keys(table, &mut visit);
        self.states.current = before;
        self.states.hash = before_hash;
        self.states.sequence += 1;
        outcome
    }

    fn walk_keys<E: From<StateError>>(
        &mut self,
        table: usize,
        visit: &mut impl FnMut(&mut KeyedStates<K>) -> Result<(), E>,
    ) -> Result<(), E> {
        let keys = self.states.hot_keys(table);
        let mut cold = self.states.cold_keys(table, &keys)?;
        self.visit_each(table, keys, visit)?;
        while let Some(keys) = self.states.next_keys(&mut cold)? {
            self.visit_each(table, keys, visit)?;
            self.states.keep_budget()?;
        }
        Ok(())
    }

    fn visit_each<E: From<StateError>>(
        &mut self,
        table: usize,
        keys: Vec<K>,
        visit: &mut impl FnMut(&mut KeyedStates<K>) -> Result<(), E>,
    ) -> Result<(), E> {
        for key in keys {
            let hash = self.states.hash_of(&key)?;
            self.set_current_key(hash, key)?;
            if self.states.holds_current(table)? {
                visit(&mut self.states)?;
            }
        }
        Ok(())
    }
}

impl<K: Key> KeyedStates<K> {
    fn hot_keys(&self, table: usize) -> Vec<K> {
        let mut keys = Vec::new();
        self.tables[table].visit_keys(&mut |key| keys.push(key.clone()));
        keys
    }

    /// Whether the table has something for the current key.
    fn holds_current(&mut self, table: usize) -> Result<bool, StateError> {
        let Some(key) = &self.current else { return Ok(false) };
        let at = At { key, hash: self.hash, sequence: self.sequence };
        self.tables[table].contains(&at, &self.epochs)
    }

    fn cold_keys(&self, table: usize, hot: &[K]) -> Result<ColdKeys, StateError> {
        let mut encoded = HashSet::new();
        let mut group = self.range.end;
        if self.tables[table].cold_entries() > 0 {
            group = self.range.start;
            for key in hot {
                let mut bytes = Vec::new();
                encode_into(key, &mut bytes).map_err(|source| StateError::codec(&self.declared[table].name, source))?;
                encoded.insert(bytes.into_boxed_slice());
            }
        }
        Ok(ColdKeys { table, group, from: Vec::new(), hot: encoded, last: None })
    }

    /// Some keys that are in the cold store alone; an empty window is not the end, `None` is.
    fn next_keys(&self, walk: &mut ColdKeys) -> Result<Option<Vec<K>>, StateError> {
        let Some(side) = self.epochs.cold.as_ref().filter(|_| walk.group < self.range.end) else { return Ok(None) };
        let (table, name) = (&self.tables[walk.table], &self.declared[walk.table].name);
        let (group, applied) = (KeyGroup(walk.group as u16), side.applied());
        let (mut keys, mut rows, mut next, mut fault) = (Vec::new(), 0, None, None);
        let ColdKeys { from, hot, last, .. } = walk;
        let scanned =
            side.store().scan(StateIndex(walk.table as u16), group, &[], Some(from.as_slice()), &mut |row_key, _| {
                if rows == WINDOW_ROWS {
                    next = Some(row_key.to_vec());
                    return ControlFlow::Break(());
                }
                rows += 1;
                let Some((encoded, _)) = split_key(row_key) else {
                    fault = Some("the key is cut off".to_owned());
                    return ControlFlow::Break(());
                };
                if last.as_deref() == Some(encoded) || hot.contains(encoded) || table.is_gone(row_key, applied) {
                    return ControlFlow::Continue(());
                }
                match decode::<K>(encoded) {
                    Ok(key) => keys.push(key),
                    Err(error) => fault = Some(error.to_string()),
                }
                *last = Some(encoded.into());
                if fault.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
        scanned.map_err(|source| StateError::cold(name, source))?;
        if let Some(reason) = fault {
            return Err(damaged(name, group, reason));
        }
        match next {
            Some(row_key) => walk.from = row_key,
            None => {
                walk.group += 1;
                walk.from.clear();
                walk.last = None;
            }
        }
        Ok(Some(keys))
    }

    pub(crate) fn hash_of(&mut self, key: &K) -> Result<KeyHash, StateError> {
        let stable = millpond_core::hash::stable_hash(key, &mut self.scratch);
        let stable = stable.map_err(|source| StateError::codec("of every name", source))?;
        Ok(KeyHash::from_stable(stable, self.max))
    }
}
