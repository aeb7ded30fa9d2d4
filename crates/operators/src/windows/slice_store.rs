//! The accumulators of keys by slice, in memory by slice or in a map above a cold store.
//!
//! Both are stored alike, so that a checkpoint of one is restored by the other. Above a cold store, the keys of each
//! slice stand in memory beside the map: a slice that is over is handed out key by key.

use std::collections::{BTreeMap, BTreeSet};

use millpond_core::{Data, Key, KeyHash, UserResult, codec};
use millpond_dataflow::KeyedContext;
use millpond_state::{MapState, SliceState, StateDeclarer, StateError};

/// The state's name.
pub(crate) const SLICES: &str = "slices";

/// See the module.
pub(crate) enum SliceStore<K, V> {
    Hot(SliceState<V>),
    Cold(ColdSlices<K, V>),
}

pub(crate) struct ColdSlices<K, V> {
    map: MapState<i64, V>,
    keys: BTreeMap<i64, Vec<(KeyHash, K)>>,
    /// Whether the map holds keys from before a restore that are not in `keys`.
    unread: bool,
}

impl<K: Key, V: Data> SliceStore<K, V> {
    pub(crate) fn open(states: &mut StateDeclarer<'_, K>, cold: bool, stored: bool) -> Result<Self, StateError> {
        if !cold {
            return Ok(SliceStore::Hot(states.slices(SLICES)?));
        }
        Ok(SliceStore::Cold(ColdSlices { map: states.map(SLICES)?, keys: BTreeMap::new(), unread: stored }))
    }

    /// Finds the keys that a restore has brought.
    fn read(&mut self, view: &mut KeyedContext<'_, K>) -> Result<(), StateError> {
        let SliceStore::Cold(cold) = self else { return Ok(()) };
        if !std::mem::take(&mut cold.unread) {
            return Ok(());
        }
        let ColdSlices { map, keys, .. } = cold;
        view.backend().for_each_key(SLICES, |states| {
            let current = states.current_hash().zip(states.current_key().cloned());
            let Some((hash, key)) = current else { return Ok(()) };
            map.for_each_entry(states, |entry| {
                keys.entry(*entry.key()).or_default().push((hash, key.clone()));
                Ok(())
            })
        })
    }

    /// Changes the current key's accumulator in a slice: one access.
    #[inline(always)]
    pub(crate) fn modify(
        &mut self,
        view: &mut KeyedContext<'_, K>,
        slice: i64,
        first: impl FnOnce() -> V,
        change: impl FnOnce(&mut V),
    ) -> Result<(), StateError> {
        match self {
            SliceStore::Hot(slices) => slices.modify_or(view, slice, first, change),
            SliceStore::Cold(cold) => {
                let is_new = cold.map.modify(view, slice, |value| {
                    let is_new = value.is_none();
                    change(value.get_or_insert_with(first));
                    is_new
                })?;
                if is_new
                    && !cold.unread
                    && let Some(current) = view.current_hash().zip(view.current_key().cloned())
                {
                    cold.keys.entry(slice).or_default().push(current);
                }
                Ok(())
            }
        }
    }

    /// Whether some key has something in a slice.
    #[inline]
    pub(crate) fn has(&mut self, view: &mut KeyedContext<'_, K>, slice: i64) -> Result<bool, StateError> {
        match self {
            SliceStore::Hot(slices) => slices.has(view, slice),
            SliceStore::Cold(cold) => Ok(cold.keys.contains_key(&slice)),
        }
    }

    /// The slices that hold something, in order.
    pub(crate) fn slices(&mut self, view: &mut KeyedContext<'_, K>) -> Result<Vec<i64>, StateError> {
        self.read(view)?;
        match self {
            SliceStore::Hot(slices) => Ok(slices.slices(view)?.collect()),
            SliceStore::Cold(cold) => Ok(cold.keys.keys().copied().collect()),
        }
    }

    /// What the current key holds in these slices, put together.
    pub(crate) fn of_key(
        &mut self,
        view: &mut KeyedContext<'_, K>,
        slices: &[i64],
        mut merge: impl FnMut(V, V) -> V,
    ) -> Result<Option<V>, StateError> {
        let mut sum: Option<V> = None;
        for slice in slices {
            let held = match self {
                SliceStore::Hot(state) => state.get(view, *slice)?.cloned(),
                SliceStore::Cold(cold) => cold.map.get(view, slice)?.cloned(),
            };
            sum = match (sum, held) {
                (Some(sum), Some(held)) => Some(merge(sum, held)),
                (sum, held) => sum.or(held),
            };
        }
        Ok(sum)
    }

    /// What every key holds in these slices, put together.
    pub(crate) fn merged(
        &mut self,
        view: &mut KeyedContext<'_, K>,
        slices: &[i64],
        mut merge: impl FnMut(V, V) -> V,
    ) -> UserResult<Vec<(K, V)>> {
        if let SliceStore::Hot(state) = self {
            return Ok(state.merged(view, slices, merge)?);
        }
        let mut seen = BTreeSet::new();
        let mut keys = Vec::new();
        if let SliceStore::Cold(cold) = self {
            for (hash, key) in slices.iter().filter_map(|slice| cold.keys.get(slice)).flatten() {
                if seen.insert(codec::encode(key)?) {
                    keys.push((*hash, key.clone()));
                }
            }
        }
        let mut all = Vec::with_capacity(keys.len());
        for (hash, key) in keys {
            view.set_current_key(hash, key.clone())?;
            if let Some(value) = self.of_key(view, slices, &mut merge)? {
                all.push((key, value));
            }
        }
        view.clear_current_key();
        Ok(all)
    }

    /// Hands out up to `limit` entries of a slice, which are gone then; false when none is left.
    pub(crate) fn drain(
        &mut self,
        view: &mut KeyedContext<'_, K>,
        slice: i64,
        limit: usize,
        mut visit: impl FnMut(K, V) -> UserResult,
    ) -> UserResult<bool> {
        let cold = match self {
            SliceStore::Hot(slices) => {
                return slices.drain(view, slice, limit, VisitError::wrap(&mut visit)).map_err(VisitError::into);
            }
            SliceStore::Cold(cold) => cold,
        };
        for _ in 0..limit {
            let Some((hash, key)) = cold.keys.get_mut(&slice).and_then(Vec::pop) else { break };
            view.set_current_key(hash, key.clone())?;
            if let Some(value) = cold.map.remove(view, &slice)? {
                visit(key, value)?;
            }
        }
        view.clear_current_key();
        let left = cold.keys.get(&slice).is_some_and(|keys| !keys.is_empty());
        if !left {
            cold.keys.remove(&slice);
        }
        Ok(left)
    }
}

/// What ends a walk: the state's error or the user's.
struct VisitError(millpond_core::UserError);

impl From<StateError> for VisitError {
    fn from(error: StateError) -> Self {
        VisitError(error.into())
    }
}

impl From<VisitError> for millpond_core::UserError {
    fn from(error: VisitError) -> Self {
        error.0
    }
}

impl VisitError {
    fn wrap<K, V>(visit: &mut impl FnMut(K, V) -> UserResult) -> impl FnMut(K, V) -> Result<(), VisitError> {
        move |key, value| visit(key, value).map_err(VisitError)
    }
}
