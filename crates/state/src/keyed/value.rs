//! One value per key.

use std::marker::PhantomData;
use std::mem::needs_drop;

use millpond_core::codec::{decode, encode_into};
use millpond_core::{CodecError, Data, Key, KeyGroup};
use millpond_runs::StateIndex;

use super::cold_part::{FetchError, fetch_row};
use super::states::{KeyedStates, Open};
use super::tracked::{Cell, Tracked, encoded_bytes};
use crate::cold::ColdSide;
use crate::error::StateError;
use crate::rows::{RowTarget, no_suffix};

/// A value in one row.
pub(crate) struct Single<V>(pub(crate) V);

pub(crate) type ValueTable<K, V> = Tracked<K, Single<V>>;

impl<V: Data> Cell for Single<V> {
    fn write<K: Key>(&mut self, key: &K, target: &mut RowTarget<'_>) -> Result<(), CodecError> {
        self.write_whole(key, target)
    }

    fn write_whole<K: Key>(&mut self, key: &K, target: &mut RowTarget<'_>) -> Result<(), CodecError> {
        target.put(key, no_suffix, |bytes| encode_into(&self.0, bytes))
    }

    fn fetch(side: &ColdSide, state: StateIndex, group: KeyGroup, row_key: &[u8]) -> Result<Option<Self>, FetchError> {
        fetch_row(side, state, group, row_key, |value| Single::restored(&[], value))
    }

    fn write_removed<K: Key>(&self, key: &K, persisted: bool, target: &mut RowTarget<'_>) -> Result<(), CodecError> {
        if persisted { target.delete(key, no_suffix) } else { Ok(()) }
    }

    fn restored(suffix: &[u8], value: &[u8]) -> Result<Self, String> {
        if !suffix.is_empty() {
            return Err(format!("{} bytes follow its key", suffix.len()));
        }
        decode(value).map(Single).map_err(|error| error.to_string())
    }

    fn restore(&mut self, suffix: &[u8], value: &[u8]) -> Result<(), String> {
        *self = Single::restored(suffix, value)?;
        Ok(())
    }

    fn restore_removed(&mut self, _: &[u8]) -> Result<bool, String> {
        Ok(false)
    }

    fn heap_bytes(&self) -> usize {
        if needs_drop::<V>() { encoded_bytes(&self.0) } else { 0 }
    }
}

/// Handle of a state with one value per key. Copy it freely; it refers to the state by index.
pub struct ValueState<V> {
    index: u16,
    held: PhantomData<fn() -> V>,
}

impl<V> Clone for ValueState<V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for ValueState<V> {}

impl<V: Data> ValueState<V> {
    pub(crate) fn at(index: u16) -> Self {
        ValueState { index, held: PhantomData }
    }

    #[inline]
    fn open<'s, K: Key>(self, states: &'s mut KeyedStates<K>) -> Result<Open<'s, K, ValueTable<K, V>>, StateError> {
        states.open(self.index)
    }

    /// The current key's value; `None` when it was never set, or was cleared.
    ///
    /// # Errors
    /// When no key is current, or the handle belongs to other states.
    #[inline]
    pub fn get<'s, K: Key>(&self, states: &'s mut KeyedStates<K>) -> Result<Option<&'s V>, StateError> {
        let Open { table, at, epochs } = self.open(states)?;
        Ok(table.read(&at, epochs)?.map(|(cell, ())| &cell.0))
    }

    /// Sets the current key's value.
    ///
    /// # Errors
    /// When no key is current, the handle belongs to other states, or the table is full.
    #[inline]
    pub fn set<K: Key>(&self, states: &mut KeyedStates<K>, value: V) -> Result<(), StateError> {
        let Open { table, at, epochs } = self.open(states)?;
        if let Some((cell, ())) = table.write(&at, epochs)? {
            cell.0 = value;
        } else {
            table.insert(&at, epochs, Single(value))?;
        }
        Ok(())
    }

    /// Changes the current key's value in one look-up; `None` afterwards means cleared.
    ///
    /// # Errors
    /// As [`ValueState::set`].
    #[inline]
    pub fn modify<K: Key, R>(
        &self,
        states: &mut KeyedStates<K>,
        change: impl FnOnce(&mut Option<V>) -> R,
    ) -> Result<R, StateError> {
        let Open { table, at, epochs } = self.open(states)?;
        table.change(&at, epochs, |cell, ()| {
            let mut value = cell.take().map(|cell| cell.0);
            let result = change(&mut value);
            *cell = value.map(Single);
            result
        })
    }

    /// Changes the current key's value in place, beginning with `first` where there is none. The
    /// quickest way to count or collect.
    ///
    /// # Errors
    /// As [`ValueState::set`].
    #[inline]
    pub fn modify_or<K: Key, R>(
        &self,
        states: &mut KeyedStates<K>,
        first: impl FnOnce() -> V,
        change: impl FnOnce(&mut V) -> R,
    ) -> Result<R, StateError> {
        let Open { table, at, epochs } = self.open(states)?;
        if let Some((cell, ())) = table.write(&at, epochs)? {
            return Ok(change(&mut cell.0));
        }
        let mut value = first();
        let result = change(&mut value);
        table.insert(&at, epochs, Single(value))?;
        Ok(result)
    }

    /// Forgets the current key's value; nothing happens when there is none.
    ///
    /// # Errors
    /// When no key is current, or the handle belongs to other states.
    pub fn clear<K: Key>(&self, states: &mut KeyedStates<K>) -> Result<(), StateError> {
        let Open { table, at, epochs } = self.open(states)?;
        table.remove(&at, epochs)
    }
}
