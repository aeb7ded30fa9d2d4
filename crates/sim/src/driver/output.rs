//! Records that a job emits, for a test to look at.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millpond_core::{Data, Epoch, UserResult};
use millpond_dataflow::{Sink, SinkContext, SinkStream, Stream};
use millpond_operators::SinkOperators;

/// What a job has emitted. Clones are the same output.
pub struct TestOutput<T> {
    shared: Arc<Mutex<Shared<T>>>,
}

struct Shared<T> {
    emitted: Vec<T>,
    committed: Vec<T>,
    /// Which transactions are committed: writer and epoch.
    transactions: BTreeSet<(u64, u64)>,
    writers: u64,
}

impl<T> Clone for TestOutput<T> {
    fn clone(&self) -> Self {
        TestOutput { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Default for TestOutput<T> {
    fn default() -> Self {
        let transactions = BTreeSet::new();
        let shared = Shared { emitted: Vec::new(), committed: Vec::new(), transactions, writers: 0 };
        TestOutput { shared: Arc::new(Mutex::new(shared)) }
    }
}

impl<T> TestOutput<T> {
    /// An output without records.
    #[must_use]
    pub fn new() -> Self {
        TestOutput::default()
    }

    /// Removes and returns everything emitted so far, whether a checkpoint holds it or not: what a
    /// restored job emits again is there again. Records of one subtask are in order.
    #[must_use]
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut self.lock().emitted)
    }

    /// Everything that belongs to completed checkpoints, each record once.
    #[must_use]
    pub fn committed(&self) -> Vec<T>
    where
        T: Clone,
    {
        self.lock().committed.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Shared<T>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends streams to test outputs.
pub trait TestStream<T: Data> {
    /// Ends the stream in `output`.
    #[track_caller]
    fn test_output(&self, name: &str, output: &TestOutput<T>) -> SinkStream;
}

impl<T: Data> TestStream<T> for Stream<T> {
    #[track_caller]
    fn test_output(&self, name: &str, output: &TestOutput<T>) -> SinkStream {
        self.sink(name, OutputSink { output: output.clone(), writer: 0, records: Vec::new() })
    }
}

struct OutputSink<T> {
    output: TestOutput<T>,
    /// Tells this subtask of this driver from all others.
    writer: u64,
    records: Vec<T>,
}

impl<T: Data> Sink for OutputSink<T> {
    type Record = T;
    type Committable = (u64, u64, Vec<T>);

    fn open(&mut self, _context: &SinkContext<'_>) -> UserResult {
        let mut shared = self.output.lock();
        shared.writers += 1;
        self.writer = shared.writers;
        Ok(())
    }

    fn write(&mut self, record: T) -> UserResult {
        self.output.lock().emitted.push(record.clone());
        self.records.push(record);
        Ok(())
    }

    fn prepare(&mut self, epoch: Epoch) -> UserResult<Vec<Self::Committable>> {
        if self.records.is_empty() {
            return Ok(Vec::new());
        }
        Ok(vec![(self.writer, epoch.0, std::mem::take(&mut self.records))])
    }

    fn commit(&mut self, (writer, epoch, records): Self::Committable) -> UserResult {
        let mut shared = self.output.lock();
        if shared.transactions.insert((writer, epoch)) {
            shared.committed.extend(records);
        }
        Ok(())
    }
}
