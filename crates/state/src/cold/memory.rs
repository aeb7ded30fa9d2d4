//! A cold store in memory: for tests, for the simulator, and for trying out what eviction costs.
//!
//! Owns an ordered map under a lock. Rows are kept encoded, so that everything that holds for a store on disk
//! can be observed here, but the memory.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use millpond_core::{KeyGroup, KeyGroupRange};
use millpond_runs::StateIndex;

use super::{ColdError, ColdFiles, ColdLoader, ColdRow, ColdStore, ColdStores, KeyAndValue, MemoryFiles, RowVisitor};

/// State, group, key.
type Place = (u16, u16, Vec<u8>);
type Rows = BTreeMap<Place, Vec<u8>>;

/// Memory that an entry of the map takes beside its bytes, roughly.
const ROW_OVERHEAD_BYTES: u64 = 64;

/// A cold store in memory. See the module.
#[derive(Debug, Default)]
pub struct MemoryCold {
    rows: RwLock<Rows>,
    bytes: AtomicU64,
    files: Arc<MemoryFiles>,
}

impl MemoryCold {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        MemoryCold::default()
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.read().len()
    }

    /// The files beside the rows.
    #[must_use]
    pub fn memory_files(&self) -> &MemoryFiles {
        &self.files
    }

    fn read(&self) -> RwLockReadGuard<'_, Rows> {
        self.rows.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, Rows> {
        self.rows.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, rows: &mut Rows, place: Place, value: &[u8]) {
        let added = size(&place, value);
        let key_bytes = place.2.len();
        let before = rows.insert(place, value.to_vec());
        let freed = before.map_or(0, |value| (key_bytes + value.len()) as u64 + ROW_OVERHEAD_BYTES);
        self.bytes.fetch_add(added.wrapping_sub(freed), Ordering::Relaxed);
    }

    fn remove(&self, rows: &mut Rows, place: &Place) {
        if let Some(value) = rows.remove(place) {
            self.bytes.fetch_sub(size(place, &value), Ordering::Relaxed);
        }
    }
}

fn size(place: &Place, value: &[u8]) -> u64 {
    (place.2.len() + value.len()) as u64 + ROW_OVERHEAD_BYTES
}

impl ColdStore for MemoryCold {
    fn get_many(
        &self,
        state: StateIndex,
        keys: &[(KeyGroup, &[u8])],
        found: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<(), ColdError> {
        let rows = self.read();
        let mut place = (state.0, 0, Vec::new());
        for (position, (group, key)) in keys.iter().enumerate() {
            place.1 = group.0;
            place.2.clear();
            place.2.extend_from_slice(key);
            found(position, rows.get(&place).map(Vec::as_slice));
        }
        Ok(())
    }

    fn scan(
        &self,
        state: StateIndex,
        group: KeyGroup,
        prefix: &[u8],
        from: Option<&[u8]>,
        visit: &mut RowVisitor<'_>,
    ) -> Result<(), ColdError> {
        let start = from.filter(|from| *from > prefix).unwrap_or(prefix);
        let rows = self.read();
        let range = rows.range((state.0, group.0, start.to_vec())..);
        for ((found, of, key), value) in range {
            if (*found, *of) != (state.0, group.0) || !key.starts_with(prefix) {
                break;
            }
            if visit(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn last(&self, state: StateIndex, group: KeyGroup, prefix: &[u8]) -> Result<Option<KeyAndValue>, ColdError> {
        let rows = self.read();
        let start = Bound::Included((state.0, group.0, prefix.to_vec()));
        let end = Bound::Excluded(after(state, group, prefix));
        let last = rows.range((start, end)).next_back();
        Ok(last.map(|((_, _, key), value)| (key.clone(), value.clone())))
    }

    fn write(&self, changes: &mut dyn Iterator<Item = ColdRow<'_>>) -> Result<(), ColdError> {
        let mut rows = self.change();
        for row in changes {
            let place = (row.state.0, row.group.0, row.key.to_vec());
            match row.value {
                Some(value) => self.put(&mut rows, place, value),
                None => self.remove(&mut rows, &place),
            }
        }
        Ok(())
    }

    fn load(&self) -> Result<Box<dyn ColdLoader + '_>, ColdError> {
        Ok(Box::new(MemoryLoader { store: self, loaded: Vec::new() }))
    }

    fn delete_range(&self, state: StateIndex, groups: KeyGroupRange) -> Result<(), ColdError> {
        let mut rows = self.change();
        let inside = |place: &Place| place.0 == state.0 && groups.contains(KeyGroup(place.1));
        let gone: Vec<Place> = rows.keys().filter(|place| inside(place)).cloned().collect();
        gone.iter().for_each(|place| self.remove(&mut rows, place));
        Ok(())
    }

    fn clear(&self) -> Result<(), ColdError> {
        let mut rows = self.change();
        rows.clear();
        self.bytes.store(0, Ordering::Relaxed);
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn files(&self) -> Arc<dyn ColdFiles> {
        Arc::clone(&self.files) as Arc<dyn ColdFiles>
    }
}

/// The first place after every key with this prefix.
fn after(state: StateIndex, group: KeyGroup, prefix: &[u8]) -> Place {
    let kept = prefix.iter().rposition(|byte| *byte != u8::MAX);
    match (kept, group.0.checked_add(1)) {
        (Some(last), _) => {
            let mut end = prefix[..=last].to_vec();
            end[last] += 1;
            (state.0, group.0, end)
        }
        (None, Some(next)) => (state.0, next, Vec::new()),
        (None, None) => (state.0.saturating_add(1), 0, Vec::new()),
    }
}

struct MemoryLoader<'a> {
    store: &'a MemoryCold,
    loaded: Vec<(Place, Vec<u8>)>,
}

impl ColdLoader for MemoryLoader<'_> {
    fn put(&mut self, state: StateIndex, group: KeyGroup, key: &[u8], value: &[u8]) -> Result<(), ColdError> {
        let out_of_order =
            |(before, _): &(Place, Vec<u8>)| before.0 == state.0 && (before.1, before.2.as_slice()) >= (group.0, key);
        if self.loaded.last().is_some_and(out_of_order) {
            return Err(ColdError::LoadOrder { state: state.0, group });
        }
        self.loaded.push(((state.0, group.0, key.to_vec()), value.to_vec()));
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), ColdError> {
        let mut rows = self.store.change();
        for (place, value) in self.loaded {
            self.store.put(&mut rows, place, &value);
        }
        Ok(())
    }
}

/// Opens cold stores in memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryColdStores;

impl ColdStores for MemoryColdStores {
    fn open(&self, _: &str, _: u32) -> Result<Arc<dyn ColdStore>, ColdError> {
        Ok(Arc::new(MemoryCold::new()))
    }

    fn name(&self) -> &'static str {
        "memory"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cold::contract;

    #[test]
    fn the_store_in_memory_keeps_the_contract() {
        contract::check(&MemoryColdStores);
    }

    #[test]
    fn bytes_follow_what_is_stored() {
        let store = MemoryCold::new();
        let row = |value| ColdRow { state: StateIndex(0), group: KeyGroup(0), key: b"key", value };
        store.write(&mut [row(Some(&[0u8; 100][..])), row(Some(&[0; 10]))].into_iter()).unwrap();
        assert_eq!((store.rows(), store.bytes()), (1, 13 + ROW_OVERHEAD_BYTES));
        store.write(&mut [row(None)].into_iter()).unwrap();
        assert_eq!((store.rows(), store.bytes()), (0, 0));
    }
}
