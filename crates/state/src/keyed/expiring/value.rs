//! One value per key that is forgotten after a time.

use millpond_core::{Data, Key};

use super::{Timed, Ttl};
use crate::error::StateError;
use crate::keyed::states::KeyedStates;
use crate::keyed::value::ValueState;

/// Handle of a state with one value per key and a time to live. Copy it freely.
pub struct ExpiringValue<V> {
    inner: ValueState<Timed<V>>,
    ttl: Ttl,
}

impl<V> Clone for ExpiringValue<V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for ExpiringValue<V> {}

impl<V: Data> ExpiringValue<V> {
    pub(crate) fn new(inner: ValueState<Timed<V>>, ttl: Ttl) -> Self {
        ExpiringValue { inner, ttl }
    }

    /// The current key's value; `None` when it was never set, was cleared, or has expired.
    ///
    /// # Errors
    /// When no key is current, or the handle belongs to other states.
    pub fn get<'s, K: Key>(&self, states: &'s mut KeyedStates<K>) -> Result<Option<&'s V>, StateError> {
        let now_ms = states.now_ms();
        let Some(at_ms) = self.inner.get(states)?.map(|timed| timed.at_ms) else { return Ok(None) };
        if self.ttl.is_expired(at_ms, now_ms) {
            self.inner.clear(states)?;
            return Ok(None);
        }
        if self.ttl.renews(at_ms, now_ms) {
            self.inner.modify(states, |timed| timed.as_mut().map(|timed| timed.at_ms = now_ms))?;
        }
        Ok(self.inner.get(states)?.map(|timed| &timed.value))
    }

    /// As [`ExpiringValue::get`], but changes nothing: neither renews nor removes.
    ///
    /// # Errors
    /// As [`ExpiringValue::get`].
    pub fn peek<'s, K: Key>(&self, states: &'s mut KeyedStates<K>) -> Result<Option<&'s V>, StateError> {
        let (ttl, now_ms) = (self.ttl, states.now_ms());
        Ok(self.inner.get(states)?.and_then(|timed| timed.peek(ttl, now_ms)))
    }

    /// Sets the current key's value.
    ///
    /// # Errors
    /// When no key is current, the handle belongs to other states, or the table is full.
    pub fn set<K: Key>(&self, states: &mut KeyedStates<K>, value: V) -> Result<(), StateError> {
        let at_ms = states.now_ms();
        self.inner.set(states, Timed { at_ms, value })
    }

    /// Changes the current key's value, which counts as writing it; `None` afterwards means cleared.
    ///
    /// # Errors
    /// As [`ExpiringValue::set`].
    pub fn modify<K: Key, R>(
        &self,
        states: &mut KeyedStates<K>,
        change: impl FnOnce(&mut Option<V>) -> R,
    ) -> Result<R, StateError> {
        let (ttl, at_ms) = (self.ttl, states.now_ms());
        self.inner.modify(states, |timed| {
            let mut value = timed.take().and_then(|timed| timed.live(ttl, at_ms));
            let result = change(&mut value);
            *timed = value.map(|value| Timed { at_ms, value });
            result
        })
    }

    /// Forgets the current key's value; nothing happens when there is none.
    ///
    /// # Errors
    /// When no key is current, or the handle belongs to other states.
    pub fn clear<K: Key>(&self, states: &mut KeyedStates<K>) -> Result<(), StateError> {
        self.inner.clear(states)
    }
}
