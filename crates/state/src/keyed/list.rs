//! An ordered list per key, written in chunks.
//!
//! In memory a list is one vector. In checkpoints it is cut into rows of [`CHUNK_ELEMENTS`], so that
//! appending to a long list rewrites only the last chunk. Changes go to the end or replace the
//! whole, so "the first changed chunk" says all that has to be known.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::mem::needs_drop;

use millpond_core::codec::{decode, encode_into};
use millpond_core::{CodecError, Data, Key};

use super::states::{KeyedStates, Open};
use super::tracked::{Cell, Tracked, encoded_bytes};
use crate::error::StateError;
use crate::rows::RowTarget;

/// Elements per row of a list in a checkpoint. Part of the format.
pub const CHUNK_ELEMENTS: usize = 128;

/// Nothing changed.
const NO_CHUNK: u32 = u32::MAX;

pub(crate) struct ListCell<T> {
    items: Vec<T>,
    /// First chunk changed in the epoch of the entry's tag.
    dirty_from: u32,
    /// Chunks in runs and in rows handed over: `0..persisted`.
    persisted: u32,
    /// Chunks on their way in, during a restore.
    #[expect(clippy::box_collection, reason = "there only during a restore: the cell stays small")]
    arriving: Option<Box<BTreeMap<u32, Vec<T>>>>,
}

pub(crate) type ListTable<K, T> = Tracked<K, ListCell<T>>;

fn chunk_of(element: usize) -> u32 {
    (element / CHUNK_ELEMENTS) as u32
}

fn chunk_suffix(chunk: u32) -> impl FnOnce(&mut Vec<u8>) -> Result<(), CodecError> {
    move |bytes| {
        bytes.extend_from_slice(&chunk.to_be_bytes());
        Ok(())
    }
}

fn chunk_number(suffix: &[u8]) -> Result<u32, String> {
    let bytes = suffix.try_into().map_err(|_| format!("a chunk number of {} bytes", suffix.len()))?;
    Ok(u32::from_be_bytes(bytes))
}

impl<T: Data> ListCell<T> {
    fn new(items: Vec<T>) -> Self {
        ListCell { items, dirty_from: 0, persisted: 0, arriving: None }
    }

    /// Changes come at or after this element.
    fn changed_from(&mut self, element: usize) {
        self.dirty_from = self.dirty_from.min(chunk_of(element));
    }

    fn chunks(&self) -> u32 {
        chunk_of(self.items.len() + CHUNK_ELEMENTS - 1)
    }
}

impl<T: Data> Cell for ListCell<T> {
    fn begin_epoch(&mut self) {
        self.dirty_from = NO_CHUNK;
    }

    fn write<K: Key>(&mut self, key: &K, target: &mut RowTarget<'_>) -> Result<(), CodecError> {
        let chunks = self.chunks();
        for chunk in self.dirty_from..chunks {
            let start = chunk as usize * CHUNK_ELEMENTS;
            let end = (start + CHUNK_ELEMENTS).min(self.items.len());
            target.put(key, chunk_suffix(chunk), |bytes| encode_into(&self.items[start..end], bytes))?;
        }
        for chunk in chunks..self.persisted {
            target.delete(key, chunk_suffix(chunk))?;
        }
        self.persisted = chunks;
        self.dirty_from = NO_CHUNK;
        Ok(())
    }

    fn write_removed<K: Key>(&self, key: &K, _: bool, target: &mut RowTarget<'_>) -> Result<(), CodecError> {
        (0..self.persisted).try_for_each(|chunk| target.delete(key, chunk_suffix(chunk)))
    }

    fn restored(suffix: &[u8], value: &[u8]) -> Result<Self, String> {
        let mut cell = ListCell::new(Vec::new());
        cell.restore(suffix, value)?;
        Ok(cell)
    }

    fn restore(&mut self, suffix: &[u8], value: &[u8]) -> Result<(), String> {
        let items: Vec<T> = decode(value).map_err(|error| error.to_string())?;
        self.arriving.get_or_insert_default().insert(chunk_number(suffix)?, items);
        Ok(())
    }

    fn restore_removed(&mut self, suffix: &[u8]) -> Result<bool, String> {
        let chunk = chunk_number(suffix)?;
        let arriving = self.arriving.get_or_insert_default();
        arriving.remove(&chunk);
        Ok(!arriving.is_empty())
    }

    fn finish_restore(&mut self) -> Result<bool, String> {
        let Some(arriving) = self.arriving.take() else {
            return Ok(!self.items.is_empty());
        };
        let chunks = arriving.len();
        for (expected, (chunk, items)) in arriving.into_iter().enumerate() {
            let whole = items.len() == CHUNK_ELEMENTS || (expected + 1 == chunks && !items.is_empty());
            if chunk as usize != expected || !whole || items.len() > CHUNK_ELEMENTS {
                return Err(format!(
                    "chunk {chunk} with {} elements where {expected} of {chunks} should be",
                    items.len()
                ));
            }
            self.items.extend(items);
        }
        self.persisted = self.chunks();
        self.dirty_from = NO_CHUNK;
        Ok(!self.items.is_empty())
    }

    fn heap_bytes(&self) -> usize {
        let cells = self.items.capacity() * size_of::<T>();
        let sample = &self.items[..self.items.len().min(16)];
        if !needs_drop::<T>() || sample.is_empty() {
            return cells;
        }
        let owned: usize = sample.iter().map(encoded_bytes).sum();
        cells + owned * self.items.len() / sample.len()
    }
}

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

    /// The current key's list in order; empty when there is none.
    ///
    /// # Errors
    /// When no key is current, or the handle belongs to other states.
    #[inline]
    pub fn get<'s, K: Key>(&self, states: &'s mut KeyedStates<K>) -> Result<&'s [T], StateError> {
        let Open { table, at, .. } = self.open(states)?;
        Ok(table.read(&at).map_or(&[], |(cell, ())| cell.items.as_slice()))
    }

    /// Number of elements of the current key's list.
    ///
    /// # Errors
    /// As [`ListState::get`].
    pub fn len<K: Key>(&self, states: &mut KeyedStates<K>) -> Result<usize, StateError> {
        self.get(states).map(<[T]>::len)
    }

    /// Whether the current key has no list.
    ///
    /// # Errors
    /// As [`ListState::get`].
    pub fn is_empty<K: Key>(&self, states: &mut KeyedStates<K>) -> Result<bool, StateError> {
        self.get(states).map(<[T]>::is_empty)
    }

    /// Appends one element.
    ///
    /// # Errors
    /// When no key is current, the handle belongs to other states, or the table is full.
    #[inline]
    pub fn add<K: Key>(&self, states: &mut KeyedStates<K>, element: T) -> Result<(), StateError> {
        let Open { table, at, epochs } = self.open(states)?;
        if let Some((cell, ())) = table.write(&at, epochs)? {
            cell.changed_from(cell.items.len());
            cell.items.push(element);
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
            cell.changed_from(cell.items.len());
            cell.items.append(&mut elements);
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
            cell.changed_from(0);
            cell.items = elements;
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
