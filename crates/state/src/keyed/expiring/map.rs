//! A map per key whose entries are forgotten after a time, each on its own.

use millpond_core::{Data, Key};

use super::{Stop, Timed, Ttl};
use crate::error::StateError;
use crate::keyed::map::MapState;
use crate::keyed::states::KeyedStates;

/// Handle of a state with a map per key and a time to live of each entry. Copy it freely.
pub struct ExpiringMap<UK, UV> {
    inner: MapState<UK, Timed<UV>>,
    ttl: Ttl,
}

impl<UK, UV> Clone for ExpiringMap<UK, UV> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<UK, UV> Copy for ExpiringMap<UK, UV> {}

impl<UK: Key, UV: Data> ExpiringMap<UK, UV> {
    pub(crate) fn new(inner: MapState<UK, Timed<UV>>, ttl: Ttl) -> Self {
        ExpiringMap { inner, ttl }
    }

    /// The live value under a user key; an expired one is removed.
    ///
    /// # Errors
    /// When no key is current, the handle belongs to other states, or the user key does not encode.
    pub fn get<'s, K: Key>(&self, states: &'s mut KeyedStates<K>, user_key: &UK) -> Result<Option<&'s UV>, StateError> {
        let now_ms = states.now_ms();
        let Some(at_ms) = self.inner.get(states, user_key)?.map(|timed| timed.at_ms) else { return Ok(None) };
        if self.ttl.is_expired(at_ms, now_ms) {
            self.inner.remove(states, user_key)?;
            return Ok(None);
        }
        if self.ttl.renews(at_ms, now_ms) {
            let renew = |timed: &mut Option<Timed<UV>>| timed.as_mut().map(|timed| timed.at_ms = now_ms);
            self.inner.modify(states, user_key.clone(), renew)?;
        }
        Ok(self.inner.get(states, user_key)?.map(|timed| &timed.value))
    }

    /// As [`ExpiringMap::get`], but changes nothing: neither renews nor removes.
    ///
    /// # Errors
    /// As [`ExpiringMap::get`].
    pub fn peek<'s, K: Key>(
        &self,
        states: &'s mut KeyedStates<K>,
        user_key: &UK,
    ) -> Result<Option<&'s UV>, StateError> {
        let (ttl, now_ms) = (self.ttl, states.now_ms());
        Ok(self.inner.get(states, user_key)?.and_then(|timed| timed.peek(ttl, now_ms)))
    }

    /// Whether there is a live entry under a user key; counts as reading it.
    ///
    /// # Errors
    /// As [`ExpiringMap::get`].
    pub fn contains<K: Key>(&self, states: &mut KeyedStates<K>, user_key: &UK) -> Result<bool, StateError> {
        self.get(states, user_key).map(|value| value.is_some())
    }

    /// Sets the value under a user key.
    ///
    /// # Errors
    /// As [`ExpiringMap::get`], or when the table is full.
    pub fn put<K: Key>(&self, states: &mut KeyedStates<K>, user_key: UK, value: UV) -> Result<(), StateError> {
        let at_ms = states.now_ms();
        self.inner.put(states, user_key, Timed { at_ms, value })
    }

    /// Sets many entries; of equal user keys the later wins.
    ///
    /// # Errors
    /// As [`ExpiringMap::put`]; entries before the failed one are set.
    pub fn put_all<K: Key>(
        &self,
        states: &mut KeyedStates<K>,
        entries: impl IntoIterator<Item = (UK, UV)>,
    ) -> Result<(), StateError> {
        let at_ms = states.now_ms();
        self.inner.put_all(states, entries.into_iter().map(|(key, value)| (key, Timed { at_ms, value })))
    }

    /// Changes the value under a user key, which counts as writing it; `None` afterwards means removed.
    ///
    /// # Errors
    /// As [`ExpiringMap::put`].
    pub fn modify<K: Key, R>(
        &self,
        states: &mut KeyedStates<K>,
        user_key: UK,
        change: impl FnOnce(&mut Option<UV>) -> R,
    ) -> Result<R, StateError> {
        let (ttl, at_ms) = (self.ttl, states.now_ms());
        self.inner.modify(states, user_key, |timed| {
            let mut value = timed.take().and_then(|timed| timed.live(ttl, at_ms));
            let result = change(&mut value);
            *timed = value.map(|value| Timed { at_ms, value });
            result
        })
    }

    /// Removes the entry under a user key and returns its value, if it was live.
    ///
    /// # Errors
    /// As [`ExpiringMap::get`].
    pub fn remove<K: Key>(&self, states: &mut KeyedStates<K>, user_key: &UK) -> Result<Option<UV>, StateError> {
        let now_ms = states.now_ms();
        Ok(self.inner.remove(states, user_key)?.and_then(|timed| timed.live(self.ttl, now_ms)))
    }

    /// Number of live entries of the current key; renews none.
    ///
    /// # Errors
    /// When no key is current, or the handle belongs to other states.
    pub fn len<K: Key>(&self, states: &mut KeyedStates<K>) -> Result<usize, StateError> {
        let (ttl, now_ms, mut len) = (self.ttl, states.now_ms(), 0);
        self.inner.for_each_entry(states, |entry| {
            len += usize::from(!ttl.is_expired(entry.value().at_ms, now_ms));
            Ok(())
        })?;
        Ok(len)
    }

    /// Whether the current key has no live entry.
    ///
    /// # Errors
    /// As [`ExpiringMap::len`].
    pub fn is_empty<K: Key>(&self, states: &mut KeyedStates<K>) -> Result<bool, StateError> {
        let (ttl, now_ms) = (self.ttl, states.now_ms());
        let walk = self
            .inner
            .walk(states, |entry| if ttl.is_expired(entry.value().at_ms, now_ms) { Ok(()) } else { Err(Stop::Found) });
        match walk {
            Ok(()) => Ok(true),
            Err(Stop::Found) => Ok(false),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    /// Shows the current key's live entries, which counts as reading all of them; expired ones are removed. Entries
    /// that are not in memory are brought in one by one.
    ///
    /// # Errors
    /// As [`ExpiringMap::len`], or what `visit` returns, which ends the walk.
    pub fn for_each<K: Key, E: From<StateError>>(
        &self,
        states: &mut KeyedStates<K>,
        mut visit: impl FnMut(&UK, &UV) -> Result<(), E>,
    ) -> Result<(), E> {
        let (ttl, now_ms) = (self.ttl, states.now_ms());
        self.inner.walk(states, |entry| {
            let at_ms = entry.value().at_ms;
            if ttl.is_expired(at_ms, now_ms) {
                entry.remove();
                return Ok(());
            }
            if ttl.renews(at_ms, now_ms) {
                let value = entry.value().value.clone();
                entry.set(Timed { at_ms: now_ms, value })?;
            }
            visit(entry.key(), &entry.value().value)
        })
    }

    /// As [`ExpiringMap::for_each`], but changes nothing: neither renews nor removes.
    ///
    /// # Errors
    /// As [`ExpiringMap::for_each`].
    pub fn peek_each<K: Key, E: From<StateError>>(
        &self,
        states: &mut KeyedStates<K>,
        mut visit: impl FnMut(&UK, &UV) -> Result<(), E>,
    ) -> Result<(), E> {
        let (ttl, now_ms) = (self.ttl, states.now_ms());
        self.inner.walk(states, |entry| match entry.value().peek(ttl, now_ms) {
            Some(value) => visit(entry.key(), value),
            None => Ok(()),
        })
    }

    /// The current key's live entries, which counts as reading all of them. Expired ones are removed. Brings the whole
    /// map into memory: for a map that may be larger than memory use [`ExpiringMap::for_each`].
    ///
    /// # Errors
    /// As [`ExpiringMap::len`].
    pub fn iter<'s, K: Key>(
        &self,
        states: &'s mut KeyedStates<K>,
    ) -> Result<impl Iterator<Item = (&'s UK, &'s UV)> + use<'s, K, UK, UV>, StateError> {
        self.for_each(states, |_, _| Ok::<(), StateError>(()))?;
        Ok(self.inner.iter(states)?.map(|(key, timed)| (key, &timed.value)))
    }

    /// The user keys of the current key's live entries; counts as reading them.
    ///
    /// # Errors
    /// As [`ExpiringMap::len`].
    pub fn keys<'s, K: Key>(
        &self,
        states: &'s mut KeyedStates<K>,
    ) -> Result<impl Iterator<Item = &'s UK> + use<'s, K, UK, UV>, StateError> {
        Ok(self.iter(states)?.map(|(key, _)| key))
    }

    /// The current key's live values; counts as reading them.
    ///
    /// # Errors
    /// As [`ExpiringMap::len`].
    pub fn values<'s, K: Key>(
        &self,
        states: &'s mut KeyedStates<K>,
    ) -> Result<impl Iterator<Item = &'s UV> + use<'s, K, UK, UV>, StateError> {
        Ok(self.iter(states)?.map(|(_, value)| value))
    }

    /// Removes every entry of the current key.
    ///
    /// # Errors
    /// As [`ExpiringMap::len`].
    pub fn clear<K: Key>(&self, states: &mut KeyedStates<K>) -> Result<(), StateError> {
        self.inner.clear(states)
    }
}
