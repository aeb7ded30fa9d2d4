//! Windows over records out of order, then a number for each result of a key: tumbling, sliding, session windows, and
//! windows that keep all their records.
//!
//! No record is late, whatever happens: the bound of the watermarks covers the disorder within a split. So the
//! results of a key, in the order of their windows, are known.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use millpond_core::{SplitMix64, UserResult, seed::mix64};
use millpond_dataflow::{Dataflow, KeyedContext, Output, Stream};
use millpond_operators::{
    InWindow, KeyedStreamOperators, SinkOperators, SourceOperators, StreamOperators, WatermarkStrategy, Window,
    WindowProcess, Windows,
};
use millpond_state::AggregateFunction;

use super::{Cut, Expected, SimJob, States, lengths};
use crate::outside::{Line, Site, TransactionSink, Trap};
use crate::source::{Record, Script, ScriptSource};

/// Even times, so that a session never ends where another begins.
const STEP_MS: i64 = 4;
/// How far a record may be behind its place.
const DISORDER_MS: i64 = 60;

#[derive(Clone, Copy, Debug)]
enum Shape {
    Tumbling(i64),
    /// Size and slide.
    Sliding(i64, i64),
    Session(i64),
    /// Tumbling, with all records kept.
    Kept(i64),
}

pub(super) struct WindowJob {
    script: Rc<Script>,
    shape: Shape,
}

impl WindowJob {
    pub(super) fn new(random: &mut SplitMix64) -> Self {
        let lengths = lengths(random, 4, 200);
        let (keys, salt) = (1 + random.below(8), random.next_u64());
        let shape = match random.below(4) {
            0 => Shape::Tumbling(50),
            1 => Shape::Sliding(60, 20),
            2 => Shape::Session(31),
            _ => Shape::Kept(50),
        };
        WindowJob { script: Rc::new(Script { lengths, keys, own_keys: true, salt }), shape }
    }
}

fn time_of(record: &Record) -> i64 {
    let behind = (record.value >> 20) as i64 % (DISORDER_MS / 2) * 2;
    record.index as i64 * STEP_MS - behind
}

fn value_of(window: Window, sum: u64, count: u64) -> u64 {
    mix64((window.start as u64).wrapping_add(mix64((window.end as u64).wrapping_add(mix64(sum ^ mix64(count))))))
}

/// Sum and number of values.
struct Sum;

impl AggregateFunction for Sum {
    type Input = Record;
    type Accumulator = (u64, u64);
    type Output = (u64, u64);

    fn create_accumulator(&self) -> (u64, u64) {
        (0, 0)
    }

    fn add(&self, record: Record, (sum, count): &mut (u64, u64)) {
        *sum = sum.wrapping_add(record.value);
        *count += 1;
    }

    fn result(&self, accumulator: &(u64, u64)) -> (u64, u64) {
        *accumulator
    }

    fn merge(&self, one: (u64, u64), other: (u64, u64)) -> (u64, u64) {
        (one.0.wrapping_add(other.0), one.1 + other.1)
    }
}

struct SumAll(Trap);

impl WindowProcess for SumAll {
    type Key = u64;
    type Input = Record;
    type Output = Line;

    fn process(
        &mut self,
        window: Window,
        records: &[InWindow<Record>],
        context: &mut KeyedContext<'_, u64>,
        output: &mut Output<Line>,
    ) -> UserResult {
        self.0.spring()?;
        let sum = records.iter().fold(0u64, |sum, (record, _)| sum.wrapping_add(record.value));
        output.emit(Line { key: *context.key()?, seq: 0, value: value_of(window, sum, records.len() as u64) });
        Ok(())
    }
}

fn millis(ms: i64) -> Duration {
    Duration::from_millis(ms.unsigned_abs())
}

impl SimJob for WindowJob {
    fn build(&self, flow: &mut Dataflow, site: &Site) -> UserResult {
        let strategy = WatermarkStrategy::bounded_out_of_orderness(millis(DISORDER_MS)).timestamps(time_of);
        let records = flow.timed_source("events", ScriptSource::new(&self.script, &site.trap), strategy);
        let keyed = records.key_by(|record| record.key);
        let windows = match self.shape {
            Shape::Tumbling(size) | Shape::Kept(size) => Windows::tumbling(millis(size)),
            Shape::Sliding(size, slide) => Windows::sliding(millis(size), millis(slide)),
            Shape::Session(gap) => Windows::session(millis(gap)),
        };
        let windowed = keyed.window(windows);
        let trap = site.trap.clone();
        let results: Stream<Line> = match self.shape {
            Shape::Kept(_) => windowed.process("windows", SumAll(trap)),
            _ => windowed.aggregate_with("windows", Sum, move |key, window, (sum, count), output| {
                trap.spring()?;
                output.emit(Line { key: *key, seq: 0, value: value_of(window, sum, count) });
                Ok(())
            }),
        };
        results
            .key_by(|line| line.key)
            .process_with(
                "numbers",
                |states| states.value::<u64>("number"),
                |number, line: Line, context, output| {
                    let seq = number.modify_or(
                        context,
                        || 0,
                        |number| {
                            *number += 1;
                            *number
                        },
                    )?;
                    output.emit(Line { seq, ..line });
                    Ok(())
                },
            )
            .sink("out", TransactionSink::new(site));
        Ok(())
    }

    fn sources(&self) -> Vec<(&'static str, Rc<Script>)> {
        vec![("events", Rc::clone(&self.script))]
    }

    fn expected(&self) -> Expected {
        let ends = self.script.end();
        let splits = ends.iter().enumerate();
        let records: Vec<Record> = splits.flat_map(|(split, end)| self.script.records(split as u32, *end)).collect();
        let mut by_key: BTreeMap<u64, Vec<(i64, u64)>> = BTreeMap::new();
        for record in &records {
            by_key.entry(record.key).or_default().push((time_of(record), record.value));
        }
        let lines = by_key.into_iter().map(|(key, mut records)| {
            records.sort_unstable();
            (key, self.results(&records).into_iter().map(Some).collect())
        });
        lines.collect()
    }

    fn check_state(&self, _cut: &Cut, _states: &mut States<'_>) -> Result<(), String> {
        // What windows hold at a cut depends on how far event time had come.
        Ok(())
    }
}

impl WindowJob {
    /// The results of a key whose records are in order of time.
    fn results(&self, records: &[(i64, u64)]) -> Vec<u64> {
        // By end first: in the order of firing.
        let mut windows: BTreeMap<(i64, i64), (u64, u64)> = BTreeMap::new();
        let mut add = |start: i64, end: i64, value: u64| {
            let held = windows.entry((end, start)).or_default();
            *held = (held.0.wrapping_add(value), held.1 + 1);
        };
        match self.shape {
            Shape::Tumbling(size) | Shape::Kept(size) => {
                for (time, value) in records {
                    let start = time - time.rem_euclid(size);
                    add(start, start + size, *value);
                }
            }
            Shape::Sliding(size, slide) => {
                for (time, value) in records {
                    let mut start = time - time.rem_euclid(slide);
                    while start > time - size {
                        add(start, start + size, *value);
                        start -= slide;
                    }
                }
            }
            Shape::Session(gap) => {
                let sessions = records.chunk_by(|(one, _), (next, _)| next - one <= gap);
                for session in sessions {
                    let (start, end) = (session[0].0, session[session.len() - 1].0 + gap);
                    session.iter().for_each(|(_, value)| add(start, end, *value));
                }
            }
        }
        let results = windows.into_iter();
        results.map(|((end, start), (sum, count))| value_of(Window::new(start, end), sum, count)).collect()
    }
}
