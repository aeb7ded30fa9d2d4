//! A map of which every subtask has a copy.
//!
//! Entries are listed in the order of their encoded keys, which is the same on every subtask. Only
//! the side that receives the broadcast stream holds `&mut OperatorStates` and can write; the other
//! side gets a [`BroadcastReader`] (BS-02).

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use millpond_core::codec::encode;
use millpond_core::{Data, Key};

use super::pieces::Entries;
use super::states::OperatorStates;
use crate::error::StateError;

/// Native entries by encoded key.
pub(crate) type LiveMap<K, V> = BTreeMap<Vec<u8>, (K, V)>;

/// Handle of a broadcast map. Copy it freely; it refers to the state by index.
pub struct BroadcastState<K, V> {
    index: usize,
    held: PhantomData<fn() -> (K, V)>,
}

impl<K, V> Clone for BroadcastState<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for BroadcastState<K, V> {}

/// Broadcast maps for reading only.
#[derive(Clone, Copy)]
pub struct BroadcastReader<'a> {
    states: &'a OperatorStates,
}

impl<'a> BroadcastReader<'a> {
    pub(crate) fn new(states: &'a OperatorStates) -> Self {
        BroadcastReader { states }
    }

    /// The map behind a handle.
    ///
    /// # Errors
    /// When the handle belongs to other states.
    pub fn view<K: Key, V: Data>(&self, state: &BroadcastState<K, V>) -> Result<BroadcastView<'a, K, V>, StateError> {
        state.view(self.states)
    }
}

/// One broadcast map for reading only.
#[derive(Clone, Copy)]
pub struct BroadcastView<'a, K, V> {
    name: &'a str,
    entries: &'a LiveMap<K, V>,
}

impl<'a, K: Key, V: Data> BroadcastView<'a, K, V> {
    /// The value under a key.
    ///
    /// # Errors
    /// When the key cannot be encoded.
    pub fn get(&self, key: &K) -> Result<Option<&'a V>, StateError> {
        let key = encode_key(self.name, key)?;
        Ok(self.entries.get(&key).map(|(_, value)| value))
    }

    /// Whether there is an entry under a key.
    ///
    /// # Errors
    /// When the key cannot be encoded.
    pub fn contains(&self, key: &K) -> Result<bool, StateError> {
        self.get(key).map(|value| value.is_some())
    }

    /// Every entry, in the order of encoded keys.
    pub fn iter(&self) -> impl Iterator<Item = (&'a K, &'a V)> + use<'a, K, V> {
        self.entries.values().map(|(key, value)| (key, value))
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl<K: Key, V: Data> BroadcastState<K, V> {
    pub(crate) fn at(index: usize) -> Self {
        BroadcastState { index, held: PhantomData }
    }

    /// The map, for reading.
    ///
    /// # Errors
    /// When the handle belongs to other states.
    pub fn view<'s>(&self, states: &'s OperatorStates) -> Result<BroadcastView<'s, K, V>, StateError> {
        let (stored, entries) = states.map_at::<LiveMap<K, V>>(self.index)?;
        Ok(BroadcastView { name: &stored.name, entries })
    }

    /// The value under a key.
    ///
    /// # Errors
    /// When the handle belongs to other states, or the key cannot be encoded.
    pub fn get<'s>(&self, states: &'s OperatorStates, key: &K) -> Result<Option<&'s V>, StateError> {
        self.view(states)?.get(key)
    }

    /// Whether there is an entry under a key.
    ///
    /// # Errors
    /// As [`BroadcastState::get`].
    pub fn contains(&self, states: &OperatorStates, key: &K) -> Result<bool, StateError> {
        self.view(states)?.contains(key)
    }

    /// Every entry, in the order of encoded keys.
    ///
    /// # Errors
    /// When the handle belongs to other states.
    pub fn iter<'s>(
        &self,
        states: &'s OperatorStates,
    ) -> Result<impl Iterator<Item = (&'s K, &'s V)> + use<'s, K, V>, StateError> {
        Ok(self.view(states)?.iter())
    }

    /// Sets the value under a key, or leaves the map when it fails.
    ///
    /// # Errors
    /// When the handle belongs to other states, or key or value cannot be encoded.
    pub fn put(&self, states: &mut OperatorStates, key: K, value: V) -> Result<(), StateError> {
        let (stored, values) = states.map_at_mut::<LiveMap<K, V>>(self.index)?;
        let key_bytes = encode_key(&stored.name, &key)?;
        let value_bytes = encode(&value).map_err(|source| StateError::codec(&stored.name, source))?;
        stored.entries.put(Arc::from(key_bytes.as_slice()), value_bytes.into());
        values.insert(key_bytes, (key, value));
        states.changed();
        Ok(())
    }

    /// Removes the entry under a key and returns its value.
    ///
    /// # Errors
    /// As [`BroadcastState::get`].
    pub fn remove(&self, states: &mut OperatorStates, key: &K) -> Result<Option<V>, StateError> {
        let (stored, values) = states.map_at_mut::<LiveMap<K, V>>(self.index)?;
        let key_bytes = encode_key(&stored.name, key)?;
        let Some((_, value)) = values.remove(&key_bytes) else {
            return Ok(None);
        };
        stored.entries.remove(&key_bytes);
        states.changed();
        Ok(Some(value))
    }

    /// Removes every entry.
    ///
    /// # Errors
    /// When the handle belongs to other states.
    pub fn clear(&self, states: &mut OperatorStates) -> Result<(), StateError> {
        let (stored, values) = states.map_at_mut::<LiveMap<K, V>>(self.index)?;
        stored.entries = Entries::default();
        values.clear();
        states.changed();
        Ok(())
    }
}

fn encode_key<K: Key>(state: &str, key: &K) -> Result<Vec<u8>, StateError> {
    encode(key).map_err(|source| StateError::codec(state, source))
}
