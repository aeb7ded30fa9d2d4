//! Snapshots of some subtasks restored by others.

use std::collections::BTreeMap;

use crate::support::{All, Content, Runs, contents, declare, drain};
use millpond_core::{Epoch, KeyGroup, MaxParallelism, SplitMix64};
use millpond_state::{KeyedBackend, KeyedBackendControl, SliceProgress, StateError};

const KEYS: u64 = 600;

fn fill(backend: &mut KeyedBackend<u64>, all: &All, rng: &mut SplitMix64) {
    for key in 0..KEYS {
        if backend.set_current_key_of(key).is_err() {
            continue;
        }
        let states = backend.states_mut();
        match rng.below(6) {
            0 => states.clear_current_key().unwrap(),
            1 => all.value.set(states, format!("{}", rng.below(100))).unwrap(),
            2 => all.list.add_all(states, 0..rng.below(200) as u16).unwrap(),
            3 => all.map.put(states, format!("{}", rng.below(5)), rng.below(9) as u32).unwrap(),
            4 => all.sum.add(states, rng.below(9)).unwrap(),
            _ => all.mean.add(states, rng.below(9) as u32).unwrap(),
        }
    }
}

fn start(max: MaxParallelism, parallelism: u32) -> Vec<(KeyedBackend<u64>, All)> {
    let subtasks = (0..parallelism).map(|index| {
        let mut backend = KeyedBackend::new(max, max.range_of(index, parallelism));
        let all = declare(&mut backend).unwrap();
        (backend, all)
    });
    subtasks.collect()
}

fn everything(subtasks: &mut [(KeyedBackend<u64>, All)]) -> BTreeMap<u64, Content> {
    let mut everything = BTreeMap::new();
    for (backend, all) in subtasks {
        for (key, content) in contents(backend, all) {
            assert!(everything.insert(key, content).is_none(), "key {key} is in two subtasks");
        }
    }
    everything
}

/// Fills, snapshots twice, restores under the other parallelism, changes, snapshots, restores back.
fn rescale(old: u32, new: u32) {
    let max = MaxParallelism::new(128).unwrap();
    let mut rng = SplitMix64::new(u64::from(old * 1_000 + new));
    let mut runs = Runs::default();
    let mut subtasks = start(max, old);
    let mut epoch = Epoch::ZERO;
    for parallelism in [new, old] {
        for _ in 0..3 {
            epoch = epoch.next();
            for (backend, all) in &mut subtasks {
                fill(backend, all, &mut rng);
                backend.freeze(epoch).unwrap();
                drain(backend, &mut runs, 500);
            }
        }
        let before = everything(&mut subtasks);
        subtasks = (0..parallelism).map(|index| runs.restore(max, max.range_of(index, parallelism))).collect();
        assert!(subtasks.iter().all(|(backend, _)| backend.states().current_key().is_none()), "SN-04");
        assert_eq!(everything(&mut subtasks), before);
    }
}

#[test]
fn sn_06_rs_04_key_groups_move_to_their_owners_and_back() {
    for (old, new) in [(4, 2), (2, 4), (15, 77), (77, 15), (1, 1)] {
        rescale(old, new);
    }
}

#[test]
fn rs_18_a_row_outside_the_owned_range_is_refused() {
    let max = MaxParallelism::new(128).unwrap();
    let (mut backend, _) = start(max, 2).remove(1);
    let sum = backend.sections().into_iter().find(|section| section.name == "sum").unwrap();
    let version = backend.row_version("sum", &sum.description).unwrap();
    let error = backend.restore_row(version, KeyGroup(3), &[1, 1], Some(&[1])).unwrap_err();
    assert_eq!(error, StateError::OutsideRange { group: KeyGroup(3), range: max.range_of(1, 2) });
    assert_eq!(backend.live_entries(), 0);
}

#[test]
fn sn_05_a_state_that_is_not_declared_again_stays_in_its_runs() {
    let max = MaxParallelism::new(128).unwrap();
    let mut runs = Runs::default();
    let (mut backend, all) = start(max, 1).remove(0);
    backend.set_current_key_of(7).unwrap();
    all.sum.add(backend.states_mut(), 5).unwrap();
    all.value.set(backend.states_mut(), "kept".into()).unwrap();
    backend.freeze(Epoch(1)).unwrap();
    drain(&mut backend, &mut runs, 1_000);

    let mut second = KeyedBackend::<u64>::new(max, max.all());
    second.set_stored_sections(runs.sections());
    let sum = second.declarer().reducing::<u64>("sum", |a, b| a + b).unwrap();
    runs.feed("sum", &mut second).unwrap();
    second.finish_restore().unwrap();
    let undeclared: Vec<String> = second.undeclared_sections().into_iter().map(|section| section.name).collect();
    assert_eq!(undeclared, ["value"]);
    second.set_current_key_of(7).unwrap();
    sum.add(second.states_mut(), 1).unwrap();
    assert!(matches!(second.declarer().value::<String>("value"), Err(StateError::DeclaredTooLate { .. })));
    second.freeze(Epoch(2)).unwrap();
    drain(&mut second, &mut runs, 1_000);

    let (mut third, all) = runs.restore::<u64>(max, max.all());
    third.set_current_key_of(7).unwrap();
    assert_eq!(all.value.get(third.states_mut()).unwrap().unwrap(), "kept");
    assert_eq!(all.sum.get(third.states_mut()).unwrap(), Some(&6));
}

/// Freezes the next epoch; whether its rows held all there was.
fn is_whole(backend: &mut KeyedBackend<u64>, epoch: u64) -> bool {
    backend.freeze(Epoch(epoch)).unwrap();
    loop {
        match backend.serialise_slice(1 << 20).unwrap() {
            SliceProgress::Done { whole, .. } => return whole,
            SliceProgress::Idle => panic!("{epoch} is not done"),
            _ => {}
        }
    }
}

#[test]
fn an_epoch_in_which_everything_changed_is_known_to_hold_everything() {
    let (mut backend, all) = start(MaxParallelism::default(), 1).remove(0);
    let change = |backend: &mut KeyedBackend<u64>, keys: std::ops::Range<u64>| {
        for key in keys {
            backend.set_current_key_of(key).unwrap();
            let states = backend.states_mut();
            all.value.set(states, "v".to_owned()).unwrap();
            all.map.put(states, "m".to_owned(), 1).unwrap();
            all.sum.add(states, 1).unwrap();
        }
    };
    assert!(is_whole(&mut backend, 1), "there is nothing");
    change(&mut backend, 0..10);
    assert!(is_whole(&mut backend, 2));
    change(&mut backend, 0..9);
    assert!(!is_whole(&mut backend, 3), "a key did not change");
    assert!(!is_whole(&mut backend, 4), "nothing changed");
    change(&mut backend, 0..9);
    backend.set_current_key_of(9).unwrap();
    backend.states_mut().clear_current_key().unwrap();
    assert!(is_whole(&mut backend, 5), "what did not change is gone");
    change(&mut backend, 0..9);
    all.list.add_all(backend.states_mut(), 0..3_000).unwrap();
    assert!(is_whole(&mut backend, 6));
    change(&mut backend, 0..9);
    all.list.add(backend.states_mut(), 7).unwrap();
    assert!(!is_whole(&mut backend, 7), "the first chunks of the list did not change");
    change(&mut backend, 0..9);
    all.list.update(backend.states_mut(), vec![1]).unwrap();
    backend.freeze(Epoch(8)).unwrap();
    change(&mut backend, 3..5);
    let progress = backend.serialise_slice(1 << 20).unwrap();
    assert!(
        matches!(progress, SliceProgress::Done { whole: true, .. }),
        "what changes later does not matter: {progress:?}"
    );
    assert!(!is_whole(&mut backend, 9));
}

#[test]
fn sn_08_an_empty_backend_gives_no_runs() {
    let (mut backend, _) = start(MaxParallelism::default(), 1).remove(0);
    let mut runs = Runs::default();
    backend.freeze(Epoch(1)).unwrap();
    drain(&mut backend, &mut runs, 1);
    assert_eq!((runs.files(), backend.frozen_epochs()), (0, 0));
}

#[test]
fn sn_18_a_snapshot_taken_while_the_index_grows_is_complete() {
    let max = MaxParallelism::new(128).unwrap();
    let mut backend = KeyedBackend::<u64>::new(max, max.all());
    let all = declare(&mut backend).unwrap();
    let mut runs = Runs::default();
    for key in 0..40_000u64 {
        backend.set_current_key_of(key).unwrap();
        all.sum.add(backend.states_mut(), key).unwrap();
        if key == 10_000 {
            backend.freeze(Epoch(1)).unwrap();
        }
        if key > 10_000 {
            let progress = backend.serialise_slice(20).unwrap();
            if let millpond_state::SliceProgress::Done { rows, .. } = progress {
                runs.add(rows, &backend.sections());
            }
        }
    }
    drain(&mut backend, &mut runs, 1_000);
    let (restored, _) = runs.restore::<u64>(max, max.all());
    assert_eq!(restored.live_entries(), 10_001);
}

/// Timers are declared when the first one is set, long after a job without checkpoints has said so.
#[test]
fn a_state_declared_after_tracking_has_stopped_remembers_no_changes() {
    let mut backend = KeyedBackend::<u64>::new(MaxParallelism::default(), MaxParallelism::default().all());
    backend.stop_tracking();
    let value = backend.declarer().value::<u64>("value").unwrap();
    backend.set_current_key_of(1).unwrap();
    for round in 0..100_000 {
        value.set(backend.states_mut(), round).unwrap();
        value.clear(backend.states_mut()).unwrap();
    }
    assert!(backend.memory_bytes() < 64 << 10, "{} bytes for one key", backend.memory_bytes());
}
