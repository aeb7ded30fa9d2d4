//! A value per key and slice of time.

use std::marker::PhantomData;

use millpond_core::{Data, Key};

use super::slice_table::SliceTable;
use super::states::{KeyedStates, Open};
use crate::error::StateError;

/// Handle of a state with a value per key and slice of time, for windows. A slice is a number, such as the time at
/// which it begins. Copy it freely; it refers to the state by index.
///
/// It is stored as a map state from `i64` is, and may be declared as one by an operator with a cold store.
pub struct SliceState<V> {
    index: u16,
    held: PhantomData<fn() -> V>,
}

impl<V> Clone for SliceState<V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for SliceState<V> {}

impl<V: Data> SliceState<V> {
    pub(crate) fn at(index: u16) -> Self {
        SliceState { index, held: PhantomData }
    }

    #[inline(always)]
    fn open<'s, K: Key>(self, states: &'s mut KeyedStates<K>) -> Result<Open<'s, K, SliceTable<K, V>>, StateError> {
        states.open(self.index)
    }

    /// Changes the current key's value in a slice in place, beginning with `first` where there is none: one look-up.
    ///
    /// # Errors
    /// When no key is current, the handle belongs to other states, or the table is full.
    #[inline(always)]
    pub fn modify_or<K: Key, R>(
        &self,
        states: &mut KeyedStates<K>,
        slice: i64,
        first: impl FnOnce() -> V,
        change: impl FnOnce(&mut V) -> R,
    ) -> Result<R, StateError> {
        let Open { table, at, epochs } = self.open(states)?;
        table.modify_or(&at, epochs, slice, first, change)
    }

    /// The current key's value in a slice.
    ///
    /// # Errors
    /// When no key is current, or the handle belongs to other states.
    pub fn get<'s, K: Key>(&self, states: &'s mut KeyedStates<K>, slice: i64) -> Result<Option<&'s V>, StateError> {
        let Open { table, at, .. } = self.open(states)?;
        Ok(table.get(&at, slice))
    }

    /// The slices in which some key has a value, in order.
    ///
    /// # Errors
    /// When the handle belongs to other states.
    pub fn slices<'s, K: Key>(
        &self,
        states: &'s mut KeyedStates<K>,
    ) -> Result<impl Iterator<Item = i64> + use<'s, K, V>, StateError> {
        let (table, _) = states.table::<SliceTable<K, V>>(self.index)?;
        Ok(table.starts())
    }

    /// Whether some key has a value in a slice.
    ///
    /// # Errors
    /// When the handle belongs to other states.
    #[inline]
    pub fn has<K: Key>(&self, states: &mut KeyedStates<K>, slice: i64) -> Result<bool, StateError> {
        let (table, _) = states.table::<SliceTable<K, V>>(self.index)?;
        Ok(table.has(slice))
    }

    /// Every key that has a value in some of `slices`, which are in order, with those values put together; no key
    /// needs to be current.
    ///
    /// # Errors
    /// When the handle belongs to other states.
    pub fn merged<K: Key>(
        &self,
        states: &mut KeyedStates<K>,
        slices: &[i64],
        merge: impl FnMut(V, V) -> V,
    ) -> Result<Vec<(K, V)>, StateError> {
        let (table, _) = states.table::<SliceTable<K, V>>(self.index)?;
        table.merged(slices, merge)
    }

    /// Hands out up to `limit` entries of a slice, which are gone then; false when the slice is empty. No key needs
    /// to be current.
    ///
    /// # Errors
    /// What `visit` returns, which ends the walk; or when the handle belongs to other states, or the value, wanted
    /// by a running snapshot, cannot be encoded.
    pub fn drain<K: Key, E: From<StateError>>(
        &self,
        states: &mut KeyedStates<K>,
        slice: i64,
        limit: usize,
        visit: impl FnMut(K, V) -> Result<(), E>,
    ) -> Result<bool, E> {
        let (table, epochs) = states.table::<SliceTable<K, V>>(self.index)?;
        table.drain(epochs, slice, limit, visit)
    }
}
