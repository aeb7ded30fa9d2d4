//! Brings entries of a map state into memory ahead of their use, of many keys with one look into the cold store.

use millpond_core::codec::{decode, encode_into};
use millpond_core::{Data, Key, KeyHash};

use super::any_table::damaged;
use super::cold_part::RowKeys;
use super::map::MapState;
use super::map_cell::MapItem;
use super::map_table::MapTable;
use super::states::KeyedStates;
use crate::epochs::{COLD, Epochs};
use crate::error::StateError;
use crate::rows::put_key;
use crate::table::At;

impl<UK: Key, UV: Data> MapState<UK, UV> {
    /// Brings entries into memory that will be asked for soon; what is there already, and what is not there at all, is
    /// no error. Does nothing while everything is in memory. For operators that know the user keys ahead.
    ///
    /// # Errors
    /// When the cold store fails, or holds a damaged row.
    pub fn fetch<'a, K: Key>(
        &self,
        states: &mut KeyedStates<K>,
        entries: impl Iterator<Item = (KeyHash, &'a K, UK)>,
    ) -> Result<(), StateError> {
        if !states.epochs.spills() {
            return Ok(());
        }
        let mut sequence = states.sequence;
        let (table, epochs) = states.table::<MapTable<K, UK, UV>>(self.index())?;
        let coming = entries.map(|(hash, key, user_key)| {
            sequence += 1;
            (At { key, hash, sequence }, user_key)
        });
        let outcome = table.fetch_items(coming.collect(), epochs);
        // What was looked up for these keys is not taken for what belongs to the current one.
        states.sequence = sequence + 1;
        outcome
    }
}

impl<K: Key, UK: Key, UV: Data> MapTable<K, UK, UV> {
    fn fetch_items(&mut self, coming: Vec<(At<'_, K>, UK)>, epochs: &Epochs) -> Result<(), StateError> {
        let Some(side) = &epochs.cold else { return Ok(()) };
        if self.cold.as_ref().is_none_or(|cold| cold.entries == 0) {
            return Ok(());
        }
        let applied = side.applied();
        let (mut rows, mut wanted) = (RowKeys::default(), Vec::with_capacity(coming.len()));
        for (at, user_key) in coming {
            let hash = self.hash(&user_key)?;
            let id = self.keys.find(at.key, at.hash);
            let cell = id.and_then(|id| self.keys.entries.get_mut(id)).map(|entry| &mut entry.cell);
            if let Some(cell) = cell {
                let found = cell.find(&user_key, hash);
                if let Some(item) = found.and_then(|item| cell.items.get_mut(item)) {
                    item.seen = true;
                    continue;
                }
                if cell.complete {
                    continue;
                }
            }
            let Some(cold) = &self.cold else { return Ok(()) };
            put_key(at.key, rows.open()).map_err(|source| StateError::codec(&self.name, source))?;
            let cleared = cold.is_removed(rows.opened(), applied);
            encode_into(&user_key, rows.open()).map_err(|source| StateError::codec(&self.name, source))?;
            if cleared || cold.is_gone(rows.opened(), applied) {
                rows.drop_opened();
                continue;
            }
            rows.close(at.hash.group());
            wanted.push((at, user_key, hash));
        }
        let slices = rows.slices();
        let mut found = Vec::with_capacity(wanted.len());
        let read = side.store().get_many(self.state, &slices, &mut |_, value| {
            found.push(value.map(|value| decode::<UV>(value).map_err(|error| error.to_string())));
        });
        read.map_err(|source| StateError::cold(&self.name, source))?;
        for ((found, (at, key, hash)), (group, row_key)) in found.into_iter().zip(wanted).zip(slices) {
            let Some(value) = found else {
                if let Some(cold) = &mut self.cold {
                    cold.note_absent(row_key);
                }
                continue;
            };
            let value = value.map_err(|reason| damaged(&self.name, group, reason))?;
            if self.map(&at).is_some_and(|map| map.find(&key, hash).is_some()) {
                continue;
            }
            if let Some(cold) = &mut self.cold {
                cold.entries -= 1;
            }
            self.add_item(&at, MapItem { key, value, hash, tag: COLD, persisted: true, seen: true })?;
        }
        Ok(())
    }
}
