//! Batches that have arrived and wait, by epoch.
//!
//! Batches of the open epoch are taken in order of arrival; those of later epochs wait here until it is
//! closed. That wait *is* the alignment: a record from behind a barrier never reaches the operator before
//! the freeze. The queue is bounded by the credits of the channels that fill it.

use std::collections::{BTreeMap, VecDeque};

use millpond_core::Epoch;
use millpond_dataflow::Element;
use millpond_dataflow::plan::EdgeIndex;

/// A batch or a mark that has arrived.
#[derive(Debug)]
pub struct Arrival {
    /// Over which exchange.
    pub edge: EdgeIndex,
    /// From which subtask of the sending chain.
    pub sender: u32,
    /// The records, or what is said about event time.
    pub element: Element,
}

/// Arrived batches by epoch.
#[derive(Debug, Default)]
pub struct InputQueue {
    epochs: BTreeMap<Epoch, VecDeque<Arrival>>,
}

impl InputQueue {
    /// Adds what has arrived in `epoch`.
    pub fn push(&mut self, epoch: Epoch, arrival: Arrival) {
        self.epochs.entry(epoch).or_default().push_back(arrival);
    }

    /// The next batch of `open`; those of later epochs stay.
    pub fn pop(&mut self, open: Epoch) -> Option<Arrival> {
        let (epoch, queue) = self.epochs.iter_mut().next()?;
        if *epoch > open {
            return None;
        }
        let arrival = queue.pop_front();
        if queue.is_empty() {
            let epoch = *epoch;
            self.epochs.remove(&epoch);
        }
        arrival
    }

    /// Whether a batch of `open` waits.
    #[must_use]
    pub fn has(&self, open: Epoch) -> bool {
        self.epochs.keys().next().is_some_and(|epoch| *epoch <= open)
    }

    /// Whether nothing waits at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.epochs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_dataflow::Batch;

    fn arrival(record: u64) -> Arrival {
        Arrival { edge: EdgeIndex(0), sender: 0, element: Batch::from(vec![record]).boxed().into() }
    }

    fn records(arrival: Arrival) -> Vec<u64> {
        arrival.element.into_batch().unwrap().downcast::<u64>().records
    }

    #[test]
    fn ba_02_a_batch_behind_the_barrier_waits_for_its_epoch() {
        let mut queue = InputQueue::default();
        queue.push(Epoch(2), arrival(20));
        queue.push(Epoch(1), arrival(10));
        let first = queue.pop(Epoch(1)).unwrap();
        assert_eq!(records(first), [10]);
        assert!(queue.pop(Epoch(1)).is_none());
        assert!(!queue.is_empty());
        assert_eq!(records(queue.pop(Epoch(2)).unwrap()), [20]);
        assert!(queue.is_empty());
    }
}
