//! The rules of keyed state, one by one.

use crate::support::{All, Mean, Runs, declare, drain};
use millpond_core::hash::stable_hash;
use millpond_core::{Epoch, ErrorKind, KeyHash, MaxParallelism};
use millpond_runs::SectionInfo;
use millpond_state::{KeyedBackend, KeyedBackendControl, SliceProgress, StateError, StateKind};

fn backend() -> (KeyedBackend<String>, All) {
    let max = MaxParallelism::new(128).unwrap();
    let mut backend = KeyedBackend::new(max, max.all());
    let all = declare(&mut backend).unwrap();
    (backend, all)
}

fn at(backend: &mut KeyedBackend<String>, key: &str) {
    backend.set_current_key_of(key.to_owned()).unwrap();
}

#[test]
fn ks_01_ks_02_a_state_is_seen_under_its_key_and_name_only() {
    let (mut backend, all) = backend();
    let other = backend.declarer().value::<String>("other").unwrap();
    at(&mut backend, "a");
    assert_eq!(all.value.get(backend.states_mut()).unwrap(), None);
    all.value.set(backend.states_mut(), "x".into()).unwrap();
    assert_eq!(other.get(backend.states_mut()).unwrap(), None);
    at(&mut backend, "b");
    assert_eq!(all.value.get(backend.states_mut()).unwrap(), None);
    at(&mut backend, "a");
    assert_eq!(all.value.get(backend.states_mut()).unwrap().unwrap(), "x");
}

#[test]
fn ks_03_ks_04_a_cleared_entry_is_gone_and_takes_no_space() {
    let (mut backend, all) = backend();
    at(&mut backend, "a");
    all.value.clear(backend.states_mut()).unwrap();
    all.value.set(backend.states_mut(), "x".into()).unwrap();
    assert_eq!(backend.live_entries(), 1);
    all.value.clear(backend.states_mut()).unwrap();
    assert_eq!(all.value.get(backend.states_mut()).unwrap(), None);
    assert_eq!((backend.live_entries(), backend.keys("value").unwrap().len()), (0, 0));
    all.value.set(backend.states_mut(), "y".into()).unwrap();
    all.value.modify(backend.states_mut(), |value| *value = None).unwrap();
    assert_eq!(backend.live_entries(), 0);
}

#[test]
fn ks_05_access_without_a_current_key_names_the_state() {
    let (mut backend, all) = backend();
    let error = all.sum.add(backend.states_mut(), 1).unwrap_err();
    assert_eq!(error, StateError::NoCurrentKey { state: "sum".into() });
    assert_eq!(error.kind(), ErrorKind::Invalid);
    at(&mut backend, "a");
    assert!(all.sum.add(backend.states_mut(), 1).is_ok());
    assert_eq!(backend.states().current_key().unwrap(), "a");
    backend.clear_current_key();
    assert!(all.list.get(backend.states_mut()).is_err());
}

#[test]
fn ks_10_to_ks_14_lists_keep_order_and_duplicates() {
    let (mut backend, all) = backend();
    at(&mut backend, "a");
    let list = all.list;
    let states = backend.states_mut();
    assert!(list.get(states).unwrap().is_empty());
    list.add_all(states, []).unwrap();
    assert_eq!(backend.live_entries(), 0);
    let states = backend.states_mut();
    list.add(states, 3).unwrap();
    list.add_all(states, [1, 3, 2]).unwrap();
    assert_eq!(list.get(states).unwrap(), [3, 1, 3, 2]);
    list.update(states, [9]).unwrap();
    assert_eq!(list.get(states).unwrap(), [9]);
    assert_eq!(list.len(states).unwrap(), 1);
    list.update(states, []).unwrap();
    assert!(list.is_empty(states).unwrap());
    assert_eq!(backend.live_entries(), 0);
}

#[test]
fn ks_20_to_ks_26_maps_overwrite_remove_and_vanish_when_empty() {
    let (mut backend, all) = backend();
    at(&mut backend, "a");
    let map = all.map;
    let states = backend.states_mut();
    assert!(map.is_empty(states).unwrap());
    assert_eq!(map.remove(states, &"x".into()).unwrap(), None);
    map.put_all(states, []).unwrap();
    assert_eq!(map.iter(states).unwrap().count(), 0);
    map.put_all(states, [("x".into(), 1), (String::new(), 2), ("x".into(), 3)]).unwrap();
    assert_eq!(map.get(states, &"x".into()).unwrap(), Some(&3));
    assert!(map.contains(states, &String::new()).unwrap());
    assert_eq!(map.keys(states).unwrap().count(), 2);
    assert_eq!(map.values(states).unwrap().sum::<u32>(), 5);
    assert_eq!(map.remove(states, &"x".into()).unwrap(), Some(3));
    assert_eq!(map.remove(states, &String::new()).unwrap(), Some(2));
    assert!(map.is_empty(states).unwrap());
    assert_eq!((backend.live_entries(), backend.keys("map").unwrap().len()), (0, 0));
}

#[test]
fn ks_24_an_absent_map_value_is_a_present_entry() {
    let (mut backend, _) = backend();
    let map = backend.declarer().map::<Option<String>, Option<u8>>("optional").unwrap();
    at(&mut backend, "a");
    let states = backend.states_mut();
    map.put(states, None, None).unwrap();
    assert!(map.contains(states, &None).unwrap());
    assert_eq!(map.get(states, &None).unwrap(), Some(&None));
    assert!(!map.is_empty(states).unwrap());
}

#[test]
fn ks_27_changes_through_a_walk_write_through() {
    let (mut backend, all) = backend();
    at(&mut backend, "a");
    let states = backend.states_mut();
    all.map.put_all(states, (0..300u32).map(|i| (i.to_string(), i))).unwrap();
    let walk = all.map.for_each_entry(states, |entry| {
        match entry.value() % 3 {
            0 => entry.remove(),
            1 => entry.set(entry.value() + 1_000)?,
            _ => {}
        }
        Ok(())
    });
    walk.unwrap();
    assert_eq!(all.map.len(states).unwrap(), 200);
    assert_eq!(all.map.get(states, &"1".into()).unwrap(), Some(&1_001));
    assert_eq!(all.map.get(states, &"2".into()).unwrap(), Some(&2));
    all.map.retain(states, |_, value| *value > 5_000).unwrap();
    assert!(backend.keys("map").unwrap().is_empty());
}

#[test]
fn ks_33_maps_of_all_sizes_survive_restore() {
    let (mut backend, all) = backend();
    let mut runs = Runs::default();
    let sizes = [0u32, 1, 127, 128, 129, 300];
    for size in sizes {
        at(&mut backend, &size.to_string());
        let (entries, states) = ((0..size).map(|i| (i.to_string(), i)), backend.states_mut());
        all.map.put_all(states, entries).unwrap();
        all.list.add_all(states, (0..size).map(|i| i as u16)).unwrap();
    }
    backend.freeze(Epoch(1)).unwrap();
    drain(&mut backend, &mut runs, 100);
    let (mut restored, all) = runs.restore::<String>(MaxParallelism::new(128).unwrap(), backend.key_groups());
    for size in sizes {
        at(&mut restored, &size.to_string());
        assert_eq!(all.map.len(restored.states_mut()).unwrap(), size as usize);
        assert!(all.list.get(restored.states_mut()).unwrap().iter().copied().eq(0..size as u16));
    }
}

#[test]
fn ks_40_to_ks_45_reducing_and_aggregating_fold_and_start_afresh() {
    let (mut backend, all) = backend();
    let words = backend.declarer().reducing::<String>("words", |a, b| a + &b).unwrap();
    at(&mut backend, "a");
    let states = backend.states_mut();
    assert_eq!(words.get(states).unwrap(), None);
    assert_eq!(all.mean.get(states).unwrap(), None);
    for (word, number) in [("x", 1), ("y", 2), ("z", 6)] {
        words.add(states, word.into()).unwrap();
        all.mean.add(states, number).unwrap();
    }
    assert_eq!(words.get(states).unwrap().unwrap(), "xyz");
    assert_eq!(all.mean.get(states).unwrap(), Some(3.0));
    words.clear(states).unwrap();
    all.mean.clear(states).unwrap();
    words.add(states, "w".into()).unwrap();
    all.mean.add(states, 8).unwrap();
    assert_eq!(words.get(states).unwrap().unwrap(), "w");
    assert_eq!(all.mean.get(states).unwrap(), Some(8.0));
}

#[test]
fn ks_60_one_name_is_one_state() {
    let (mut backend, all) = backend();
    at(&mut backend, "a");
    all.value.set(backend.states_mut(), "x".into()).unwrap();
    let again = backend.declarer().value::<String>("value").unwrap();
    assert_eq!(again.get(backend.states_mut()).unwrap().unwrap(), "x");
    assert_eq!(backend.sections().len(), 5);
}

#[test]
fn ks_61_another_kind_or_type_under_a_name_is_refused() {
    let (mut backend, _) = backend();
    let mut declarer = backend.declarer();
    let error = declarer.value::<u64>("value").err().unwrap();
    assert_eq!(
        error.to_string(),
        "state \"value\" is already declared as value of alloc::string::String, now asked for as value of u64"
    );
    assert!(matches!(declarer.list::<u64>("sum"), Err(StateError::DeclaredDifferently { .. })));
    assert!(matches!(declarer.value::<u64>("sum"), Err(StateError::DeclaredDifferently { .. })));
    assert!(matches!(declarer.value::<u64>("a/b"), Err(StateError::Name(_))));
}

#[test]
fn ks_62_se_17_a_stored_state_of_another_kind_or_type_is_refused() {
    let (backend, _) = backend();
    let max = MaxParallelism::new(128).unwrap();
    let mut next = KeyedBackend::<String>::new(max, max.all());
    next.set_stored_sections(backend.sections());
    let mut declarer = next.declarer();
    let error = declarer.list::<String>("value").err().unwrap();
    assert_eq!(error.to_string(), "state \"value\" is stored as value of str, now declared as list of str");
    let error = declarer.value::<u32>("value").err().unwrap();
    assert_eq!(error.to_string(), "state \"value\": the stored value cannot be read: at value: stored as str, now u32");
    let error = declarer.map::<u8, u32>("map").err().unwrap();
    assert!(matches!(error, StateError::SchemaChanged { part: "user key", .. }), "{error}");
    let mut other = KeyedBackend::<u64>::new(max, max.all());
    other.set_stored_sections(backend.sections());
    let error = other.declarer().aggregating("mean", Mean).err().unwrap();
    assert!(matches!(error, StateError::SchemaChanged { part: "key", .. }), "{error}");
    assert_eq!(other.undeclared_sections().len(), 5);
}

#[test]
fn ks_63_keys_are_listed_once_and_unknown_states_have_none() {
    let (mut backend, all) = backend();
    for key in ["a", "b", "c", "a"] {
        at(&mut backend, key);
        all.list.add(backend.states_mut(), 1).unwrap();
    }
    at(&mut backend, "b");
    all.list.clear(backend.states_mut()).unwrap();
    let mut keys = backend.keys("list").unwrap();
    keys.sort();
    assert_eq!(keys, ["a", "c"]);
    assert!(backend.keys("unknown").unwrap().is_empty());
}

#[test]
fn ks_64_apply_to_all_keys_may_change_and_clear_on_the_way() {
    let (mut backend, all) = backend();
    for key in 0..100u64 {
        at(&mut backend, &key.to_string());
        all.sum.add(backend.states_mut(), key).unwrap();
    }
    at(&mut backend, "7");
    let mut visited = 0;
    let walk = backend.for_each_key("sum", |states| {
        visited += 1;
        match all.sum.get(states)? {
            Some(sum) if sum % 2 == 0 => all.sum.clear(states),
            _ => all.value.set(states, "odd".into()),
        }
    });
    walk.unwrap();
    assert_eq!(visited, 100);
    assert_eq!((backend.keys("sum").unwrap().len(), backend.keys("value").unwrap().len()), (50, 50));
    assert_eq!(backend.states().current_key().unwrap(), "7");
    assert_eq!(all.value.get(backend.states_mut()).unwrap().unwrap(), "odd");
}

#[test]
fn kg_13_ks_65_a_key_of_another_subtask_is_refused_and_changes_nothing() {
    let max = MaxParallelism::new(128).unwrap();
    let mut backend = KeyedBackend::<u64>::new(max, max.range_of(1, 4));
    let all = declare(&mut backend).unwrap();
    let (mut own, mut foreign) = (0, 0);
    for key in 0..1_000u64 {
        let hash = KeyHash::from_stable(stable_hash(&key, &mut Vec::new()).unwrap(), max);
        let outcome = backend.set_current_key_ref(hash, &key);
        if max.owner_of(hash.group(), 4) == 1 {
            own += 1;
            outcome.unwrap();
            all.sum.add(backend.states_mut(), 1).unwrap();
        } else {
            foreign += 1;
            let error = outcome.unwrap_err();
            assert_eq!(error, StateError::OutsideRange { group: hash.group(), range: max.range_of(1, 4) });
        }
    }
    assert!(own > 200 && foreign > 600);
    assert_eq!(backend.live_entries(), own);
}

#[test]
fn a_handle_of_another_backend_is_refused() {
    let (mut backend, _) = backend();
    let max = MaxParallelism::new(128).unwrap();
    let mut other = KeyedBackend::<String>::new(max, max.all());
    let foreign = other.declarer().value::<u8>("first").unwrap();
    at(&mut backend, "a");
    assert!(matches!(foreign.get(backend.states_mut()), Err(StateError::ForeignHandle { index: 0, .. })));
}

#[test]
fn one_changed_element_costs_one_row() {
    let (mut backend, all) = backend();
    at(&mut backend, "a");
    let states = backend.states_mut();
    all.list.add_all(states, 0..1_000).unwrap();
    all.map.put_all(states, (0..1_000u32).map(|i| (i.to_string(), i))).unwrap();
    backend.freeze(Epoch(1)).unwrap();
    let SliceProgress::Done { rows, .. } = backend.serialise_slice(1 << 20).unwrap() else { panic!("not done") };
    assert_eq!(rows.rows(), 8 + 1_000);
    let states = backend.states_mut();
    all.list.add(states, 1).unwrap();
    all.map.put(states, "5".into(), 1).unwrap();
    all.map.remove(states, &"6".into()).unwrap();
    backend.freeze(Epoch(2)).unwrap();
    let SliceProgress::Done { rows, epoch, .. } = backend.serialise_slice(1 << 20).unwrap() else { panic!("not done") };
    assert_eq!((rows.rows(), epoch), (3, Epoch(2)));
    assert!(matches!(backend.serialise_slice(1).unwrap(), SliceProgress::Idle));
    assert!(matches!(backend.freeze(Epoch(2)), Err(StateError::EpochOrder { given: 2, newest: 2 })));
}

#[test]
fn sizes_tell_kind_keys_entries_and_memory() {
    let (mut backend, all) = backend();
    for key in 0..1_000 {
        at(&mut backend, &key.to_string());
        all.map.put_all(backend.states_mut(), [("x".into(), 1), ("y".into(), 2)]).unwrap();
    }
    let size = backend.state_sizes().into_iter().find(|size| size.name == "map").unwrap();
    assert_eq!((size.kind, size.keys, size.entries), (StateKind::Map, 1_000, 2_000));
    assert!(size.memory_bytes > 100_000, "{size:?}");
    assert!(backend.memory_bytes() > size.memory_bytes);
}

#[test]
fn damaged_rows_and_descriptions_are_typed_errors() {
    let (mut backend, _) = backend();
    let group = backend.key_groups().start as u16;
    let written = backend.sections()[0].description.clone();
    let unknown = backend.row_version("nobody", &written).unwrap_err();
    assert_eq!(unknown, StateError::NotDeclared { state: "nobody".into() });
    let version = backend.row_version("value", &written).unwrap();
    for (key, value) in [(&[9u8, 1][..], &[1u8][..]), (&[2, 1, 97], &[9]), (&[], &[])] {
        let error = backend.restore_row(version, millpond_core::KeyGroup(group), key, Some(value)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
    assert_eq!(backend.set_current_key_of("a".into()), Err(StateError::RestoreNotFinished));
    let max = MaxParallelism::default();
    let mut next = KeyedBackend::<u8>::new(max, max.all());
    next.set_stored_sections(vec![SectionInfo { name: "x".into(), description: "{".into() }]);
    assert!(matches!(next.declarer().value::<u8>("x"), Err(StateError::DamagedDescription { .. })));
}
