//! A list per key whose elements are forgotten after a time, each on its own.

use millpond_core::codec::decode;
use millpond_core::{Data, Key};

use super::{Stop, Timed, Ttl};
use crate::error::StateError;
use crate::keyed::cold_part::FetchError;
use crate::keyed::list::ListState;
use crate::keyed::list_cell::ListCell;
use crate::keyed::states::KeyedStates;
use crate::keyed::sweep::{ColdAt, ColdPlace, Expiry, Verdict};

/// Live elements that a list may have to be shortened by the walk that removes what has expired: it takes all of
/// them into memory.
const SHORTENED_ELEMENTS: usize = 64 << 10;

/// How a table of such lists finds what is over.
pub(crate) fn list_expiry<T: Data>(ttl: Ttl) -> Expiry<ListCell<Timed<T>>> {
    let (judge, judge_cold, shorten, count) = (judge::<T>, judge_cold::<T>, shorten::<T>, count::<T>);
    Expiry { ttl, judge, judge_cold, shorten, count, hot: (0, 0), cold: ColdPlace::default() }
}

/// Of a list that is in memory: the oldest elements are in front.
fn judge<T: Data>(cell: &ListCell<Timed<T>>, ttl: Ttl, now_ms: i64) -> Verdict {
    let is_over = |timed: &Timed<T>| ttl.is_expired(timed.at_ms, now_ms);
    if !cell.is_whole() {
        Verdict::Live
    } else if cell.items.iter().rev().all(is_over) {
        Verdict::Over
    } else if cell.items.get(cell.items.len() / 2).is_some_and(is_over) {
        Verdict::Shorten
    } else {
        Verdict::Live
    }
}

/// Of a list that is partly in the cold store.
fn judge_cold<T: Data>(
    cell: &mut ListCell<Timed<T>>,
    at: &ColdAt<'_>,
    ttl: Ttl,
    now_ms: i64,
) -> Result<Verdict, FetchError> {
    let (mut over, mut live) = (0, 0);
    let mut count = |timed: &Timed<T>| {
        let expired = ttl.is_expired(timed.at_ms, now_ms);
        *(if expired { &mut over } else { &mut live }) += 1;
        if live > SHORTENED_ELEMENTS { Err(()) } else { Ok(()) }
    };
    let Ok(()) = cell.stream(at.side, at.state, at.group, at.row_key, &mut count)? else { return Ok(Verdict::Live) };
    if cell.items.iter().try_for_each(count).is_err() || over < live {
        return Ok(Verdict::Live);
    }
    if live == 0 {
        return Ok(Verdict::Over);
    }
    cell.load(at.side, at.state, at.group, at.row_key)?;
    Ok(Verdict::Shorten)
}

fn shorten<T: Data>(cell: &mut ListCell<Timed<T>>, ttl: Ttl, now_ms: i64) {
    let mut items = std::mem::take(&mut cell.items);
    items.retain(|timed| !ttl.is_expired(timed.at_ms, now_ms));
    cell.replace(items);
}

/// Of a row: how many elements are over, and how many there are. Nothing of a row that cannot be read: who reads
/// it for its content says so.
fn count<T: Data>(row: &[u8], ttl: Ttl, now_ms: i64) -> (usize, usize) {
    let Ok(items) = decode::<Vec<Timed<T>>>(row) else { return (0, 0) };
    (items.iter().filter(|timed| ttl.is_expired(timed.at_ms, now_ms)).count(), items.len())
}

/// Handle of a state with a list per key and a time to live of each element. Copy it freely.
pub struct ExpiringList<T> {
    inner: ListState<Timed<T>>,
    ttl: Ttl,
}

impl<T> Clone for ExpiringList<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ExpiringList<T> {}

impl<T: Data> ExpiringList<T> {
    pub(crate) fn new(inner: ListState<Timed<T>>, ttl: Ttl) -> Self {
        ExpiringList { inner, ttl }
    }

    /// The live elements of the current key's list, in order. Elements found expired are removed. Brings the whole
    /// list into memory: for a list that may be larger than memory use [`ExpiringList::for_each`].
    ///
    /// # Errors
    /// When no key is current, the handle belongs to other states, or the cold store fails.
    pub fn get<'s, K: Key>(
        &self,
        states: &'s mut KeyedStates<K>,
    ) -> Result<impl ExactSizeIterator<Item = &'s T> + use<'s, K, T>, StateError> {
        let now_ms = states.now_ms();
        let timed = self.inner.get(states)?;
        let expired = timed.iter().any(|timed| self.ttl.is_expired(timed.at_ms, now_ms));
        if expired || timed.iter().any(|timed| self.ttl.renews(timed.at_ms, now_ms)) {
            let live = timed.iter().filter(|timed| !self.ttl.is_expired(timed.at_ms, now_ms));
            let renewed = live.map(|timed| Timed {
                at_ms: if self.ttl.renews(timed.at_ms, now_ms) { now_ms } else { timed.at_ms },
                value: timed.value.clone(),
            });
            let renewed: Vec<Timed<T>> = renewed.collect();
            self.inner.update(states, renewed)?;
        }
        Ok(self.inner.get(states)?.iter().map(|timed| &timed.value))
    }

    /// Shows every live element of the current key's list in order, and renews none. Of a list that is partly in the
    /// cold store, a few chunks are in memory at a time.
    ///
    /// # Errors
    /// As [`ExpiringList::get`], or what `visit` returns, which ends the walk.
    pub fn for_each<K: Key, E: From<StateError>>(
        &self,
        states: &mut KeyedStates<K>,
        mut visit: impl FnMut(&T) -> Result<(), E>,
    ) -> Result<(), E> {
        let (ttl, now_ms) = (self.ttl, states.now_ms());
        self.inner.for_each(
            states,
            |timed| {
                if ttl.is_expired(timed.at_ms, now_ms) { Ok(()) } else { visit(&timed.value) }
            },
        )
    }

    /// Number of live elements of the current key's list. All of it is read for that.
    ///
    /// # Errors
    /// As [`ExpiringList::get`].
    pub fn len<K: Key>(&self, states: &mut KeyedStates<K>) -> Result<usize, StateError> {
        let mut len = 0;
        self.for_each(states, |_| {
            len += 1;
            Ok::<(), StateError>(())
        })?;
        Ok(len)
    }

    /// Whether the current key has no live element.
    ///
    /// # Errors
    /// As [`ExpiringList::get`].
    pub fn is_empty<K: Key>(&self, states: &mut KeyedStates<K>) -> Result<bool, StateError> {
        match self.for_each(states, |_| Err(Stop::Found)) {
            Ok(()) => Ok(true),
            Err(Stop::Found) => Ok(false),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    /// Appends one element.
    ///
    /// # Errors
    /// When no key is current, the handle belongs to other states, or the table is full.
    pub fn add<K: Key>(&self, states: &mut KeyedStates<K>, element: T) -> Result<(), StateError> {
        let at_ms = states.now_ms();
        self.inner.add(states, Timed { at_ms, value: element })
    }

    /// Appends all elements in order, or none when it fails.
    ///
    /// # Errors
    /// As [`ExpiringList::add`].
    pub fn add_all<K: Key>(
        &self,
        states: &mut KeyedStates<K>,
        elements: impl IntoIterator<Item = T>,
    ) -> Result<(), StateError> {
        let at_ms = states.now_ms();
        self.inner.add_all(states, elements.into_iter().map(|value| Timed { at_ms, value }))
    }

    /// Replaces the whole list; all its elements are new.
    ///
    /// # Errors
    /// As [`ExpiringList::add`].
    pub fn update<K: Key>(
        &self,
        states: &mut KeyedStates<K>,
        elements: impl IntoIterator<Item = T>,
    ) -> Result<(), StateError> {
        let at_ms = states.now_ms();
        self.inner.update(states, elements.into_iter().map(|value| Timed { at_ms, value }))
    }

    /// Forgets the current key's list.
    ///
    /// # Errors
    /// When no key is current, or the handle belongs to other states.
    pub fn clear<K: Key>(&self, states: &mut KeyedStates<K>) -> Result<(), StateError> {
        self.inner.clear(states)
    }
}
