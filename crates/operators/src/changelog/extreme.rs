//! The least or greatest value over the rows of each key, as they come and go.

use std::marker::PhantomData;

use millpond_core::{Data, Key, UserResult};
use millpond_dataflow::{KeyedContext, OpenContext, Output};
use millpond_state::StateDeclarer;

use super::change::{Change, emit_replacement};
use super::error::ChangelogError;
use crate::keyed_process::KeyedProcess;
use crate::ranking::SortedRows;

/// Keeps how often each value is there; the first in the order of `O` is the result.
pub(crate) struct Extreme<K, T, O, V, F, G> {
    order: F,
    value: G,
    values: Option<SortedRows<O, ()>>,
    types: PhantomData<fn(K, T) -> V>,
}

impl<K, T, O, V, F, G> Extreme<K, T, O, V, F, G> {
    /// `order` reads what is compared from a row, `value` makes the result of it.
    pub(crate) fn new(order: F, value: G) -> Self {
        Extreme { order, value, values: None, types: PhantomData }
    }
}

impl<K, T, O, V, F, G> KeyedProcess for Extreme<K, T, O, V, F, G>
where
    K: Key,
    T: Data,
    O: Key + Ord,
    V: Data + PartialEq,
    F: Fn(&T) -> O + 'static,
    G: Fn(&O) -> V + 'static,
{
    type Key = K;
    type Input = Change<T>;
    type Output = Change<(K, V)>;

    fn open(&mut self, states: &mut StateDeclarer<'_, K>, _context: &mut OpenContext<'_>) -> UserResult {
        self.values = Some(SortedRows::open(states, 1)?);
        Ok(())
    }

    fn process(
        &mut self,
        change: Change<T>,
        context: &mut KeyedContext<'_, K>,
        output: &mut Output<Self::Output>,
    ) -> UserResult {
        let Some(values) = &self.values else { return Ok(()) };
        let order = (self.order)(&change.row);
        let before = values.first(context)?.map(|(order, ())| (self.value)(order));
        if change.adds() {
            values.insert(context, order, ())?;
        } else if values.remove(context, &order, &())?.is_none() {
            return Err(ChangelogError::NothingToRetract { kind: change.kind }.into());
        }
        let after = values.first(context)?.map(|(order, ())| (self.value)(order));
        if before != after {
            let key = context.key()?;
            let row = |value| (key.clone(), value);
            emit_replacement(before.map(row), after.map(row), output);
        }
        Ok(())
    }
}
