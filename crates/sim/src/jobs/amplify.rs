//! A flat map that makes many records of one; aggregate, fold and reduce side by side behind it.

use std::collections::BTreeMap;
use std::rc::Rc;

use millpond_core::{SplitMix64, UserResult};
use millpond_dataflow::Dataflow;
use millpond_operators::{KeyedStreamOperators, SinkOperators, SourceOperators, StreamOperators};
use millpond_state::AggregateFunction;

use super::{Cut, Expected, SimJob, States, lengths, same};
use crate::outside::{Line, Site, TransactionSink};
use crate::source::{Record, Script, ScriptSource};

pub(super) struct Amplify {
    script: Rc<Script>,
    /// Records that one record in 50 becomes.
    burst: u64,
}

/// Count and sum, or count and maximum.
type Pair = (u64, u64);

impl Amplify {
    pub(super) fn new(random: &mut SplitMix64) -> Self {
        let lengths = lengths(random, 4, 120);
        let (keys, salt) = (1 + random.below(6), random.next_u64());
        let burst = match random.below(40) {
            0 => 20_000,
            1..10 => 1_500,
            _ => 40,
        };
        Amplify { script: Rc::new(Script { lengths, keys, own_keys: false, salt }), burst }
    }

    fn totals(&self, ends: &[u64]) -> BTreeMap<u64, [Pair; 2]> {
        let mut totals: BTreeMap<u64, [Pair; 2]> = BTreeMap::new();
        for (split, end) in ends.iter().enumerate() {
            for record in self.script.records(split as u32, *end) {
                for value in copies(&record, self.burst) {
                    let [sum, largest] = totals.entry(record.key).or_default();
                    *sum = (sum.0 + 1, sum.1.wrapping_add(value));
                    *largest = (largest.0 + 1, largest.1.max(value));
                }
            }
        }
        totals
    }
}

fn copies(record: &Record, burst: u64) -> impl Iterator<Item = u64> + use<> {
    let count = if record.value % 50 == 7 { burst } else { record.value % 4 };
    let value = record.value;
    (0..count).map(move |copy| (value >> 16).wrapping_add(copy))
}

struct Sum;

impl AggregateFunction for Sum {
    type Input = (u64, u64);
    type Accumulator = Pair;
    type Output = Pair;

    fn create_accumulator(&self) -> Pair {
        (0, 0)
    }

    fn add(&self, (_, value): (u64, u64), accumulator: &mut Pair) {
        *accumulator = (accumulator.0 + 1, accumulator.1.wrapping_add(value));
    }

    fn result(&self, accumulator: &Pair) -> Pair {
        *accumulator
    }

    fn merge(&self, one: Pair, other: Pair) -> Pair {
        (one.0 + other.0, one.1.wrapping_add(other.1))
    }
}

impl SimJob for Amplify {
    fn build(&self, flow: &mut Dataflow, site: &Site) -> UserResult {
        let (burst, trap) = (self.burst, site.trap.clone());
        let many = flow.source("events", ScriptSource::new(&self.script, &site.trap)).flat_map(move |record| {
            let key = record.key;
            copies(&record, burst).map(move |value| (key, value))
        });
        let watched = many.try_filter(move |_| trap.spring().map(|()| true));
        let keyed = watched.key_by(|(key, _)| *key);
        let line = |offset: u64| move |(key, (seq, value)): (u64, Pair)| Line { key: key + offset, seq, value };
        let sums = keyed.aggregate("sum", Sum).map(line(0));
        let folds = keyed
            .fold("fold", (0, 0), |sum: &mut Pair, (_, value)| *sum = (sum.0 + 1, sum.1.wrapping_add(value)))
            .map(line(100));
        let largest = watched
            .map(|(key, value)| (key, (1, value)))
            .key_by(|(key, _): &(u64, Pair)| *key)
            .reduce("largest", |a, b| (a.0, (a.1.0 + b.1.0, a.1.1.max(b.1.1))))
            .map(|(key, (_, pair))| (key, pair))
            .map(line(200));
        sums.union(&folds).union(&largest).sink("out", TransactionSink::new(site));
        Ok(())
    }

    fn sources(&self) -> Vec<(&'static str, Rc<Script>)> {
        vec![("events", Rc::clone(&self.script))]
    }

    fn expected(&self) -> Expected {
        let mut expected = Expected::new();
        for (key, [sum, largest]) in self.totals(&self.script.end()) {
            for (key, (count, last)) in [(key, sum), (key + 100, sum), (key + 200, largest)] {
                let mut lines = vec![None; count as usize];
                if let Some(line) = lines.last_mut() {
                    *line = Some(last);
                }
                expected.insert(key, lines);
            }
        }
        expected
    }

    fn check_state(&self, cut: &Cut, states: &mut States<'_>) -> Result<(), String> {
        let totals = self.totals(&cut["events"]);
        let sums: BTreeMap<u64, Pair> = totals.iter().map(|(key, [sum, _])| (*key, *sum)).collect();
        let largest: BTreeMap<u64, Pair> = totals.iter().map(|(key, [_, largest])| (*key, *largest)).collect();
        for operator in ["sum", "fold"] {
            let found = states.keyed::<u64, Pair>(operator, "accumulator", |backend| {
                let state = backend.declarer().value::<Pair>("accumulator")?;
                Ok(state.get(backend.states_mut())?.copied().unwrap_or_default())
            })?;
            same(&format!("state of {operator:?}"), &found, &sums)?;
        }
        let found = states.keyed::<u64, Pair>("largest", "result", |backend| {
            let state = backend.declarer().value::<(u64, Pair)>("result")?;
            Ok(state.get(backend.states_mut())?.copied().unwrap_or_default().1)
        })?;
        same("state of \"largest\"", &found, &largest)
    }
}
