//! Every epoch's rows rebuild the state as it was at the freeze, whatever happens in between.

use std::collections::{BTreeMap, VecDeque};

use crate::support::{All, Content, Runs, contents, declare};
use millpond_core::{Epoch, MaxParallelism};
use millpond_state::{KeyedBackend, KeyedBackendControl, SliceProgress};
use proptest::prelude::*;

type Model = BTreeMap<String, Content>;
type Accumulators = BTreeMap<String, (u64, u32)>;

#[derive(Clone, Debug)]
enum Operation {
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
    Freeze,
    Slice(usize),
    /// Loses everything that is not handed over, and restores.
    Crash,
}

fn operations() -> impl Strategy<Value = Vec<(u8, Operation)>> {
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
        4 => Just(Freeze),
        8 => (1usize..200).prop_map(Slice),
        1 => Just(Crash),
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

/// A backend beside what it should hold.
struct Pair {
    max: MaxParallelism,
    backend: KeyedBackend<String>,
    all: All,
    model: Model,
    accumulators: Accumulators,
    frozen: VecDeque<(Model, Accumulators)>,
    done: (Model, Accumulators),
    runs: Runs,
    epoch: Epoch,
}

impl Pair {
    fn new() -> Self {
        let max = MaxParallelism::new(16).unwrap();
        let mut backend = KeyedBackend::new(max, max.all());
        let all = declare(&mut backend).unwrap();
        Pair {
            max,
            backend,
            all,
            model: Model::new(),
            accumulators: BTreeMap::new(),
            frozen: VecDeque::new(),
            done: Default::default(),
            runs: Runs::default(),
            epoch: Epoch::ZERO,
        }
    }

    fn apply(&mut self, key: String, operation: Operation) {
        match operation {
            Operation::Freeze => {
                self.epoch = self.epoch.next();
                self.backend.freeze(self.epoch).unwrap();
                self.frozen.push_back((self.model.clone(), self.accumulators.clone()));
            }
            Operation::Slice(budget) => {
                self.slice(budget);
            }
            Operation::Crash => {
                (self.backend, self.all) = self.runs.restore(self.max, self.max.all());
                (self.model, self.accumulators) = self.done.clone();
                self.frozen.clear();
            }
            change => {
                self.backend.set_current_key_of(key.clone()).unwrap();
                self.change(&key, change);
            }
        }
    }

    fn slice(&mut self, budget: usize) -> bool {
        let progress = self.backend.serialise_slice(budget).unwrap();
        if let SliceProgress::Done { rows, .. } = progress {
            self.runs.add(rows, &self.backend.sections());
            self.done = self.frozen.pop_front().unwrap();
            let (mut restored, all) = self.runs.restore(self.max, self.max.all());
            assert_eq!(contents(&mut restored, &all), self.done.0);
            return true;
        }
        matches!(progress, SliceProgress::More)
    }

    fn change(&mut self, key: &str, operation: Operation) {
        let content = self.model.entry(key.to_owned()).or_default();
        let (states, all) = (self.backend.states_mut(), &self.all);
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
        if self.model[key] == Content::default() {
            self.model.remove(key);
        }
    }

    fn change_map(&mut self, key: &str, operation: Operation) {
        let map = &mut self.model.get_mut(key).unwrap().map;
        let (states, all) = (self.backend.states_mut(), &self.all);
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn sn_01_sn_02_sn_03_sn_09_every_epoch_restores_to_its_freeze(operations in operations()) {
        let mut pair = Pair::new();
        for (at, operation) in operations {
            pair.apply(key(at), operation);
        }
        prop_assert_eq!(contents(&mut pair.backend, &pair.all), pair.model.clone());
        pair.apply(String::new(), Operation::Freeze);
        while pair.slice(1_000) {}
        prop_assert!(pair.frozen.is_empty());
        let (mut restored, all) = pair.runs.restore(pair.max, pair.max.all());
        prop_assert_eq!(contents(&mut restored, &all), pair.model);
        prop_assert_eq!(restored.live_entries(), pair.backend.live_entries());
    }
}
