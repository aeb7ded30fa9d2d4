//! The generated input, the same for all engines: record i has key `splitmix64(i) mod keys` and value i.

use millpond_core::{SplitMix64, UserResult};
use millpond_dataflow::{Output, ReadStatus, Source, Split, SplitReader};
use serde::{Deserialize, Serialize};

use crate::probe::Probe;

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Event {
    pub(crate) key: u64,
    pub(crate) value: u64,
}

/// How keys are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Distribution {
    Uniform,
    Zipf,
}

impl Distribution {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Distribution::Uniform => "uniform",
            Distribution::Zipf => "zipf",
        }
    }
}

/// Draws the key of record `index`.
#[inline]
pub(crate) fn key_of(index: u64, keys: u64, distribution: Distribution) -> u64 {
    let hash = SplitMix64::nth(index);
    match distribution {
        Distribution::Uniform => hash % keys,
        Distribution::Zipf => {
            let octaves = u64::from(64 - keys.leading_zeros());
            let octave = ((hash >> 32) * octaves) >> 32;
            let base = (1u64 << octave) - 1;
            (base + (hash & 0xffff_ffff & base)) % keys
        }
    }
}

/// The input of a workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input {
    pub(crate) records: u64,
    pub(crate) keys: u64,
    /// After the fill, keys below this are drawn.
    pub(crate) drawn: u64,
    pub(crate) distribution: Distribution,
    pub(crate) splits: u64,
    /// Records 0..fill carry key i.
    pub(crate) fill: u64,
    /// Records per second over all splits, after the fill; 0 for as fast as possible.
    pub(crate) rate: u64,
    /// Whether the value of a record with a rate is the time at which it is due, on the probe's clock.
    pub(crate) timed: bool,
    /// Where the run is measured.
    pub(crate) probe: Option<&'static Probe>,
}

impl Input {
    pub(crate) fn key(&self, index: u64) -> u64 {
        if index < self.fill { index } else { key_of(index, self.drawn, self.distribution) }
    }
}

/// Every `splits`-th record from `next` on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct InputSplit {
    number: u64,
    next: u64,
}

impl Split for InputSplit {
    fn id(&self) -> String {
        self.number.to_string()
    }
}

impl Source for Input {
    type Record = Event;
    type Split = InputSplit;
    type Reader = InputReader;

    fn enumerate(&mut self) -> UserResult<Vec<InputSplit>> {
        Ok((0..self.splits).map(|number| InputSplit { number, next: number }).collect())
    }

    fn open_split(&mut self, split: InputSplit) -> UserResult<InputReader> {
        if let Some(probe) = self.probe {
            probe.split_starts_at(split.number, split.next);
        }
        Ok(InputReader { input: *self, split, started: None })
    }
}

pub(crate) struct InputReader {
    input: Input,
    split: InputSplit,
    /// When the first record with a rate was read, on the probe's clock and otherwise, and its index.
    started: Option<(u64, std::time::Instant, u64)>,
}

impl InputReader {
    /// What record `index` carries.
    fn value(&self, index: u64) -> u64 {
        match (self.started, self.input.timed) {
            (Some((since_ns, _, first)), true) if index >= self.input.fill => {
                since_ns + ((index - first) as f64 * 1e9 / self.input.rate as f64) as u64
            }
            (None, true) => 0,
            _ => index,
        }
    }

    /// How many records may be read now.
    fn allowed(&mut self, limit: u64) -> u64 {
        if self.input.rate == 0 || self.split.next < self.input.fill {
            return limit;
        }
        let now = || (self.input.probe.map_or(0, Probe::now_ns), std::time::Instant::now(), self.split.next);
        let (_, since, first) = *self.started.get_or_insert_with(now);
        let done = (self.split.next - first) / self.input.splits;
        let due = since.elapsed().as_secs_f64() * self.input.rate as f64 / self.input.splits as f64;
        limit.min((due as u64).saturating_sub(done))
    }
}

impl SplitReader for InputReader {
    type Record = Event;
    type Split = InputSplit;

    fn read(&mut self, limit: usize, output: &mut Output<Event>) -> UserResult<ReadStatus> {
        if let Some(probe) = self.input.probe {
            probe.read(self.split.next);
            if self.split.next >= self.input.fill {
                probe.mark_start();
            }
        }
        let allowed = self.allowed(limit as u64);
        for _ in 0..allowed {
            let index = self.split.next;
            if index >= self.input.records {
                return Ok(ReadStatus::Finished);
            }
            output.emit(Event { key: self.input.key(index), value: self.value(index) });
            self.split.next += self.input.splits;
        }
        Ok(if allowed == 0 { ReadStatus::Idle } else { ReadStatus::Ready })
    }

    fn split(&self) -> InputSplit {
        self.split.clone()
    }
}
