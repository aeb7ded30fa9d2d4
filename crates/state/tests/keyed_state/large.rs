//! State larger than the memory it may take, and a cold store that fails.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use millpond_core::{Epoch, ErrorKind, KeyGroup, KeyGroupRange, MaxParallelism};
use millpond_runs::StateIndex;
use millpond_state::cold::{KeyAndValue, RowVisitor};
use millpond_state::{
    ColdError, ColdFiles, ColdLoader, ColdRow, ColdStore, KeyedBackend, KeyedBackendControl, MemoryBudget, MemoryCold,
    SliceProgress, StateError,
};

const BUDGET: usize = 256 << 10;

fn backend(budget: usize, store: Arc<dyn ColdStore>) -> KeyedBackend<u64> {
    let max = MaxParallelism::new(16).unwrap();
    let mut backend = KeyedBackend::new(max, max.all());
    backend.attach_cold(store, MemoryBudget::new(budget).share()).unwrap();
    backend.stop_tracking();
    backend
}

/// What happens after each batch: the hand goes round, and what is frozen reaches the store. Returns the
/// memory in use.
fn after_batch(backend: &mut KeyedBackend<u64>) -> usize {
    backend.clear_current_key();
    backend.keep_budget().unwrap();
    loop {
        match backend.serialise_slice(64 << 10).unwrap() {
            SliceProgress::Part { rows, cold, .. } => cold.unwrap().apply(&rows).unwrap(),
            SliceProgress::More | SliceProgress::Waiting => {}
            _ => break,
        }
    }
    backend.keep_budget().unwrap();
    backend.memory_bytes()
}

#[test]
fn ks_11_a_list_larger_than_memory_is_appended_to_and_read_through() {
    let store = Arc::new(MemoryCold::new());
    let mut backend = backend(BUDGET, Arc::clone(&store) as Arc<dyn ColdStore>);
    let list = backend.declarer().list::<u64>("list").unwrap();
    let mut most = 0;
    for batch in 0..400u64 {
        backend.set_current_key_of(7).unwrap();
        for element in batch * 1_000..(batch + 1) * 1_000 {
            list.add(backend.states_mut(), element).unwrap();
        }
        most = most.max(after_batch(&mut backend));
    }
    assert!(most < 4 * BUDGET, "{most} bytes of a list of 3.2 MB were in memory");
    backend.set_current_key_of(7).unwrap();
    assert_eq!(list.len(backend.states_mut()).unwrap(), 400_000);
    let mut next = 0;
    let walk = list.for_each(backend.states_mut(), |element| {
        assert_eq!(*element, next);
        next += 1;
        Ok::<(), StateError>(())
    });
    walk.unwrap();
    assert_eq!(next, 400_000);
    assert_eq!(backend.live_entries(), 1);
}

#[test]
fn ks_33_a_map_larger_than_memory_is_changed_walked_and_cleared() {
    let store = Arc::new(MemoryCold::new());
    let mut backend = backend(BUDGET, Arc::clone(&store) as Arc<dyn ColdStore>);
    let map = backend.declarer().map::<u64, u64>("map").unwrap();
    let mut most = 0;
    for batch in 0..100u64 {
        backend.set_current_key_of(7).unwrap();
        for key in batch * 1_000..(batch + 1) * 1_000 {
            map.put(backend.states_mut(), key, key * 3).unwrap();
            map.remove(backend.states_mut(), &(key / 2 * 2 + 1)).unwrap();
        }
        most = most.max(after_batch(&mut backend));
    }
    assert!(most < 6 * BUDGET, "{most} bytes were in memory");
    backend.set_current_key_of(7).unwrap();
    let (mut sum, mut entries) = (0, 0);
    let walk = map.for_each_entry(backend.states_mut(), |entry| {
        (sum, entries) = (sum + entry.value(), entries + 1);
        Ok(())
    });
    walk.unwrap();
    assert_eq!((sum, entries), ((0..50_000u64).map(|key| key * 6).sum(), 50_000));
    assert_eq!(backend.live_entries(), 50_000);
    assert_eq!(map.get(backend.states_mut(), &2_000).unwrap(), Some(&6_000));
    assert_eq!(map.get(backend.states_mut(), &2_001).unwrap(), None);
    map.clear(backend.states_mut()).unwrap();
    assert!(map.is_empty(backend.states_mut()).unwrap());
    assert_eq!(map.get(backend.states_mut(), &2_000).unwrap(), None);
    assert_eq!(backend.live_entries(), 0);
}

/// As the background threads do: what is serialised reaches the store some time later. Returns the most memory in use.
fn settle_slowly(backend: &mut KeyedBackend<u64>) -> usize {
    let (mut on_their_way, mut most) = (std::collections::VecDeque::new(), 0);
    backend.clear_current_key();
    loop {
        backend.keep_budget().unwrap();
        let progress = backend.serialise_slice(64 << 10).unwrap();
        most = most.max(backend.memory_bytes());
        match progress {
            SliceProgress::Part { rows, cold, .. } => on_their_way.push_back((rows, cold.unwrap())),
            SliceProgress::More => {}
            SliceProgress::Waiting => {
                let (rows, mut cold): (millpond_runs::RowBuffer, millpond_state::ColdRows) =
                    on_their_way.pop_front().expect("it waits for rows that are on their way");
                cold.apply(&rows).unwrap();
            }
            _ => break,
        }
    }
    on_their_way.into_iter().for_each(|(rows, mut cold)| cold.apply(&rows).unwrap());
    backend.keep_budget().unwrap();
    most
}

#[test]
fn ks_33_clearing_a_map_of_a_million_entries_stays_within_the_budget() {
    let store = Arc::new(MemoryCold::new());
    let mut backend = backend(BUDGET, Arc::clone(&store) as Arc<dyn ColdStore>);
    let map = backend.declarer().map::<u64, u64>("map").unwrap();
    for batch in 0..1_000u64 {
        backend.set_current_key_of(7).unwrap();
        let entries = batch * 1_000..(batch + 1) * 1_000;
        map.put_all(backend.states_mut(), entries.map(|key| (key, key))).unwrap();
        after_batch(&mut backend);
    }
    backend.set_current_key_of(7).unwrap();
    map.clear(backend.states_mut()).unwrap();
    assert_eq!(backend.live_entries(), 0);
    assert!(map.is_empty(backend.states_mut()).unwrap());
    // Before the tombstones are written, one is put again, as it would be later.
    map.put(backend.states_mut(), 500_000, 1).unwrap();
    let mut most = backend.memory_bytes();
    for round in 0..40u64 {
        backend.set_current_key_of(8).unwrap();
        let entries = round * 1_000..(round + 1) * 1_000;
        map.put_all(backend.states_mut(), entries.map(|key| (key, round))).unwrap();
        most = most.max(settle_slowly(&mut backend));
    }
    assert!(most < 3 * BUDGET, "{most} bytes were in memory");
    backend.set_current_key_of(7).unwrap();
    assert_eq!(map.len(backend.states_mut()).unwrap(), 1);
    assert_eq!(map.get(backend.states_mut(), &500_000).unwrap(), Some(&1));
    assert_eq!(map.get(backend.states_mut(), &0).unwrap(), None);
    assert_eq!(backend.live_entries(), 40_001);
    let mut left = 0;
    let count = &mut |_: &[u8], _: &[u8]| {
        left += 1;
        ControlFlow::Continue(())
    };
    (0..16).for_each(|group| store.scan(StateIndex(0), KeyGroup(group), &[], None, count).unwrap());
    assert!(left <= 40_001, "{left} rows are left in the store");
}

#[test]
fn ks_02_values_larger_than_memory_are_found_again_and_few_are_in_memory() {
    let store = Arc::new(MemoryCold::new());
    let mut backend = backend(BUDGET, Arc::clone(&store) as Arc<dyn ColdStore>);
    let value = backend.declarer().value::<String>("value").unwrap();
    let mut most = 0;
    for round in 0..2u64 {
        for batch in 0..100u64 {
            for key in batch * 500..(batch + 1) * 500 {
                backend.set_current_key_of(key).unwrap();
                let seen = value.get(backend.states_mut()).unwrap().cloned();
                assert_eq!(seen, (round > 0).then(|| format!("{key} in round 0")));
                value.set(backend.states_mut(), format!("{key} in round {round}")).unwrap();
            }
            most = most.max(after_batch(&mut backend));
        }
    }
    assert!(most < 6 * BUDGET, "{most} bytes were in memory");
    assert_eq!(backend.live_entries(), 50_000);
    let mut keys = 0;
    let walk = backend.for_each_key("value", |states| {
        keys += 1;
        value.clear(states)
    });
    walk.unwrap();
    assert_eq!((keys, backend.live_entries()), (50_000, 0));
}

#[test]
fn nothing_goes_to_the_cold_store_while_everything_fits() {
    let store = Arc::new(MemoryCold::new());
    let mut backend = backend(64 << 20, Arc::clone(&store) as Arc<dyn ColdStore>);
    let value = backend.declarer().value::<u64>("value").unwrap();
    for key in 0..10_000 {
        backend.set_current_key_of(key).unwrap();
        value.set(backend.states_mut(), key).unwrap();
        if key % 1_000 == 0 {
            after_batch(&mut backend);
        }
    }
    assert_eq!((store.rows(), backend.frozen_parts()), (0, 0));
}

/// A store of which reads give damaged bytes, scans lack rows, or writes fail, once it is told to.
#[derive(Default)]
struct Broken {
    store: MemoryCold,
    damaged: AtomicBool,
    full: AtomicBool,
    /// Scans end before this row.
    shown: Mutex<Option<usize>>,
}

impl ColdStore for Broken {
    fn get_many(
        &self,
        state: StateIndex,
        keys: &[(KeyGroup, &[u8])],
        found: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<(), ColdError> {
        let damaged = self.damaged.load(Ordering::Relaxed);
        self.store.get_many(state, keys, &mut |at, value| found(at, if damaged { Some(&[0xff; 11]) } else { value }))
    }
    fn scan(
        &self,
        state: StateIndex,
        group: KeyGroup,
        prefix: &[u8],
        from: Option<&[u8]>,
        visit: &mut RowVisitor<'_>,
    ) -> Result<(), ColdError> {
        let mut left = *self.shown.lock().unwrap();
        self.store.scan(state, group, prefix, from, &mut |key, value| {
            if left == Some(0) {
                return ControlFlow::Break(());
            }
            left = left.map(|left| left - 1);
            visit(key, value)
        })
    }
    fn last(&self, state: StateIndex, group: KeyGroup, prefix: &[u8]) -> Result<Option<KeyAndValue>, ColdError> {
        self.store.last(state, group, prefix)
    }
    fn write(&self, rows: &mut dyn Iterator<Item = ColdRow<'_>>) -> Result<(), ColdError> {
        if self.full.load(Ordering::Relaxed) {
            return Err(ColdError::Write { place: "here".to_owned(), reason: "no space left".to_owned() });
        }
        self.store.write(rows)
    }
    fn load(&self) -> Result<Box<dyn ColdLoader + '_>, ColdError> {
        self.store.load()
    }
    fn delete_range(&self, state: StateIndex, groups: KeyGroupRange) -> Result<(), ColdError> {
        self.store.delete_range(state, groups)
    }
    fn clear(&self) -> Result<(), ColdError> {
        self.store.clear()
    }
    fn bytes(&self) -> u64 {
        self.store.bytes()
    }
    fn files(&self) -> Arc<dyn ColdFiles> {
        self.store.files()
    }
}

#[test]
fn a_damaged_row_of_the_cold_store_is_an_error_that_names_state_and_group() {
    let store = Arc::new(Broken::default());
    let mut backend = backend(0, Arc::clone(&store) as Arc<dyn ColdStore>);
    let value = backend.declarer().value::<u64>("count").unwrap();
    backend.set_current_key_of(1).unwrap();
    value.set(backend.states_mut(), 5).unwrap();
    for _ in 0..4 {
        after_batch(&mut backend);
    }
    assert_eq!(store.store.rows(), 1);
    store.damaged.store(true, Ordering::Relaxed);
    backend.set_current_key_of(1).unwrap();
    let error = value.get(backend.states_mut()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(matches!(&error, StateError::DamagedRow { state, .. } if state == "count"), "{error}");
}

#[test]
fn a_cold_store_that_cannot_be_written_fails_the_backend_and_not_the_process() {
    let store = Arc::new(Broken::default());
    let mut backend = backend(0, Arc::clone(&store) as Arc<dyn ColdStore>);
    let value = backend.declarer().value::<u64>("count").unwrap();
    store.full.store(true, Ordering::Relaxed);
    backend.set_current_key_of(1).unwrap();
    value.set(backend.states_mut(), 5).unwrap();
    backend.clear_current_key();
    let mut failure = None;
    for _ in 0..4 {
        failure = failure.or(backend.keep_budget().err());
        while let SliceProgress::Part { rows, cold, .. } = backend.serialise_slice(1 << 20).unwrap() {
            assert!(cold.unwrap().apply(&rows).is_err());
        }
    }
    let failure = failure.unwrap();
    assert_eq!(failure.kind(), ErrorKind::Unavailable);
    assert!(matches!(failure, StateError::Cold { .. }), "{failure}");
}

#[test]
fn chunks_of_a_list_that_the_cold_store_has_lost_are_an_error_and_not_a_shorter_list() {
    let store = Arc::new(Broken::default());
    let mut backend = backend(0, Arc::clone(&store) as Arc<dyn ColdStore>);
    let list = backend.declarer().list::<u64>("list").unwrap();
    backend.set_current_key_of(1).unwrap();
    for element in 0..100_000 {
        list.add(backend.states_mut(), element).unwrap();
    }
    for _ in 0..4 {
        after_batch(&mut backend);
    }
    let mut walk = |shown| {
        *store.shown.lock().unwrap() = shown;
        backend.set_current_key_of(1).unwrap();
        let mut seen = 0;
        let ended = list.for_each(backend.states_mut(), |_| {
            seen += 1;
            Ok::<(), StateError>(())
        });
        after_batch(&mut backend);
        (ended, seen)
    };
    assert_eq!(walk(None), (Ok(()), 100_000));
    for shown in 0..3 {
        let (ended, _) = walk(Some(shown));
        let error = ended.unwrap_err();
        assert!(matches!(&error, StateError::DamagedRow { state, .. } if state == "list"), "{error}");
        assert!(millpond_core::error::chain(&error).contains("is missing"), "{error}");
    }
}

/// One subtask's snapshot made its neighbour spill: rows on their way counted in the split of the memory between them.
#[test]
fn rows_of_a_snapshot_do_not_make_a_neighbour_spill_whose_state_fits() {
    let budget = MemoryBudget::new(4 << 20);
    let max = MaxParallelism::new(16).unwrap();
    let filled = |range: KeyGroupRange| {
        let mut backend = KeyedBackend::<u64>::new(max, range);
        backend.attach_cold(Arc::new(MemoryCold::new()), budget.share()).unwrap();
        let value = backend.declarer().value::<String>("value").unwrap();
        for key in 0u64.. {
            if backend.memory_bytes() > (2 << 20) / 100 * 84 {
                break;
            }
            if backend.set_current_key_of(key).is_ok() {
                value.set(backend.states_mut(), "x".repeat(1_000)).unwrap();
            }
            backend.clear_current_key();
        }
        backend
    };
    let (mut busy, mut idle) = (filled(max.range_of(0, 2)), filled(max.range_of(1, 2)));
    let mut on_their_way = Vec::new();
    busy.freeze(Epoch(1)).unwrap();
    for _ in 0..1_000 {
        busy.keep_budget().unwrap();
        idle.keep_budget().unwrap();
        match busy.serialise_slice(16 << 10).unwrap() {
            SliceProgress::Part { rows, cold, .. } | SliceProgress::Done { rows, cold, .. } => {
                on_their_way.push((rows, cold))
            }
            _ => {}
        }
    }
    assert!(!on_their_way.is_empty());
    assert!(!busy.spills() && !idle.spills(), "busy {} idle {}", busy.spills(), idle.spills());
    for (rows, cold) in on_their_way {
        cold.unwrap().apply(&rows).unwrap();
    }
}

/// When state began to spill, rows of what had never changed since were written for as long as the store had not taken the
/// first of them: all of the state was in memory twice.
#[test]
fn what_goes_to_the_cold_store_does_not_pile_up_in_front_of_it() {
    const LIMIT: usize = 4 << 20;
    for snapshots in [false, true] {
        let max = MaxParallelism::new(16).unwrap();
        let mut backend = KeyedBackend::<u64>::new(max, max.all());
        backend.attach_cold(Arc::new(MemoryCold::new()), MemoryBudget::with_idle(LIMIT, LIMIT / 2).share()).unwrap();
        if !snapshots {
            backend.stop_tracking();
        }
        let value = backend.declarer().value::<String>("value").unwrap();
        let mut keys = 0u64;
        while !backend.spills() {
            backend.set_current_key_of(keys).unwrap();
            value.set(backend.states_mut(), "x".repeat(1_000)).unwrap();
            backend.clear_current_key();
            keys += 1;
            backend.keep_budget().unwrap();
            // Nothing spills yet: entries become clean, and are in no cold store.
            if snapshots && keys == 2_000 {
                backend.freeze(Epoch(1)).unwrap();
                while !matches!(backend.serialise_slice(64 << 10).unwrap(), SliceProgress::Done { .. }) {}
            }
        }
        let tables = backend.memory_bytes();
        let (mut on_their_way, mut most) = (Vec::new(), 0);
        for _ in 0..1_000 {
            backend.keep_budget().unwrap();
            if let SliceProgress::Part { rows, cold, .. } = backend.serialise_slice(64 << 10).unwrap() {
                on_their_way.push((rows, cold.unwrap()));
            }
            most = most.max(backend.memory_bytes());
        }
        assert!(
            most <= tables + LIMIT / 4 * 3,
            "{most} bytes, {tables} in tables when it began, snapshots {snapshots}"
        );
        assert!(!on_their_way.is_empty());
        // And it goes on when the store takes what waits.
        let mut rounds = 0;
        while backend.memory_bytes() > LIMIT {
            on_their_way.drain(..).for_each(|(rows, mut cold)| cold.apply(&rows).unwrap());
            backend.keep_budget().unwrap();
            if let SliceProgress::Part { rows, cold, .. } = backend.serialise_slice(64 << 10).unwrap() {
                on_their_way.push((rows, cold.unwrap()));
            }
            rounds += 1;
            assert!(rounds < 10_000, "{} bytes of {LIMIT} after {rounds} rounds", backend.memory_bytes());
        }
        for key in 0..keys {
            backend.set_current_key_of(key).unwrap();
            assert!(value.get(backend.states_mut()).unwrap().is_some(), "key {key}");
        }
    }
}
