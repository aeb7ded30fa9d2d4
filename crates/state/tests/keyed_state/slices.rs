//! Values by key and slice of time, against a map, with snapshots that are written while changes go on.

use std::collections::{BTreeMap, BTreeSet};

use millpond_core::{Epoch, MaxParallelism};
use millpond_state::{KeyedBackend, KeyedBackendControl, SliceState, StateError};
use proptest::prelude::*;

use crate::support::{Runs, drain, write_some};

const NAME: &str = "slices";

type Subtask = (KeyedBackend<u64>, SliceState<u64>);

#[derive(Clone, Debug)]
enum Step {
    Add(u64, i64, u64),
    /// Hands out so many entries of a slice.
    Drain(i64, usize),
    /// The current key and all that it has goes.
    Clear(u64),
    Freeze,
    /// Writes some of what is frozen.
    Write(usize),
    Restore(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (0u64..12, -2i64..4, 1u64..9).prop_map(|(key, slice, add)| Step::Add(key, slice, add)),
        3 => (-2i64..4, 0usize..9).prop_map(|(slice, limit)| Step::Drain(slice, limit)),
        1 => (0u64..12).prop_map(Step::Clear),
        2 => Just(Step::Freeze),
        2 => (1usize..200).prop_map(Step::Write),
        1 => (1u32..4).prop_map(Step::Restore),
    ];
    prop::collection::vec(step, 1..120)
}

fn max() -> MaxParallelism {
    MaxParallelism::new(16).unwrap()
}

fn start(parallelism: u32, runs: &Runs) -> Vec<Subtask> {
    let subtasks = (0..parallelism).map(|index| {
        let mut backend = KeyedBackend::new(max(), max().range_of(index, parallelism));
        backend.set_stored_sections(runs.sections());
        let slices = backend.declarer().slices(NAME).unwrap();
        runs.feed(NAME, &mut backend).unwrap();
        backend.finish_restore().unwrap();
        (backend, slices)
    });
    subtasks.collect()
}

/// What one subtask holds must be what the model has of its keys.
fn check((backend, slices): &mut Subtask, model: &BTreeMap<(i64, u64), u64>) {
    let own: BTreeMap<(i64, u64), u64> = model
        .iter()
        .filter(|((_, key), _)| backend.set_current_key_of(*key).is_ok())
        .map(|(place, value)| (*place, *value))
        .collect();
    backend.clear_current_key();
    let starts: BTreeSet<i64> = own.keys().map(|(slice, _)| *slice).collect();
    let listed: Vec<i64> = slices.slices(backend.states_mut()).unwrap().collect();
    assert_eq!(listed, starts.iter().copied().collect::<Vec<_>>());
    for slice in -2..4 {
        assert_eq!(slices.has(backend.states_mut(), slice).unwrap(), starts.contains(&slice), "slice {slice}");
    }
    assert_eq!(backend.live_entries(), own.len());
    let keys: BTreeSet<u64> = own.keys().map(|(_, key)| *key).collect();
    let mut seen = backend.keys(NAME).unwrap();
    seen.sort_unstable();
    assert_eq!(seen, keys.into_iter().collect::<Vec<_>>());
    for key in 0..12 {
        if backend.set_current_key_of(key).is_err() {
            continue;
        }
        for slice in -2..4 {
            assert_eq!(slices.get(backend.states_mut(), slice).unwrap(), own.get(&(slice, key)));
        }
    }
    backend.clear_current_key();
    let mut sums = slices.merged(backend.states_mut(), &[-1, 0, 2], |one, other| one + other).unwrap();
    sums.sort_unstable();
    let mut expected: BTreeMap<u64, u64> = BTreeMap::new();
    for ((slice, key), value) in &own {
        if [-1, 0, 2].contains(slice) {
            *expected.entry(*key).or_default() += value;
        }
    }
    assert_eq!(sums, expected.into_iter().collect::<Vec<_>>());
}

proptest! {
    #[test]
    fn sn_01_sn_06_slices_agree_with_a_map_while_snapshots_are_written_and_after_restores(steps in steps()) {
        let mut runs = Runs::default();
        let mut subtasks = start(2, &runs);
        let mut model: BTreeMap<(i64, u64), u64> = BTreeMap::new();
        let mut epoch = Epoch::ZERO;
        for step in steps {
            match step {
                Step::Add(key, slice, add) => {
                    let (backend, slices) =
                        subtasks.iter_mut().find_map(|subtask| subtask.0.set_current_key_of(key).is_ok().then_some(subtask)).unwrap();
                    let held = slices.modify_or(backend.states_mut(), slice, || 100, |held| {
                        *held += add;
                        *held
                    });
                    let expected = model.entry((slice, key)).or_insert(100);
                    *expected += add;
                    prop_assert_eq!(held.unwrap(), *expected);
                }
                Step::Drain(slice, limit) => {
                    for (backend, slices) in &mut subtasks {
                        let before: usize = model.keys().filter(|(of, key)| *of == slice && backend.set_current_key_of(*key).is_ok()).count();
                        backend.clear_current_key();
                        let mut gone = 0;
                        let left = slices.drain(backend.states_mut(), slice, limit, |key, value| {
                            gone += 1;
                            assert_eq!(model.remove(&(slice, key)), Some(value));
                            Ok::<(), StateError>(())
                        });
                        prop_assert_eq!(gone, before.min(limit));
                        prop_assert_eq!(left.unwrap(), before > limit);
                    }
                }
                Step::Clear(key) => {
                    for (backend, _) in &mut subtasks {
                        if backend.set_current_key_of(key).is_ok() {
                            backend.states_mut().clear_current_key().unwrap();
                        }
                    }
                    model.retain(|(_, of), _| *of != key);
                }
                Step::Freeze => {
                    epoch = epoch.next();
                    for (backend, _) in &mut subtasks {
                        backend.clear_current_key();
                        drain(backend, &mut runs, 1_000);
                        backend.freeze(epoch).unwrap();
                    }
                }
                Step::Write(budget) => {
                    for (backend, _) in &mut subtasks {
                        write_some(backend, &mut runs, budget);
                    }
                }
                Step::Restore(parallelism) => {
                    epoch = epoch.next();
                    for (backend, _) in &mut subtasks {
                        backend.clear_current_key();
                        backend.freeze(epoch).unwrap();
                        drain(backend, &mut runs, 50);
                    }
                    subtasks = start(parallelism, &runs);
                }
            }
            for subtask in &mut subtasks {
                check(subtask, &model);
            }
        }
    }
}

#[test]
fn sn_03_a_slice_that_is_handed_out_leaves_tombstones_and_its_memory_to_the_next() {
    let mut runs = Runs::default();
    let (mut backend, slices) = start(1, &runs).remove(0);
    let fill = |backend: &mut KeyedBackend<u64>, slice: i64| {
        for key in 0..10_000 {
            backend.set_current_key_of(key).unwrap();
            slices.modify_or(backend.states_mut(), slice, || 0, |held| *held += key).unwrap();
        }
        backend.clear_current_key();
    };
    fill(&mut backend, 1);
    backend.freeze(Epoch(1)).unwrap();
    drain(&mut backend, &mut runs, 1 << 20);
    let full = backend.memory_bytes();
    assert!(full > 10_000 * 16, "{full} bytes");
    while slices.drain(backend.states_mut(), 1, 1_000, |_, _| Ok::<(), StateError>(())).unwrap() {}
    assert_eq!(backend.live_entries(), 0);
    fill(&mut backend, 2);
    let again = backend.memory_bytes();
    assert!(again < full * 2, "{again} bytes, {full} before");
    backend.freeze(Epoch(2)).unwrap();
    drain(&mut backend, &mut runs, 1 << 20);
    let (mut backend, slices) = start(1, &runs).remove(0);
    assert_eq!(slices.slices(backend.states_mut()).unwrap().collect::<Vec<_>>(), [2]);
    assert_eq!(backend.live_entries(), 10_000);
}
