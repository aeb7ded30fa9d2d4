//! A source with several splits whose records are computed from split and index.

use std::rc::Rc;

use millpond_core::{UserResult, codec, seed::mix64};
use millpond_dataflow::{Output, ReadStatus, Source, Split, SplitReader};
use millpond_state::OperatorStateSnapshot;
use serde::{Deserialize, Serialize};

use crate::outside::Trap;

/// An input record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Record {
    /// Its split.
    pub split: u32,
    /// Its place in the split, from 0.
    pub index: u64,
    /// Its key.
    pub key: u64,
    /// Its value.
    pub value: u64,
}

/// A split with the index of its next record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordSplit {
    /// Which split.
    pub split: u32,
    /// Index of the next record.
    pub next: u64,
}

impl Split for RecordSplit {
    fn id(&self) -> String {
        self.split.to_string()
    }
}

/// What a source holds: the same for every attempt.
#[derive(Clone, Debug)]
pub struct Script {
    /// Number of records of each split.
    pub lengths: Vec<u64>,
    /// Number of keys of a split, or of all splits together.
    pub keys: u64,
    /// Whether every split has keys of its own, so that the order within a key is known.
    pub own_keys: bool,
    /// Mixed into values.
    pub salt: u64,
}

impl Script {
    /// The `index`-th record of `split`.
    #[must_use]
    pub fn record(&self, split: u32, index: u64) -> Record {
        let value = mix64(self.salt ^ mix64((u64::from(split) << 32 | index).wrapping_add(1)));
        let key = value % self.keys.max(1);
        let key = if self.own_keys { u64::from(split) * 1_000 + key } else { key };
        Record { split, index, key, value: value >> 8 }
    }

    /// All records of `split` before `end`, in order.
    pub fn records(&self, split: u32, end: u64) -> impl Iterator<Item = Record> {
        (0..end).map(move |index| self.record(split, index))
    }

    /// The whole input as positions behind the last record of each split.
    #[must_use]
    pub fn end(&self) -> Vec<u64> {
        self.lengths.clone()
    }

    /// Positions by split, out of the operator state that a source has in a checkpoint, gathered from
    /// all its subtasks. A split that is not there has ended.
    ///
    /// # Errors
    /// When the bytes are not those of splits.
    pub fn positions(&self, states: &OperatorStateSnapshot) -> Result<Vec<u64>, String> {
        let mut positions = self.lengths.clone();
        let splits = states.lists.iter().filter(|list| list.name == "splits");
        for piece in splits.flat_map(|list| list.elements.iter()) {
            let split: RecordSplit = codec::decode(piece).map_err(|error| error.to_string())?;
            positions[split.split as usize] = split.next;
        }
        Ok(positions)
    }
}

/// A source that follows a script.
pub struct ScriptSource {
    script: Rc<Script>,
    trap: Trap,
}

impl ScriptSource {
    /// A source of the records of `script`.
    #[must_use]
    pub fn new(script: &Rc<Script>, trap: &Trap) -> Self {
        ScriptSource { script: Rc::clone(script), trap: trap.clone() }
    }
}

/// Reads one split. Now and then it has nothing for one call.
pub struct ScriptReader {
    script: Rc<Script>,
    trap: Trap,
    split: RecordSplit,
    paused: bool,
}

impl Source for ScriptSource {
    type Record = Record;
    type Split = RecordSplit;
    type Reader = ScriptReader;

    fn enumerate(&mut self) -> UserResult<Vec<RecordSplit>> {
        Ok((0..self.script.lengths.len() as u32).map(|split| RecordSplit { split, next: 0 }).collect())
    }

    fn open_split(&mut self, split: RecordSplit) -> UserResult<ScriptReader> {
        self.trap.spring()?;
        Ok(ScriptReader { script: Rc::clone(&self.script), trap: self.trap.clone(), split, paused: false })
    }
}

impl SplitReader for ScriptReader {
    type Record = Record;
    type Split = RecordSplit;

    fn read(&mut self, limit: usize, output: &mut Output<Record>) -> UserResult<ReadStatus> {
        self.trap.spring()?;
        let end = self.script.lengths[self.split.split as usize];
        for _ in 0..limit {
            if self.split.next == end {
                return Ok(ReadStatus::Finished);
            }
            if self.split.next % 13 == 7 && !self.paused {
                self.paused = true;
                return Ok(ReadStatus::Idle);
            }
            self.paused = false;
            let record = self.script.record(self.split.split, self.split.next);
            output.emit_at(record, self.split.next as i64);
            self.split.next += 1;
        }
        Ok(if self.split.next == end { ReadStatus::Finished } else { ReadStatus::Ready })
    }

    fn split(&self) -> RecordSplit {
        self.split.clone()
    }
}
