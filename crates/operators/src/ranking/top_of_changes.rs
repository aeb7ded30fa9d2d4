//! The first n rows of each key of a changelog stream: all rows are kept, since others move up when one goes.

use std::marker::PhantomData;

use millpond_core::{Data, Epoch, Key, UserResult};
use millpond_dataflow::{KeyedContext, OpenContext, Output};
use millpond_state::StateDeclarer;

use super::emit::EmitRows;
use super::size::RankingSize;
use super::sorted::SortedRows;
use crate::changelog::{Change, ChangelogError};
use crate::keyed_process::KeyedProcess;

/// Keeps all rows of each key in order.
pub(crate) struct TopOfChanges<K, T, S, F, E> {
    size: RankingSize,
    order: F,
    rows: Option<SortedRows<S, T>>,
    types: PhantomData<fn(K) -> E>,
}

impl<K, T, S, F, E> TopOfChanges<K, T, S, F, E> {
    pub(crate) fn new(rows: usize, order: F) -> Self {
        TopOfChanges { size: RankingSize::new(rows), order, rows: None, types: PhantomData }
    }
}

impl<K, T, S, F, E> KeyedProcess for TopOfChanges<K, T, S, F, E>
where
    K: Key,
    T: Data + PartialEq,
    S: Key + Ord,
    F: Fn(&T) -> S + 'static,
    E: EmitRows<T>,
{
    type Key = K;
    type Input = Change<T>;
    type Output = Change<E::Row>;

    fn open(&mut self, states: &mut StateDeclarer<'_, K>, context: &mut OpenContext<'_>) -> UserResult {
        self.rows = Some(SortedRows::open(states, self.size.rows)?);
        self.size.open(context)
    }

    fn process(
        &mut self,
        change: Change<T>,
        context: &mut KeyedContext<'_, K>,
        output: &mut Output<Change<E::Row>>,
    ) -> UserResult {
        let Some(rows) = &self.rows else { return Ok(()) };
        let (size, order) = (self.size.rows, (self.order)(&change.row));
        if change.adds() {
            let place = rows.insert(context, order, change.row)?;
            if let Some(at) = place.filter(|at| *at < size) {
                let head = rows.head(context)?;
                E::inserted(at, size, |at| head.get(at).map(|(_, row)| row), output);
            }
            return Ok(());
        }
        let removed = rows.remove(context, &order, &change.row)?;
        let (at, row) = removed.ok_or(ChangelogError::NothingToRetract { kind: change.kind })?;
        if at < size {
            let head = rows.head(context)?;
            E::removed(at, size, &row, |at| head.get(at).map(|(_, row)| row), output);
        }
        Ok(())
    }

    fn snapshot(&mut self, _epoch: Epoch, context: &mut KeyedContext<'_, K>) -> UserResult {
        self.size.store(context)
    }
}
