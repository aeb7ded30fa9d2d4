//! Aggregates over the rows of each key, as they come and go.

use std::marker::PhantomData;

use millpond_core::{Data, Key, UserResult};
use millpond_dataflow::{KeyedContext, OpenContext, Output};
use millpond_state::{AggregateFunction, StateDeclarer, ValueState};

use super::change::{Change, emit_replacement};
use super::error::ChangelogError;
use super::function::RetractableAggregate;
use crate::keyed_process::KeyedProcess;

/// Keeps the number of rows and the accumulator of each key; the last row takes both with it.
pub(crate) struct AggregateRows<K, A: RetractableAggregate> {
    aggregate: A,
    state: Option<ValueState<(u64, A::Accumulator)>>,
    key: PhantomData<fn(K)>,
}

impl<K, A: RetractableAggregate> AggregateRows<K, A> {
    pub(crate) fn new(aggregate: A) -> Self {
        AggregateRows { aggregate, state: None, key: PhantomData }
    }
}

/// The results before and after a change; none when there are no rows.
type BeforeAndAfter<R> = (Option<R>, Option<R>);

/// What one change does to the rows of a key.
fn apply<A: RetractableAggregate>(
    aggregate: &A,
    change: &Change<A::Row>,
    held: &mut Option<(u64, A::Accumulator)>,
) -> UserResult<BeforeAndAfter<A::Output>> {
    let result = |held: &Option<(u64, A::Accumulator)>| {
        held.as_ref().map(|(rows, accumulator)| aggregate.result(accumulator, *rows)).transpose()
    };
    let before = result(held)?;
    if change.adds() {
        let (rows, accumulator) = held.get_or_insert_with(|| (0, aggregate.create_accumulator()));
        *rows += 1;
        aggregate.add(&change.row, accumulator);
    } else {
        let Some((rows, accumulator)) = held else {
            return Err(ChangelogError::NothingToRetract { kind: change.kind }.into());
        };
        *rows -= 1;
        aggregate.retract(&change.row, accumulator);
        if *rows == 0 {
            *held = None;
        }
    }
    let after = result(held)?;
    Ok((before, after))
}

impl<K: Key, A: RetractableAggregate> KeyedProcess for AggregateRows<K, A> {
    type Key = K;
    type Input = Change<A::Row>;
    type Output = Change<(K, A::Output)>;

    fn open(&mut self, states: &mut StateDeclarer<'_, K>, _context: &mut OpenContext<'_>) -> UserResult {
        self.state = Some(states.value("rows and accumulator")?);
        Ok(())
    }

    fn process(
        &mut self,
        change: Change<A::Row>,
        context: &mut KeyedContext<'_, K>,
        output: &mut Output<Self::Output>,
    ) -> UserResult {
        let Some(state) = self.state else { return Ok(()) };
        let (before, after) = state.modify(context, |held| apply(&self.aggregate, &change, held))??;
        if before != after {
            let key = context.key()?;
            let row = |result| (key.clone(), result);
            emit_replacement(before.map(row), after.map(row), output);
        }
        Ok(())
    }
}

/// Aggregates rows that only come, and emits each new result as a change of the one before.
pub(crate) struct AggregateInserts<K, A: AggregateFunction> {
    aggregate: A,
    accumulator: Option<ValueState<A::Accumulator>>,
    key: PhantomData<fn(K)>,
}

impl<K, A: AggregateFunction> AggregateInserts<K, A> {
    pub(crate) fn new(aggregate: A) -> Self {
        AggregateInserts { aggregate, accumulator: None, key: PhantomData }
    }
}

impl<K: Key, A> KeyedProcess for AggregateInserts<K, A>
where
    A: AggregateFunction + 'static,
    A::Input: Data,
    A::Output: Data + PartialEq,
{
    type Key = K;
    type Input = A::Input;
    type Output = Change<(K, A::Output)>;

    fn open(&mut self, states: &mut StateDeclarer<'_, K>, _context: &mut OpenContext<'_>) -> UserResult {
        self.accumulator = Some(states.value("accumulator")?);
        Ok(())
    }

    fn process(
        &mut self,
        row: A::Input,
        context: &mut KeyedContext<'_, K>,
        output: &mut Output<Self::Output>,
    ) -> UserResult {
        let Some(state) = self.accumulator else { return Ok(()) };
        let aggregate = &self.aggregate;
        let (before, after) = state.modify(context, |held| {
            let before = held.as_ref().map(|accumulator| aggregate.result(accumulator));
            let accumulator = held.get_or_insert_with(|| aggregate.create_accumulator());
            aggregate.add(row, accumulator);
            (before, aggregate.result(accumulator))
        })?;
        if before.as_ref() != Some(&after) {
            let key = context.key()?;
            emit_replacement(before.map(|result| (key.clone(), result)), Some((key.clone(), after)), output);
        }
        Ok(())
    }
}
