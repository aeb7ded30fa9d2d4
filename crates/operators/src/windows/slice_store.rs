//! The accumulators of keys by slice, in memory by slice or in a map above a cold store.
//!
//! Both are stored alike, so that a checkpoint of one is restored by the other. Above a cold store, the keys of each
//! slice stand in a queue beside the map, which leaves memory as well: a slice that is over is handed out key by key.
//! Slices are handed out in order of time.

use std::collections::{BTreeMap, BTreeSet};

use millpond_core::{Data, Key, UserResult, codec};
use millpond_dataflow::KeyedContext;
use millpond_dataflow::time_queue::{Queued, TimeQueue};
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
    keys: TimeQueue<K, ()>,
    /// How many keys each slice has.
    counts: BTreeMap<i64, usize>,
    /// Whether the map holds keys from before a restore that are not in `keys`.
    unread: bool,
}

impl<K: Key, V: Data> SliceStore<K, V> {
    pub(crate) fn open(states: &mut StateDeclarer<'_, K>, cold: bool, stored: bool) -> Result<Self, StateError> {
        if !cold {
            return Ok(SliceStore::Hot(states.slices(SLICES)?));
        }
        let (map, keys, counts) = (states.map(SLICES)?, TimeQueue::new(SLICES), BTreeMap::new());
        Ok(SliceStore::Cold(ColdSlices { map, keys, counts, unread: stored }))
    }

    /// Finds the keys that a restore has brought.
    fn read(&mut self, view: &mut KeyedContext<'_, K>) -> Result<(), StateError> {
        let SliceStore::Cold(cold) = self else { return Ok(()) };
        if !std::mem::take(&mut cold.unread) {
            return Ok(());
        }
        let ColdSlices { map, keys, counts, .. } = cold;
        let room = view.backend().beside_room();
        view.backend().for_each_map_key(*map, |hash, key, slice| {
            *counts.entry(slice).or_default() += 1;
            keys.push_within(slice, Queued { hash, key, namespace: () }, room.as_ref())
        })?;
        keys.look(view.backend())
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
                    && let Some((hash, key)) = view.current_hash().zip(view.current_key().cloned())
                {
                    *cold.counts.entry(slice).or_default() += 1;
                    cold.keys.push(slice, Queued { hash, key, namespace: () }, view.backend())?;
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
            SliceStore::Cold(cold) => Ok(cold.counts.contains_key(&slice)),
        }
    }

    /// The slices that hold something, in order.
    pub(crate) fn slices(&mut self, view: &mut KeyedContext<'_, K>) -> Result<Vec<i64>, StateError> {
        self.read(view)?;
        match self {
            SliceStore::Hot(slices) => Ok(slices.slices(view)?.collect()),
            SliceStore::Cold(cold) => Ok(cold.counts.keys().copied().collect()),
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
        if let (SliceStore::Cold(cold), Some(last)) = (&mut *self, slices.last()) {
            cold.keys.for_each(*last, |slice, Queued { hash, key, .. }| {
                if slices.contains(&slice)
                    && seen.insert(
                        codec::encode(key).map_err(|source| StateError::Codec {
                            state: SLICES.to_owned(),
                            source: Box::new(source),
                        })?,
                    )
                {
                    keys.push((*hash, key.clone()));
                }
                Ok(())
            })?;
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
        let mut due = Vec::new();
        while due.len() < limit.min(cold.counts.get(&slice).copied().unwrap_or(0)) {
            let Some((of, Queued { hash, key, .. })) = cold.keys.pop(slice, view.backend())? else { break };
            debug_assert_eq!(of, slice, "slices are handed out in order");
            due.push((hash, key));
        }
        cold.map.fetch(view, due.iter().map(|(hash, key)| (*hash, key, slice)))?;
        let left = cold.counts.remove(&slice).map_or(0, |count| count.saturating_sub(due.len().max(1)));
        for (hash, key) in due {
            view.set_current_key(hash, key.clone())?;
            if let Some(value) = cold.map.remove(view, &slice)? {
                visit(key, value)?;
            }
        }
        view.clear_current_key();
        if left > 0 {
            cold.counts.insert(slice, left);
        }
        Ok(left > 0)
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
