//! One accumulator per key, fed by an aggregate function.

use std::marker::PhantomData;

use millpond_core::{Data, Key};

use super::states::{KeyedStates, Open};
use super::tracked::Tracked;
use super::value::Single;
use crate::error::StateError;

/// Folds inputs into an accumulator and reads a result from it. Input, accumulator and output may
/// all differ; the accumulator is what state and checkpoints hold.
pub trait AggregateFunction: Send + 'static {
    /// What is added.
    type Input;
    /// What is stored.
    type Accumulator: Data;
    /// What is read.
    type Output;

    /// An accumulator of nothing.
    fn create_accumulator(&self) -> Self::Accumulator;
    /// Adds one input.
    fn add(&self, input: Self::Input, accumulator: &mut Self::Accumulator);
    /// The result so far.
    fn result(&self, accumulator: &Self::Accumulator) -> Self::Output;
    /// An accumulator of everything in both. Must not depend on the order of the two.
    fn merge(&self, accumulator: Self::Accumulator, other: Self::Accumulator) -> Self::Accumulator;
}

pub(crate) type AggregatingTable<K, A> = Tracked<K, Single<<A as AggregateFunction>::Accumulator>, A>;

/// Handle of a state that aggregates what is added. Copy it freely; it refers to the state by index.
pub struct AggregatingState<A> {
    index: u16,
    held: PhantomData<fn() -> A>,
}

impl<A> Clone for AggregatingState<A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for AggregatingState<A> {}

impl<A: AggregateFunction> AggregatingState<A> {
    pub(crate) fn at(index: u16) -> Self {
        AggregatingState { index, held: PhantomData }
    }

    #[inline]
    fn open<'s, K: Key>(
        self,
        states: &'s mut KeyedStates<K>,
    ) -> Result<Open<'s, K, AggregatingTable<K, A>>, StateError> {
        states.open(self.index)
    }

    /// Adds an input to the current key's accumulator, which is created for the first one.
    ///
    /// # Errors
    /// When no key is current, the handle belongs to other states, or the table is full.
    #[inline]
    pub fn add<K: Key>(&self, states: &mut KeyedStates<K>, input: A::Input) -> Result<(), StateError> {
        let Open { table, at, epochs } = self.open(states)?;
        if let Some((cell, function)) = table.write(&at, epochs)? {
            function.add(input, &mut cell.0);
            return Ok(());
        }
        let mut accumulator = table.function.create_accumulator();
        table.function.add(input, &mut accumulator);
        table.insert(&at, epochs, Single(accumulator))?;
        Ok(())
    }

    /// The result for the current key; `None` before the first addition.
    ///
    /// # Errors
    /// When no key is current, or the handle belongs to other states.
    #[inline]
    pub fn get<K: Key>(&self, states: &mut KeyedStates<K>) -> Result<Option<A::Output>, StateError> {
        let Open { table, at, epochs } = self.open(states)?;
        Ok(table.read(&at, epochs)?.map(|(cell, function)| function.result(&cell.0)))
    }

    /// Changes what is stored in place, if there is something.
    pub(crate) fn touch<K: Key>(
        &self,
        states: &mut KeyedStates<K>,
        change: impl FnOnce(&mut A::Accumulator),
    ) -> Result<(), StateError> {
        let Open { table, at, epochs } = self.open(states)?;
        if let Some((cell, _)) = table.write(&at, epochs)? {
            change(&mut cell.0);
        }
        Ok(())
    }

    /// Forgets the current key's accumulator; nothing happens when there is none.
    ///
    /// # Errors
    /// When no key is current, or the handle belongs to other states.
    pub fn clear<K: Key>(&self, states: &mut KeyedStates<K>) -> Result<(), StateError> {
        let Open { table, at, epochs } = self.open(states)?;
        table.remove(&at, epochs)
    }
}
