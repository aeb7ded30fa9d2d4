//! A list of the operator, not of a key.

use std::marker::PhantomData;
use std::sync::Arc;

use millpond_core::Data;
use millpond_core::codec::encode_into;

use super::pieces::Pieces;
use super::states::OperatorStates;
use crate::error::StateError;

/// Handle of an operator list. Copy it freely; it refers to the state by index.
pub struct OperatorListState<T> {
    index: usize,
    held: PhantomData<fn() -> T>,
}

impl<T> Clone for OperatorListState<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for OperatorListState<T> {}

impl<T: Data> OperatorListState<T> {
    pub(crate) fn at(index: usize) -> Self {
        OperatorListState { index, held: PhantomData }
    }

    /// The elements in the order in which they were added.
    ///
    /// # Errors
    /// When the handle belongs to other states.
    pub fn get<'s>(&self, states: &'s OperatorStates) -> Result<&'s [T], StateError> {
        states.list_at::<Vec<T>>(self.index).map(Vec::as_slice)
    }

    /// Appends one element.
    ///
    /// # Errors
    /// When the handle belongs to other states, or the element cannot be encoded.
    pub fn add(&self, states: &mut OperatorStates, element: T) -> Result<(), StateError> {
        self.add_all(states, [element])
    }

    /// Appends all elements in order, or none when it fails.
    ///
    /// # Errors
    /// As [`OperatorListState::add`].
    pub fn add_all(
        &self,
        states: &mut OperatorStates,
        elements: impl IntoIterator<Item = T>,
    ) -> Result<(), StateError> {
        let (stored, values) = states.list_at_mut::<Vec<T>>(self.index)?;
        let elements: Vec<T> = elements.into_iter().collect();
        let pieces = encode_all(&stored.name, &elements)?;
        pieces.into_iter().for_each(|piece| stored.elements.push(piece));
        values.extend(elements);
        states.changed();
        Ok(())
    }

    /// Replaces the whole list, or leaves it when it fails.
    ///
    /// # Errors
    /// As [`OperatorListState::add`].
    pub fn update(&self, states: &mut OperatorStates, elements: impl IntoIterator<Item = T>) -> Result<(), StateError> {
        let (stored, values) = states.list_at_mut::<Vec<T>>(self.index)?;
        let elements: Vec<T> = elements.into_iter().collect();
        stored.elements = encode_all(&stored.name, &elements)?.into_iter().collect();
        *values = elements;
        states.changed();
        Ok(())
    }

    /// Removes every element.
    ///
    /// # Errors
    /// When the handle belongs to other states.
    pub fn clear(&self, states: &mut OperatorStates) -> Result<(), StateError> {
        let (stored, values) = states.list_at_mut::<Vec<T>>(self.index)?;
        stored.elements = Pieces::default();
        values.clear();
        states.changed();
        Ok(())
    }
}

fn encode_all<T: Data>(state: &str, elements: &[T]) -> Result<Vec<Arc<[u8]>>, StateError> {
    let mut scratch = Vec::new();
    let pieces = elements.iter().map(|element| {
        scratch.clear();
        encode_into(element, &mut scratch).map_err(|source| StateError::codec(state, source))?;
        Ok(Arc::from(scratch.as_slice()))
    });
    pieces.collect()
}
