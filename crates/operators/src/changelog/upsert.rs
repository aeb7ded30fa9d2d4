//! Between changes and upserts: a row per key that is set or removed.

use std::marker::PhantomData;

use millpond_core::{Data, Key, UserResult};
use millpond_dataflow::{KeyedContext, OpenContext, Output};
use millpond_state::{StateDeclarer, ValueState};

use super::change::{Change, emit_replacement};
use super::error::ChangelogError;
use crate::keyed_process::KeyedProcess;

/// From upserts to changes: keeps the row of each key.
pub(crate) struct FromUpserts<K, T> {
    row: Option<ValueState<T>>,
    key: PhantomData<fn(K)>,
}

impl<K, T> Default for FromUpserts<K, T> {
    fn default() -> Self {
        FromUpserts { row: None, key: PhantomData }
    }
}

impl<K: Key, T: Data> KeyedProcess for FromUpserts<K, T> {
    type Key = K;
    type Input = (K, Option<T>);
    type Output = Change<T>;

    fn open(&mut self, states: &mut StateDeclarer<'_, K>, _context: &mut OpenContext<'_>) -> UserResult {
        self.row = Some(states.value("row")?);
        Ok(())
    }

    fn process(
        &mut self,
        (_, after): (K, Option<T>),
        context: &mut KeyedContext<'_, K>,
        output: &mut Output<Change<T>>,
    ) -> UserResult {
        let Some(row) = self.row else { return Ok(()) };
        let before = row.modify(context, |row| std::mem::replace(row, after.clone()))?;
        emit_replacement(before, after, output);
        Ok(())
    }
}

/// From changes to upserts: keeps the rows of each key, of which there is one unless changes of different rows overtake
/// each other; the row that came last is the key's.
pub(crate) struct ToUpserts<K, T> {
    rows: Option<ValueState<Vec<T>>>,
    key: PhantomData<fn(K)>,
}

impl<K, T> Default for ToUpserts<K, T> {
    fn default() -> Self {
        ToUpserts { rows: None, key: PhantomData }
    }
}

/// Applies a change to the rows of a key. The row that is the key's afterwards, when that is another one than before.
fn apply<T: Data + PartialEq>(
    change: Change<T>,
    held: &mut Option<Vec<T>>,
) -> Result<Option<Option<T>>, ChangelogError> {
    if change.adds() {
        held.get_or_insert_default().push(change.row.clone());
        return Ok(Some(Some(change.row)));
    }
    let rows = held.as_mut().ok_or(ChangelogError::NothingToRetract { kind: change.kind })?;
    let at = rows.iter().rposition(|row| *row == change.row);
    let at = at.ok_or(ChangelogError::NothingToRetract { kind: change.kind })?;
    rows.remove(at);
    let (was_last, last) = (at == rows.len(), rows.last().cloned());
    if rows.is_empty() {
        *held = None;
    }
    Ok(was_last.then_some(last))
}

impl<K: Key, T: Data + PartialEq> KeyedProcess for ToUpserts<K, T> {
    type Key = K;
    type Input = Change<T>;
    type Output = (K, Option<T>);

    fn open(&mut self, states: &mut StateDeclarer<'_, K>, _context: &mut OpenContext<'_>) -> UserResult {
        self.rows = Some(states.value("rows")?);
        Ok(())
    }

    fn process(
        &mut self,
        change: Change<T>,
        context: &mut KeyedContext<'_, K>,
        output: &mut Output<(K, Option<T>)>,
    ) -> UserResult {
        let Some(rows) = self.rows else { return Ok(()) };
        if let Some(row) = rows.modify(context, |held| apply(change, held))?? {
            output.emit((context.key()?.clone(), row));
        }
        Ok(())
    }
}
