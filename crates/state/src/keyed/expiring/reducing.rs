//! One value per key that additions are folded into, and that is forgotten after a time.

use millpond_core::{Data, Key};

use super::{Timed, Ttl};
use crate::error::StateError;
use crate::keyed::reducing::ReducingState;
use crate::keyed::states::KeyedStates;

/// Handle of a state that folds what is added, with a time to live since the last addition. Copy it freely.
pub struct ExpiringReducing<T> {
    inner: ReducingState<Timed<T>>,
    ttl: Ttl,
}

impl<T> Clone for ExpiringReducing<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ExpiringReducing<T> {}

/// Folds into what is live; the time of an addition is that of the added value.
pub(crate) fn timed_reduce<T: 'static>(
    ttl: Ttl,
    reduce: impl Fn(T, T) -> T + Send + 'static,
) -> impl Fn(Timed<T>, Timed<T>) -> Timed<T> + Send + 'static {
    move |stored, added| {
        let Timed { at_ms, value } = added;
        let value = match stored.live(ttl, at_ms) {
            Some(stored) => reduce(stored, value),
            None => value,
        };
        Timed { at_ms, value }
    }
}

impl<T: Data> ExpiringReducing<T> {
    pub(crate) fn new(inner: ReducingState<Timed<T>>, ttl: Ttl) -> Self {
        ExpiringReducing { inner, ttl }
    }

    /// Adds a value: the first since the last one expired is stored as it is, every later one as `reduce(stored, value)`.
    ///
    /// # Errors
    /// When no key is current, the handle belongs to other states, or the table is full.
    pub fn add<K: Key>(&self, states: &mut KeyedStates<K>, value: T) -> Result<(), StateError> {
        let at_ms = states.now_ms();
        self.inner.add(states, Timed { at_ms, value })
    }

    /// The current key's reduced value; `None` before the first addition and when it has expired.
    ///
    /// # Errors
    /// When no key is current, or the handle belongs to other states.
    pub fn get<'s, K: Key>(&self, states: &'s mut KeyedStates<K>) -> Result<Option<&'s T>, StateError> {
        let now_ms = states.now_ms();
        let Some(at_ms) = self.inner.get(states)?.map(|timed| timed.at_ms) else { return Ok(None) };
        if self.ttl.is_expired(at_ms, now_ms) {
            self.inner.clear(states)?;
            return Ok(None);
        }
        if self.ttl.renews(at_ms, now_ms) {
            self.inner.touch(states, |timed| timed.at_ms = now_ms)?;
        }
        Ok(self.inner.get(states)?.map(|timed| &timed.value))
    }

    /// As [`ExpiringReducing::get`], but changes nothing: neither renews nor removes.
    ///
    /// # Errors
    /// As [`ExpiringReducing::get`].
    pub fn peek<'s, K: Key>(&self, states: &'s mut KeyedStates<K>) -> Result<Option<&'s T>, StateError> {
        let (ttl, now_ms) = (self.ttl, states.now_ms());
        Ok(self.inner.get(states)?.and_then(|timed| timed.peek(ttl, now_ms)))
    }

    /// Forgets the current key's value; nothing happens when there is none.
    ///
    /// # Errors
    /// When no key is current, or the handle belongs to other states.
    pub fn clear<K: Key>(&self, states: &mut KeyedStates<K>) -> Result<(), StateError> {
        self.inner.clear(states)
    }
}
