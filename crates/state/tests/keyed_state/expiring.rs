//! The suite of states with a time to live, for all backends: beside a plain model in which each value has its time,
//! through any operations, the passing of time, freezes, slices, deliveries to the cold store, crashes and restores at
//! another parallelism, with the walk that removes what has expired going on all the while.

use std::collections::BTreeMap;
use std::time::Duration;

use millpond_core::{Clock, Epoch};
use millpond_state::{
    ExpiringAggregating, ExpiringList, ExpiringMap, ExpiringReducing, ExpiringValue, KeyedBackend, KeyedStates,
    StateError, Ttl,
};
use proptest::prelude::*;

use crate::cluster::{Cluster, Memory};
use crate::support::{Handles, Sum};

pub(crate) const TTL_MS: i64 = 100;

/// A state of every kind, whose entries live since they were written, or since they were used.
pub(crate) struct Expiring<const USED: bool> {
    pub(crate) value: ExpiringValue<String>,
    pub(crate) list: ExpiringList<u16>,
    pub(crate) map: ExpiringMap<u8, u32>,
    pub(crate) sum: ExpiringReducing<u64>,
    pub(crate) total: ExpiringAggregating<Sum>,
}

/// What one key shows.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Shown {
    value: Option<String>,
    list: Vec<u16>,
    map: BTreeMap<u8, u32>,
    sum: Option<u64>,
    total: Option<u64>,
}

impl<const USED: bool> Handles for Expiring<USED> {
    const NAMES: &'static [&'static str] = &["value", "list", "map", "sum", "total"];
    type Content = Shown;

    fn declare(backend: &mut KeyedBackend<String>) -> Result<Self, StateError> {
        let ttl = Ttl::after(Duration::from_millis(TTL_MS as u64));
        let ttl = if USED { ttl.on_read_and_write() } else { ttl };
        let mut declarer = backend.declarer();
        Ok(Expiring {
            value: declarer.expiring_value("value", ttl)?,
            list: declarer.expiring_list("list", ttl)?,
            map: declarer.expiring_map("map", ttl)?,
            sum: declarer.expiring_reducing("sum", ttl, |a, b| a + b)?,
            total: declarer.expiring_aggregating("total", ttl, Sum)?,
        })
    }

    fn content(&self, states: &mut KeyedStates<String>) -> Shown {
        let (mut list, mut map) = (Vec::new(), BTreeMap::new());
        let each = self.list.for_each(states, |element| {
            list.push(*element);
            Ok::<(), StateError>(())
        });
        each.unwrap();
        let each = self.map.peek_each(states, |key, value| {
            assert_eq!(map.insert(*key, *value), None, "an entry is shown twice");
            Ok::<(), StateError>(())
        });
        each.unwrap();
        assert_eq!(self.list.len(states).unwrap(), list.len());
        assert_eq!(self.list.is_empty(states).unwrap(), list.is_empty());
        assert_eq!(self.map.len(states).unwrap(), map.len());
        assert_eq!(self.map.is_empty(states).unwrap(), map.is_empty());
        Shown {
            value: self.value.peek(states).unwrap().cloned(),
            list,
            map,
            sum: self.sum.peek(states).unwrap().copied(),
            total: self.total.peek(states).unwrap(),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Operation {
    SetValue(String),
    ModifyValue(bool),
    ClearValue,
    GetValue,
    Add(u16),
    AddMany(u16),
    Update(u16),
    ClearList,
    GetList,
    Put(u8, u32),
    ModifyEntry(u8),
    Remove(u8),
    ClearMap,
    GetEntry(u8),
    GetMap,
    Reduce(u64),
    ClearSum,
    GetSum,
    Aggregate(u32),
    ClearTotal,
    GetTotal,
    ClearKey,
    /// Looks at everything, without renewing it.
    Look,
    Advance(i64),
    Fetch,
    Freeze,
    Slice(usize),
    Deliver(usize),
    Crash(u32),
}

pub(crate) fn operations() -> impl Strategy<Value = (bool, Vec<(u8, Operation)>)> {
    use Operation::*;
    let operation = prop_oneof![
        3 => "[a-c]{0,3}".prop_map(SetValue),
        2 => any::<bool>().prop_map(ModifyValue),
        1 => Just(ClearValue),
        2 => Just(GetValue),
        3 => any::<u16>().prop_map(Add),
        2 => (0u16..300).prop_map(AddMany),
        1 => prop_oneof![Just(0u16), Just(127), Just(128), Just(129), 0u16..300].prop_map(Update),
        1 => Just(ClearList),
        2 => Just(GetList),
        4 => (0u8..20, any::<u32>()).prop_map(|(key, value)| Put(key, value)),
        2 => (0u8..20).prop_map(ModifyEntry),
        2 => (0u8..20).prop_map(Remove),
        1 => Just(ClearMap),
        2 => (0u8..20).prop_map(GetEntry),
        1 => Just(GetMap),
        2 => (0u64..1000).prop_map(Reduce),
        1 => Just(ClearSum),
        1 => Just(GetSum),
        2 => any::<u32>().prop_map(Aggregate),
        1 => Just(ClearTotal),
        1 => Just(GetTotal),
        1 => Just(ClearKey),
        2 => Just(Look),
        6 => prop_oneof![1i64..30, Just(TTL_MS - 1), Just(TTL_MS)].prop_map(Advance),
        2 => Just(Fetch),
        4 => Just(Freeze),
        8 => (1usize..200).prop_map(Slice),
        8 => (0usize..4).prop_map(Deliver),
        1 => (1u32..4).prop_map(Crash),
    ];
    (any::<bool>(), prop::collection::vec((0u8..6, operation), 0..160))
}

fn key(n: u8) -> String {
    "a".repeat(usize::from(n))
}

/// A value and when it was renewed.
type At<T> = (i64, T);

/// What one key holds, expired or not.
#[derive(Clone, Debug, Default)]
struct Held {
    value: Option<At<String>>,
    list: Vec<At<u16>>,
    map: BTreeMap<u8, At<u32>>,
    sum: Option<At<u64>>,
    total: Option<At<u64>>,
}

impl Held {
    /// Forgets what is over.
    fn expire(&mut self, now: i64) {
        fn lives<T>((at, _): &At<T>, now: i64) -> bool {
            at + TTL_MS > now
        }
        self.value.take_if(|value| !lives(value, now));
        self.list.retain(|element| lives(element, now));
        self.map.retain(|_, value| lives(value, now));
        self.sum.take_if(|sum| !lives(sum, now));
        self.total.take_if(|total| !lives(total, now));
    }

    fn shown(mut self, now: i64) -> Shown {
        self.expire(now);
        Shown {
            value: self.value.map(|(_, value)| value),
            list: self.list.into_iter().map(|(_, element)| element).collect(),
            map: self.map.into_iter().map(|(key, (_, value))| (key, value)).collect(),
            sum: self.sum.map(|(_, sum)| sum),
            total: self.total.map(|(_, total)| total),
        }
    }
}

type Model = BTreeMap<String, Held>;

/// What shows something now, by key.
fn shown(model: Model, now: i64) -> BTreeMap<String, Shown> {
    let shown = model.into_iter().map(|(key, held)| (key, held.shown(now)));
    shown.filter(|(_, shown)| *shown != Shown::default()).collect()
}

fn present(contents: BTreeMap<String, Shown>) -> BTreeMap<String, Shown> {
    contents.into_iter().filter(|(_, shown)| *shown != Shown::default()).collect()
}

struct Pair<const USED: bool> {
    cluster: Cluster<Expiring<USED>>,
    model: Model,
    frozen: BTreeMap<Epoch, Model>,
    epoch: Epoch,
}

impl<const USED: bool> Pair<USED> {
    fn now(&self) -> i64 {
        self.cluster.clock.now_ms()
    }

    fn apply(&mut self, key: String, operation: Operation) {
        let now = self.now();
        match operation {
            Operation::Advance(by_ms) => self.cluster.clock.advance(by_ms),
            Operation::Freeze => {
                self.epoch = self.epoch.next();
                self.cluster.freeze(self.epoch);
                self.frozen.insert(self.epoch, self.model.clone());
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
                self.model = self.frozen[&completed].clone();
                self.frozen.retain(|epoch, _| *epoch == completed);
                self.epoch = completed;
            }
            Operation::Fetch => self.cluster.fetch(&(0..6).map(self::key).collect::<Vec<_>>()),
            access => {
                let (backend, all) = self.cluster.owner(&key);
                backend.set_current_key_of(key.clone()).unwrap();
                let held = self.model.entry(key).or_default();
                held.expire(now);
                match access {
                    Operation::Look => assert_eq!(all.content(backend.states_mut()), held.clone().shown(now)),
                    access => Access { held, all, states: backend.states_mut(), now }.carry_out(access),
                }
            }
        }
        self.cluster.keep_budget();
    }

    fn check_completed(&mut self) {
        let now = self.now();
        if let Some(completed) = self.cluster.complete() {
            self.frozen.retain(|epoch, _| *epoch >= completed);
            let expected = shown(self.frozen[&completed].clone(), now);
            assert_eq!(present(self.cluster.restored()), expected);
        }
    }

    fn check(&mut self) {
        let now = self.now();
        assert_eq!(present(self.cluster.contents()), shown(self.model.clone(), now));
    }
}

/// One access to what the current key holds; what was over is forgotten in `held`.
struct Access<'a, const USED: bool> {
    held: &'a mut Held,
    all: &'a Expiring<USED>,
    states: &'a mut KeyedStates<String>,
    now: i64,
}

impl<const USED: bool> Access<'_, USED> {
    fn carry_out(self, operation: Operation) {
        let Access { held, all, states, now } = self;
        match operation {
            Operation::SetValue(value) => {
                held.value = Some((now, value.clone()));
                all.value.set(states, value).unwrap();
            }
            Operation::ModifyValue(keep) => {
                let change = |value: &mut Option<String>| {
                    *value = keep.then(|| value.take().unwrap_or_default() + "+");
                };
                let mut value = held.value.take().map(|(_, value)| value);
                change(&mut value);
                held.value = value.map(|value| (now, value));
                all.value.modify(states, change).unwrap();
            }
            Operation::ClearValue => {
                held.value = None;
                all.value.clear(states).unwrap();
            }
            Operation::GetValue => {
                renew::<USED, _>(held.value.as_mut(), now);
                assert_eq!(all.value.get(states).unwrap(), held.value.as_ref().map(|(_, value)| value));
            }
            Operation::Add(element) => {
                held.list.push((now, element));
                all.list.add(states, element).unwrap();
            }
            Operation::AddMany(count) => {
                held.list.extend((0..count).map(|element| (now, element)));
                all.list.add_all(states, 0..count).unwrap();
            }
            Operation::Update(count) => {
                held.list = (0..count).map(|element| (now, element)).collect();
                all.list.update(states, 0..count).unwrap();
            }
            Operation::ClearList => {
                held.list.clear();
                all.list.clear(states).unwrap();
            }
            Operation::GetList => {
                held.list.iter_mut().for_each(|element| renew::<USED, _>(Some(element), now));
                let list: Vec<u16> = all.list.get(states).unwrap().copied().collect();
                assert_eq!(list, held.list.iter().map(|(_, element)| *element).collect::<Vec<_>>());
            }
            Operation::Reduce(value) => {
                held.sum = Some((now, held.sum.map_or(value, |(_, sum)| sum + value)));
                all.sum.add(states, value).unwrap();
            }
            Operation::ClearSum => {
                held.sum = None;
                all.sum.clear(states).unwrap();
            }
            Operation::GetSum => {
                renew::<USED, _>(held.sum.as_mut(), now);
                assert_eq!(all.sum.get(states).unwrap().copied(), held.sum.map(|(_, sum)| sum));
            }
            Operation::Aggregate(value) => {
                held.total = Some((now, held.total.map_or(0, |(_, total)| total) + u64::from(value)));
                all.total.add(states, value).unwrap();
            }
            Operation::ClearTotal => {
                held.total = None;
                all.total.clear(states).unwrap();
            }
            Operation::GetTotal => {
                renew::<USED, _>(held.total.as_mut(), now);
                assert_eq!(all.total.get(states).unwrap(), held.total.map(|(_, total)| total));
            }
            Operation::ClearKey => {
                *held = Held::default();
                states.clear_current_key().unwrap();
            }
            map => Access { held, all, states, now }.carry_out_map(map),
        }
    }

    fn carry_out_map(self, operation: Operation) {
        let Access { held: Held { map, .. }, all, states, now } = self;
        match operation {
            Operation::Put(key, value) => {
                map.insert(key, (now, value));
                all.map.put(states, key, value).unwrap();
            }
            Operation::ModifyEntry(key) => {
                let toggle = |value: &mut Option<u32>| {
                    *value = if value.is_some_and(|value| value % 2 == 0) { None } else { Some(6) };
                };
                let mut value = map.remove(&key).map(|(_, value)| value);
                toggle(&mut value);
                map.extend(value.map(|value| (key, (now, value))));
                all.map.modify(states, key, toggle).unwrap();
            }
            Operation::Remove(key) => {
                assert_eq!(all.map.remove(states, &key).unwrap(), map.remove(&key).map(|(_, value)| value));
            }
            Operation::ClearMap => {
                map.clear();
                all.map.clear(states).unwrap();
            }
            Operation::GetEntry(key) => {
                renew::<USED, _>(map.get_mut(&key), now);
                assert_eq!(all.map.get(states, &key).unwrap().copied(), map.get(&key).map(|(_, value)| *value));
            }
            Operation::GetMap => {
                map.values_mut().for_each(|value| renew::<USED, _>(Some(value), now));
                let found: BTreeMap<u8, u32> =
                    all.map.iter(states).unwrap().map(|(key, value)| (*key, *value)).collect();
                assert_eq!(found, map.iter().map(|(key, (_, value))| (*key, *value)).collect::<BTreeMap<_, _>>());
            }
            other => unreachable!("{other:?} is not about maps"),
        }
    }
}

fn renew<const USED: bool, T>(value: Option<&mut At<T>>, now: i64) {
    if let Some((at, _)) = value.filter(|_| USED) {
        *at = now;
    }
}

/// Takes `operations` through the suite.
pub(crate) fn run(used: bool, operations: Vec<(u8, Operation)>, memory: Option<Memory>) {
    if used { run_with::<true>(operations, memory) } else { run_with::<false>(operations, memory) }
}

fn run_with<const USED: bool>(operations: Vec<(u8, Operation)>, memory: Option<Memory>) {
    let cluster = Cluster::new(memory);
    let frozen = BTreeMap::from([(Epoch::ZERO, Model::new())]);
    let mut pair = Pair::<USED> { cluster, model: Model::new(), frozen, epoch: Epoch::ZERO };
    for (at, operation) in operations {
        pair.apply(key(at), operation);
    }
    pair.check();
    pair.apply(String::new(), Operation::Freeze);
    pair.cluster.finish();
    pair.check_completed();
    pair.apply(String::new(), Operation::Crash(2));
    pair.check();
    // What nobody reads leaves memory, the cold store and the runs.
    pair.cluster.clock.advance(TTL_MS);
    for _ in 0..40 {
        for subtask in &mut pair.cluster.subtasks {
            subtask.backend.clear_current_key();
            subtask.backend.remove_expired(200).unwrap();
        }
        pair.cluster.keep_budget();
        pair.cluster.finish();
    }
    assert_eq!(pair.cluster.live_entries(), 0);
    pair.model.clear();
    pair.apply(String::new(), Operation::Freeze);
    pair.cluster.finish();
    pair.check_completed();
    assert_eq!(pair.cluster.live_rows(), 0, "rows are left in the runs");
}
