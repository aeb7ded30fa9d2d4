//! Any changes over any epochs: what is read is what was there.

use std::collections::BTreeSet;

use millpond_state_reader::{Change, diff};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{Job, Model, OPERATOR, Seen, content};

#[derive(Clone, Debug)]
enum Step {
    Set(u8, u16),
    Forget(u8),
    Append(u8, u16, usize),
    Replace(u8, Vec<u16>),
    Put(u8, u8, u32),
    Remove(u8, u8),
    Sum(u8, u32),
    Checkpoint,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0u8..40, any::<u16>()).prop_map(|(key, value)| Step::Set(key, value)),
        (0u8..40).prop_map(Step::Forget),
        (0u8..5, any::<u16>(), 1usize..300).prop_map(|(key, value, times)| Step::Append(key, value, times)),
        (0u8..5, prop::collection::vec(any::<u16>(), 0..4)).prop_map(|(key, values)| Step::Replace(key, values)),
        (0u8..10, 0u8..10, any::<u32>()).prop_map(|(key, user_key, value)| Step::Put(key, user_key, value)),
        (0u8..10, 0u8..10).prop_map(|(key, user_key)| Step::Remove(key, user_key)),
        (0u8..40, 0u32..1_000).prop_map(|(key, value)| Step::Sum(key, value)),
        Just(Step::Checkpoint),
    ];
    prop::collection::vec(step, 1..80)
}

/// Name of a key: some are prefixes of others.
fn name(key: u8) -> String {
    "k".repeat(usize::from(key))
}

#[derive(Clone, Default)]
struct Models {
    seen: Model,
    list: Model,
    map: Model,
    sum: Model,
    count: Model,
}

impl Models {
    fn all(&self) -> [(&'static str, &Model); 5] {
        [("seen", &self.seen), ("list", &self.list), ("map", &self.map), ("sum", &self.sum), ("count", &self.count)]
    }
}

fn elements(model: &Model, key: &str) -> usize {
    model.keys().filter(|(of, _)| of == key).count()
}

fn apply(job: &mut Job, models: &mut Models, step: &Step) {
    let plain = |key: u8| (name(key), String::new());
    let inner = |key: u8, user_key: u8| (name(key), user_key.to_string());
    match step {
        Step::Set(key, value) => {
            let seen = Seen { times: u64::from(*value) << 40, delay: (value % 2 == 0).then_some(-7), last: name(*key) };
            models.seen.insert(plain(*key), json!({"times": seen.times, "delay": seen.delay, "last": seen.last}));
            let state = job.states.seen;
            state.set(job.at(&name(*key)).states_mut(), seen).unwrap();
        }
        Step::Forget(key) => {
            models.seen.remove(&plain(*key));
            models.sum.remove(&plain(*key));
            models.list.retain(|(of, _), _| *of != name(*key));
            models.map.retain(|(of, _), _| *of != name(*key));
            let (seen, sum, list, map) = (job.states.seen, job.states.sum, job.states.list, job.states.map);
            let states = job.at(&name(*key)).states_mut();
            seen.clear(states).unwrap();
            sum.clear(states).unwrap();
            list.clear(states).unwrap();
            map.clear(states).unwrap();
        }
        Step::Append(key, value, times) => {
            let first = elements(&models.list, &name(*key));
            for index in first..first + times {
                models.list.insert((name(*key), index.to_string()), json!(value));
            }
            let list = job.states.list;
            list.add_all(job.at(&name(*key)).states_mut(), vec![*value; *times]).unwrap();
        }
        Step::Replace(key, values) => {
            models.list.retain(|(of, _), _| *of != name(*key));
            for (index, value) in values.iter().enumerate() {
                models.list.insert((name(*key), index.to_string()), json!(value));
            }
            let list = job.states.list;
            list.update(job.at(&name(*key)).states_mut(), values.clone()).unwrap();
        }
        Step::Put(key, user_key, value) => {
            models.map.insert(inner(*key, *user_key), json!(value));
            let map = job.states.map;
            map.put(job.at(&name(*key)).states_mut(), user_key.to_string(), *value).unwrap();
        }
        Step::Remove(key, user_key) => {
            models.map.remove(&inner(*key, *user_key));
            let map = job.states.map;
            map.remove(job.at(&name(*key)).states_mut(), &user_key.to_string()).unwrap();
        }
        Step::Sum(key, value) => {
            let before = models.sum.get(&plain(*key)).and_then(Value::as_u64).unwrap_or_default();
            models.sum.insert(plain(*key), json!(before + u64::from(*value)));
            let old = models.count.get(&plain(*key)).cloned().unwrap_or_else(|| json!([0, 0]));
            let (total, times) = (old[0].as_u64().unwrap(), old[1].as_u64().unwrap());
            models.count.insert(plain(*key), json!([total + u64::from(*value), times + 1]));
            let (sum, count) = (job.states.sum, job.states.count);
            let states = job.at(&name(*key)).states_mut();
            sum.add(states, u64::from(*value)).unwrap();
            count.add(states, *value).unwrap();
        }
        Step::Checkpoint => job.checkpoint(),
    }
}

/// Lines that `diff` must give between two contents.
fn expected_changes(before: &Model, after: &Model) -> BTreeSet<(String, String, Change)> {
    let mut changes = BTreeSet::new();
    for (key, old) in before {
        match after.get(key) {
            None => changes.insert((key.0.clone(), key.1.clone(), Change::Removed)),
            Some(new) if new != old => changes.insert((key.0.clone(), key.1.clone(), Change::Changed)),
            Some(_) => false,
        };
    }
    for key in after.keys().filter(|key| !before.contains_key(key)) {
        changes.insert((key.0.clone(), key.1.clone(), Change::Added));
    }
    changes
}

fn check_lookups(job: &Job, state: &str, model: &Model) {
    let reader = job.reader();
    let info = reader.state(OPERATOR, state, None).unwrap();
    for key in (0u8..40).map(name) {
        let found = reader.get(&info, &json!(key), None).unwrap();
        assert_eq!(found.len(), elements(model, &key), "{state} of {key:?}");
        for entry in found {
            let inner = entry.user_key.as_ref().and_then(Value::as_str).map(str::to_owned);
            let inner = inner.or(entry.index.map(|index| index.to_string())).unwrap_or_default();
            assert_eq!(model.get(&(key.clone(), inner)), Some(&entry.value));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn what_is_read_counted_looked_up_and_compared_is_what_was_there(steps in steps(), key_groups in 1u32..40) {
        let mut job = Job::new(key_groups);
        let mut models = Models::default();
        let mut stored = vec![Models::default()];
        job.checkpoint();
        for step in &steps {
            apply(&mut job, &mut models, step);
            if matches!(step, Step::Checkpoint) {
                stored.push(models.clone());
            }
        }
        job.checkpoint();
        stored.push(models.clone());
        let reader = job.reader();
        for (state, model) in models.all() {
            prop_assert_eq!(&content(&reader, state), model);
            check_lookups(&job, state, model);
            let info = reader.state(OPERATOR, state, None).unwrap();
            let count = reader.count(&info).unwrap();
            let keys: BTreeSet<&String> = model.keys().map(|(key, _)| key).collect();
            prop_assert_eq!((count.keys, count.entries), (Some(keys.len() as u64), model.len() as u64));
            let top = reader.top(&info, 3).unwrap();
            prop_assert_eq!((top.state.keys, top.state.entries), (keys.len() as u64, model.len() as u64));
            let most = keys.iter().map(|key| elements(model, key)).max();
            prop_assert_eq!(top.by_entries.first().map(|key| key.entries as usize), most);
            let in_groups: usize = (0..key_groups as u16)
                .map(|group| reader.entries_of_group(&info, millpond_core::KeyGroup(group)).unwrap().count())
                .sum();
            prop_assert_eq!(in_groups, model.len());
        }
        let middle = 1 + (stored.len() - 1) / 2;
        let old = job.reader_at(middle as u64);
        for ((state, before), (_, after)) in stored[middle - 1].all().into_iter().zip(models.all()) {
            let (first, second) = (old.state(OPERATOR, state, None).unwrap(), reader.state(OPERATOR, state, None).unwrap());
            let mut found = BTreeSet::new();
            for difference in diff((&old, Some(&first)), (&reader, Some(&second))).unwrap() {
                let difference = difference.unwrap();
                let key = difference.key.unwrap().as_str().unwrap().to_owned();
                let inner = difference.user_key.as_ref().and_then(Value::as_str).map(str::to_owned);
                let inner = inner.or(difference.index.map(|index| index.to_string())).unwrap_or_default();
                let place = (key.clone(), inner.clone());
                prop_assert_eq!(difference.before.as_ref(), before.get(&place));
                prop_assert_eq!(difference.after.as_ref(), after.get(&place));
                prop_assert!(found.insert((key, inner, difference.change)));
            }
            prop_assert_eq!(found, expected_changes(before, after));
        }
    }
}

#[test]
fn one_entry_of_a_map_is_found_by_its_user_key() {
    let mut job = Job::new(8);
    let map = job.states.map;
    for user_key in 0..300u32 {
        map.put(job.at("a").states_mut(), user_key.to_string(), user_key).unwrap();
    }
    job.checkpoint();
    let reader = job.reader();
    let info = reader.state(OPERATOR, "map", None).unwrap();
    let found = reader.get(&info, &json!("a"), Some(&json!("77"))).unwrap();
    assert_eq!(found.iter().map(|entry| &entry.value).collect::<Vec<_>>(), [&json!(77)]);
    assert!(reader.get(&info, &json!("a"), Some(&json!("300"))).unwrap().is_empty());
    assert!(reader.get(&info, &json!("b"), Some(&json!("77"))).unwrap().is_empty());
    let error = reader.get(&info, &json!(7), None).unwrap_err().to_string();
    assert!(error.starts_with("7 is no key of state \"map\" of operator \"per key\": "), "{error}");
}

#[test]
fn a_list_says_what_is_stored_without_reading_it() {
    let mut job = Job::new(8);
    let seen = job.states.seen;
    for key in ["a", "b"] {
        seen.set(job.at(key).states_mut(), Seen { times: 1, delay: None, last: String::new() }).unwrap();
    }
    job.checkpoint();
    seen.clear(job.at("a").states_mut()).unwrap();
    job.checkpoint();
    let summaries = job.reader().summaries(None).unwrap();
    let names: Vec<&str> = summaries.iter().map(|summary| summary.state.as_str()).collect();
    assert_eq!(names, ["count", "list", "map", "seen", "sum"]);
    let seen = &summaries[3];
    assert_eq!((seen.rows, seen.tombstones, seen.runs), (3, 1, 2));
    assert!(seen.bytes > 0 && summaries[0].bytes == 0);
    assert!(job.reader().summaries(Some("other")).is_err());
}
