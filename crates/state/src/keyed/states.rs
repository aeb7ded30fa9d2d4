//! What user code sees of keyed state: the current key, and tables behind handles.
//!
//! Owns the tables, the current key and the epochs' rows. Does *not* decide when a key becomes
//! current or an epoch ends: only [`super::KeyedBackend`] can. Entries are found by (current key);
//! a composite such as (key, window) is a key type like any other.

use std::any::{Any, type_name};
use std::sync::Arc;

use millpond_core::{Clock, Evolution, Key, KeyGroupRange, KeyHash, MaxParallelism, SystemClock};
use millpond_runs::SectionInfo;

use super::any_table::AnyTable;
use super::budget::BudgetKeeper;
use super::description::StateDescription;
use super::migration::{RowContent, Version};
use crate::epochs::Epochs;
use crate::error::StateError;
use crate::table::At;

/// What is known about one declared state, beside its table.
pub(crate) struct Declared {
    pub(crate) name: Arc<str>,
    /// Kind and types as Rust names them, for messages.
    pub(crate) label: String,
    pub(crate) description: StateDescription,
    /// What its rows hold.
    pub(crate) content: RowContent,
    /// Descriptions that its stored rows have, as far as they were met.
    pub(crate) versions: Vec<Version>,
}

impl Declared {
    /// The version of rows with `description`.
    pub(crate) fn version(&mut self, description: &str) -> Result<usize, StateError> {
        if let Some(known) = self.versions.iter().position(|version| version.description == description) {
            return Ok(known);
        }
        let stored = StateDescription::from_json(&self.name, description)?;
        let migration = match stored.evolution(&self.name, &self.description, self.content)? {
            Evolution::AsIs => None,
            Evolution::Migrated => {
                let alike = stored.ttl.is_some() == self.description.ttl.is_some();
                Some(self.content.migration(&stored.value, stored.ttl.is_some(), alike))
            }
        };
        self.versions.push(Version { description: description.to_owned(), migration });
        Ok(self.versions.len() - 1)
    }
}

/// How far a restore has come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing was restored and no key was set.
    Declaring,
    /// Rows are coming in.
    Restoring,
    /// Keys may be set.
    Running,
}

/// The keyed states of one operator subtask, as its user code sees them.
///
/// Handles such as [`super::ValueState`] read and write the entry of the current key, which the
/// runtime sets before each record.
pub struct KeyedStates<K> {
    pub(crate) current: Option<K>,
    pub(crate) hash: KeyHash,
    /// Grows with every record; 0 is never current.
    pub(crate) sequence: u64,
    pub(crate) phase: Phase,
    /// Whether changes are remembered for a freeze.
    pub(crate) tracking: bool,
    pub(crate) range: KeyGroupRange,
    pub(crate) max: MaxParallelism,
    pub(crate) epochs: Epochs,
    pub(crate) tables: Vec<Box<dyn AnyTable<K>>>,
    /// By the index of the table.
    pub(crate) declared: Vec<Declared>,
    pub(crate) stored: Vec<SectionInfo>,
    pub(crate) scratch: Vec<u8>,
    /// The row that was migrated last.
    pub(crate) migrated: Vec<u8>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Whether any state has a time to live.
    pub(crate) expiring: bool,
    /// The number of records when the last sweep ended.
    pub(crate) swept_sequence: u64,
    /// How much memory all of it may take; only where there is a cold store.
    pub(crate) keeper: Option<BudgetKeeper>,
    /// What operators keep in memory beside the tables, in bytes.
    pub(crate) beside_bytes: usize,
    /// At how many bytes rows of a snapshot are handed over, if it is set.
    pub(crate) piece_bytes: Option<usize>,
}

/// A table opened for one access.
pub(crate) struct Open<'s, K, T> {
    pub(crate) table: &'s mut T,
    pub(crate) at: At<'s, K>,
    pub(crate) epochs: &'s mut Epochs,
}

impl<K: Key> KeyedStates<K> {
    pub(crate) fn new(max: MaxParallelism, range: KeyGroupRange) -> Self {
        KeyedStates {
            current: None,
            hash: KeyHash(0),
            sequence: 0,
            phase: Phase::Declaring,
            tracking: true,
            range,
            max,
            epochs: Epochs::new(),
            tables: Vec::new(),
            declared: Vec::new(),
            stored: Vec::new(),
            scratch: Vec::new(),
            migrated: Vec::new(),
            clock: Arc::new(SystemClock),
            expiring: false,
            swept_sequence: 0,
            keeper: None,
            beside_bytes: 0,
            piece_bytes: None,
        }
    }

    /// The key of the record being processed; `None` outside of one.
    #[must_use]
    pub fn current_key(&self) -> Option<&K> {
        self.current.as_ref()
    }

    /// The processing time, in milliseconds since 1970-01-01 UTC.
    pub(crate) fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    /// Hash and key group of the current key.
    #[must_use]
    pub fn current_hash(&self) -> Option<KeyHash> {
        self.current.as_ref().map(|_| self.hash)
    }

    /// Forgets everything that any state holds for the current key.
    ///
    /// # Errors
    /// When no key is current.
    pub fn clear_current_key(&mut self) -> Result<(), StateError> {
        let Some(key) = &self.current else {
            return Err(StateError::NoCurrentKey { state: "of every name".to_owned() });
        };
        for table in &mut self.tables {
            let at = At { key, hash: self.hash, sequence: self.sequence };
            table.clear(&at, &mut self.epochs)?;
        }
        Ok(())
    }

    /// The index of the state called `name`.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.declared.iter().position(|declared| *declared.name == *name)
    }

    /// The table behind a handle, for the current key.
    #[inline(always)]
    pub(crate) fn open<T: Any>(&mut self, index: u16) -> Result<Open<'_, K, T>, StateError> {
        let index = usize::from(index);
        let Some(table) = self.tables.get_mut(index) else {
            return Err(foreign_handle::<T>(index));
        };
        let Some(key) = &self.current else {
            return Err(no_current_key(&self.declared, index));
        };
        let table: &mut dyn Any = &mut **table;
        let Some(table) = table.downcast_mut::<T>() else {
            return Err(foreign_handle::<T>(index));
        };
        let at = At { key, hash: self.hash, sequence: self.sequence };
        Ok(Open { table, at, epochs: &mut self.epochs })
    }
}

impl<K: Key> KeyedStates<K> {
    /// The table behind a handle, whatever the current key.
    pub(crate) fn table<T: Any>(&mut self, index: u16) -> Result<(&mut T, &mut Epochs), StateError> {
        let index = usize::from(index);
        let table = self.tables.get_mut(index).ok_or_else(|| foreign_handle::<T>(index))?;
        let table: &mut dyn Any = &mut **table;
        let table = table.downcast_mut::<T>().ok_or_else(|| foreign_handle::<T>(index))?;
        Ok((table, &mut self.epochs))
    }
}

#[cold]
fn foreign_handle<T>(index: usize) -> StateError {
    StateError::ForeignHandle { index, asked: type_name::<T>() }
}

#[cold]
fn no_current_key(declared: &[Declared], index: usize) -> StateError {
    let state = declared.get(index).map_or(String::new(), |declared| declared.name.as_ref().to_owned());
    StateError::NoCurrentKey { state }
}
