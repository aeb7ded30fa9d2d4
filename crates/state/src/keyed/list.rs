//! An ordered list per key, written in chunks.
//!
//! In memory a list is one vector, or the end of one whose beginning is in the cold store (`list_cell.rs`). In
//! checkpoints it is cut into rows of [`CHUNK_ELEMENTS`], so that appending to a long list rewrites only the
//! last chunk.

use std::marker::PhantomData;

use millpond_core::{Data, Key};

use super::cold_part::FetchError;
use super::list_cell::ListCell;
use super::states::{KeyedStates, Open};
use super::tracked::Tracked;
use crate::error::StateError;

/// Elements per row of a list in a checkpoint. Part of the format.
pub const CHUNK_ELEMENTS: usize = 128;

pub(crate) type ListTable<K, T> = Tracked<K, ListCell<T>>;

/// Handle of a state with a list per key. Copy it freely; it refers to the state by index.
pub struct ListState<T> {
    index: u16,
    held: PhantomData<fn() -> T>,
}

impl<T> Clone for ListState<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ListState<T> {}

impl<T: Data> ListState<T> {
    pub(crate) fn at(index: u16) -> Self {
        ListState { index, held: PhantomData }
    }

    #[inline]
    fn open<'s, K: Key>(self, states: &'s mut KeyedStates<K>) -> Result<Open<'s, K, ListTable<K, T>>, StateError> {
        states.open(self.index)
    }

    /// The current key's list in order; empty when there is none. Brings the whole list into memory: for a
    /// list that may be larger than memory use [`ListState::for_each`].
    ///
    /// # Errors
    /// When no key is current, the handle belongs to other states, or the cold store fails.
    #[inline]
    pub fn get<'s, K: Key>(&self, states: &'s mut KeyedStates<K>) -> Result<&'s [T], StateError> {
        let Open { table, at, epochs } = self.open(states)?;
        if epochs.cold.is_some() {
            let cell =
                table.fill(&at, epochs, |cell, side, state, group, row_key| cell.load(side, state, group, row_key))?;
            return Ok(cell.map_or(&[], |cell| cell.items.as_slice()));
        }
        Ok(table.read(&at, epochs)?.map_or(&[], |(cell, ())| cell.items.as_slice()))
    }

    /// Shows every element of the current key's list in order. Of a list that is partly in the cold store, a
    /// few chunks are in memory at a time.
    ///
    /// # Errors
    /// As [`ListState::get`], or what `visit` returns, which ends the walk.
    pub fn for_each<K: Key, E: From<StateError>>(
        &self,
        states: &mut KeyedStates<K>,
        mut visit: impl FnMut(&T) -> Result<(), E>,
    ) -> Result<(), E> {
        let Open { table, at, epochs } = self.open(states)?;
        let mut outcome = Ok(());
        let cell = table.fill(&at, epochs, |cell, side, state, group, row_key| {
            outcome = cell.stream(side, state, group, row_key, &mut visit)?;
            Ok::<(), FetchError>(())
        })?;
        outcome?;
        cell.map_or(&[][..], |cell| &cell.items).iter().try_for_each(visit)
    }

    /// Number of elements of the current key's list, which is not brought into memory for it.
    ///
    /// # Errors
    /// As [`ListState::get`].
    pub fn len<K: Key>(&self, states: &mut KeyedStates<K>) -> Result<usize, StateError> {
        let Open { table, at, epochs } = self.open(states)?;
        Ok(table.read(&at, epochs)?.map_or(0, |(cell, ())| cell.len()))
    }

    /// Whether the current key has no list.
    ///
    /// # Errors
    /// As [`ListState::get`].
    pub fn is_empty<K: Key>(&self, states: &mut KeyedStates<K>) -> Result<bool, StateError> {
        self.len(states).map(|len| len == 0)
    }

    /// Appends one element.
    ///
    /// # Errors
    /// When no key is current, the handle belongs to other states, or the table is full.
    #[inline]
    pub fn add<K: Key>(&self, states: &mut KeyedStates<K>, element: T) -> Result<(), StateError> {
        let Open { table, at, epochs } = self.open(states)?;
        if let Some((cell, ())) = table.write(&at, epochs)? {
            cell.changed_from(cell.len());
            cell.items.push(element);
            table.elements += 1;
        } else {
            table.insert(&at, epochs, ListCell::new(vec![element]))?;
        }
        Ok(())
    }

    /// Appends all elements in order, or none when it fails. No elements: nothing happens.
    ///
    /// # Errors
    /// As [`ListState::add`].
    pub fn add_all<K: Key>(
        &self,
        states: &mut KeyedStates<K>,
        elements: impl IntoIterator<Item = T>,
    ) -> Result<(), StateError> {
        let Open { table, at, epochs } = self.open(states)?;
        // Collected first: the iterator is the user's and may panic half-way.
        let mut elements: Vec<T> = elements.into_iter().collect();
        if elements.is_empty() {
            return Ok(());
        }
        if let Some((cell, ())) = table.write(&at, epochs)? {
            let added = elements.len();
            cell.changed_from(cell.len());
            cell.items.append(&mut elements);
            table.elements += added;
        } else {
            table.insert(&at, epochs, ListCell::new(elements))?;
        }
        Ok(())
    }

    /// Replaces the whole list; an empty one is the same as [`ListState::clear`].
    ///
    /// # Errors
    /// As [`ListState::add`].
    pub fn update<K: Key>(
        &self,
        states: &mut KeyedStates<K>,
        elements: impl IntoIterator<Item = T>,
    ) -> Result<(), StateError> {
        let Open { table, at, epochs } = self.open(states)?;
        let elements: Vec<T> = elements.into_iter().collect();
        if elements.is_empty() {
            return table.remove(&at, epochs);
        }
        if let Some((cell, ())) = table.write(&at, epochs)? {
            let (before, after) = (cell.items.len(), elements.len());
            cell.replace(elements);
            table.elements = table.elements - before + after;
        } else {
            table.insert(&at, epochs, ListCell::new(elements))?;
        }
        Ok(())
    }

    /// Forgets the current key's list; nothing happens when there is none.
    ///
    /// # Errors
    /// When no key is current, or the handle belongs to other states.
    pub fn clear<K: Key>(&self, states: &mut KeyedStates<K>) -> Result<(), StateError> {
        let Open { table, at, epochs } = self.open(states)?;
        table.remove(&at, epochs)
    }
}
