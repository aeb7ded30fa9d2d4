//! One value per key that every addition is folded into.

use std::marker::PhantomData;

use millpond_core::{Data, Key};

use super::states::{KeyedStates, Open};
use super::tracked::Tracked;
use super::value::Single;
use crate::error::StateError;

pub(crate) type ReduceFunction<T> = Box<dyn Fn(T, T) -> T + Send>;
pub(crate) type ReducingTable<K, T> = Tracked<K, Single<T>, ReduceFunction<T>>;

/// Handle of a state that folds what is added. Copy it freely; it refers to the state by index.
pub struct ReducingState<T> {
    index: u16,
    held: PhantomData<fn() -> T>,
}

impl<T> Clone for ReducingState<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ReducingState<T> {}

impl<T: Data> ReducingState<T> {
    pub(crate) fn at(index: u16) -> Self {
        ReducingState { index, held: PhantomData }
    }

    #[inline]
    fn open<'s, K: Key>(self, states: &'s mut KeyedStates<K>) -> Result<Open<'s, K, ReducingTable<K, T>>, StateError> {
        states.open(self.index)
    }

    /// Adds a value: the first is stored as it is, every later one as `reduce(stored, value)`.
    ///
    /// # Errors
    /// When no key is current, the handle belongs to other states, or the table is full.
    #[inline]
    pub fn add<K: Key>(&self, states: &mut KeyedStates<K>, value: T) -> Result<(), StateError> {
        let Open { table, at, epochs } = self.open(states)?;
        table.change(&at, epochs, |cell, reduce| {
            *cell = Some(Single(match cell.take() {
                Some(Single(stored)) => reduce(stored, value),
                None => value,
            }));
        })
    }

    /// The current key's reduced value; `None` before the first addition.
    ///
    /// # Errors
    /// When no key is current, or the handle belongs to other states.
    #[inline]
    pub fn get<'s, K: Key>(&self, states: &'s mut KeyedStates<K>) -> Result<Option<&'s T>, StateError> {
        let Open { table, at, epochs } = self.open(states)?;
        Ok(table.read(&at, epochs)?.map(|(cell, _)| &cell.0))
    }

    /// Changes what is stored in place, if there is something.
    pub(crate) fn touch<K: Key>(
        &self,
        states: &mut KeyedStates<K>,
        change: impl FnOnce(&mut T),
    ) -> Result<(), StateError> {
        let Open { table, at, epochs } = self.open(states)?;
        if let Some((cell, _)) = table.write(&at, epochs)? {
            change(&mut cell.0);
        }
        Ok(())
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
