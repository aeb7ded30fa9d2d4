//! Records that are computed from their index, and records that are given.

use std::rc::Rc;
use std::sync::Arc;

use millpond_core::{Clock, Data, SystemClock, UserResult};
use millpond_dataflow::{Output, ReadStatus, Source, Split, SplitReader};
use serde::{Deserialize, Serialize};

use crate::ConnectorError;
use crate::error::Classify;

/// The records of a generator whose index leaves the remainder `index` when divided by `splits`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GeneratorSplit {
    /// Which split.
    pub index: u32,
    /// Number of splits when the source was first started; a restored source keeps it.
    pub splits: u32,
    /// Index of the next record.
    pub next: u64,
}

impl Split for GeneratorSplit {
    fn id(&self) -> String {
        format!("{} of {}", self.index, self.splits)
    }
}

impl GeneratorSplit {
    /// How many of the first `records` records belong to this split.
    fn share_of(&self, records: u64) -> u64 {
        let (index, splits) = (u64::from(self.index), u64::from(self.splits));
        records / splits + u64::from(index < records % splits)
    }
}

#[derive(Clone)]
struct Rate {
    records_per_second: u64,
    clock: Arc<dyn Clock>,
}

/// Computes each record from its index. Record `i` belongs to split `i mod splits`.
///
/// ```
/// use millpond_connectors::GeneratorSource;
/// let squares = GeneratorSource::new(1_000, 4, |index| index * index);
/// let endless = GeneratorSource::new(u64::MAX, 1, |index| index).rate(100);
/// # let _ = (squares, endless);
/// ```
#[must_use]
pub struct GeneratorSource<F> {
    records: u64,
    splits: u32,
    rate: Option<Rate>,
    generate: Rc<F>,
}

impl<T, F: Fn(u64) -> T> GeneratorSource<F> {
    /// `records` records in `splits` splits; `u64::MAX` records never end. The same index must always
    /// give the same record.
    pub fn new(records: u64, splits: u32, generate: F) -> Self {
        GeneratorSource { records, splits, rate: None, generate: Rc::new(generate) }
    }

    /// Deals the records over `splits` splits instead.
    pub(crate) fn splits(mut self, splits: u32) -> Self {
        self.splits = splits;
        self
    }

    /// Emits `records_per_second` records a second on average, over all splits together. Counting starts
    /// anew in every attempt; a source that was held up catches up.
    pub fn rate(mut self, records_per_second: u64) -> Self {
        let clock: Arc<dyn Clock> = match self.rate {
            Some(rate) => rate.clock,
            None => Arc::new(SystemClock),
        };
        self.rate = Some(Rate { records_per_second, clock });
        self
    }

    /// As [`GeneratorSource::rate`], by another clock than the system's.
    pub fn rate_by(mut self, records_per_second: u64, clock: Arc<dyn Clock>) -> Self {
        self.rate = Some(Rate { records_per_second, clock });
        self
    }
}

impl<T: Data, F: Fn(u64) -> T + 'static> Source for GeneratorSource<F> {
    type Record = T;
    type Split = GeneratorSplit;
    type Reader = GeneratorReader<F>;

    fn enumerate(&mut self) -> UserResult<Vec<GeneratorSplit>> {
        if self.splits == 0 {
            let reason = "a source has at least one split".to_owned();
            return Err(ConnectorError::Setting { setting: "splits", reason }).classify();
        }
        let splits = self.splits;
        Ok((0..splits).map(|index| GeneratorSplit { index, splits, next: u64::from(index) }).collect())
    }

    fn open_split(&mut self, split: GeneratorSplit) -> UserResult<GeneratorReader<F>> {
        let pace = self.rate.clone().map(|rate| Pace { rate, started_ms: None, emitted: 0 });
        Ok(GeneratorReader { records: self.records, split, pace, generate: self.generate.clone() })
    }
}

/// Reads one split of a [`GeneratorSource`].
pub struct GeneratorReader<F> {
    records: u64,
    split: GeneratorSplit,
    pace: Option<Pace>,
    generate: Rc<F>,
}

struct Pace {
    rate: Rate,
    started_ms: Option<i64>,
    emitted: u64,
}

impl Pace {
    /// How many records `split` may emit now.
    fn allowed(&mut self, split: &GeneratorSplit) -> u64 {
        let now_ms = self.rate.clock.now_ms();
        let started_ms = *self.started_ms.get_or_insert(now_ms);
        let elapsed_ms = u128::try_from(now_ms.saturating_sub(started_ms)).unwrap_or(0);
        let due = elapsed_ms * u128::from(self.rate.records_per_second) / 1_000;
        split.share_of(u64::try_from(due).unwrap_or(u64::MAX)).saturating_sub(self.emitted)
    }
}

impl<T: Data, F: Fn(u64) -> T + 'static> SplitReader for GeneratorReader<F> {
    type Record = T;
    type Split = GeneratorSplit;

    fn read(&mut self, limit: usize, output: &mut Output<T>) -> UserResult<ReadStatus> {
        let allowed = self.pace.as_mut().map_or(u64::MAX, |pace| pace.allowed(&self.split));
        let count = allowed.min(limit as u64);
        let mut emitted = 0;
        while emitted < count && self.split.next < self.records {
            output.emit((self.generate)(self.split.next));
            emitted += 1;
            self.split.next = self.split.next.saturating_add(u64::from(self.split.splits));
        }
        if let Some(pace) = &mut self.pace {
            pace.emitted += emitted;
        }
        Ok(if self.split.next >= self.records {
            ReadStatus::Finished
        } else if emitted == allowed {
            ReadStatus::Idle
        } else {
            ReadStatus::Ready
        })
    }

    fn split(&self) -> GeneratorSplit {
        self.split.clone()
    }
}
