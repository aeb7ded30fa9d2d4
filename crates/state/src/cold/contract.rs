//! The contract of [`ColdStore`] as one suite for all implementations.
//!
//! ```
//! use millpond_state::cold::{MemoryColdStores, contract};
//!
//! contract::check(&MemoryColdStores);
//! ```

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::ControlFlow;

use millpond_core::{KeyGroup, KeyGroupRange};
use millpond_runs::StateIndex;

use super::{ColdRow, ColdStore, ColdStores};

/// (State, group, key) and value.
type Model = BTreeMap<(u16, u16, Vec<u8>), Vec<u8>>;

/// As in the model; no value deletes.
type RandomRow = (u16, u16, Vec<u8>, Option<Vec<u8>>);

/// Checks that the stores opened by `stores` keep the contract.
///
/// # Panics
/// When one does not; the message says which sentence of the contract is broken.
pub fn check(stores: &dyn ColdStores) {
    let open = || must(stores.open("contract", 0), "a store can be opened");
    what_is_written_is_read(&*open());
    the_later_row_of_a_key_wins(&*open());
    scans_keep_to_prefix_group_and_start(&*open());
    the_last_row_under_a_prefix_is_found(&*open());
    what_is_loaded_is_read(&*open());
    ranges_and_everything_can_be_removed(&*open());
    stores_of_one_subtask_are_apart(stores);
    many_random_operations_agree_with_a_map(&*open());
    one_thread_may_write_while_another_reads(&*open());
}

#[track_caller]
fn must<T, E: Debug>(result: Result<T, E>, sentence: &str) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("broken: {sentence}: {error:?}"),
    }
}

fn row<'a>(state: u16, group: u16, key: &'a [u8], value: Option<&'a [u8]>) -> ColdRow<'a> {
    ColdRow { state: StateIndex(state), group: KeyGroup(group), key, value }
}

#[track_caller]
fn write(store: &dyn ColdStore, rows: &[ColdRow<'_>]) {
    must(store.write(&mut rows.iter().copied()), "rows can be written");
}

#[track_caller]
fn get(store: &dyn ColdStore, state: u16, keys: &[(u16, &[u8])]) -> Vec<Option<Vec<u8>>> {
    let keys: Vec<(KeyGroup, &[u8])> = keys.iter().map(|(group, key)| (KeyGroup(*group), *key)).collect();
    let mut values = Vec::new();
    let outcome = store.get_many(StateIndex(state), &keys, &mut |position, value| {
        assert_eq!(position, values.len(), "broken: found is called for every key in order");
        values.push(value.map(<[u8]>::to_vec));
    });
    must(outcome, "rows can be looked up");
    assert_eq!(values.len(), keys.len(), "broken: found is called once for every key");
    values
}

#[track_caller]
fn scan(store: &dyn ColdStore, state: u16, group: u16, prefix: &[u8], from: Option<&[u8]>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    let outcome = store.scan(StateIndex(state), KeyGroup(group), prefix, from, &mut |key, value| {
        rows.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    });
    must(outcome, "rows can be scanned");
    rows
}

fn what_is_written_is_read(store: &dyn ColdStore) {
    assert_eq!(get(store, 0, &[(0, b"a")]), [None], "broken: a store begins empty");
    let large = vec![7u8; 3 << 20];
    write(store, &[row(0, 1, b"a", Some(b"1")), row(0, 1, b"", Some(b"")), row(3, 65_535, b"\xff", Some(&large))]);
    let found = get(store, 0, &[(1, b"a"), (2, b"a"), (1, b""), (1, b"b")]);
    assert_eq!(found, [Some(b"1".to_vec()), None, Some(Vec::new()), None], "broken: what is written is read");
    assert_eq!(get(store, 3, &[(65_535, b"\xff")]), [Some(large)], "broken: large rows come back whole");
    assert_eq!(get(store, 1, &[(1, b"a")]), [None], "broken: states are apart");
    assert_eq!(get(store, 0, &[]), [], "broken: no keys, no values");
}

fn the_later_row_of_a_key_wins(store: &dyn ColdStore) {
    write(store, &[row(0, 1, b"a", Some(b"1")), row(0, 1, b"a", None), row(0, 1, b"a", Some(b"2"))]);
    write(store, &[row(0, 1, b"b", Some(b"1")), row(0, 1, b"b", None), row(0, 1, b"never", None)]);
    let found = get(store, 0, &[(1, b"a"), (1, b"b")]);
    assert_eq!(found, [Some(b"2".to_vec()), None], "broken: the later row of a key wins");
    write(store, &[row(0, 1, b"a", None)]);
    assert_eq!(get(store, 0, &[(1, b"a")]), [None], "broken: a tombstone deletes what an earlier call wrote");
}

fn scans_keep_to_prefix_group_and_start(store: &dyn ColdStore) {
    let keys: [&[u8]; 7] = [b"", b"a", b"a\0", b"ab", b"a\xff", b"a\xff\xff", b"b"];
    for (state, group) in [(1, 6), (1, 7), (1, 8), (2, 7)] {
        let value = [state as u8, group as u8];
        let rows: Vec<_> = keys.iter().rev().map(|key| row(state, group, key, Some(&value))).collect();
        write(store, &rows);
    }
    let found = |prefix: &[u8], from| -> Vec<Vec<u8>> {
        let rows = scan(store, 1, 7, prefix, from);
        assert!(rows.iter().all(|(_, value)| *value == [1, 7]), "broken: a scan keeps to its state and group");
        rows.into_iter().map(|(key, _)| key).collect()
    };
    assert_eq!(found(b"", None), keys, "broken: a scan is in order and whole");
    assert_eq!(found(b"a", None), keys[1..6], "broken: a scan keeps to its prefix");
    assert_eq!(found(b"a\xff", None), keys[4..6], "broken: a prefix may end with 255");
    assert_eq!(found(b"a", Some(b"ab")), keys[3..6], "broken: a scan begins with its first key");
    assert_eq!(found(b"a", Some(b"a\x01")), keys[3..6], "broken: a scan begins after a first key that is missing");
    assert_eq!(found(b"b", Some(b"a")), keys[6..], "broken: a first key below the prefix changes nothing");
    assert!(found(b"a", Some(b"b")).is_empty(), "broken: a first key above the prefix leaves nothing");
    assert!(found(b"c", None).is_empty(), "broken: a prefix without rows");
    let mut seen = 0;
    let outcome = store.scan(StateIndex(1), KeyGroup(7), b"", None, &mut |_, _| {
        seen += 1;
        if seen == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    must(outcome, "a scan can be broken off");
    assert_eq!(seen, 2, "broken: a scan that was broken off shows nothing more");
}

fn the_last_row_under_a_prefix_is_found(store: &dyn ColdStore) {
    let last = |state, group, prefix: &[u8]| {
        let last = must(store.last(StateIndex(state), KeyGroup(group), prefix), "the last row can be found");
        last.map(|(key, _)| key)
    };
    assert_eq!(last(0, 0, b""), None, "broken: an empty store has no last row");
    for key in [&b"a"[..], b"a1", b"a2", b"a\xff", b"b"] {
        write(store, &[row(1, 7, key, Some(b"v")), row(1, 9, key, Some(b"w"))]);
    }
    assert_eq!(last(1, 7, b"a"), Some(b"a\xff".to_vec()), "broken: the last row under a prefix");
    assert_eq!(last(1, 7, b"a\xff"), Some(b"a\xff".to_vec()), "broken: the last row under a prefix that ends with 255");
    assert_eq!(last(1, 7, b""), Some(b"b".to_vec()), "broken: the last row of a group");
    assert_eq!(last(1, 8, b""), None, "broken: the last row keeps to its group");
    assert_eq!(last(1, 7, b"a3"), None, "broken: the last row keeps to its prefix");
    write(store, &[row(1, 7, b"a\xff", None)]);
    assert_eq!(last(1, 7, b"a"), Some(b"a2".to_vec()), "broken: a deleted row is not the last");
}

fn what_is_loaded_is_read(store: &dyn ColdStore) {
    let mut loader = must(store.load(), "a load can begin");
    for number in 0..5_000u32 {
        let group = KeyGroup((number / 100) as u16);
        must(loader.put(StateIndex(4), group, &number.to_be_bytes(), &number.to_le_bytes()), "rows can be loaded");
    }
    must(loader.put(StateIndex(1), KeyGroup(2), b"x", b"y"), "states come in any order");
    must(loader.finish(), "a load can end");
    must(must(store.load(), "a load can begin").finish(), "a load may be empty");
    let key = 4_321u32.to_be_bytes();
    assert_eq!(get(store, 4, &[(43, &key)]), [Some(4_321u32.to_le_bytes().to_vec())], "broken: loaded rows are read");
    assert_eq!(scan(store, 4, 7, b"", None).len(), 100, "broken: loaded rows are scanned");
    write(store, &[row(4, 43, &key, None), row(1, 2, b"x", Some(b"z"))]);
    assert_eq!(get(store, 4, &[(43, &key)]), [None], "broken: loaded rows can be deleted");
    assert_eq!(get(store, 1, &[(2, b"x")]), [Some(b"z".to_vec())], "broken: loaded rows can be replaced");
    let mut loader = must(store.load(), "a load can begin");
    let outcome = [b"b", b"a"].map(|key| loader.put(StateIndex(6), KeyGroup(0), key, b""));
    let refused = outcome.into_iter().chain([loader.finish()]).any(|outcome| outcome.is_err());
    assert!(refused, "broken: rows that are out of order are refused");
}

fn ranges_and_everything_can_be_removed(store: &dyn ColdStore) {
    for group in 0..10 {
        write(store, &[row(0, group, b"k", Some(b"v")), row(1, group, b"k", Some(b"v"))]);
    }
    must(store.delete_range(StateIndex(0), KeyGroupRange::new(3, 7)), "a range can be deleted");
    let left: Vec<u16> = (0..10).filter(|group| get(store, 0, &[(*group, b"k")])[0].is_some()).collect();
    assert_eq!(left, [0, 1, 2, 7, 8, 9], "broken: a range is removed, and nothing else of the state");
    assert!((0..10).all(|group| get(store, 1, &[(group, b"k")])[0].is_some()), "broken: other states stay");
    must(store.clear(), "a store can be cleared");
    assert!((0..10).all(|group| scan(store, 1, group, b"", None).is_empty()), "broken: clear removes all rows");
    write(store, &[row(1, 1, b"k", Some(b"v"))]);
    assert_eq!(get(store, 1, &[(1, b"k")]), [Some(b"v".to_vec())], "broken: a cleared store can be written");
}

fn stores_of_one_subtask_are_apart(stores: &dyn ColdStores) {
    let first = must(stores.open("count", 3), "a store can be opened");
    write(&*first, &[row(0, 0, b"k", Some(b"first"))]);
    let second = must(stores.open("count", 3), "a store can be opened again");
    assert_eq!(get(&*second, 0, &[(0, b"k")]), [None], "broken: a store that is opened again is empty");
    write(&*second, &[row(0, 0, b"k", Some(b"second"))]);
    assert_eq!(get(&*first, 0, &[(0, b"k")]), [Some(b"first".to_vec())], "broken: the older store can still be used");
    drop(first);
    assert_eq!(get(&*second, 0, &[(0, b"k")]), [Some(b"second".to_vec())], "broken: dropping one leaves the other");
}

fn many_random_operations_agree_with_a_map(store: &dyn ColdStore) {
    let mut model = Model::new();
    let mut random = 0x2545_f491_4f6c_dd1du64;
    let mut next = |bound: u64| {
        random = millpond_core::seed::mix64(random);
        random % bound
    };
    for round in 0..200u64 {
        let rows: Vec<RandomRow> = (0..next(40))
            .map(|_| {
                let key = vec![[0, 1, 254, 255][next(4) as usize]; next(4) as usize];
                let value = (next(3) > 0).then(|| round.to_le_bytes().to_vec());
                (next(2) as u16, next(3) as u16, key, value)
            })
            .collect();
        write(store, &rows.iter().map(|(s, g, key, value)| row(*s, *g, key, value.as_deref())).collect::<Vec<_>>());
        for (state, group, key, value) in rows {
            match value {
                Some(value) => model.insert((state, group, key), value),
                None => model.remove(&(state, group, key)),
            };
        }
        let (state, group) = (next(2) as u16, next(3) as u16);
        let prefix = vec![[0, 1, 254, 255][next(4) as usize]; next(3) as usize];
        let expected: Vec<_> = model
            .iter()
            .filter(|((s, g, key), _)| (*s, *g) == (state, group) && key.starts_with(&prefix))
            .map(|((_, _, key), value)| (key.clone(), value.clone()))
            .collect();
        let last = must(store.last(StateIndex(state), KeyGroup(group), &prefix), "the last row can be found");
        assert_eq!(last, expected.last().cloned(), "broken: the last row agrees with a map");
        assert_eq!(scan(store, state, group, &prefix, None), expected, "broken: a scan agrees with a map");
    }
}

fn one_thread_may_write_while_another_reads(store: &dyn ColdStore) {
    let key = |number: u32| number.to_be_bytes();
    std::thread::scope(|scope| {
        let (written, heard) = std::sync::mpsc::channel();
        scope.spawn(move || {
            for number in 0..2_000u32 {
                let value = vec![number as u8; 100];
                write(store, &[row(0, 0, &key(number), Some(&value))]);
                let _ = written.send(number);
            }
        });
        while let Ok(number) = heard.recv() {
            let found = get(store, 0, &[(0, &key(number))]);
            assert_eq!(found, [Some(vec![number as u8; 100])], "broken: a finished write is seen by other threads");
        }
    });
}
