//! Bulk loads, and what a store leaves behind.

use std::ops::ControlFlow;

use millpond_core::{KeyGroup, KeyGroupRange};
use millpond_runs::StateIndex;
use millpond_state::{ColdBackend, ColdRow};
use millpond_state_rocksdb::RocksBackend;

use super::{tables, value, write};

#[test]
fn a_load_of_many_files_is_read_whole_and_in_order_and_later_writes_win() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("cold");
    let stores = RocksBackend.start(Some(&directory), 8 << 20).unwrap();
    let store = stores.open("operator", 0).unwrap();
    let rows = 30_000u64;
    let key = |number: u64| [&[8], &number.to_be_bytes()[..]].concat();
    let mut loader = store.load().unwrap();
    // States in any order.
    for state in [StateIndex(5), StateIndex(1)] {
        for number in 0..rows {
            loader.put(state, KeyGroup((number / 10_000) as u16), &key(number), &value(number, 1, 500)).unwrap();
        }
    }
    loader.finish().unwrap();
    assert!(tables(&directory).len() > 2, "a load is written in several files");
    let row = ColdRow { state: StateIndex(1), group: KeyGroup(0), key: &key(0), value: Some(b"later") };
    store.write(&mut [row].into_iter()).unwrap();
    let (mut seen, mut first) = (Vec::new(), Vec::new());
    for group in 0..3 {
        let scanned = store.scan(StateIndex(1), KeyGroup(group), &[], None, &mut |key, value| {
            if seen.is_empty() {
                first = value.to_vec();
            }
            seen.push(u64::from_be_bytes(key[1..].try_into().unwrap()));
            ControlFlow::Continue(())
        });
        scanned.unwrap();
    }
    assert_eq!(first, b"later");
    assert!(seen.into_iter().eq(0..rows));
    assert_eq!(std::fs::read_dir(directory.join("loading")).unwrap().count(), 0, "files are taken over, not copied");
}

#[test]
fn a_load_that_is_given_up_leaves_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("cold");
    let stores = RocksBackend.start(Some(&directory), 8 << 20).unwrap();
    let store = stores.open("operator", 0).unwrap();
    let mut loader = store.load().unwrap();
    // Few rows wait until it is known how large rows are; many are in a file.
    for rows in [1, 200, 255] {
        for key in 0..rows {
            loader.put(StateIndex(rows.into()), KeyGroup(0), &[1, key], &[7; 10_000]).unwrap();
        }
    }
    assert!(std::fs::read_dir(directory.join("loading")).unwrap().count() > 0);
    drop(loader);
    assert_eq!(std::fs::read_dir(directory.join("loading")).unwrap().count(), 0);
    store.get_many(StateIndex(1), &[(KeyGroup(0), &[1, 0])], &mut |_, found| assert_eq!(found, None)).unwrap();
}

#[test]
fn a_store_without_rows_answers_like_one_that_had_some() {
    let stores = RocksBackend.start(None, 8 << 20).unwrap();
    let store = stores.open("operator", 0).unwrap();
    let nothing = |store: &std::sync::Arc<dyn millpond_state::ColdStore>| {
        let (one, other): (&[u8], &[u8]) = (&[1, 7], &[1, 8]);
        let mut found = Vec::new();
        let keys = [(KeyGroup(0), one), (KeyGroup(1), other)];
        store.get_many(StateIndex(0), &keys, &mut |place, value| found.push((place, value.is_some()))).unwrap();
        store.get_many(StateIndex(0), &keys[..1], &mut |place, value| found.push((place, value.is_some()))).unwrap();
        assert_eq!(found, [(0, false), (1, false), (0, false)]);
        store.scan(StateIndex(0), KeyGroup(0), &[], None, &mut |_, _| panic!("there is no row")).unwrap();
        assert_eq!(store.last(StateIndex(0), KeyGroup(0), &[1, 7]).unwrap(), None);
    };
    nothing(&store);
    store.clear().unwrap();
    store.delete_range(StateIndex(0), KeyGroupRange::new(0, 8)).unwrap();
    store.write(&mut std::iter::empty()).unwrap();
    store.load().unwrap().finish().unwrap();
    nothing(&store);
    assert_eq!(store.bytes(), 0);
    let row = ColdRow { state: StateIndex(0), group: KeyGroup(0), key: &[1, 7], value: Some(b"there") };
    store.write(&mut [row].into_iter()).unwrap();
    assert!(store.bytes() > 0);
    store.clear().unwrap();
    nothing(&store);
}

#[test]
fn what_a_store_takes_on_disk_is_given_back_with_it() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("cold");
    let stores = RocksBackend.start(Some(&directory), 8 << 20).unwrap();
    let (first, second) = (stores.open("operator", 0).unwrap(), stores.open("operator", 0).unwrap());
    write(&first, 0..20_000, 1, 1_000).unwrap();
    write(&second, 0..100, 1, 1_000).unwrap();
    assert!(!tables(&directory).is_empty() && first.bytes() > 15_000_000, "{} bytes", first.bytes());
    drop(first);
    super::check(&second, 0..100, &[1], 1_000).unwrap();
    drop(second);
    drop(stores);
    assert!(!directory.join("database").exists(), "the directory is left empty");
}

#[test]
fn removed_ranges_do_not_come_back_from_disk() {
    let stores = RocksBackend.start(None, 8 << 20).unwrap();
    let store = stores.open("operator", 0).unwrap();
    write(&store, 0..20_000, 1, 1_000).unwrap();
    store.delete_range(super::STATE, KeyGroupRange::new(0, 8)).unwrap();
    for number in [0u64, 7, 8, 15] {
        let mut present = false;
        let key = super::key(number);
        store
            .get_many(super::STATE, &[(super::group(number), &key)], &mut |_, found| present = found.is_some())
            .unwrap();
        assert_eq!(present, number >= 8, "row {number}");
    }
    store.clear().unwrap();
    for number in 0..20 {
        let key = super::key(number);
        store.get_many(super::STATE, &[(super::group(number), &key)], &mut |_, found| assert_eq!(found, None)).unwrap();
    }
}
