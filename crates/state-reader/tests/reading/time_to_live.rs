//! States with a time to live: read as types without their times or with them, shown with them, copied as they are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millpond_core::{ManualClock, MaxParallelism};
use millpond_state::{KeyedBackend, Timed, Ttl};
use millpond_state_reader::{ReaderError, StateReader, StateWriter};
use millpond_storage::{MemoryStorage, Storage};

use crate::support::{Job, OPERATOR};

fn job() -> Job {
    let mut job = Job::new(16);
    let max = MaxParallelism::new(16).unwrap();
    job.backend = KeyedBackend::new(max, max.all()).with_clock(Arc::new(ManualClock::new(5_000)));
    let ttl = Ttl::after(Duration::from_millis(100));
    let mut declarer = job.backend.declarer();
    let value = declarer.expiring_value::<u32>("value", ttl).unwrap();
    let list = declarer.expiring_list::<u16>("list", ttl.on_read_and_write()).unwrap();
    let map = declarer.expiring_map::<u8, u32>("map", ttl).unwrap();
    for (key, number) in [("a", 1u32), ("b", 2)] {
        let states = job.at(key).states_mut();
        value.set(states, number).unwrap();
        list.add_all(states, 0..number as u16).unwrap();
        map.put(states, 7, number).unwrap();
    }
    job.checkpoint();
    job
}

fn check(reader: &StateReader, operator: &str) {
    let values: Result<BTreeMap<String, u64>, ReaderError> = reader.values(operator, "value").unwrap().collect();
    assert_eq!(values.unwrap(), BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]), "wider as well");
    let timed: Result<Vec<(String, Timed<u32>)>, ReaderError> = reader.values(operator, "value").unwrap().collect();
    assert!(timed.unwrap().iter().all(|(_, timed)| timed.at_ms() == 5_000));
    let lists: Result<BTreeMap<String, Vec<u16>>, ReaderError> = reader.lists(operator, "list").unwrap().collect();
    assert_eq!(lists.unwrap(), BTreeMap::from([("a".to_owned(), vec![0]), ("b".to_owned(), vec![0, 1])]));
    let entries = reader.map_entries::<String, u8, u32>(operator, "map").unwrap();
    let entries: Result<Vec<_>, ReaderError> = entries.collect();
    assert_eq!(entries.unwrap().len(), 2);
    let info = reader.state(operator, "value", None).unwrap();
    let shown = reader.entries(&info).unwrap().next().unwrap().unwrap().value.to_string();
    assert!(shown.contains(r#"{"at_ms":5000,"value":"#), "{shown}");
}

#[test]
fn values_are_read_without_their_times_and_with_them() {
    check(&job().reader(), OPERATOR);
}

#[test]
fn a_copied_state_keeps_its_time_to_live() {
    let (job, storage) = (job(), Arc::new(MemoryStorage::new()));
    let from = job.reader();
    let storage: Arc<dyn Storage> = storage;
    let max = MaxParallelism::new(16).unwrap();
    let mut writer = StateWriter::create(Arc::clone(&storage), "new job", max).unwrap();
    for info in from.states(Some(OPERATOR)).unwrap() {
        writer.copy_state(&from, &info, "copy", &info.state).unwrap();
    }
    let manifest = writer.finish(1_000).unwrap();
    let states = &manifest.operators[0].states;
    assert!(
        states.len() == 3 && states.iter().all(|state| state.description.contains(r#""after_ms":100"#)),
        "{states:?}"
    );
    check(&StateReader::latest(storage, "new job").unwrap(), "copy");
}
