//! What an operator keeps in memory beside its keyed state, and could find again there.
//!
//! Owns how much that may be, counts it as memory of the backend, and shows the rows from which it is found again. Does
//! *not* know what it is: the order in which timers are due, the keys of windows that have not passed.

use std::ops::ControlFlow;
use std::sync::Arc;

use millpond_core::codec::decode;
use millpond_core::hash::stable_hash;
use millpond_core::{Data, Key, KeyGroup, KeyHash, MaxParallelism};

use super::any_table::{AnyTable, damaged};
use super::backend::KeyedBackend;
use super::map::MapState;
use super::map_table::MapTable;
use crate::cold::ColdFiles;
use crate::error::StateError;
use crate::rows::split_key;
use crate::table::RestoredKey;

/// One of so many parts of what the backend may use is what one thing beside it may.
const PARTS: usize = 16;
/// More than this serves nobody, in bytes.
const MOST_BYTES: usize = 16 << 20;
/// Less than this cannot be kept to, in bytes.
const LEAST_BYTES: usize = 1 << 10;

/// Where something goes that an operator keeps beside its keyed state, once it takes more than it may.
#[derive(Clone)]
pub struct BesideRoom {
    /// Working space of the subtask.
    pub files: Arc<dyn ColdFiles>,
    /// How many bytes of memory it may take.
    pub limit_bytes: usize,
}

impl<K: Key> KeyedBackend<K> {
    /// How much one thing beside the state may take; `None` as long as everything fits into memory.
    #[must_use]
    pub fn beside_room(&self) -> Option<BesideRoom> {
        let (keeper, cold) = (self.states.keeper.as_ref()?, self.states.epochs.cold.as_ref()?);
        if !self.states.epochs.spills() {
            return None;
        }
        let limit_bytes = (keeper.last_limit() / PARTS).clamp(LEAST_BYTES, MOST_BYTES);
        Some(BesideRoom { files: cold.store().files(), limit_bytes })
    }

    /// Whether memory is bounded at all.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        self.states.keeper.is_some()
    }

    /// Something beside the state took `before` bytes, and takes `now`: they are part of what the backend may use.
    pub fn count_beside(&mut self, before: usize, now: usize) {
        self.states.beside_bytes = self.states.beside_bytes.saturating_sub(before) + now;
    }

    /// Shows every entry of a map state, of all keys, by its key and user key. What was removed lately may be shown as
    /// well, and what is in memory and in the cold store twice.
    ///
    /// # Errors
    /// What `visit` returns, or when the cold store fails or holds a damaged row.
    pub fn for_each_map_key<UK: Key, UV: Data>(
        &mut self,
        map: MapState<UK, UV>,
        mut visit: impl FnMut(KeyHash, K, UK) -> Result<(), StateError>,
    ) -> Result<(), StateError> {
        let (max, range) = (self.states.max, self.states.range);
        let mut scratch = Vec::new();
        let (table, epochs) = self.states.table::<MapTable<K, UK, UV>>(map.index())?;
        let name = Arc::clone(&table.name);
        for (_, entry) in table.keys.entries.iter() {
            let stable = stable_hash(&entry.key, &mut scratch);
            let stable = stable.map_err(|source| StateError::codec(&name, source))?;
            let hash = KeyHash::from_stable(stable, max);
            for (_, item) in entry.cell.items.iter() {
                visit(hash, entry.key.clone(), item.key.clone())?;
            }
        }
        let Some(side) = epochs.cold.as_ref().filter(|_| table.cold_entries() > 0) else {
            return Ok(());
        };
        let state = table.state;
        for group in range.start..range.end {
            let group = KeyGroup(group as u16);
            let mut outcome = Ok(());
            let scanned = side.store().scan(state, group, &[], None, &mut |row_key, _| {
                let shown = entry_of::<K, UK>(row_key, max, &mut scratch).map_err(|why| damaged(&name, group, why));
                outcome = shown.and_then(|(key, user_key)| visit(key.hash, key.key, user_key));
                if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            scanned.map_err(|source| StateError::cold(&name, source))?;
            outcome?;
        }
        Ok(())
    }
}

/// The key and the user key of a row of a map.
fn entry_of<K: Key, UK: Key>(
    row_key: &[u8],
    max: MaxParallelism,
    scratch: &mut Vec<u8>,
) -> Result<(RestoredKey<K>, UK), String> {
    let (key, suffix) = split_key(row_key).ok_or("the key is cut off")?;
    let key = RestoredKey::decode(key, max, scratch).map_err(|error| error.to_string())?;
    Ok((key, decode(suffix).map_err(|error| error.to_string())?))
}
