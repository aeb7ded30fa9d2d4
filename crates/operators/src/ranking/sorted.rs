//! The rows of a key in an order, of which the first are at hand.
//!
//! All rows are entries of a map state, by their order, and may leave memory. The first of them are a value state beside
//! it: the *head*. A row that comes or goes behind the head does not touch it; when so many have gone that the head is
//! too short, it is read anew from all rows, with some to spare.
//!
//! Invariants: the head is a beginning of the rows in their order, rows of equal order by arrival; it has at least as
//! many as are asked for, or all there are.

use std::collections::BTreeMap;

use millpond_core::{Data, Key};
use millpond_state::{KeyedStates, MapState, StateDeclarer, StateError, ValueState};
use serde::{Deserialize, Serialize};

/// Rows that the head has to spare, at least.
const SPARE: usize = 16;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Head<S, T> {
    rows: Vec<(S, T)>,
    /// The number of all rows of the key.
    all: u64,
}

impl<S: Ord, T> Head<S, T> {
    /// Whether no row is behind the head.
    fn is_complete(&self) -> bool {
        self.rows.len() as u64 == self.all
    }

    /// The place behind all rows of orders up to `order`.
    fn behind(&self, order: &S) -> usize {
        self.rows.partition_point(|(other, _)| other <= order)
    }

    /// The place of the first row of `order`.
    fn first_of(&self, order: &S) -> usize {
        self.rows.partition_point(|(other, _)| other < order)
    }
}

/// See the module.
pub(crate) struct SortedRows<S, T> {
    /// How many of the first rows are asked for.
    wanted: usize,
    all: MapState<S, Vec<T>>,
    head: ValueState<Head<S, T>>,
}

impl<S: Key + Ord, T: Data> SortedRows<S, T> {
    /// Declares the two states.
    pub(crate) fn open<K: Key>(states: &mut StateDeclarer<'_, K>, wanted: usize) -> Result<Self, StateError> {
        Ok(SortedRows { wanted, all: states.map("all rows")?, head: states.value("first rows")? })
    }

    fn capacity(&self) -> usize {
        self.wanted.saturating_add(self.wanted.max(SPARE))
    }

    /// The first row.
    pub(crate) fn first<'s, K: Key>(
        &self,
        states: &'s mut KeyedStates<K>,
    ) -> Result<Option<(&'s S, &'s T)>, StateError> {
        self.row(states, 0)
    }

    /// The row at a place below `wanted`.
    pub(crate) fn row<'s, K: Key>(
        &self,
        states: &'s mut KeyedStates<K>,
        at: usize,
    ) -> Result<Option<(&'s S, &'s T)>, StateError> {
        let head = self.head.get(states)?;
        Ok(head.and_then(|head| head.rows.get(at)).map(|(order, row)| (order, row)))
    }

    /// The rows of the head, in order.
    pub(crate) fn head<'s, K: Key>(&self, states: &'s mut KeyedStates<K>) -> Result<&'s [(S, T)], StateError> {
        Ok(self.head.get(states)?.map_or(&[], |head| head.rows.as_slice()))
    }

    /// Adds a row behind those of its order; its place, when that is in the head.
    pub(crate) fn insert<K: Key>(
        &self,
        states: &mut KeyedStates<K>,
        order: S,
        row: T,
    ) -> Result<Option<usize>, StateError> {
        self.all.modify(states, order.clone(), |rows| rows.get_or_insert_default().push(row.clone()))?;
        let capacity = self.capacity();
        self.head.modify_or(
            states,
            || Head { rows: Vec::new(), all: 0 },
            |head| {
                let at = head.behind(&order);
                let belongs = at < head.rows.len() || head.is_complete();
                head.all += 1;
                if !belongs || at >= capacity {
                    return None;
                }
                head.rows.insert(at, (order, row));
                head.rows.truncate(capacity);
                Some(at)
            },
        )
    }

    /// Removes the latest of the rows of `order` that equal `row`: its place, [`usize::MAX`] behind the head, and itself;
    /// `None` when there is none.
    pub(crate) fn remove<K: Key>(
        &self,
        states: &mut KeyedStates<K>,
        order: &S,
        row: &T,
    ) -> Result<Option<(usize, T)>, StateError>
    where
        T: PartialEq,
    {
        let removed = self.all.modify(states, order.clone(), |rows| {
            let held = rows.as_mut()?;
            let nth = held.iter().rposition(|other| other == row)?;
            let removed = held.remove(nth);
            if held.is_empty() {
                *rows = None;
            }
            Some((nth, removed))
        })?;
        let Some((nth, removed)) = removed else { return Ok(None) };
        let (mut place, mut refill) = (usize::MAX, false);
        let wanted = self.wanted;
        self.head.modify(states, |held| {
            let Some(head) = held else { return };
            let at = head.first_of(order) + nth;
            head.all -= 1;
            if at < head.behind(order) {
                head.rows.remove(at);
                place = at;
            }
            refill = head.rows.len() < wanted && !head.is_complete();
            if head.all == 0 {
                *held = None;
            }
        })?;
        if refill {
            self.refill(states)?;
        }
        Ok(Some((place, removed)))
    }

    /// Reads the head anew from all rows.
    fn refill<K: Key>(&self, states: &mut KeyedStates<K>) -> Result<(), StateError> {
        let capacity = self.capacity();
        let mut first: BTreeMap<S, Vec<T>> = BTreeMap::new();
        let mut held = 0;
        self.all.for_each_entry(states, |entry| {
            let behind = first.last_key_value().is_some_and(|(last, _)| last < entry.key());
            if held >= capacity && behind {
                return Ok(());
            }
            let rows: Vec<T> = entry.value().iter().take(capacity).cloned().collect();
            held += rows.len();
            first.insert(entry.key().clone(), rows);
            while let Some(last) = first.last_entry().filter(|last| held - last.get().len() >= capacity) {
                held -= last.remove().len();
            }
            Ok(())
        })?;
        let rows = first.into_iter().flat_map(|(order, rows)| rows.into_iter().map(move |row| (order.clone(), row)));
        let rows: Vec<(S, T)> = rows.take(capacity).collect();
        self.head.modify(states, |head| {
            if let Some(head) = head {
                head.rows = rows;
            }
        })
    }
}
