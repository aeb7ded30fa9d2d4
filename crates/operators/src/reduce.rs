//! `reduce`: one value per key, combined with each record.

use std::marker::PhantomData;

use millpond_core::{Data, Key, UserResult};
use millpond_dataflow::{KeyedContext, OpenContext, Output};
use millpond_state::{StateDeclarer, ValueState};

use crate::keyed_process::KeyedProcess;

/// Combines each record with the result so far of its key.
pub(crate) struct Reduce<K, T, F> {
    reduce: F,
    result: Option<ValueState<T>>,
    types: PhantomData<fn(K) -> T>,
}

impl<K, T, F> Reduce<K, T, F> {
    pub(crate) fn new(reduce: F) -> Self {
        Reduce { reduce, result: None, types: PhantomData }
    }
}

impl<K: Key, T: Data, F: Fn(T, T) -> T + 'static> KeyedProcess for Reduce<K, T, F> {
    type Key = K;
    type Input = T;
    type Output = (K, T);

    fn open(&mut self, states: &mut StateDeclarer<'_, K>, _context: &mut OpenContext<'_>) -> UserResult {
        self.result = Some(states.value("result")?);
        Ok(())
    }

    fn process(&mut self, record: T, context: &mut KeyedContext<'_, K>, output: &mut Output<(K, T)>) -> UserResult {
        let Some(state) = self.result else {
            return Ok(());
        };
        let result = state.modify(context, |result| {
            let next = match result.take() {
                Some(before) => (self.reduce)(before, record),
                None => record,
            };
            result.insert(next).clone()
        })?;
        output.emit((context.key()?.clone(), result));
        Ok(())
    }
}
