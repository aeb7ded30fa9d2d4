//! The first n rows of each key of a stream that only adds rows: no others are kept.

use std::marker::PhantomData;

use millpond_core::{Data, Epoch, Key, UserResult};
use millpond_dataflow::{KeyedContext, OpenContext, Output};
use millpond_state::{StateDeclarer, ValueState};

use super::emit::EmitRows;
use super::size::RankingSize;
use crate::changelog::Change;
use crate::keyed_process::KeyedProcess;

/// Keeps the rows of the ranking of each key, in order.
pub(crate) struct TopN<K, T, S, F, E> {
    size: RankingSize,
    order: F,
    rows: Option<ValueState<Vec<T>>>,
    types: PhantomData<fn(K, S) -> E>,
}

impl<K, T, S, F, E> TopN<K, T, S, F, E> {
    pub(crate) fn new(rows: usize, order: F) -> Self {
        TopN { size: RankingSize::new(rows), order, rows: None, types: PhantomData }
    }
}

impl<K, T, S, F, E> KeyedProcess for TopN<K, T, S, F, E>
where
    K: Key,
    T: Data,
    S: Ord + 'static,
    F: Fn(&T) -> S + 'static,
    E: EmitRows<T>,
{
    type Key = K;
    type Input = T;
    type Output = Change<E::Row>;

    fn open(&mut self, states: &mut StateDeclarer<'_, K>, context: &mut OpenContext<'_>) -> UserResult {
        self.rows = Some(states.value("rows")?);
        self.size.open(context)
    }

    fn process(
        &mut self,
        row: T,
        context: &mut KeyedContext<'_, K>,
        output: &mut Output<Change<E::Row>>,
    ) -> UserResult {
        let Some(state) = self.rows else { return Ok(()) };
        let (size, order) = (self.size.rows, &self.order);
        let place = order(&row);
        // Most rows of a long stream do not come in: they are only compared with the last.
        let outside = |rows: &Vec<T>| rows.len() >= size && rows.last().is_some_and(|last| order(last) <= place);
        if state.get(context)?.is_some_and(outside) {
            return Ok(());
        }
        state.modify_or(context, Vec::new, |rows| {
            let at = rows.partition_point(|other| order(other) <= place);
            if rows.len() == rows.capacity() {
                // No more than a full ranking and the row that is pushed out of it.
                rows.reserve_exact(rows.len().clamp(1, (size - rows.len()).saturating_add(1)));
            }
            rows.insert(at, row);
            E::inserted(at, size, |at| rows.get(at), output);
            rows.truncate(size);
        })?;
        Ok(())
    }

    fn snapshot(&mut self, _epoch: Epoch, context: &mut KeyedContext<'_, K>) -> UserResult {
        self.size.store(context)
    }
}
