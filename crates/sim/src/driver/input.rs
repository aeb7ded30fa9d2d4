//! Records that a test pushes, as a source.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millpond_core::{Data, UserResult};
use millpond_dataflow::batch::NO_TIME;
use millpond_dataflow::{Dataflow, Output, ReadStatus, Source, Split, SplitReader, Stream};
use millpond_operators::{SourceOperators, WatermarkStrategy};
use serde::{Deserialize, Serialize};

/// Records that a test pushes. Clones are the same input. It keeps all its records, as a log does, so
/// that a restored job reads again what its checkpoint does not hold.
pub struct TestInput<T> {
    shared: Arc<Mutex<Shared<T>>>,
}

struct Shared<T> {
    splits: Vec<Vec<(T, i64)>>,
    next_split: usize,
    closed: bool,
}

impl<T> Clone for TestInput<T> {
    fn clone(&self) -> Self {
        TestInput { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Default for TestInput<T> {
    fn default() -> Self {
        TestInput::with_splits(1)
    }
}

impl<T> TestInput<T> {
    /// An input with one split.
    #[must_use]
    pub fn new() -> Self {
        TestInput::default()
    }

    /// An input with `splits` splits, at least 1, which may be read by different subtasks.
    #[must_use]
    pub fn with_splits(splits: usize) -> Self {
        let splits = (0..splits.max(1)).map(|_| Vec::new()).collect();
        TestInput { shared: Arc::new(Mutex::new(Shared { splits, next_split: 0, closed: false })) }
    }

    /// Adds a record without event time; splits take turns.
    pub fn push(&self, record: T) {
        self.push_at(record, NO_TIME);
    }

    /// Adds a record with an event time in milliseconds; splits take turns.
    pub fn push_at(&self, record: T, time_ms: i64) {
        let mut shared = self.lock();
        let split = shared.next_split;
        shared.next_split = (split + 1) % shared.splits.len();
        shared.splits[split].push((record, time_ms));
    }

    /// Adds a record with an event time in milliseconds to a split, from 0.
    ///
    /// # Panics
    /// When there is no such split.
    pub fn push_to_at(&self, split: usize, record: T, time_ms: i64) {
        self.lock().splits[split].push((record, time_ms));
    }

    /// Adds a record without event time to a split, from 0.
    ///
    /// # Panics
    /// When there is no such split.
    pub fn push_to(&self, split: usize, record: T) {
        self.lock().splits[split].push((record, NO_TIME));
    }

    /// Nothing more will be pushed.
    pub fn close(&self) {
        self.lock().closed = true;
    }

    fn lock(&self) -> MutexGuard<'_, Shared<T>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Brings test inputs into a job.
pub trait TestFlow {
    /// A source of what is pushed into `input`.
    #[track_caller]
    fn test_input<T: Data>(&mut self, name: &str, input: &TestInput<T>) -> Stream<T>;

    /// A source of what is pushed into `input`, with event time: each of its splits has a clock, by `strategy`.
    #[track_caller]
    fn timed_test_input<T: Data>(
        &mut self,
        name: &str,
        input: &TestInput<T>,
        strategy: WatermarkStrategy<T>,
    ) -> Stream<T>;
}

impl TestFlow for Dataflow {
    #[track_caller]
    fn test_input<T: Data>(&mut self, name: &str, input: &TestInput<T>) -> Stream<T> {
        self.source(name, InputSource { input: input.clone() })
    }

    #[track_caller]
    fn timed_test_input<T: Data>(
        &mut self,
        name: &str,
        input: &TestInput<T>,
        strategy: WatermarkStrategy<T>,
    ) -> Stream<T> {
        self.timed_source(name, InputSource { input: input.clone() }, strategy)
    }
}

struct InputSource<T> {
    input: TestInput<T>,
}

/// A split of a test input: its index, and the index of its next record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct InputSplit {
    split: u64,
    next: u64,
}

impl Split for InputSplit {
    fn id(&self) -> String {
        self.split.to_string()
    }
}

struct InputReader<T> {
    input: TestInput<T>,
    split: InputSplit,
}

impl<T: Data> Source for InputSource<T> {
    type Record = T;
    type Split = InputSplit;
    type Reader = InputReader<T>;

    fn enumerate(&mut self) -> UserResult<Vec<InputSplit>> {
        Ok((0..self.input.lock().splits.len() as u64).map(|split| InputSplit { split, next: 0 }).collect())
    }

    fn open_split(&mut self, split: InputSplit) -> UserResult<InputReader<T>> {
        Ok(InputReader { input: self.input.clone(), split })
    }
}

impl<T: Data> SplitReader for InputReader<T> {
    type Record = T;
    type Split = InputSplit;

    fn read(&mut self, limit: usize, output: &mut Output<T>) -> UserResult<ReadStatus> {
        let shared = self.input.lock();
        let records = shared.splits.get(self.split.split as usize).map_or(&[][..], Vec::as_slice);
        let next = usize::try_from(self.split.next)?;
        let new = records.get(next..).unwrap_or_default();
        for (record, time_ms) in new.iter().take(limit) {
            output.emit_at(record.clone(), *time_ms);
            self.split.next += 1;
        }
        Ok(match (new.len() > limit, shared.closed) {
            (true, _) => ReadStatus::Ready,
            (false, true) => ReadStatus::Finished,
            (false, false) => ReadStatus::Idle,
        })
    }

    fn split(&self) -> InputSplit {
        self.split.clone()
    }
}
