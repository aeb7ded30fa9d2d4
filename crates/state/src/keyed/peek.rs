//! Looking at what the current key holds by the name of a state, whether that has a time to live or not.
//!
//! For queries and tests. Changes nothing: neither renews nor removes, and shows nothing that has expired.

use millpond_core::{Data, Key};

use super::backend::KeyedBackend;
use crate::error::StateError;

impl<K: Key> KeyedBackend<K> {
    /// The current key's value in a value state; `None` when there is none.
    ///
    /// # Errors
    /// When no key is current, or the state has another kind or type.
    pub fn peek_value<V: Data>(&mut self, state: &str) -> Result<Option<V>, StateError> {
        match self.declarer().ttl(state) {
            Some(ttl) => {
                let handle = self.declarer().expiring_value::<V>(state, ttl)?;
                Ok(handle.peek(self.states_mut())?.cloned())
            }
            None => {
                let handle = self.declarer().value::<V>(state)?;
                Ok(handle.get(self.states_mut())?.cloned())
            }
        }
    }

    /// The current key's value in a reducing state; `None` when there is none.
    ///
    /// # Errors
    /// As [`KeyedBackend::peek_value`].
    pub fn peek_reduced<T: Data>(&mut self, state: &str) -> Result<Option<T>, StateError> {
        // The state is declared already, with its own function.
        match self.declarer().ttl(state) {
            Some(ttl) => {
                let handle = self.declarer().expiring_reducing::<T>(state, ttl, |a, _| a)?;
                Ok(handle.peek(self.states_mut())?.cloned())
            }
            None => {
                let handle = self.declarer().reducing::<T>(state, |a, _| a)?;
                Ok(handle.get(self.states_mut())?.cloned())
            }
        }
    }

    /// The current key's list; empty when there is none.
    ///
    /// # Errors
    /// As [`KeyedBackend::peek_value`].
    pub fn peek_list<T: Data>(&mut self, state: &str) -> Result<Vec<T>, StateError> {
        let mut list = Vec::new();
        let push = |element: &T| {
            list.push(element.clone());
            Ok::<(), StateError>(())
        };
        match self.declarer().ttl(state) {
            Some(ttl) => self.declarer().expiring_list::<T>(state, ttl)?.for_each(self.states_mut(), push)?,
            None => self.declarer().list::<T>(state)?.for_each(self.states_mut(), push)?,
        }
        Ok(list)
    }

    /// One entry of the current key's map; `None` when there is none.
    ///
    /// # Errors
    /// As [`KeyedBackend::peek_value`].
    pub fn peek_map_value<UK: Key, UV: Data>(&mut self, state: &str, user_key: &UK) -> Result<Option<UV>, StateError> {
        match self.declarer().ttl(state) {
            Some(ttl) => {
                let handle = self.declarer().expiring_map::<UK, UV>(state, ttl)?;
                Ok(handle.peek(self.states_mut(), user_key)?.cloned())
            }
            None => {
                let handle = self.declarer().map::<UK, UV>(state)?;
                Ok(handle.get(self.states_mut(), user_key)?.cloned())
            }
        }
    }

    /// All entries of the current key's map, in no order.
    ///
    /// # Errors
    /// As [`KeyedBackend::peek_value`].
    pub fn peek_map<UK: Key, UV: Data>(&mut self, state: &str) -> Result<Vec<(UK, UV)>, StateError> {
        let mut entries = Vec::new();
        match self.declarer().ttl(state) {
            Some(ttl) => {
                let handle = self.declarer().expiring_map::<UK, UV>(state, ttl)?;
                handle.peek_each(self.states_mut(), |key, value| {
                    entries.push((key.clone(), value.clone()));
                    Ok::<(), StateError>(())
                })?;
            }
            None => {
                let handle = self.declarer().map::<UK, UV>(state)?;
                handle.for_each_entry(self.states_mut(), |entry| {
                    entries.push((entry.key().clone(), entry.value().clone()));
                    Ok(())
                })?;
            }
        }
        Ok(entries)
    }
}
