//! How records find the subtask that processes them.

use millpond_core::{Data, Key, MaxParallelism};

use crate::BATCH_RECORDS;
use crate::batch::{Batch, BoxBatch, Keyed};

/// How an edge distributes records over the subtasks of its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// Subtask i to subtask i. Becomes [`Routing::Rebalance`] where the parallelisms differ.
    Forward,
    /// To the owner of the key's group.
    Hash,
    /// Evenly, batch by batch.
    Rebalance,
    /// Every record to every subtask.
    Broadcast,
}

/// Receives a batch for a target subtask.
pub type Deliver<'a> = dyn FnMut(u32, BoxBatch) + 'a;

/// Distributes batches over target subtasks; one instance per sending subtask and edge.
pub trait Partition {
    /// Takes a batch; delivers at once or keeps records back to fill batches.
    fn route(&mut self, batch: BoxBatch, deliver: &mut Deliver<'_>);
    /// Delivers everything kept back.
    fn flush(&mut self, deliver: &mut Deliver<'_>);
}

/// Makes the distributor of an edge once the parallelism of its target is known.
pub type MakePartition = fn(PartitionFacts) -> Box<dyn Partition>;

/// What a distributor needs to know.
#[derive(Clone, Copy, Debug)]
pub struct PartitionFacts {
    /// Index of the sending subtask.
    pub sender: u32,
    /// Number of receiving subtasks.
    pub receivers: u32,
    /// Number of key groups.
    pub max_parallelism: MaxParallelism,
}

/// Subtask i to subtask i.
pub struct ForwardPartition {
    /// The receiver.
    pub receiver: u32,
}

impl Partition for ForwardPartition {
    fn route(&mut self, batch: BoxBatch, deliver: &mut Deliver<'_>) {
        deliver(self.receiver, batch);
    }

    fn flush(&mut self, _deliver: &mut Deliver<'_>) {}
}

/// Batch by batch, round robin, starting at the sender's own index.
pub struct RebalancePartition {
    next: u32,
    receivers: u32,
}

impl RebalancePartition {
    /// A round robin over `facts.receivers`.
    #[must_use]
    pub fn new(facts: PartitionFacts) -> Self {
        RebalancePartition { next: facts.sender % facts.receivers, receivers: facts.receivers }
    }
}

impl Partition for RebalancePartition {
    fn route(&mut self, batch: BoxBatch, deliver: &mut Deliver<'_>) {
        deliver(self.next, batch);
        self.next = (self.next + 1) % self.receivers;
    }

    fn flush(&mut self, _deliver: &mut Deliver<'_>) {}
}

/// Every record to every subtask.
pub struct BroadcastPartition {
    /// Number of receivers.
    pub receivers: u32,
}

impl Partition for BroadcastPartition {
    fn route(&mut self, batch: BoxBatch, deliver: &mut Deliver<'_>) {
        for receiver in 1..self.receivers {
            deliver(receiver, batch.clone());
        }
        deliver(0, batch);
    }

    fn flush(&mut self, _deliver: &mut Deliver<'_>) {}
}

/// To the owner of the key group that the record's hash carries (KG-10).
pub struct HashPartition<K, T> {
    facts: PartitionFacts,
    buffers: Vec<Batch<Keyed<K, T>>>,
}

impl<K: Key, T: Data> HashPartition<K, T> {
    /// A distributor by key group.
    #[must_use]
    pub fn new(facts: PartitionFacts) -> Self {
        let buffers = (0..facts.receivers).map(|_| Batch::default()).collect();
        HashPartition { facts, buffers }
    }
}

impl<K: Key, T: Data> Partition for HashPartition<K, T> {
    fn route(&mut self, batch: BoxBatch, deliver: &mut Deliver<'_>) {
        if self.facts.receivers == 1 {
            deliver(0, batch);
            return;
        }
        let Batch { records, times } = batch.downcast::<Keyed<K, T>>();
        for (index, record) in records.into_iter().enumerate() {
            let receiver = self.facts.max_parallelism.owner_of(record.hash.group(), self.facts.receivers);
            let buffer = &mut self.buffers[receiver as usize];
            if !times.is_empty() {
                buffer.times.resize(buffer.records.len(), crate::batch::NO_TIME);
                buffer.times.push(times[index]);
            } else if !buffer.times.is_empty() {
                buffer.times.push(crate::batch::NO_TIME);
            }
            buffer.records.push(record);
            if buffer.records.len() >= BATCH_RECORDS {
                let records = std::mem::replace(&mut buffer.records, Vec::with_capacity(BATCH_RECORDS));
                let times = std::mem::take(&mut buffer.times);
                deliver(receiver, Batch { records, times }.boxed());
            }
        }
    }

    fn flush(&mut self, deliver: &mut Deliver<'_>) {
        for (receiver, buffer) in self.buffers.iter_mut().enumerate() {
            if !buffer.is_empty() {
                deliver(receiver as u32, std::mem::take(buffer).boxed());
            }
        }
    }
}
