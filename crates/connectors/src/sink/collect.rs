//! Gathers records in memory, exactly once, for tests and examples.
//!
//! What is prepared is the records themselves: they travel in the checkpoint, so that any subtask of any
//! attempt can commit them. The collector remembers which batches it has, so that a repeated commit
//! changes nothing.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millpond_core::{Attempt, Data, Epoch, SubtaskIndex, UserResult, codec};
use millpond_dataflow::{Sink, SinkContext};
use serde::{Deserialize, Serialize};

use crate::ConnectorError;
use crate::error::Classify;

/// Holds the records of committed epochs. Clones hold the same records.
///
/// Keep one clone outside the job and give one to it:
///
/// ```
/// use millpond_connectors::Collector;
/// let out = Collector::<u64>::new();
/// let inside = out.clone();
/// // run(move |flow| { …; stream.collect("out", &inside); Ok(()) })
/// # let _ = inside;
/// assert!(out.take().is_empty());
/// ```
pub struct Collector<T> {
    shared: Arc<Mutex<Shared<T>>>,
}

struct Shared<T> {
    writers: u64,
    committed: HashSet<BatchId>,
    records: Vec<T>,
}

impl<T> Clone for Collector<T> {
    fn clone(&self) -> Self {
        Collector { shared: self.shared.clone() }
    }
}

impl<T> Default for Collector<T> {
    fn default() -> Self {
        let shared = Shared { writers: 0, committed: HashSet::new(), records: Vec::new() };
        Collector { shared: Arc::new(Mutex::new(shared)) }
    }
}

impl<T> fmt::Debug for Collector<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Collector({} records)", self.lock().records.len())
    }
}

impl<T> Collector<T> {
    /// An empty collector.
    #[must_use]
    pub fn new() -> Self {
        Collector::default()
    }

    /// Removes and returns the committed records. Records of one subtask are in order.
    #[must_use]
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut self.lock().records)
    }

    /// The committed records.
    #[must_use]
    pub fn snapshot(&self) -> Vec<T>
    where
        T: Clone,
    {
        self.lock().records.clone()
    }

    /// A sink that fills this collector.
    #[must_use]
    pub fn sink(&self) -> CollectSink<T> {
        CollectSink { collector: self.clone(), writer: None, records: Vec::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Shared<T>> {
        // Every change is complete before the lock is released: a panic elsewhere leaves nothing half done.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which batch of records this is, whoever commits it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct BatchId {
    operator: String,
    subtask: SubtaskIndex,
    epoch: Epoch,
    attempt: Attempt,
    /// Tells jobs apart that fill one collector and are otherwise alike.
    writer: u64,
}

/// The records of one subtask and epoch, encoded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectedBatch {
    id: BatchId,
    records: Vec<u8>,
}

/// Fills a [`Collector`].
pub struct CollectSink<T> {
    collector: Collector<T>,
    writer: Option<Writer>,
    records: Vec<T>,
}

struct Writer {
    operator: String,
    subtask: SubtaskIndex,
    attempt: Attempt,
    number: u64,
}

impl<T: Data> Sink for CollectSink<T> {
    type Record = T;
    type Committable = CollectedBatch;

    fn open(&mut self, context: &SinkContext<'_>) -> UserResult {
        let mut shared = self.collector.lock();
        shared.writers += 1;
        self.writer = Some(Writer {
            operator: context.info.operator.to_string(),
            subtask: SubtaskIndex(context.info.index),
            attempt: context.info.attempt,
            number: shared.writers,
        });
        Ok(())
    }

    fn write(&mut self, record: T) -> UserResult {
        self.records.push(record);
        Ok(())
    }

    fn prepare(&mut self, epoch: Epoch) -> UserResult<Vec<CollectedBatch>> {
        if self.records.is_empty() {
            return Ok(Vec::new());
        }
        let writer = self.writer.as_ref().ok_or(ConnectorError::NotOpen { sink: "collect" }).classify()?;
        let subtask = writer.subtask;
        let records = codec::encode(&self.records);
        let records = records.map_err(|source| ConnectorError::Collect { subtask, source }).classify()?;
        self.records.clear();
        let operator = writer.operator.clone();
        let id = BatchId { operator, subtask, epoch, attempt: writer.attempt, writer: writer.number };
        Ok(vec![CollectedBatch { id, records }])
    }

    fn commit(&mut self, batch: CollectedBatch) -> UserResult {
        let subtask = batch.id.subtask;
        let records = codec::decode::<Vec<T>>(&batch.records);
        let records = records.map_err(|source| ConnectorError::Collect { subtask, source }).classify()?;
        let mut shared = self.collector.lock();
        if shared.committed.insert(batch.id) {
            shared.records.extend(records);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use millpond_core::MaxParallelism;
    use millpond_dataflow::SubtaskInfo;

    use super::*;

    fn opened(collector: &Collector<u32>, attempt: u64) -> CollectSink<u32> {
        let info = SubtaskInfo {
            operator: "out".into(),
            index: 0,
            parallelism: 1,
            max_parallelism: MaxParallelism::new(8).unwrap(),
            attempt: Attempt(attempt),
        };
        let mut sink = collector.sink();
        sink.open(&SinkContext { info: &info, restored: attempt > 1, end: &millpond_dataflow::AttemptEnd::default() })
            .unwrap();
        sink
    }

    #[test]
    fn tp_03_records_appear_on_commit_only() {
        let out = Collector::new();
        let mut sink = opened(&out, 1);
        sink.write(7).unwrap();
        let prepared = sink.prepare(Epoch(1)).unwrap();
        assert!(out.snapshot().is_empty());
        sink.commit(prepared[0].clone()).unwrap();
        assert_eq!(out.snapshot(), [7]);
    }

    #[test]
    fn tp_06_a_batch_committed_again_by_a_later_attempt_appears_once() {
        let out = Collector::new();
        let mut sink = opened(&out, 1);
        sink.write(7).unwrap();
        let prepared = sink.prepare(Epoch(1)).unwrap();
        sink.commit(prepared[0].clone()).unwrap();
        let mut later = out.sink();
        later.commit(prepared[0].clone()).unwrap();
        assert_eq!(out.take(), [7]);
        later.commit(prepared[0].clone()).unwrap();
        assert!(out.take().is_empty());
    }

    #[test]
    fn two_jobs_that_are_alike_fill_one_collector_both() {
        let out = Collector::new();
        for _ in 0..2 {
            let mut sink = opened(&out, 1);
            sink.write(7).unwrap();
            let prepared = sink.prepare(Epoch(1)).unwrap();
            sink.commit(prepared[0].clone()).unwrap();
        }
        assert_eq!(out.take(), [7, 7]);
    }

    #[test]
    fn an_epoch_without_records_prepares_nothing() {
        assert!(opened(&Collector::new(), 1).prepare(Epoch(1)).unwrap().is_empty());
    }
}
