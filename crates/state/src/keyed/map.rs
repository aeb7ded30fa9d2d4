//! A map per key, of which every entry is kept, found and written on its own.

use std::marker::PhantomData;

use millpond_core::{Data, Key};

use super::any_table::AnyTable;
use super::map_table::MapTable;
use super::states::{KeyedStates, Open};
use crate::epochs::Epochs;
use crate::error::StateError;

/// Handle of a state with a map per key. Copy it freely; it refers to the state by index. The order
/// in which entries are listed is not promised.
pub struct MapState<UK, UV> {
    index: u16,
    held: PhantomData<fn() -> (UK, UV)>,
}

impl<UK, UV> Clone for MapState<UK, UV> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<UK, UV> Copy for MapState<UK, UV> {}

/// An entry during [`MapState::for_each_entry`]: may be read, set or removed.
pub struct MapEntry<'a, UK, UV> {
    table: &'a mut dyn EntryAccess<UK, UV>,
    epochs: &'a mut Epochs,
    id: u32,
    item: u32,
    removed: bool,
}

trait EntryAccess<UK, UV> {
    fn entry(&self, id: u32, item: u32) -> Option<(&UK, &UV)>;
    fn set(&mut self, id: u32, item: u32, epochs: &mut Epochs, value: UV) -> Result<(), StateError>;
}

impl<K: Key, UK: Key, UV: Data> EntryAccess<UK, UV> for MapTable<K, UK, UV> {
    fn entry(&self, id: u32, item: u32) -> Option<(&UK, &UV)> {
        self.item_at(id, item).map(|found| (&found.key, &found.value))
    }

    fn set(&mut self, id: u32, item: u32, epochs: &mut Epochs, value: UV) -> Result<(), StateError> {
        self.set_at(id, item, epochs, value)
    }
}

const PRESENT: &str = "the walk shows only entries that are there, and removes after showing";

impl<UK, UV> MapEntry<'_, UK, UV> {
    /// The user key.
    #[must_use]
    pub fn key(&self) -> &UK {
        self.table.entry(self.id, self.item).expect(PRESENT).0
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> &UV {
        self.table.entry(self.id, self.item).expect(PRESENT).1
    }

    /// Sets the value.
    ///
    /// # Errors
    /// When the old value, wanted by a running snapshot, cannot be encoded.
    pub fn set(&mut self, value: UV) -> Result<(), StateError> {
        self.table.set(self.id, self.item, self.epochs, value)
    }

    /// Removes the entry once the walk leaves it.
    pub fn remove(&mut self) {
        self.removed = true;
    }
}

impl<UK: Key, UV: Data> MapState<UK, UV> {
    pub(crate) fn at(index: u16) -> Self {
        MapState { index, held: PhantomData }
    }

    pub(crate) fn index(self) -> u16 {
        self.index
    }

    #[inline]
    fn open<'s, K: Key>(self, states: &'s mut KeyedStates<K>) -> Result<Open<'s, K, MapTable<K, UK, UV>>, StateError> {
        states.open(self.index)
    }

    /// The value under a user key.
    ///
    /// # Errors
    /// When no key is current, the handle belongs to other states, or the user key does not encode.
    #[inline]
    pub fn get<'s, K: Key>(&self, states: &'s mut KeyedStates<K>, user_key: &UK) -> Result<Option<&'s UV>, StateError> {
        let Open { table, at, epochs } = self.open(states)?;
        Ok(table.item(&at, epochs, user_key)?.map(|item| &item.value))
    }

    /// Whether there is an entry under a user key.
    ///
    /// # Errors
    /// As [`MapState::get`].
    pub fn contains<K: Key>(&self, states: &mut KeyedStates<K>, user_key: &UK) -> Result<bool, StateError> {
        self.get(states, user_key).map(|value| value.is_some())
    }

    /// Sets the value under a user key.
    ///
    /// # Errors
    /// As [`MapState::get`], or when the table is full.
    #[inline]
    pub fn put<K: Key>(&self, states: &mut KeyedStates<K>, user_key: UK, value: UV) -> Result<(), StateError> {
        let Open { table, at, epochs } = self.open(states)?;
        table.put(&at, epochs, user_key, value)
    }

    /// Sets many entries; of equal user keys the later wins.
    ///
    /// # Errors
    /// As [`MapState::put`]; entries before the failed one are set.
    pub fn put_all<K: Key>(
        &self,
        states: &mut KeyedStates<K>,
        entries: impl IntoIterator<Item = (UK, UV)>,
    ) -> Result<(), StateError> {
        let Open { table, at, epochs } = self.open(states)?;
        entries.into_iter().try_for_each(|(user_key, value)| table.put(&at, epochs, user_key, value))
    }

    /// Changes the value under a user key in one look-up; `None` afterwards means removed.
    ///
    /// # Errors
    /// As [`MapState::put`].
    #[inline]
    pub fn modify<K: Key, R>(
        &self,
        states: &mut KeyedStates<K>,
        user_key: UK,
        change: impl FnOnce(&mut Option<UV>) -> R,
    ) -> Result<R, StateError> {
        let Open { table, at, epochs } = self.open(states)?;
        table.change(&at, epochs, user_key, change)
    }

    /// Removes the entry under a user key and returns its value.
    ///
    /// # Errors
    /// As [`MapState::get`].
    pub fn remove<K: Key>(&self, states: &mut KeyedStates<K>, user_key: &UK) -> Result<Option<UV>, StateError> {
        let Open { table, at, epochs } = self.open(states)?;
        table.remove(&at, epochs, user_key)
    }

    /// Number of entries of the current key. Those that are not in memory are read to be counted.
    ///
    /// # Errors
    /// When no key is current, or the handle belongs to other states.
    pub fn len<K: Key>(&self, states: &mut KeyedStates<K>) -> Result<usize, StateError> {
        let Open { table, at, epochs } = self.open(states)?;
        table.count(&at, epochs)
    }

    /// Whether the current key has no entry.
    ///
    /// # Errors
    /// As [`MapState::len`].
    pub fn is_empty<K: Key>(&self, states: &mut KeyedStates<K>) -> Result<bool, StateError> {
        let Open { table, at, epochs } = self.open(states)?;
        table.is_present(&at, epochs).map(|present| !present)
    }

    /// The current key's entries. Brings the whole map into memory: for a map that may be larger than memory
    /// use [`MapState::for_each_entry`].
    ///
    /// # Errors
    /// As [`MapState::len`].
    pub fn iter<'s, K: Key>(
        &self,
        states: &'s mut KeyedStates<K>,
    ) -> Result<impl Iterator<Item = (&'s UK, &'s UV)> + use<'s, K, UK, UV>, StateError> {
        let Open { table, at, epochs } = self.open(states)?;
        table.load(&at, epochs)?;
        let items = table.map(&at).into_iter().flat_map(|map| map.items.iter());
        Ok(items.map(|(_, item)| (&item.key, &item.value)))
    }

    /// The current key's user keys. Brings the map into memory, as [`MapState::iter`].
    ///
    /// # Errors
    /// As [`MapState::len`].
    pub fn keys<'s, K: Key>(
        &self,
        states: &'s mut KeyedStates<K>,
    ) -> Result<impl Iterator<Item = &'s UK> + use<'s, K, UK, UV>, StateError> {
        Ok(self.iter(states)?.map(|(user_key, _)| user_key))
    }

    /// The current key's values. Brings the map into memory, as [`MapState::iter`].
    ///
    /// # Errors
    /// As [`MapState::len`].
    pub fn values<'s, K: Key>(
        &self,
        states: &'s mut KeyedStates<K>,
    ) -> Result<impl Iterator<Item = &'s UV> + use<'s, K, UK, UV>, StateError> {
        Ok(self.iter(states)?.map(|(_, value)| value))
    }

    /// Keeps only the entries for which `keep` holds.
    ///
    /// # Errors
    /// As [`MapState::len`].
    pub fn retain<K: Key>(
        &self,
        states: &mut KeyedStates<K>,
        mut keep: impl FnMut(&UK, &UV) -> bool,
    ) -> Result<(), StateError> {
        self.for_each_entry(states, |entry| {
            if !keep(entry.key(), entry.value()) {
                entry.remove();
            }
            Ok(())
        })
    }

    /// Walks the current key's entries, each of which may be set or removed on the way. Entries
    /// that are only read stay clean. Entries that are not in memory are brought in one by one.
    ///
    /// # Errors
    /// As [`MapState::len`], or what `visit` returns, which ends the walk.
    pub fn for_each_entry<K: Key>(
        &self,
        states: &mut KeyedStates<K>,
        visit: impl FnMut(&mut MapEntry<'_, UK, UV>) -> Result<(), StateError>,
    ) -> Result<(), StateError> {
        self.walk(states, visit)
    }

    /// As [`MapState::for_each_entry`], with errors of the caller's own.
    pub(crate) fn walk<K: Key, E: From<StateError>>(
        &self,
        states: &mut KeyedStates<K>,
        mut visit: impl FnMut(&mut MapEntry<'_, UK, UV>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Open { table, at, epochs } = self.open(states)?;
        let mut outcome = Ok(());
        if let Some((id, bound)) = table.item_ids(&at) {
            for item in 0..bound {
                if table.item_at(id, item).is_some() {
                    outcome = visit_entry(table, epochs, id, item, &mut visit)?;
                }
                if outcome.is_err() {
                    break;
                }
            }
        }
        if outcome.is_ok()
            && let Some(mut walk) = table.walk_cold(&at)?
        {
            'walk: while let Some(items) = table.next_cold(&mut walk, &at, epochs)? {
                for cold in items {
                    let (id, item) = table.take_in(&at, cold)?;
                    outcome = visit_entry(table, epochs, id, item, &mut visit)?;
                    table.let_go(id, item);
                    if outcome.is_err() {
                        break 'walk;
                    }
                }
            }
        }
        if let Some((id, _)) = table.item_ids(&at) {
            table.drop_if_empty(id, at.hash);
        }
        outcome
    }

    /// Removes every entry of the current key.
    ///
    /// # Errors
    /// As [`MapState::len`].
    pub fn clear<K: Key>(&self, states: &mut KeyedStates<K>) -> Result<(), StateError> {
        let Open { table, at, epochs } = self.open(states)?;
        table.clear(&at, epochs)
    }
}

/// Shows one entry; the inner result is that of `visit`.
fn visit_entry<K: Key, UK: Key, UV: Data, E>(
    table: &mut MapTable<K, UK, UV>,
    epochs: &mut Epochs,
    id: u32,
    item: u32,
    visit: &mut impl FnMut(&mut MapEntry<'_, UK, UV>) -> Result<(), E>,
) -> Result<Result<(), E>, StateError> {
    let mut entry = MapEntry { table: &mut *table, epochs: &mut *epochs, id, item, removed: false };
    let outcome = visit(&mut entry);
    if entry.removed {
        table.remove_at(id, item, epochs)?;
    }
    Ok(outcome)
}
