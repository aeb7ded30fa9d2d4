//! The descriptions of states in checkpoints of every version are read, and written as they were.

use std::time::Duration;

use millpond_core::MaxParallelism;
use millpond_state::{KeyedBackend, KeyedBackendControl, StateDescription, Ttl};
use serde::{Deserialize, Serialize};

const RELEASED: &str = include_str!("data/descriptions-1.jsonl");

#[derive(Clone, Serialize, Deserialize)]
struct Tree {
    name: String,
    kind: Kind,
    children: Vec<Tree>,
}

#[derive(Clone, Serialize, Deserialize)]
enum Kind {
    Root,
    Leaf(Option<i64>),
}

#[test]
fn released_descriptions_are_read_and_written_as_they_were() {
    for line in RELEASED.lines() {
        let description = StateDescription::from_json("state", line).unwrap();
        assert_eq!(description.to_json(), line);
    }
}

#[test]
fn states_of_today_have_the_released_descriptions() {
    let max = MaxParallelism::new(16).unwrap();
    let mut backend = KeyedBackend::<String>::new(max, max.all());
    let mut declarer = backend.declarer();
    declarer.value::<Tree>("value").unwrap();
    declarer.list::<u16>("list").unwrap();
    declarer.map::<u32, (f64, bool)>("map").unwrap();
    declarer.reducing::<u64>("reducing", |a, b| a + b).unwrap();
    declarer.expiring_value::<bool>("expiring value", Ttl::after(Duration::from_secs(3600))).unwrap();
    let used = Ttl::after(Duration::from_millis(1500)).on_read_and_write();
    declarer.expiring_list::<u16>("expiring list", used).unwrap();
    let sections = backend.sections();
    let today: Vec<&str> = sections.iter().map(|section| section.description.as_str()).collect();
    assert_eq!(today, RELEASED.lines().collect::<Vec<_>>());
}

#[test]
fn tl_14_a_state_with_a_time_to_live_is_described_as_stored_with_its_times() {
    let max = MaxParallelism::new(16).unwrap();
    let mut backend = KeyedBackend::<String>::new(max, max.all());
    let mut declarer = backend.declarer();
    let ttl = Ttl::after(Duration::from_secs(3600));
    declarer.expiring_value::<bool>("expiring", ttl).unwrap();
    declarer.value::<bool>("plain").unwrap();
    let described: Vec<StateDescription> = backend
        .sections()
        .iter()
        .map(|section| StateDescription::from_json(&section.name, &section.description).unwrap())
        .collect();
    let [expiring, plain] = &described[..] else { panic!("{} states", described.len()) };
    assert_eq!(plain.clone().as_stored(), *plain);
    let stored = expiring.clone().as_stored();
    assert_eq!(stored.ttl, None);
    assert_ne!(stored.value, expiring.value);
    assert_eq!(stored.row_schema(), expiring.row_schema());
}
