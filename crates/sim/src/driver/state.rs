//! Looking at the state of a job under test.

use millpond_core::hash::stable_hash;
use millpond_core::{Data, Key, KeyHash, codec};
use millpond_state::{KeyedBackend, StateError};

use super::TestDriver;
use crate::error::SimError;

impl TestDriver {
    /// The value that the keyed operator `operator` holds for `key` in its value state `state`. Of a state with a time
    /// to live, what has not expired; looking renews nothing.
    ///
    /// # Errors
    /// When there is no such state, or it has other types.
    pub fn keyed_state<K: Key, V: Data>(
        &mut self,
        operator: &str,
        state: &str,
        key: &K,
    ) -> Result<Option<V>, SimError> {
        self.look(operator, state, key, |backend| backend.peek_value(state))
    }

    /// The list that the keyed operator `operator` holds for `key` in its list state `state`.
    ///
    /// # Errors
    /// As [`Self::keyed_state`].
    pub fn keyed_list<K: Key, T: Data>(&mut self, operator: &str, state: &str, key: &K) -> Result<Vec<T>, SimError> {
        self.look(operator, state, key, |backend| backend.peek_list(state))
    }

    /// The entries that the keyed operator `operator` holds for `key` in its map state `state`, in no
    /// particular order.
    ///
    /// # Errors
    /// As [`Self::keyed_state`].
    pub fn keyed_map<K: Key, UK: Key, UV: Data>(
        &mut self,
        operator: &str,
        state: &str,
        key: &K,
    ) -> Result<Vec<(UK, UV)>, SimError> {
        self.look(operator, state, key, |backend| backend.peek_map(state))
    }

    /// Values, lists and map entries that the keyed operator `operator` holds, over all subtasks; expired ones count until
    /// they are removed.
    ///
    /// # Errors
    /// When the operator has no keyed state.
    pub fn live_entries(&mut self, operator: &str) -> Result<usize, SimError> {
        let places = self.execution.places.iter_mut();
        let sizes: Vec<usize> =
            places.filter_map(|place| Some(place.subtask.keyed(operator)?.live_entries())).collect();
        if sizes.is_empty() { Err(no_such_state(operator, "of any name")) } else { Ok(sizes.iter().sum()) }
    }

    /// The subtask of `operator` that owns `key`, from 0.
    ///
    /// # Errors
    /// When the operator has no keyed state.
    pub fn owner_of<K: Key>(&mut self, operator: &str, key: &K) -> Result<u32, SimError> {
        let group = self.hash(key)?.group();
        let mut owners = self.execution.places.iter_mut().filter_map(|place| {
            let keyed = place.subtask.keyed(operator)?;
            keyed.key_groups().contains(group).then_some(place.id.index)
        });
        owners.next().ok_or_else(|| no_such_state(operator, "of any name"))
    }

    /// How far event time has come at `operator`, by subtask: the watermark in milliseconds, [`i64::MIN`] before
    /// the first.
    #[must_use]
    pub fn watermarks(&self, operator: &str) -> Vec<i64> {
        self.execution.places.iter().filter_map(|place| place.subtask.watermark(operator)).collect()
    }

    /// The elements of an operator list, by subtask, as they stand now.
    ///
    /// # Errors
    /// When there is no such list, or its elements are of another type.
    pub fn operator_list<T: Data>(&self, operator: &str, state: &str) -> Result<Vec<Vec<T>>, SimError> {
        let places = self.execution.places.iter();
        let mut all = Vec::new();
        for states in places.filter_map(|place| place.subtask.operator_states(operator)) {
            let snapshot = states.freeze();
            let list = snapshot.lists.into_iter().find(|list| list.name == state);
            let list = list.ok_or_else(|| no_such_state(operator, state))?;
            let elements = list.elements.iter().map(|piece| codec::decode(piece));
            all.push(elements.collect::<Result<Vec<T>, _>>().map_err(|_| no_such_state(operator, state))?);
        }
        Ok(all)
    }

    fn hash<K: Key>(&self, key: &K) -> Result<KeyHash, SimError> {
        let stable = stable_hash(key, &mut Vec::new()).map_err(|_| no_such_state("of any name", "of any name"))?;
        Ok(KeyHash::from_stable(stable, self.max_parallelism))
    }

    fn look<K: Key, R>(
        &mut self,
        operator: &str,
        state: &str,
        key: &K,
        read: impl FnOnce(&mut KeyedBackend<K>) -> Result<R, StateError>,
    ) -> Result<R, SimError> {
        let hash = self.hash(key)?;
        let mut owners = self.execution.places.iter_mut().filter_map(|place| place.subtask.keyed(operator));
        let owner = owners.find(|keyed| keyed.key_groups().contains(hash.group()));
        let declared = owner.filter(|keyed| keyed.sections().iter().any(|section| section.name == state));
        let backend = declared.and_then(|keyed| keyed.as_any_mut().downcast_mut::<KeyedBackend<K>>());
        let backend = backend.ok_or_else(|| no_such_state(operator, state))?;
        backend.set_current_key_ref(hash, key)?;
        let outcome = read(backend);
        backend.clear_current_key();
        Ok(outcome?)
    }
}

fn no_such_state(operator: &str, state: &str) -> SimError {
    SimError::NoSuchState { operator: operator.to_owned(), state: state.to_owned() }
}
