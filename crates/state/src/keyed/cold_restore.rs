//! Restoring straight into the cold store: for state that would not fit into memory.
//!
//! The rows come merged: of every key the newest, without tombstones, ascending. They are not decoded here;
//! what is damaged is found when it is fetched.

use std::sync::Arc;

use millpond_core::{KeyGroup, KeyGroupRange};
use millpond_runs::StateIndex;

use super::description::StateKind;
use crate::cold::{ColdLoader, ColdStore};
use crate::error::StateError;
use crate::rows::split_key;

/// Everything that is needed to fill a backend's cold store.
pub struct ColdRestore {
    store: Arc<dyn ColdStore>,
    states: Vec<(String, StateKind)>,
    range: KeyGroupRange,
}

/// A cold store that is being filled.
pub struct ColdFilling<'a> {
    restore: &'a ColdRestore,
    loader: Box<dyn ColdLoader + 'a>,
    entries: Vec<usize>,
}

/// How many entries were put into the store, state by state.
pub struct ColdEntries(pub(crate) Vec<usize>);

impl ColdRestore {
    pub(crate) fn new(store: Arc<dyn ColdStore>, states: Vec<(String, StateKind)>, range: KeyGroupRange) -> Self {
        ColdRestore { store, states, range }
    }

    /// Begins.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub fn begin(&self) -> Result<ColdFilling<'_>, StateError> {
        let loader = self.store.load().map_err(|source| StateError::cold("of every name", source))?;
        Ok(ColdFilling { restore: self, loader, entries: vec![0; self.states.len()] })
    }
}

impl ColdFilling<'_> {
    /// Adds a row. The rows of a state come in one piece and ascending by (group, key).
    ///
    /// # Errors
    /// When the state is not declared, the group is not owned, the row is damaged, or the store fails.
    pub fn put(&mut self, state: &str, group: KeyGroup, key: &[u8], value: &[u8]) -> Result<(), StateError> {
        let ColdRestore { states, range, .. } = self.restore;
        if !range.contains(group) {
            return Err(StateError::OutsideRange { group, range: *range });
        }
        let Some(index) = states.iter().position(|(name, _)| name == state) else {
            return Err(StateError::NotDeclared { state: state.to_owned() });
        };
        let Some((_, suffix)) = split_key(key) else {
            return Err(super::any_table::damaged(state, group, "the key is cut off".to_owned()));
        };
        // Of a list its first chunk counts.
        let counts = states[index].1 != StateKind::List || suffix.iter().all(|byte| *byte == 0);
        self.entries[index] += usize::from(counts);
        let put = self.loader.put(StateIndex(index as u16), group, key, value);
        put.map_err(|source| StateError::cold(state, source))
    }

    /// All rows were put.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub fn finish(self) -> Result<ColdEntries, StateError> {
        self.loader.finish().map_err(|source| StateError::cold("of every name", source))?;
        Ok(ColdEntries(self.entries))
    }
}
