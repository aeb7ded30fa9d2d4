//! What of the snapshots that were handed over is not stored yet. Pure.

use std::collections::BTreeMap;

use millpond_checkpoint::SubtaskId;
use millpond_core::Epoch;

/// Bytes of rows that are not stored, by subtask and epoch.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    bytes: BTreeMap<SubtaskId, BTreeMap<Epoch, u64>>,
}

impl Waiting {
    /// A snapshot was handed over. Returns the bytes that wait of epochs before it, of all subtasks.
    pub(crate) fn add(&mut self, subtask: SubtaskId, epoch: Epoch, bytes: u64) -> u64 {
        *self.bytes.entry(subtask).or_default().entry(epoch).or_default() += bytes;
        self.bytes.values().flat_map(|epochs| epochs.range(..epoch)).map(|(_, bytes)| bytes).sum()
    }

    /// The snapshot of `epoch` is stored, and with it all before it that had waited.
    pub(crate) fn stored(&mut self, subtask: SubtaskId, epoch: Epoch) {
        if let Some(epochs) = self.bytes.get_mut(&subtask) {
            epochs.retain(|waiting, _| *waiting > epoch);
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
        waiting.stored(subtask(1), Epoch(1));
        assert_eq!(waiting.add(subtask(1), Epoch(3), 1), 300);
        waiting.stored(subtask(0), Epoch(2));
        assert_eq!(waiting.add(subtask(0), Epoch(4), 1), 1);
    }
}
