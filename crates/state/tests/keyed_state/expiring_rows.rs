//! Time to live and rows: what snapshots, restores, the walk and merges make of it, and that space is reclaimed.

use std::sync::Arc;

use millpond_core::{Clock, Epoch, KeyGroup, ManualClock, MaxParallelism};
use millpond_runs::{
    LiveRows, MemoryRun, RowRef, RunError, RunReader, RunSettings, StateIndex, merge_runs_keeping, write_runs,
};
use millpond_state::{
    ColdStore, ExpiredRows, KeyedBackend, KeyedBackendControl, MemoryBudget, MemoryCold, SliceProgress,
    StateDescription, StateError,
};

use crate::expiring_rules::{
    All, TTL_MS, empty, empty_cold, settle, shown, since_used, since_written, start, start_cold, write,
};
use crate::support::Sum;

const STATES: [&str; 5] = ["value", "list", "map", "reducing", "aggregating"];

/// The whole of a backend as one run, and a way back.
fn snapshot(backend: &mut KeyedBackend<u8>) -> Vec<MemoryRun> {
    backend.freeze(Epoch(1)).unwrap();
    let SliceProgress::Done { rows, .. } = backend.serialise_slice(1 << 20).unwrap() else { panic!("not done") };
    let runs = write_runs(rows, &backend.sections(), &RunSettings::default()).unwrap();
    runs.into_iter().map(|run| MemoryRun::new("run".to_owned(), run.bytes)).collect()
}

/// The way that is chosen for state that would not fit into memory.
fn feed_cold(backend: &mut KeyedBackend<u8>, runs: &[MemoryRun]) -> Result<(), StateError> {
    let cold = backend.cold_restore(1 << 30).unwrap();
    let mut filling = cold.begin()?;
    let readers: Vec<_> = runs.iter().map(|run| RunReader::open(run.clone()).unwrap()).collect();
    for state in STATES {
        let mut rows = LiveRows::new(&readers, state, backend.key_groups()).unwrap();
        let versions: Vec<_> =
            rows.descriptions().iter().map(|text| backend.row_version(state, text).unwrap()).collect();
        while rows.advance().unwrap() {
            let row = rows.current().unwrap().unwrap();
            let value = backend.migrated(versions[row.description as usize], row.group, row.value.unwrap())?;
            filling.put(state, row.group, row.key, value)?;
        }
    }
    backend.finish_cold_restore(filling.finish()?);
    Ok(())
}

fn feed(backend: &mut KeyedBackend<u8>, runs: &[MemoryRun]) -> Result<(), StateError> {
    for run in runs {
        let reader = RunReader::open(run.clone()).unwrap();
        for section in reader.sections() {
            let version = backend.row_version(&section.name, &section.descriptions[0].text)?;
            let mut cursor = reader.cursor(&section.name, backend.key_groups());
            while cursor.advance().unwrap() {
                let row = cursor.current().unwrap();
                backend.restore_row(version, row.group, row.key, row.value)?;
            }
        }
    }
    backend.finish_restore()
}

#[test]
fn tl_09_time_goes_on_while_the_job_is_down() {
    let (mut backend, all, clock) = start(since_written());
    write(&all, &mut backend);
    let runs = snapshot(&mut backend);
    for (down_ms, live) in [(TTL_MS as i64 - 1, 5), (TTL_MS as i64, 0)] {
        clock.set(1_000 + down_ms);
        let (mut backend, all) = empty(since_written(), &clock);
        feed(&mut backend, &runs).unwrap();
        backend.set_current_key_of(1).unwrap();
        assert_eq!(shown(&all, &mut backend), live);
        let (mut backend, all) = empty_cold(since_written(), &clock, &Arc::default());
        feed_cold(&mut backend, &runs).unwrap();
        backend.set_current_key_of(1).unwrap();
        assert_eq!(shown(&all, &mut backend), live);
    }
}

#[test]
fn tl_13_state_without_a_time_to_live_begins_to_live_when_restored_with_one() {
    let max = MaxParallelism::new(16).unwrap();
    let mut backend = KeyedBackend::<u8>::new(max, max.all());
    let mut declarer = backend.declarer();
    let value = declarer.value::<String>("value").unwrap();
    let list = declarer.list::<u8>("list").unwrap();
    backend.set_current_key_of(1).unwrap();
    value.set(backend.states_mut(), "old".into()).unwrap();
    list.add_all(backend.states_mut(), [1, 2]).unwrap();
    let runs = snapshot(&mut backend);

    let clock = Arc::new(ManualClock::new(5_000));
    for cold in [false, true] {
        clock.set(5_000);
        let (mut backend, all) =
            if cold { empty_cold(since_written(), &clock, &Arc::default()) } else { empty(since_written(), &clock) };
        if cold {
            feed_cold(&mut backend, &runs).unwrap()
        } else {
            feed(&mut backend, &runs).unwrap()
        }
        backend.set_current_key_of(1).unwrap();
        clock.advance(TTL_MS as i64 - 1);
        let states = backend.states_mut();
        assert_eq!(all.value.get(states).unwrap().unwrap(), "old");
        assert_eq!(all.list.get(states).unwrap().copied().collect::<Vec<_>>(), [1, 2], "wider as well");
        clock.advance(1);
        assert_eq!(shown(&all, &mut backend), 0);
    }
}

#[test]
fn tl_14_state_with_a_time_to_live_lives_for_ever_when_restored_without() {
    let (mut backend, all, _) = start(since_written());
    write(&all, &mut backend);
    let runs = snapshot(&mut backend);
    for cold in [false, true] {
        let max = MaxParallelism::new(16).unwrap();
        let mut backend = KeyedBackend::<u8>::new(max, max.all());
        if cold {
            backend.attach_cold(Arc::new(MemoryCold::new()), MemoryBudget::new(0).share()).unwrap();
        }
        let mut declarer = backend.declarer();
        let value = declarer.value::<String>("value").unwrap();
        let list = declarer.list::<u16>("list").unwrap();
        let map = declarer.map::<u8, u64>("map").unwrap();
        let reducing = declarer.reducing::<u64>("reducing", |a, b| a + b).unwrap();
        let aggregating = declarer.aggregating("aggregating", Sum).unwrap();
        if cold {
            feed_cold(&mut backend, &runs).unwrap()
        } else {
            feed(&mut backend, &runs).unwrap()
        }
        backend.set_current_key_of(1).unwrap();
        let states = backend.states_mut();
        assert_eq!(value.get(states).unwrap().unwrap(), "x");
        assert_eq!(list.get(states).unwrap(), [1, 2]);
        assert_eq!(map.get(states, &2).unwrap(), Some(&20));
        assert_eq!(reducing.get(states).unwrap(), Some(&5));
        assert_eq!(aggregating.get(states).unwrap(), Some(7));
    }
}

#[test]
fn rows_say_that_they_have_times_and_can_be_read_without_the_types() {
    let (mut backend, all, _) = start(since_used());
    write(&all, &mut backend);
    let sections = backend.sections();
    let runs = snapshot(&mut backend);
    let reader = RunReader::open(runs[0].clone()).unwrap();
    let json = |state: &str| {
        let written = &sections.iter().find(|section| section.name == state).unwrap().description;
        let description = StateDescription::from_json(state, written).unwrap();
        let mut cursor = reader.cursor(state, backend.key_groups());
        cursor.advance().unwrap();
        description.row_schema().to_json(cursor.current().unwrap().value.unwrap()).unwrap().to_string()
    };
    assert_eq!(json("value"), r#"{"at_ms":1000,"value":"x"}"#);
    assert_eq!(json("list"), r#"[{"at_ms":1000,"value":1},{"at_ms":1000,"value":2}]"#);
    assert!(
        sections[0].description.contains(r#""ttl":{"after_ms":100,"on_read":true}"#),
        "{}",
        sections[0].description
    );
}

fn fill(all: &All, backend: &mut KeyedBackend<u8>, keys: std::ops::Range<u8>) {
    for key in keys {
        backend.set_current_key_of(key).unwrap();
        write(all, backend);
    }
    backend.clear_current_key();
}

#[test]
fn tl_17_a_bounded_walk_removes_what_nobody_reads() {
    let (mut backend, all, clock) = start(since_written());
    fill(&all, &mut backend, 0..200);
    assert_eq!(backend.live_entries(), 200 * 6);
    clock.advance(TTL_MS as i64 / 2);
    fill(&all, &mut backend, 100..150);
    backend.remove_expired(1_000).unwrap();
    assert_eq!(backend.live_entries(), 200 * 6, "nothing is over yet");
    clock.advance(TTL_MS as i64 / 2);
    backend.remove_expired(10).unwrap();
    let left = backend.live_entries();
    assert!((200 * 6 - 5 * 10..200 * 6).contains(&left), "{left}: ten entries of each state were looked at");
    for _ in 0..70 {
        backend.remove_expired(10).unwrap();
    }
    assert_eq!(backend.live_entries(), 50 * 6);
    clock.advance(TTL_MS as i64 / 2);
    backend.remove_expired(1_000).unwrap();
    assert_eq!(backend.live_entries(), 0);
    assert!(STATES.iter().all(|state| backend.keys(state).unwrap().is_empty()));
}

#[test]
fn tl_17_the_walk_leaves_a_running_snapshot_whole_and_tombstones_behind() {
    let (mut backend, all, clock) = start(since_written());
    fill(&all, &mut backend, 0..50);
    backend.freeze(Epoch(1)).unwrap();
    clock.advance(TTL_MS as i64);
    backend.remove_expired(1_000).unwrap();
    assert_eq!(backend.live_entries(), 0);
    let SliceProgress::Done { rows, .. } = backend.serialise_slice(1 << 20).unwrap() else { panic!("not done") };
    assert_eq!(rows.rows(), 50 * 6, "the epoch shows what was there");
    backend.freeze(Epoch(2)).unwrap();
    let SliceProgress::Done { rows, .. } = backend.serialise_slice(1 << 20).unwrap() else { panic!("not done") };
    assert_eq!(rows.rows(), 50 * 6);
    assert!(rows.iter().all(|row| row.value.is_none()), "tombstones");
}

#[test]
fn tl_18_merging_runs_reclaims_the_space_of_what_is_over() {
    let (mut backend, all, clock) = start(since_written());
    fill(&all, &mut backend, 0..200);
    let mut runs = snapshot(&mut backend);
    clock.advance(TTL_MS as i64 / 2);
    fill(&all, &mut backend, 0..20);
    backend.freeze(Epoch(2)).unwrap();
    let SliceProgress::Done { rows, .. } = backend.serialise_slice(1 << 20).unwrap() else { panic!("not done") };
    let sections = backend.sections();
    let newer = write_runs(rows, &sections, &RunSettings::default()).unwrap();
    runs.extend(newer.into_iter().map(|run| MemoryRun::new("newer".to_owned(), run.bytes)));
    clock.advance(TTL_MS as i64 / 2);

    let states = sections.iter().map(|section| (section.name.as_str(), section.description.as_str()));
    let mut expired = ExpiredRows::new(states, clock.now_ms());
    let keep = |state: &str, written: &str, row: &RowRef<'_>| !expired.is_expired(state, written, row.value);
    let readers: Vec<_> = runs.iter().map(|run| RunReader::open(run.clone()).unwrap()).collect();
    let mut merged = Vec::new();
    let settings = RunSettings::default();
    let report = merge_runs_keeping::<_, RunError>(&readers, true, &[], &settings, keep, |run| {
        merged.push(MemoryRun::new("merged".to_owned(), run.bytes));
        Ok(())
    });
    let report = report.unwrap();
    assert_eq!(report.rows_expired, 180 * 5, "all but the lists");
    assert_eq!(report.rows_written, 20 * 6 + 180);

    let (mut restored, all) = empty(since_written(), &clock);
    feed(&mut restored, &merged).unwrap();
    restored.remove_expired(10_000).unwrap();
    assert_eq!(restored.live_entries(), 20 * 6);
    restored.set_current_key_of(3).unwrap();
    assert_eq!(shown(&all, &mut restored), 5);
}

fn rows_in(store: &MemoryCold) -> usize {
    let mut rows = 0;
    let mut count = |_: &[u8], _: &[u8]| {
        rows += 1;
        std::ops::ControlFlow::Continue(())
    };
    for (state, group) in (0..5).flat_map(|state| (0..16).map(move |group| (state, group))) {
        store.scan(StateIndex(state), KeyGroup(group), &[], None, &mut count).unwrap();
    }
    rows
}

#[test]
fn tl_18_the_cold_store_gives_back_the_space_of_what_nobody_reads() {
    let (mut backend, all, clock, store) = start_cold(since_written());
    fill(&all, &mut backend, 0..200);
    settle(&mut backend);
    assert_eq!((rows_in(&store), backend.live_entries()), (200 * 6, 200 * 6));
    clock.advance(TTL_MS as i64 / 2);
    fill(&all, &mut backend, 100..150);
    settle(&mut backend);
    clock.advance(TTL_MS as i64 / 2);
    // Records of another key pass; nobody reads the others.
    for _ in 0..100 {
        for _ in 0..16 {
            backend.set_current_key_of(100).unwrap();
        }
        settle(&mut backend);
    }
    assert_eq!(backend.live_entries(), 50 * 6);
    assert_eq!(rows_in(&store), 50 * 6);
    backend.set_current_key_of(120).unwrap();
    assert_eq!(shown(&all, &mut backend), 5);
}

#[test]
fn tl_06_tl_18_a_list_that_is_only_added_to_does_not_grow_for_ever() {
    for cold in [false, true] {
        let (mut backend, all, clock, store) = start_cold(since_written());
        if !cold {
            (backend, _) = empty(since_written(), &clock);
        }
        let mut most = 0;
        for round in 0..400u16 {
            backend.set_current_key_of(1).unwrap();
            all.list.add_all(backend.states_mut(), (0..30).map(|number| round * 30 + number)).unwrap();
            clock.advance(1);
            if cold {
                settle(&mut backend);
            } else {
                backend.clear_current_key();
                backend.keep_budget().unwrap();
            }
            most = most.max(backend.memory_bytes() + store.bytes() as usize);
        }
        // 3,000 elements are live.
        assert!(most < 3_000 * 2 * 40, "{most} bytes, cold: {cold}");
        backend.set_current_key_of(1).unwrap();
        let live: Vec<u16> = all.list.get(backend.states_mut()).unwrap().copied().collect();
        assert_eq!(live, (301 * 30..400 * 30).collect::<Vec<_>>());
    }
}

#[test]
fn tl_17_state_at_rest_is_given_back_with_freezes() {
    let (mut backend, all, clock, store) = start_cold(since_written());
    fill(&all, &mut backend, 0..200);
    settle(&mut backend);
    clock.advance(TTL_MS as i64);
    for epoch in 1..20 {
        backend.freeze(Epoch(epoch)).unwrap();
        settle(&mut backend);
    }
    assert_eq!((backend.live_entries(), rows_in(&store)), (0, 0));
}
