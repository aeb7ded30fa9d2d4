//! What of the snapshots that were handed over is not stored yet. Pure.

use std::collections::{BTreeMap, VecDeque};

use millpond_checkpoint::SubtaskId;
use millpond_core::Epoch;

/// Bytes of rows that are not stored, by subtask: of each snapshot, or piece of one, in the order of handing over.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    subtasks: BTreeMap<SubtaskId, Subtask>,
}

#[derive(Debug, Default)]
struct Subtask {
    snapshots: VecDeque<(Epoch, u64)>,
    /// How many in front were tried and could not be stored.
    failed: usize,
}

impl Waiting {
    /// A snapshot was handed over. Returns the bytes that wait of epochs before it, of all subtasks.
    pub(crate) fn add(&mut self, subtask: SubtaskId, epoch: Epoch, bytes: u64) -> u64 {
        self.subtasks.entry(subtask).or_default().snapshots.push_back((epoch, bytes));
        let all = self.subtasks.values().flat_map(|subtask| &subtask.snapshots);
        all.filter(|(waiting, _)| *waiting < epoch).map(|(_, bytes)| bytes).sum()
    }

    /// The oldest snapshot of a subtask that was not tried yet is stored, and with it all before it that had failed.
    pub(crate) fn stored(&mut self, subtask: SubtaskId) {
        if let Some(Subtask { snapshots, failed }) = self.subtasks.get_mut(&subtask) {
            let done = (std::mem::take(failed) + 1).min(snapshots.len());
            snapshots.drain(..done);
        }
    }

    /// The oldest snapshot of a subtask that was not tried yet could not be stored: it goes with the next one.
    pub(crate) fn failed(&mut self, subtask: SubtaskId) {
        if let Some(subtask) = self.subtasks.get_mut(&subtask) {
            subtask.failed += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subtask(index: u32) -> SubtaskId {
        SubtaskId { chain: 0, index }
    }

    #[test]
    fn only_earlier_epochs_count_and_a_stored_snapshot_takes_them_along() {
        let mut waiting = Waiting::default();
        assert_eq!(waiting.add(subtask(0), Epoch(1), 100), 0);
        assert_eq!(waiting.add(subtask(1), Epoch(1), 10), 0);
        assert_eq!(waiting.add(subtask(0), Epoch(2), 200), 110);
        waiting.stored(subtask(1));
        assert_eq!(waiting.add(subtask(1), Epoch(3), 1), 300);
        waiting.failed(subtask(0));
        waiting.stored(subtask(0));
        assert_eq!(waiting.add(subtask(0), Epoch(4), 1), 1);
    }

    #[test]
    fn a_piece_that_is_stored_takes_none_along_that_is_still_to_come() {
        let mut waiting = Waiting::default();
        for piece in [100, 200, 300] {
            waiting.add(subtask(0), Epoch(1), piece);
        }
        waiting.stored(subtask(0));
        assert_eq!(waiting.add(subtask(1), Epoch(2), 1), 500);
        waiting.failed(subtask(0));
        assert_eq!(waiting.add(subtask(1), Epoch(3), 1), 501);
        waiting.stored(subtask(0));
        assert_eq!(waiting.add(subtask(1), Epoch(4), 1), 2);
    }
}
