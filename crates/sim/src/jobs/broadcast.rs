//! A keyed stream connected with rules that every subtask keeps as broadcast state.

use std::collections::BTreeMap;
use std::rc::Rc;

use millpond_core::{SplitMix64, UserResult, codec};
use millpond_dataflow::{Dataflow, KeyedContext, OpenContext, Output};
use millpond_operators::{
    KeyedBroadcastProcess, KeyedStreamOperators, SinkOperators, SourceOperators, StreamOperators,
};
use millpond_state::{BroadcastState, StateDeclarer, ValueState};

use super::{Cut, Expected, SimJob, States, lengths, same};
use crate::outside::{Line, Site, TransactionSink, Trap};
use crate::source::{Record, Script, ScriptSource};

pub(super) struct Broadcast {
    events: Rc<Script>,
    rules: Rc<Script>,
}

impl Broadcast {
    pub(super) fn new(random: &mut SplitMix64) -> Self {
        let lengths = lengths(random, 4, 250);
        let (keys, salt) = (1 + random.below(10), random.next_u64());
        let rules = vec![random.below(30)];
        Broadcast {
            events: Rc::new(Script { lengths, keys, own_keys: true, salt }),
            rules: Rc::new(Script { lengths: rules, keys: 5, own_keys: false, salt: !salt }),
        }
    }

    fn rules_at(&self, end: u64) -> BTreeMap<u64, u64> {
        self.rules.records(0, end).map(|rule| (rule.key, rule.index)).collect()
    }
}

impl SimJob for Broadcast {
    fn build(&self, flow: &mut Dataflow, site: &Site) -> UserResult {
        let rules = flow.source("rules", ScriptSource::new(&self.rules, &site.trap)).parallelism(1);
        flow.source("events", ScriptSource::new(&self.events, &site.trap))
            .key_by(|record| record.key)
            .connect_broadcast(&rules)
            .process("apply", Apply { trap: site.trap.clone(), states: None })
            .sink("out", TransactionSink::new(site));
        Ok(())
    }

    fn sources(&self) -> Vec<(&'static str, Rc<Script>)> {
        vec![("rules", Rc::clone(&self.rules)), ("events", Rc::clone(&self.events))]
    }

    fn expected(&self) -> Expected {
        let mut expected = Expected::new();
        for (split, end) in self.events.end().into_iter().enumerate() {
            for record in self.events.records(split as u32, end) {
                expected.entry(record.key).or_default().push(None);
            }
        }
        expected
    }

    /// Rules are learnt and never forgotten, not even by a restart with another parallelism.
    fn check_lines(&self, key: u64, lines: &[Line]) -> Result<(), String> {
        match lines.windows(2).find(|two| two[0].value > two[1].value) {
            None => Ok(()),
            Some(two) => Err(format!("key {key} forgot rules: {:?} then {:?}", two[0], two[1])),
        }
    }

    fn check_state(&self, cut: &Cut, states: &mut States<'_>) -> Result<(), String> {
        let rules = self.rules_at(cut["rules"][0]);
        for snapshot in states.operator("apply") {
            let map = snapshot.broadcasts.iter().find(|map| map.name == "rules");
            let entries = map.into_iter().flat_map(|map| map.entries.iter());
            let found: Result<BTreeMap<u64, u64>, _> =
                entries.map(|(key, value)| Ok((codec::decode(key)?, codec::decode(value)?))).collect();
            let found = found.map_err(|error: millpond_core::CodecError| error.to_string())?;
            same("broadcast state of a subtask", &found, &rules)?;
        }
        let mut expected: BTreeMap<u64, u64> = BTreeMap::new();
        for (split, end) in cut["events"].iter().enumerate() {
            self.events.records(split as u32, *end).for_each(|record| *expected.entry(record.key).or_default() += 1);
        }
        let found = states.keyed::<u64, u64>("apply", "count", |backend| {
            let count = backend.declarer().value::<u64>("count")?;
            Ok(count.get(backend.states_mut())?.copied().unwrap_or(0))
        })?;
        same("state of \"apply\"", &found, &expected)
    }
}

struct Apply {
    trap: Trap,
    states: Option<(ValueState<u64>, BroadcastState<u64, u64>)>,
}

impl KeyedBroadcastProcess for Apply {
    type Key = u64;
    type Input = Record;
    type Broadcast = Record;
    type Output = Line;

    fn open(&mut self, states: &mut StateDeclarer<'_, u64>, context: &mut OpenContext<'_>) -> UserResult {
        self.states = Some((states.value("count")?, context.states.broadcast_map("rules")?));
        Ok(())
    }

    fn process(
        &mut self,
        record: Record,
        context: &mut KeyedContext<'_, u64>,
        output: &mut Output<Line>,
    ) -> UserResult {
        self.trap.spring()?;
        let Some((count, rules)) = self.states else { return Ok(()) };
        let known = rules.iter(context.operator_states())?.map(|(_, index)| index + 1).max().unwrap_or(0);
        let seq = count.modify_or(
            context,
            || 0,
            |count| {
                *count += 1;
                *count
            },
        )?;
        output.emit(Line { key: record.key, seq, value: known });
        Ok(())
    }

    fn process_broadcast(
        &mut self,
        rule: Record,
        context: &mut KeyedContext<'_, u64>,
        _output: &mut Output<Line>,
    ) -> UserResult {
        self.trap.spring()?;
        let Some((_, rules)) = self.states else { return Ok(()) };
        rules.put(context.operator_states_mut(), rule.key, rule.index)?;
        Ok(())
    }
}
