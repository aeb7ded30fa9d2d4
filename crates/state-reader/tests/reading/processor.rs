//! Checkpoints written by a program: what is written is read again, as types and as entries.

use std::collections::BTreeMap;
use std::sync::Arc;

use millpond_core::{Epoch, MaxParallelism};
use millpond_state::{KeyedBackend, KeyedBackendControl};
use millpond_state_reader::{ReaderError, StateReader, StateWriter};
use millpond_storage::{MemoryStorage, Storage};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::support::{Job, OPERATOR, Seen, content};

type Written = (Arc<dyn Storage>, StateWriter);

fn begin(key_groups: u32) -> Written {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let max = MaxParallelism::new(key_groups).unwrap();
    let writer = StateWriter::create(Arc::clone(&storage), "new job", max).unwrap().at_epoch(Epoch(41));
    (storage, writer)
}

fn finish((storage, writer): Written) -> StateReader {
    writer.finish(1_000).unwrap();
    StateReader::latest(storage, "new job").unwrap()
}

/// Restores one operator of a savepoint as a job would, and checks every row on the way.
fn restore(reader: &StateReader, operator: &str) -> KeyedBackend<String> {
    let max = MaxParallelism::new(reader.key_groups()).unwrap();
    let mut backend = KeyedBackend::<String>::new(max, max.all());
    let mut declarer = backend.declarer();
    declarer.value::<u64>("value").unwrap();
    declarer.list::<u16>("list").unwrap();
    declarer.map::<String, bool>("map").unwrap();
    for info in reader.states(Some(operator)).unwrap() {
        let mut rows = reader.rows(&info).unwrap();
        while rows.advance().unwrap() {
            let row = rows.current().unwrap().unwrap();
            let mut key = Vec::new();
            millpond_core::codec::put_varint(row.key.len() as u64, &mut key);
            key.extend_from_slice(row.key);
            key.extend_from_slice(row.suffix);
            let version = backend.row_version(&info.state, &row.description.to_json()).unwrap();
            backend.restore_row(version, row.group, &key, Some(row.value)).unwrap();
        }
    }
    backend.finish_restore().unwrap();
    backend
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn bootstrapped_state_is_read_and_restored_as_it_was_given(
        values in prop::collection::btree_map(".{0,8}", any::<u64>(), 0..50),
        lists in prop::collection::btree_map(".{0,8}", prop::collection::vec(any::<u16>(), 0..300), 0..10),
        entries in prop::collection::btree_map((".{0,4}", ".{0,4}"), any::<bool>(), 0..50),
        key_groups in 1u32..200,
    ) {
        let (storage, mut writer) = begin(key_groups);
        writer.values("op", "value", values.clone().into_iter().map(Ok)).unwrap();
        writer.lists("op", "list", lists.clone().into_iter().map(Ok)).unwrap();
        let rows = entries.clone().into_iter().map(|((key, user_key), value)| Ok((key, user_key, value)));
        writer.map_entries("op", "map", rows).unwrap();
        let reader = finish((storage, writer));
        let read: Result<BTreeMap<String, u64>, ReaderError> = reader.values("op", "value").unwrap().collect();
        prop_assert_eq!(&read.unwrap(), &values);
        let read: Result<BTreeMap<String, Vec<u16>>, ReaderError> = reader.lists("op", "list").unwrap().collect();
        let mut lists = lists;
        lists.retain(|_, list| !list.is_empty());
        prop_assert_eq!(&read.unwrap(), &lists);
        let read = reader.map_entries::<String, String, bool>("op", "map").unwrap();
        let read: Result<BTreeMap<(String, String), bool>, ReaderError> =
            read.map(|row| row.map(|(key, user_key, value)| ((key, user_key), value))).collect();
        prop_assert_eq!(&read.unwrap(), &entries);
        let mut backend = restore(&reader, "op");
        prop_assert_eq!(backend.keys("value").unwrap().len(), values.len());
        prop_assert_eq!(backend.live_entries(), values.len() + lists.len() + entries.len());
        let value = backend.declarer().value::<u64>("value").unwrap();
        for (key, expected) in &values {
            backend.set_current_key_of(key.clone()).unwrap();
            prop_assert_eq!(value.get(backend.states_mut()).unwrap(), Some(expected));
        }
    }
}

fn job() -> Job {
    let mut job = Job::new(16);
    let (seen, list, map) = (job.states.seen, job.states.list, job.states.map);
    for key in 0..300u32 {
        let value = Seen { times: u64::from(key), delay: Some(-1), last: key.to_string() };
        let states = job.at(&key.to_string()).states_mut();
        seen.set(states, value).unwrap();
        list.add_all(states, [1, 2, 3]).unwrap();
        map.put(states, "x".to_owned(), key).unwrap();
    }
    job.checkpoint();
    for key in 0..100u32 {
        let states = job.at(&key.to_string()).states_mut();
        seen.clear(states).unwrap();
        list.add(states, 4).unwrap();
    }
    job.checkpoint();
    job
}

#[test]
fn an_operator_is_copied_renamed_and_left_out() {
    let job = job();
    let old = job.reader();
    let (storage, mut writer) = begin(16);
    writer.copy_operator(&old, OPERATOR, "renamed").unwrap();
    let map = old.state(OPERATOR, "map", None).unwrap();
    writer.copy_state(&old, &map, "other", "moved").unwrap();
    let again = writer.copy_operator(&old, OPERATOR, "renamed").unwrap_err();
    assert!(matches!(again, ReaderError::StateExists { .. }));
    let reader = finish((storage, writer));
    let operators: Vec<&str> = reader.manifest().operators.iter().map(|operator| operator.name.as_str()).collect();
    assert_eq!(operators, ["other", "renamed"]);
    for state in ["seen", "list", "map"] {
        let info = reader.state("renamed", state, None).unwrap();
        let entries: Vec<_> = reader.entries(&info).unwrap().map(|entry| entry.unwrap()).collect();
        assert_eq!(entries.len(), content(&old, state).len(), "{state}");
    }
    let moved: Result<Vec<(String, String, u32)>, _> = reader.map_entries("other", "moved").unwrap().collect();
    assert_eq!(moved.unwrap().len(), 300);
}

/// As a later version of the job has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SeenNow {
    times: u64,
    #[serde(default)]
    level: u8,
}

#[test]
fn values_are_changed_and_keys_too_under_another_number_of_key_groups() {
    let old = job().reader();
    let (storage, mut writer) = begin(77);
    let changed = old.values::<String, SeenNow>(OPERATOR, "seen").unwrap().map(|row| {
        let (key, seen) = row?;
        let number: u64 = key.parse().unwrap();
        Ok((number % 10, seen.times))
    });
    let mut sums: BTreeMap<u64, u64> = BTreeMap::new();
    for row in changed {
        let (key, times): (u64, u64) = row.map_err(|error: ReaderError| error).unwrap();
        *sums.entry(key).or_default() += times;
    }
    writer.values("by digit", "times", sums.clone().into_iter().map(Ok)).unwrap();
    let refused = writer.copy_operator(&old, OPERATOR, "same").unwrap_err();
    assert!(matches!(refused, ReaderError::OtherKeyGroups { left: 16, right: 77 }));
    let reader = finish((storage, writer));
    assert_eq!(reader.at(), Epoch(41));
    let read: Result<BTreeMap<u64, u64>, _> = reader.values("by digit", "times").unwrap().collect();
    assert_eq!(read.unwrap(), sums);
    let wrong = reader.values::<String, u64>("by digit", "times").err().unwrap();
    assert!(matches!(wrong, ReaderError::WrongType { .. }), "{wrong}");
    let wrong = reader.lists::<u64, u64>("by digit", "times").err().unwrap();
    assert!(matches!(wrong, ReaderError::WrongKind { .. }), "{wrong}");
    let info = reader.state("by digit", "times", None).unwrap();
    assert_eq!(reader.get(&info, &serde_json::json!(7), None).unwrap().len(), 1);
}

#[test]
fn operator_state_is_written_and_copied() {
    let (storage, mut writer) = begin(4);
    writer
        .operator_state("source", |states| {
            let offsets = states.list::<(String, u64)>("offsets")?;
            offsets.add_all(states, (0..5_000u64).map(|i| (format!("part {i}"), i)))
        })
        .unwrap();
    let first = finish((storage, writer));
    assert_eq!(first.operator_list::<(String, u64)>("source", "offsets").unwrap().len(), 5_000);
    let (storage, mut writer) = begin(4);
    writer.copy_operator_state(&first, "source", "renamed").unwrap();
    let second = finish((storage, writer));
    assert_eq!(second.operator_list::<(String, u64)>("renamed", "offsets").unwrap()[4_999].1, 4_999);
}

#[test]
fn a_list_that_comes_twice_and_a_place_in_use_are_refused() {
    let (storage, mut writer) = begin(4);
    let twice = [("a".to_owned(), vec![1u8]), ("a".to_owned(), vec![2])];
    let refused = writer.lists("op", "list", twice.into_iter().map(Ok)).unwrap_err();
    assert!(matches!(refused, ReaderError::KeyTwice { .. }));
    let (_, mut other) = begin(4);
    other.values("op", "v", [Ok(("a".to_owned(), 1u8))]).unwrap();
    assert!(StateReader::latest(storage, "new job").is_err(), "nothing exists before the end");
    let used: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let max = MaxParallelism::default();
    StateWriter::create(Arc::clone(&used), "j", max).unwrap().finish(0).unwrap();
    assert!(StateWriter::create(used, "j", max).is_err());
}
