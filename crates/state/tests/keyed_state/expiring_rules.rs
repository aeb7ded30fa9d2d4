//! The rules of time to live one by one, for every kind of keyed state: on the heap, and with everything in the cold
//! store between any two steps.

use std::sync::Arc;
use std::time::Duration;

use millpond_core::{Clock, ManualClock, MaxParallelism};
use millpond_runs::RowBuffer;
use millpond_state::{
    ColdStore, ExpiringAggregating, ExpiringList, ExpiringMap, ExpiringReducing, ExpiringValue, KeyedBackend,
    KeyedBackendControl, MemoryBudget, MemoryCold, SliceProgress, StateError, Ttl,
};

use crate::support::Sum;

pub(crate) const TTL_MS: u64 = 100;

pub(crate) struct All {
    pub(crate) value: ExpiringValue<String>,
    pub(crate) list: ExpiringList<u16>,
    pub(crate) map: ExpiringMap<u8, u32>,
    pub(crate) reducing: ExpiringReducing<u64>,
    pub(crate) aggregating: ExpiringAggregating<Sum>,
}

pub(crate) fn since_written() -> Ttl {
    Ttl::after(Duration::from_millis(TTL_MS))
}

pub(crate) fn since_used() -> Ttl {
    since_written().on_read_and_write()
}

pub(crate) fn declare(backend: &mut KeyedBackend<u8>, ttl: Ttl) -> Result<All, StateError> {
    let mut declarer = backend.declarer();
    Ok(All {
        value: declarer.expiring_value("value", ttl)?,
        list: declarer.expiring_list("list", ttl)?,
        map: declarer.expiring_map("map", ttl)?,
        reducing: declarer.expiring_reducing("reducing", ttl, |a, b| a + b)?,
        aggregating: declarer.expiring_aggregating("aggregating", ttl, Sum)?,
    })
}

/// A backend that shows `clock`, with key 1 current.
pub(crate) fn start(ttl: Ttl) -> (KeyedBackend<u8>, All, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(1_000));
    let (mut backend, all) = empty(ttl, &clock);
    backend.set_current_key_of(1).unwrap();
    (backend, all, clock)
}

/// The same over a cold store.
pub(crate) fn start_cold(ttl: Ttl) -> (KeyedBackend<u8>, All, Arc<ManualClock>, Arc<MemoryCold>) {
    let (clock, store) = (Arc::new(ManualClock::new(1_000)), Arc::new(MemoryCold::new()));
    let (mut backend, all) = empty_cold(ttl, &clock, &store);
    backend.set_current_key_of(1).unwrap();
    (backend, all, clock, store)
}

pub(crate) fn empty_cold(ttl: Ttl, clock: &Arc<ManualClock>, store: &Arc<MemoryCold>) -> (KeyedBackend<u8>, All) {
    let max = MaxParallelism::new(16).unwrap();
    let mut backend = KeyedBackend::new(max, max.all()).with_clock(Arc::<ManualClock>::clone(clock));
    let store = Arc::clone(store) as Arc<dyn ColdStore>;
    backend.attach_cold(store, MemoryBudget::new(0).share()).unwrap();
    let all = declare(&mut backend, ttl).unwrap();
    (backend, all)
}

/// Everything goes to the cold store, if there is one. The rows on their way are returned as well.
pub(crate) fn settle(backend: &mut KeyedBackend<u8>) -> Vec<RowBuffer> {
    backend.clear_current_key();
    let mut all = Vec::new();
    for _ in 0..6 {
        backend.keep_budget().unwrap();
        loop {
            match backend.serialise_slice(1 << 20).unwrap() {
                SliceProgress::Part { rows, cold, .. } | SliceProgress::Done { rows, cold, .. } => {
                    cold.into_iter().for_each(|mut cold| cold.apply(&rows).unwrap());
                    all.push(rows);
                }
                SliceProgress::More | SliceProgress::Waiting => {}
                SliceProgress::Idle => break,
            }
        }
    }
    all
}

pub(crate) fn empty(ttl: Ttl, clock: &Arc<ManualClock>) -> (KeyedBackend<u8>, All) {
    let max = MaxParallelism::new(16).unwrap();
    let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(clock);
    let mut backend = KeyedBackend::new(max, max.all()).with_clock(clock);
    let all = declare(&mut backend, ttl).unwrap();
    (backend, all)
}

pub(crate) fn write(all: &All, backend: &mut KeyedBackend<u8>) {
    let states = backend.states_mut();
    all.value.set(states, "x".into()).unwrap();
    all.list.add_all(states, [1, 2]).unwrap();
    all.map.put_all(states, [(1, 10), (2, 20)]).unwrap();
    all.reducing.add(states, 5).unwrap();
    all.aggregating.add(states, 7).unwrap();
}

/// How many of the five states show something, reading each once.
pub(crate) fn shown(all: &All, backend: &mut KeyedBackend<u8>) -> usize {
    let states = backend.states_mut();
    let list = all.list.get(states).unwrap().len() > 0;
    let shown = [
        list,
        all.value.get(states).unwrap().is_some(),
        all.map.get(states, &1).unwrap().is_some(),
        all.reducing.get(states).unwrap().is_some(),
        all.aggregating.get(states).unwrap().is_some(),
    ];
    shown.into_iter().filter(|shown| *shown).count()
}

#[test]
fn tl_01_tl_02_tl_03_an_entry_is_gone_exactly_at_its_end_and_reading_does_not_renew_it() {
    let (mut backend, all, clock) = start(since_written());
    write(&all, &mut backend);
    for _ in 0..9 {
        clock.advance(11);
        assert_eq!(shown(&all, &mut backend), 5);
    }
    clock.set(1_000 + TTL_MS as i64);
    assert_eq!(shown(&all, &mut backend), 0);
    assert_eq!(backend.live_entries(), 1, "read entries are removed; one map entry was not read");
    assert!(all.map.is_empty(backend.states_mut()).unwrap());
    assert_eq!(all.map.iter(backend.states_mut()).unwrap().count(), 0);
    assert_eq!(backend.live_entries(), 0);
}

#[test]
fn tl_03_writing_renews() {
    let (mut backend, all, clock) = start(since_written());
    for _ in 0..5 {
        write(&all, &mut backend);
        clock.advance(TTL_MS as i64 - 1);
    }
    let states = backend.states_mut();
    assert_eq!(all.reducing.get(states).unwrap(), Some(&25));
    assert_eq!(all.aggregating.get(states).unwrap(), Some(35));
    assert_eq!(all.list.get(states).unwrap().copied().collect::<Vec<_>>(), [1, 2], "TL-06: each for itself");
    all.value.modify(states, |value| value.as_mut().unwrap().push('y')).unwrap();
    all.map.modify(states, 1, |value| *value.as_mut().unwrap() += 1).unwrap();
    clock.advance(TTL_MS as i64 - 1);
    let states = backend.states_mut();
    assert_eq!(all.value.get(states).unwrap().unwrap(), "xy");
    assert_eq!(all.map.iter(states).unwrap().collect::<Vec<_>>(), [(&1, &11)], "TL-07: each for itself");
}

#[test]
fn tl_04_reading_renews_when_asked_to() {
    let (mut backend, all, clock) = start(since_used());
    write(&all, &mut backend);
    for _ in 0..5 {
        clock.advance(TTL_MS as i64 - 1);
        assert_eq!(shown(&all, &mut backend), 5);
    }
    assert_eq!(all.map.get(backend.states_mut(), &2).unwrap(), None, "TL-07: only the entry that was read");
    clock.advance(TTL_MS as i64);
    assert_eq!(shown(&all, &mut backend), 0);
}

#[test]
fn tl_06_updating_a_list_makes_all_its_elements_new() {
    let (mut backend, all, clock) = start(since_written());
    let states = backend.states_mut();
    all.list.add(states, 1).unwrap();
    clock.advance(60);
    all.list.add(states, 2).unwrap();
    clock.advance(60);
    assert_eq!((all.list.len(states).unwrap(), all.list.is_empty(states).unwrap()), (1, false));
    all.list.update(states, [3, 4]).unwrap();
    clock.advance(60);
    assert_eq!(all.list.get(states).unwrap().copied().collect::<Vec<_>>(), [3, 4]);
}

#[test]
fn tl_08_an_addition_after_the_end_starts_afresh() {
    let (mut backend, all, clock) = start(since_written());
    write(&all, &mut backend);
    clock.advance(TTL_MS as i64);
    write(&all, &mut backend);
    let states = backend.states_mut();
    assert_eq!(all.reducing.get(states).unwrap(), Some(&5));
    assert_eq!(all.aggregating.get(states).unwrap(), Some(7));
    clock.advance(TTL_MS as i64);
    let states = backend.states_mut();
    assert_eq!(all.value.modify(states, |value| value.take()).unwrap(), None);
    assert_eq!(all.map.modify(states, 1, |value| value.take()).unwrap(), None);
    assert_eq!(all.map.remove(states, &2).unwrap(), None);
}

#[test]
fn tl_11_an_entry_lives_again_when_the_clock_goes_back_unless_it_was_removed() {
    let (mut backend, all, clock) = start(since_written());
    write(&all, &mut backend);
    clock.advance(TTL_MS as i64);
    assert_eq!(all.value.get(backend.states_mut()).unwrap(), None);
    clock.advance(-1);
    assert_eq!(shown(&all, &mut backend), 4);
}

#[test]
fn tl_12_cleared_is_cleared() {
    let (mut backend, all, _) = start(since_written());
    write(&all, &mut backend);
    let states = backend.states_mut();
    all.value.clear(states).unwrap();
    all.list.clear(states).unwrap();
    all.map.clear(states).unwrap();
    all.reducing.clear(states).unwrap();
    all.aggregating.clear(states).unwrap();
    assert_eq!(shown(&all, &mut backend), 0);
    assert_eq!(backend.live_entries(), 0);
}

#[test]
fn tl_20_a_time_to_live_is_at_least_a_millisecond() {
    let max = MaxParallelism::new(16).unwrap();
    let mut backend = KeyedBackend::<u8>::new(max, max.all());
    let error = declare(&mut backend, Ttl::after(Duration::from_micros(999))).map(|_| ()).unwrap_err();
    assert_eq!(error, StateError::TtlTooShort { state: "value".into() });
}

#[test]
fn tl_02_tl_08_what_expired_in_the_cold_store_is_not_shown_and_reading_removes_it() {
    let (mut backend, all, clock, store) = start_cold(since_written());
    write(&all, &mut backend);
    settle(&mut backend);
    assert!(store.bytes() > 0);
    backend.set_current_key_of(1).unwrap();
    clock.advance(TTL_MS as i64 - 1);
    assert_eq!(shown(&all, &mut backend), 5);
    settle(&mut backend);
    clock.advance(1);
    backend.set_current_key_of(1).unwrap();
    assert_eq!(shown(&all, &mut backend), 0);
    assert_eq!(all.map.iter(backend.states_mut()).unwrap().count(), 0);
    assert_eq!(backend.live_entries(), 0);
    all.reducing.add(backend.states_mut(), 1).unwrap();
    assert_eq!(all.reducing.get(backend.states_mut()).unwrap(), Some(&1), "it starts afresh");
    all.reducing.clear(backend.states_mut()).unwrap();
    settle(&mut backend);
    assert_eq!(store.bytes(), 0, "rows are left in the cold store");
}

#[test]
fn tl_04_reading_renews_what_is_in_the_cold_store() {
    let (mut backend, all, clock, _) = start_cold(since_used());
    write(&all, &mut backend);
    for _ in 0..4 {
        settle(&mut backend);
        clock.advance(TTL_MS as i64 - 1);
        backend.set_current_key_of(1).unwrap();
        assert_eq!(shown(&all, &mut backend), 5);
    }
    assert_eq!(all.value.peek(backend.states_mut()).unwrap().unwrap(), "x");
    clock.advance(1);
    assert_eq!(all.value.peek(backend.states_mut()).unwrap().unwrap(), "x", "peeking does not renew");
    clock.advance(TTL_MS as i64);
    assert_eq!(all.value.peek(backend.states_mut()).unwrap(), None);
}

#[test]
fn a_state_that_is_declared_twice_keeps_its_first_time_to_live() {
    let (mut backend, all, clock) = start(since_written());
    let again = backend.declarer().expiring_value::<String>("value", Ttl::after(Duration::MAX)).unwrap();
    all.value.set(backend.states_mut(), "x".into()).unwrap();
    clock.advance(TTL_MS as i64);
    assert_eq!(again.get(backend.states_mut()).unwrap(), None);
    assert_eq!(backend.declarer().ttl("value"), Some(since_written()));
    let error = backend.declarer().value::<String>("value").map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("expiring value"), "{error}");
}
