//! `fold` and `aggregate`: an accumulator per key.

use std::marker::PhantomData;

use millpond_core::{Data, Key, UserResult};
use millpond_dataflow::{KeyedContext, OpenContext, Output};
use millpond_state::{AggregateFunction, StateDeclarer, ValueState};

use crate::keyed_process::KeyedProcess;

/// Folds each record into the accumulator of its key.
pub struct Fold<K, T, A, F> {
    initial: A,
    fold: F,
    accumulator: Option<ValueState<A>>,
    types: PhantomData<fn(K, T)>,
}

impl<K, T, A, F> Fold<K, T, A, F> {
    pub(crate) fn new(initial: A, fold: F) -> Self {
        Fold { initial, fold, accumulator: None, types: PhantomData }
    }
}

impl<K: Key, T: Data, A: Data, F: FnMut(&mut A, T) + 'static> KeyedProcess for Fold<K, T, A, F> {
    type Key = K;
    type Input = T;
    type Output = (K, A);

    fn open(&mut self, states: &mut StateDeclarer<'_, K>, _context: &mut OpenContext<'_>) -> UserResult {
        self.accumulator = Some(states.value("accumulator")?);
        Ok(())
    }

    fn process(&mut self, record: T, context: &mut KeyedContext<'_, K>, output: &mut Output<(K, A)>) -> UserResult {
        let Some(state) = self.accumulator else {
            return Ok(());
        };
        let accumulator = state.modify(context, |accumulator| {
            let accumulator = accumulator.get_or_insert_with(|| self.initial.clone());
            (self.fold)(accumulator, record);
            accumulator.clone()
        })?;
        output.emit((context.key()?.clone(), accumulator));
        Ok(())
    }
}

/// Aggregates the records of each key. State holds the accumulator, not the result (KS-45).
pub struct Aggregate<K, A: AggregateFunction> {
    aggregate: A,
    accumulator: Option<ValueState<A::Accumulator>>,
    types: PhantomData<fn(K)>,
}

impl<K, A: AggregateFunction> Aggregate<K, A> {
    pub(crate) fn new(aggregate: A) -> Self {
        Aggregate { aggregate, accumulator: None, types: PhantomData }
    }
}

impl<K: Key, A> KeyedProcess for Aggregate<K, A>
where
    A: AggregateFunction + 'static,
    A::Input: Data,
    A::Output: Data,
{
    type Key = K;
    type Input = A::Input;
    type Output = (K, A::Output);

    fn open(&mut self, states: &mut StateDeclarer<'_, K>, _context: &mut OpenContext<'_>) -> UserResult {
        self.accumulator = Some(states.value("accumulator")?);
        Ok(())
    }

    fn process(
        &mut self,
        record: A::Input,
        context: &mut KeyedContext<'_, K>,
        output: &mut Output<Self::Output>,
    ) -> UserResult {
        let Some(state) = self.accumulator else {
            return Ok(());
        };
        let aggregate = &self.aggregate;
        let result = state.modify(context, |accumulator| {
            let accumulator = accumulator.get_or_insert_with(|| aggregate.create_accumulator());
            aggregate.add(record, accumulator);
            aggregate.result(accumulator)
        })?;
        output.emit((context.key()?.clone(), result));
        Ok(())
    }
}
