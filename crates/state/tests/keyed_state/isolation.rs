//! One suite for all backends: state beside a plain model, through any operations, freezes, slices, deliveries to
//! the cold store, crashes and restores at another parallelism. Every epoch's rows rebuild the state as it was
//! at the freeze, whatever happens in between.

use std::collections::BTreeMap;

use crate::cluster::{Cluster, Memory};
use crate::support::{All, Content};
use millpond_core::Epoch;
use millpond_state::{KeyedBackend, KeyedBackendControl, StateError};
use proptest::prelude::*;

pub(crate) type Model = BTreeMap<String, Content>;
type Accumulators = BTreeMap<String, (u64, u32)>;

#[derive(Clone, Debug)]
pub(crate) enum Operation {
    SetValue(String),
    ModifyValue(bool),
    ModifyOr,
    ClearValue,
    Add(u16),
    AddMany(u16),
    Update(u16),
    ClearList,
    Put(u8, u32),
    ModifyEntry(u8),
    Remove(u8),
    Retain,
    SetThroughWalk,
    ClearMap,
    Reduce(u64),
    ClearSum,
    Aggregate(u32),
    ClearMean,
    ClearKey,
    /// Looks at everything that the key holds.
    Read,
    /// Looks at it without bringing it into memory.
    ReadThrough,
    /// Makes every key with a value current and changes it.
    EveryKey,
    /// What a batch does first, for all keys.
    Fetch,
    Freeze,
    Slice(usize),
    /// The background thread takes what was handed over by one subtask.
    Deliver(usize),
    /// Loses everything that is in no completed epoch, and restores with so many subtasks.
    Crash(u32),
}

pub(crate) fn operations() -> impl Strategy<Value = Vec<(u8, Operation)>> {
    use Operation::*;
    let operation = prop_oneof![
        3 => "[a-c]{0,3}".prop_map(SetValue),
        2 => any::<bool>().prop_map(ModifyValue),
        1 => Just(ModifyOr),
        1 => Just(ClearValue),
        3 => any::<u16>().prop_map(Add),
        2 => (0u16..300).prop_map(AddMany),
        1 => prop_oneof![Just(0u16), Just(127), Just(128), Just(129), 0u16..300].prop_map(Update),
        1 => Just(ClearList),
        4 => (0u8..40, any::<u32>()).prop_map(|(k, v)| Put(k, v)),
        2 => (0u8..40).prop_map(ModifyEntry),
        2 => (0u8..40).prop_map(Remove),
        1 => Just(Retain),
        1 => Just(SetThroughWalk),
        1 => Just(ClearMap),
        2 => (0u64..1000).prop_map(Reduce),
        1 => Just(ClearSum),
        2 => any::<u32>().prop_map(Aggregate),
        1 => Just(ClearMean),
        1 => Just(ClearKey),
        2 => Just(Read),
        2 => Just(ReadThrough),
        1 => Just(EveryKey),
        2 => Just(Fetch),
        4 => Just(Freeze),
        8 => (1usize..200).prop_map(Slice),
        8 => (0usize..4).prop_map(Deliver),
        1 => (1u32..4).prop_map(Crash),
    ];
    prop::collection::vec((0u8..6, operation), 0..160)
}

/// Keys that are prefixes of one another, the empty one included.
fn key(n: u8) -> String {
    "a".repeat(usize::from(n))
}

fn user_key(n: u8) -> String {
    "b".repeat(usize::from(n % 20)) + if n >= 20 { "c" } else { "" }
}

/// Backends beside what they should hold.
struct Pair {
    cluster: Cluster,
    model: Model,
    accumulators: Accumulators,
    frozen: BTreeMap<Epoch, (Model, Accumulators)>,
    epoch: Epoch,
}

impl Pair {
    fn new(memory: Option<Memory>) -> Self {
        let (model, accumulators) = (Model::new(), Accumulators::new());
        let frozen = BTreeMap::from([(Epoch::ZERO, (model.clone(), accumulators.clone()))]);
        Pair { cluster: Cluster::new(memory), model, accumulators, frozen, epoch: Epoch::ZERO }
    }

    fn apply(&mut self, key: String, operation: Operation) {
        match operation {
            Operation::Freeze => {
                self.epoch = self.epoch.next();
                self.cluster.freeze(self.epoch);
                self.frozen.insert(self.epoch, (self.model.clone(), self.accumulators.clone()));
            }
            Operation::Slice(budget) => {
                self.cluster.slice(budget);
                self.check_completed();
            }
            Operation::Deliver(subtask) => {
                self.cluster.deliver(subtask);
                self.check_completed();
            }
            Operation::Crash(subtasks) => {
                let completed = self.cluster.crash(subtasks);
                (self.model, self.accumulators) = self.frozen[&completed].clone();
                self.frozen.retain(|epoch, _| *epoch == completed);
                self.epoch = completed;
            }
            Operation::EveryKey => {
                self.model.values_mut().filter_map(|content| content.value.as_mut()).for_each(|value| value.push('.'));
                for subtask in &mut self.cluster.subtasks {
                    let value = subtask.all.value;
                    let walk = subtask.backend.for_each_key("value", |states| {
                        value.modify(states, |value| value.as_mut().unwrap().push('.'))
                    });
                    walk.unwrap();
                }
            }
            Operation::Fetch => {
                let keys: Vec<String> = (0..6).map(self::key).collect();
                self.cluster.fetch(&keys);
            }
            change => {
                let (backend, all) = self.cluster.owner(&key);
                backend.set_current_key_of(key.clone()).unwrap();
                let content = self.model.entry(key.clone()).or_default();
                match change {
                    Operation::Read => assert_eq!(crate::support::content(all, backend.states_mut()), *content),
                    Operation::ReadThrough => read_through(backend, all, content).unwrap(),
                    change => Change { model: &mut self.model, accumulators: &mut self.accumulators, all, backend }
                        .change(&key, change),
                }
                if self.model[&key] == Content::default() {
                    self.model.remove(&key);
                }
            }
        }
        self.cluster.keep_budget();
    }

    fn check_completed(&mut self) {
        if let Some(completed) = self.cluster.complete() {
            self.frozen.retain(|epoch, _| *epoch >= completed);
            assert_eq!(self.cluster.restored(), self.frozen[&completed].0);
        }
    }
}

/// Compares what the current key holds, by the ways that do not bring it into memory.
fn read_through(backend: &mut KeyedBackend<String>, all: &All, content: &Content) -> Result<(), StateError> {
    let states = backend.states_mut();
    assert_eq!(all.list.len(states)?, content.list.len());
    assert_eq!(all.map.is_empty(states)?, content.map.is_empty());
    assert_eq!(all.map.len(states)?, content.map.len());
    let mut list = Vec::new();
    all.list.for_each(states, |element| {
        list.push(*element);
        Ok::<(), StateError>(())
    })?;
    assert_eq!(list, content.list);
    let mut map = BTreeMap::new();
    all.map.for_each_entry(states, |entry| {
        assert_eq!(map.insert(entry.key().clone(), *entry.value()), None, "an entry is shown twice");
        Ok(())
    })?;
    assert_eq!(map, content.map);
    Ok(())
}

/// One change of what the current key holds.
struct Change<'a> {
    model: &'a mut Model,
    accumulators: &'a mut Accumulators,
    all: &'a All,
    backend: &'a mut KeyedBackend<String>,
}

impl Change<'_> {
    fn change(&mut self, key: &str, operation: Operation) {
        let content = self.model.entry(key.to_owned()).or_default();
        let (states, all) = (self.backend.states_mut(), self.all);
        match operation {
            Operation::SetValue(value) => {
                content.value = Some(value.clone());
                all.value.set(states, value).unwrap();
            }
            Operation::ModifyValue(keep) => {
                let change = |value: &mut Option<String>| {
                    *value = keep.then(|| value.take().unwrap_or_default() + "+");
                };
                change(&mut content.value);
                all.value.modify(states, change).unwrap();
            }
            Operation::ModifyOr => {
                content.value.get_or_insert_with(|| "?".to_owned()).push('!');
                all.value.modify_or(states, || "?".to_owned(), |value| value.push('!')).unwrap();
            }
            Operation::ClearValue => {
                content.value = None;
                all.value.clear(states).unwrap();
            }
            Operation::Add(element) => {
                content.list.push(element);
                all.list.add(states, element).unwrap();
            }
            Operation::AddMany(count) => {
                content.list.extend(0..count);
                all.list.add_all(states, 0..count).unwrap();
            }
            Operation::Update(count) => {
                content.list = (0..count).collect();
                all.list.update(states, 0..count).unwrap();
            }
            Operation::ClearList => {
                content.list.clear();
                all.list.clear(states).unwrap();
            }
            Operation::Reduce(value) => {
                content.sum = Some(content.sum.map_or(value, |sum| sum + value));
                all.sum.add(states, value).unwrap();
            }
            Operation::ClearSum => {
                content.sum = None;
                all.sum.clear(states).unwrap();
            }
            Operation::Aggregate(value) => {
                let accumulator = self.accumulators.entry(key.to_owned()).or_default();
                accumulator.0 += u64::from(value);
                accumulator.1 += 1;
                content.mean = Some(accumulator.0 as f64 / f64::from(accumulator.1));
                all.mean.add(states, value).unwrap();
            }
            Operation::ClearMean => {
                content.mean = None;
                self.accumulators.remove(key);
                all.mean.clear(states).unwrap();
            }
            Operation::ClearKey => {
                *content = Content::default();
                self.accumulators.remove(key);
                states.clear_current_key().unwrap();
            }
            map => self.change_map(key, map),
        }
    }

    fn change_map(&mut self, key: &str, operation: Operation) {
        let map = &mut self.model.get_mut(key).unwrap().map;
        let (states, all) = (self.backend.states_mut(), self.all);
        match operation {
            Operation::Put(at, value) => {
                map.insert(user_key(at), value);
                all.map.put(states, user_key(at), value).unwrap();
            }
            Operation::ModifyEntry(at) => {
                let toggle = |value: &mut Option<u32>| {
                    *value = if value.is_some_and(|value| value % 2 == 0) { None } else { Some(6) };
                };
                let mut value = map.remove(&user_key(at));
                toggle(&mut value);
                map.extend(value.map(|value| (user_key(at), value)));
                all.map.modify(states, user_key(at), toggle).unwrap();
            }
            Operation::Remove(at) => {
                assert_eq!(all.map.remove(states, &user_key(at)).unwrap(), map.remove(&user_key(at)));
            }
            Operation::Retain => {
                map.retain(|_, value| *value % 3 != 0);
                all.map.retain(states, |_, value| *value % 3 != 0).unwrap();
            }
            Operation::SetThroughWalk => {
                map.values_mut().filter(|value| **value % 2 == 1).for_each(|value| *value /= 2);
                let walk = all.map.for_each_entry(states, |entry| {
                    if entry.value() % 2 == 1 {
                        entry.set(entry.value() / 2)?;
                    }
                    Ok(())
                });
                walk.unwrap();
            }
            Operation::ClearMap => {
                map.clear();
                all.map.clear(states).unwrap();
            }
            other => unreachable!("{other:?} is not about maps"),
        }
    }
}

/// Values of keys that no operation is about, so many bytes of them.
fn add_ballast(pair: &mut Pair, bytes: usize) {
    for number in 0..bytes / BALLAST_BYTES {
        let (key, value) = (format!("ballast {number}"), "b".repeat(BALLAST_BYTES));
        pair.apply(key, Operation::SetValue(value));
        if number % 32 == 31 {
            while pair.cluster.slice(64 << 10) {}
            while pair.cluster.deliver(0) {}
        }
    }
}

const BALLAST_BYTES: usize = 16 << 10;

/// Takes `operations` through the suite, beside `ballast` bytes of other state.
pub(crate) fn run(operations: Vec<(u8, Operation)>, memory: Option<Memory>, ballast: usize) {
    let bytes = memory.as_ref().map_or(usize::MAX, |memory| memory.bytes);
    let mut pair = Pair::new(memory);
    add_ballast(&mut pair, ballast);
    if ballast > bytes {
        let used = pair.cluster.subtasks[0].backend.memory_bytes();
        assert!(used < bytes + bytes / 2, "{used} of {bytes} bytes are used");
    }
    for (at, operation) in operations {
        pair.apply(key(at), operation);
    }
    assert_eq!(pair.cluster.contents(), pair.model);
    pair.apply(String::new(), Operation::Freeze);
    pair.cluster.finish();
    pair.check_completed();
    assert_eq!(pair.cluster.restored(), pair.model);
    let entries: usize = pair.model.values().map(Content::entries).sum();
    assert_eq!(pair.cluster.live_entries(), entries);
    pair.apply(String::new(), Operation::Crash(2));
    assert_eq!(pair.cluster.live_entries(), entries);
    assert_eq!(pair.cluster.contents(), pair.model);
}
