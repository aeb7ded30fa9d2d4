//! `join`: a keyed co-process of two streams, in which each side waits in state for its partner.
//!
//! Step i sends the left record i and the right record i - `keys`, so that `keys` pairs are pending; the key of both is
//! `splitmix64(i)`. The value says the index and, in the lowest bit, the side.

use std::sync::Arc;

use millpond_core::seed::mix64;
use millpond_core::{SplitMix64, UserResult};
use millpond_dataflow::{Dataflow, KeyedContext, OpenContext, Output, ReadStatus, Source, Split, SplitReader};
use millpond_jobmanager::Job;
use millpond_operators::{KeyedCoProcess, KeyedStreamOperators, SinkOperators, SourceOperators, StreamOperators};
use millpond_state::{StateDeclarer, ValueState};
use serde::{Deserialize, Serialize};

use crate::count::run_keyed;
use crate::event::{Event, Input};
use crate::parameters::Parameters;
use crate::probe::Probe;
use crate::setup::add_rates;
use crate::sink::{Checksum, ChecksumSink};

/// Two records a step.
#[derive(Clone, Copy, Debug)]
struct Pairs {
    steps: u64,
    pending: u64,
    splits: u64,
    probe: Option<&'static Probe>,
}

impl Pairs {
    fn new(input: &Input) -> Pairs {
        Pairs { steps: input.records / 2, pending: input.keys, splits: input.splits, probe: input.probe }
    }

    /// How many records all steps send together.
    fn records(self) -> u64 {
        self.steps + self.matches()
    }

    /// How many pairs meet.
    fn matches(self) -> u64 {
        self.steps.saturating_sub(self.pending)
    }
}

/// Every `splits`-th step from `next` on.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct StepSplit {
    number: u64,
    next: u64,
}

impl Split for StepSplit {
    fn id(&self) -> String {
        self.number.to_string()
    }
}

impl Source for Pairs {
    type Record = Event;
    type Split = StepSplit;
    type Reader = StepReader;

    fn enumerate(&mut self) -> UserResult<Vec<StepSplit>> {
        Ok((0..self.splits).map(|number| StepSplit { number, next: number }).collect())
    }

    fn open_split(&mut self, split: StepSplit) -> UserResult<StepReader> {
        Ok(StepReader { pairs: *self, split })
    }
}

struct StepReader {
    pairs: Pairs,
    split: StepSplit,
}

/// The record of a side: 0 for left, 1 for right.
#[inline]
fn record(index: u64, side: u64) -> Event {
    Event { key: SplitMix64::nth(index), value: index << 1 | side }
}

impl SplitReader for StepReader {
    type Record = Event;
    type Split = StepSplit;

    fn read(&mut self, limit: usize, output: &mut Output<Event>) -> UserResult<ReadStatus> {
        if let Some(probe) = self.pairs.probe {
            probe.mark_start();
        }
        for _ in 0..limit.div_ceil(2) {
            let step = self.split.next;
            if step >= self.pairs.steps {
                return Ok(ReadStatus::Finished);
            }
            output.emit(record(step, 0));
            if let Some(partner) = step.checked_sub(self.pairs.pending) {
                output.emit(record(partner, 1));
            }
            self.split.next += self.pairs.splits;
        }
        Ok(ReadStatus::Ready)
    }

    fn split(&self) -> StepSplit {
        self.split.clone()
    }
}

/// What a pair adds to the checksum.
#[inline]
fn match_hash(left: u64, right: u64) -> u64 {
    mix64(left.wrapping_add(mix64(right)))
}

#[derive(Clone, Copy, Default)]
struct Match {
    waiting: Option<(ValueState<u64>, ValueState<u64>)>,
}

/// The states exist from `open` on, which is called first.
const OPENED: &str = "open comes first";

/// Takes the partner out of `other`, or waits in `own`.
#[inline]
fn meet(
    own: ValueState<u64>,
    other: ValueState<u64>,
    value: u64,
    context: &mut KeyedContext<'_, u64>,
) -> UserResult<Option<u64>> {
    let partner = other.get(context)?.copied();
    if partner.is_some() {
        other.clear(context)?;
    } else {
        own.set(context, value)?;
    }
    Ok(partner)
}

impl KeyedCoProcess for Match {
    type Key = u64;
    type Left = Event;
    type Right = Event;
    type Output = Event;

    fn open(&mut self, states: &mut StateDeclarer<'_, u64>, _: &mut OpenContext<'_>) -> UserResult {
        self.waiting = Some((states.value("left")?, states.value("right")?));
        Ok(())
    }

    fn process_left(
        &mut self,
        left: Event,
        context: &mut KeyedContext<'_, u64>,
        output: &mut Output<Event>,
    ) -> UserResult {
        let (lefts, rights) = self.waiting.expect(OPENED);
        if let Some(right) = meet(lefts, rights, left.value, context)? {
            output.emit(Event { key: left.key, value: match_hash(left.value, right) });
        }
        Ok(())
    }

    fn process_right(
        &mut self,
        right: Event,
        context: &mut KeyedContext<'_, u64>,
        output: &mut Output<Event>,
    ) -> UserResult {
        let (lefts, rights) = self.waiting.expect(OPENED);
        if let Some(left) = meet(rights, lefts, right.value, context)? {
            output.emit(Event { key: right.key, value: match_hash(left, right.value) });
        }
        Ok(())
    }
}

fn job(input: Input, checksum: &Arc<Checksum>) -> Job {
    let checksum = Arc::clone(checksum);
    Arc::new(move |flow: &mut Dataflow| -> UserResult {
        let records = flow.source("gen", Pairs::new(&input));
        let side = |side: u64| records.filter(move |event: &Event| event.value & 1 == side).key_by(|event| event.key);
        side(0).connect(&side(1)).process("join", Match::default()).sink("sink", ChecksumSink::new(&checksum));
        Ok(())
    })
}

/// The checksum by a plain replay.
fn expected(input: &Input) -> u64 {
    let hashes = (0..Pairs::new(input).matches()).map(|index| match_hash(index << 1, index << 1 | 1));
    hashes.fold(0, u64::wrapping_add)
}

/// Runs the workload; returns the fields of its line.
pub(crate) fn run(parameters: &Parameters) -> Result<serde_json::Value, String> {
    let mut line = run_keyed(parameters, "join", &job, &expected)?;
    // Until `keys` pairs are pending, a step sends its left record only.
    let measured = Pairs::new(&crate::setup::input(parameters)?).records();
    let seconds = |field: &str| line[field].as_f64().unwrap_or(0.0);
    let span = (seconds("wall_s"), seconds("cpu_s"), seconds("other_cpu_s"));
    add_rates(&mut line, measured, span);
    Ok(line)
}
