//! The generated input, the same for all engines: record i has key `splitmix64(i) mod keys` and value i.

use millpond_core::{SplitMix64, UserResult};
use millpond_dataflow::{Output, ReadStatus, Source, Split, SplitReader};
use serde::{Deserialize, Serialize};

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
    pub(crate) distribution: Distribution,
    pub(crate) splits: u64,
    /// Records 0..fill carry key i.
    pub(crate) fill: u64,
    /// Records per second over all splits, after the fill; 0 for as fast as possible.
    pub(crate) rate: u64,
}

impl Input {
    pub(crate) fn key(&self, index: u64) -> u64 {
        if index < self.fill { index } else { key_of(index, self.keys, self.distribution) }
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
        Ok(InputReader { input: *self, split, started: None })
    }
}

pub(crate) struct InputReader {
    input: Input,
    split: InputSplit,
    started: Option<(std::time::Instant, u64)>,
}

impl InputReader {
    /// How many records may be read now.
    fn allowed(&mut self, limit: u64) -> u64 {
        if self.input.rate == 0 || self.split.next < self.input.fill {
            return limit;
        }
        let (since, first) = *self.started.get_or_insert_with(|| (std::time::Instant::now(), self.split.next));
        let done = (self.split.next - first) / self.input.splits;
        let due = since.elapsed().as_secs_f64() * self.input.rate as f64 / self.input.splits as f64;
        limit.min((due as u64).saturating_sub(done))
    }
}

impl SplitReader for InputReader {
    type Record = Event;
    type Split = InputSplit;

    fn read(&mut self, limit: usize, output: &mut Output<Event>) -> UserResult<ReadStatus> {
        let allowed = self.allowed(limit as u64);
        for _ in 0..allowed {
            let index = self.split.next;
            if index >= self.input.records {
                return Ok(ReadStatus::Finished);
            }
            output.emit(Event { key: self.input.key(index), value: index });
            self.split.next += self.input.splits;
        }
        Ok(if allowed == 0 { ReadStatus::Idle } else { ReadStatus::Ready })
    }

    fn split(&self) -> InputSplit {
        self.split.clone()
    }
}
