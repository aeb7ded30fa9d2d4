//! Counts, last values and a map per key; then a tally per split behind a second exchange.

use std::collections::BTreeMap;
use std::rc::Rc;

use millpond_core::{SplitMix64, UserResult, seed::mix64};
use millpond_dataflow::{Dataflow, KeyedContext, OpenContext, Output};
use millpond_operators::{
    KeyedProcess, KeyedStreamOperators, LoggedSinkOperators, SinkOperators, SourceOperators, StreamOperators,
};
use millpond_state::{ListState, MapState, StateDeclarer, ValueState};

use super::{Cut, Expected, SimJob, States, lengths, same};
use crate::logged::LoggedLines;
use crate::outside::{Line, Site, TransactionSink, Trap};
use crate::source::{Record, Script, ScriptSource};

/// The value of a key's last line.
const LAST: u64 = u64::MAX;

pub(super) struct Counts {
    script: Rc<Script>,
    /// Size of the sink's log in bytes, if it is one with a log.
    log_bytes: Option<usize>,
}

impl Counts {
    pub(super) fn new(random: &mut SplitMix64) -> Self {
        let lengths = lengths(random, 5, 250);
        let (keys, salt) = (1 + random.below(12), random.next_u64());
        Counts { script: Rc::new(Script { lengths, keys, own_keys: true, salt }), log_bytes: None }
    }

    /// With a logged sink, whose log may be so small that it is always full.
    pub(super) fn logged(random: &mut SplitMix64) -> Self {
        let log_bytes = Some([0, 60, 400, 1 << 20][random.below(4) as usize]);
        Counts { log_bytes, ..Counts::new(random) }
    }
}

/// What a key remembers, as the oracle has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Memory {
    count: u64,
    last: Vec<u64>,
    seen: BTreeMap<u64, u64>,
    /// Set by some values, forgotten by others.
    mark: Option<u64>,
}

impl Memory {
    fn add(&mut self, value: u64) -> u64 {
        self.count += 1;
        self.last.push(value);
        if self.last.len() > 3 {
            self.last.remove(0);
        }
        if self.count.is_multiple_of(10) {
            self.last.clear();
        }
        let seen = self.seen.entry(value % 5).or_default();
        *seen += 1;
        if *seen == 3 {
            self.seen.remove(&(value % 5));
        }
        match value % 4 {
            0 => self.mark = Some(value),
            1 => self.mark = None,
            _ => {}
        }
        digest(&self.last, self.mark, self.seen.iter().map(|(key, count)| (*key, *count)))
    }
}

/// Does not depend on the order of the map.
fn digest(last: &[u64], mark: Option<u64>, seen: impl Iterator<Item = (u64, u64)>) -> u64 {
    let list = last.iter().chain(&mark).fold(7, |digest, value| mix64(digest ^ value));
    seen.fold(list, |digest, (key, count)| digest.wrapping_add(mix64(key * 1_000 + count)))
}

impl SimJob for Counts {
    fn build(&self, flow: &mut Dataflow, site: &Site) -> UserResult {
        let lines = flow
            .source("events", ScriptSource::new(&self.script, &site.trap))
            .key_by(|record| record.key)
            .process("memory", Remember { trap: site.trap.clone(), states: None })
            .key_by(|line| line.key / 1_000)
            .process_with(
                "tally",
                |states| states.value::<u64>("tally"),
                |tally, line: Line, context, output| {
                    tally.modify_or(context, || 0, |tally| *tally += 1)?;
                    output.emit(line);
                    Ok(())
                },
            );
        match self.log_bytes {
            Some(bytes) => lines.logged_sink("out", LoggedLines::new(site, bytes)),
            None => lines.sink("out", TransactionSink::new(site)),
        };
        Ok(())
    }

    fn sources(&self) -> Vec<(&'static str, Rc<Script>)> {
        vec![("events", Rc::clone(&self.script))]
    }

    fn expected(&self) -> Expected {
        let mut memories: BTreeMap<u64, Memory> = BTreeMap::new();
        let mut expected = Expected::new();
        for record in all_records(&self.script, &self.script.end()) {
            let digest = memories.entry(record.key).or_default().add(record.value);
            expected.entry(record.key).or_default().push(Some(digest));
        }
        expected.values_mut().for_each(|lines| lines.push(Some(LAST)));
        expected
    }

    fn check_state(&self, cut: &Cut, states: &mut States<'_>) -> Result<(), String> {
        let mut expected: BTreeMap<u64, Memory> = BTreeMap::new();
        for record in all_records(&self.script, &cut["events"]) {
            expected.entry(record.key).or_default().add(record.value);
        }
        let found = states.keyed::<u64, Memory>("memory", "count", |backend| {
            let declared = Declared::declare(&mut backend.declarer())?;
            let states = backend.states_mut();
            let count = declared.count.get(states)?.copied().unwrap_or(0);
            let last = declared.last.get(states)?.to_vec();
            let seen = declared.seen.iter(states)?.map(|(key, count)| (*key, *count)).collect();
            let mark = declared.mark.get(states)?.copied();
            Ok(Memory { count, last, seen, mark })
        })?;
        same("state of \"memory\"", &found, &expected)?;
        let tally = states.keyed::<u64, u64>("tally", "tally", |backend| {
            let tally = backend.declarer().value::<u64>("tally")?;
            Ok(tally.get(backend.states_mut())?.copied().unwrap_or(0))
        })?;
        // At the very end one more line per key passes.
        let at_end = cut["events"] == self.script.end();
        let mut lines: BTreeMap<u64, u64> = BTreeMap::new();
        expected.iter().for_each(|(key, memory)| *lines.entry(key / 1_000).or_default() += memory.count);
        let mut with_last = lines.clone();
        expected.keys().for_each(|key| *with_last.entry(key / 1_000).or_default() += 1);
        if at_end && tally == with_last { Ok(()) } else { same("state of \"tally\"", &tally, &lines) }
    }
}

fn all_records(script: &Script, ends: &[u64]) -> Vec<Record> {
    ends.iter().enumerate().flat_map(|(split, end)| script.records(split as u32, *end)).collect()
}

#[derive(Clone, Copy)]
struct Declared {
    count: ValueState<u64>,
    last: ListState<u64>,
    seen: MapState<u64, u64>,
    mark: ValueState<u64>,
}

impl Declared {
    fn declare(states: &mut StateDeclarer<'_, u64>) -> UserResult<Declared> {
        Ok(Declared {
            count: states.value("count")?,
            last: states.list("last")?,
            seen: states.map("seen")?,
            mark: states.value("mark")?,
        })
    }
}

struct Remember {
    trap: Trap,
    states: Option<Declared>,
}

impl KeyedProcess for Remember {
    type Key = u64;
    type Input = Record;
    type Output = Line;

    fn open(&mut self, states: &mut StateDeclarer<'_, u64>, _context: &mut OpenContext<'_>) -> UserResult {
        self.trap.spring()?;
        self.states = Some(Declared::declare(states)?);
        Ok(())
    }

    fn process(
        &mut self,
        record: Record,
        context: &mut KeyedContext<'_, u64>,
        output: &mut Output<Line>,
    ) -> UserResult {
        self.trap.spring()?;
        let Some(Declared { count, last, seen, mark }) = self.states else { return Ok(()) };
        let number = count.modify_or(
            context,
            || 0,
            |count| {
                *count += 1;
                *count
            },
        )?;
        last.add(context, record.value)?;
        if last.len(context)? > 3 {
            let rest = last.get(context)?[1..].to_vec();
            last.update(context, rest)?;
        }
        if number % 10 == 0 {
            last.clear(context)?;
        }
        let bucket = record.value % 5;
        let times = seen.get(context, &bucket)?.copied().unwrap_or(0) + 1;
        if times == 3 {
            seen.remove(context, &bucket)?;
        } else {
            seen.put(context, bucket, times)?;
        }
        match record.value % 4 {
            0 => mark.set(context, record.value)?,
            1 => mark.clear(context)?,
            _ => {}
        }
        let (list, marked) = (last.get(context)?.to_vec(), mark.get(context)?.copied());
        let value = digest(&list, marked, seen.iter(context)?.map(|(key, count)| (*key, *count)));
        output.emit(Line { key: record.key, seq: number, value });
        Ok(())
    }

    fn on_end(&mut self, context: &mut KeyedContext<'_, u64>, output: &mut Output<Line>) -> UserResult {
        let Some(Declared { count, .. }) = self.states else { return Ok(()) };
        context.for_each_key("count", |states| {
            let number = count.get(states)?.copied().unwrap_or(0);
            let key = states.current_key().copied().unwrap_or(0);
            output.emit(Line { key, seq: number + 1, value: LAST });
            Ok(())
        })
    }
}
