//! Flow control: records and bytes in flight on each channel, returned when they have been processed.
//!
//! A channel is one sending subtask, one exchange, one receiving subtask. Counting per channel, not per
//! receiver, is what makes alignment safe: a sender that runs ahead into the next epoch exhausts its own
//! credit and never that of a sender the receiver still waits for.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// How much may be in flight on one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowLimits {
    /// Records.
    pub records: u64,
    /// Bytes, as batches estimate themselves.
    pub bytes: u64,
    /// Bytes on all channels of a process together.
    pub total_bytes: u64,
}

/// A channel with less than this would carry batches one at a time.
const LEAST_CHANNEL_BYTES: u64 = 64 << 10;

impl FlowLimits {
    /// The limits of each of `channels` channels, so that all together keep to the total.
    #[must_use]
    pub fn shared_by(self, channels: usize) -> FlowLimits {
        let share = self.total_bytes / (channels as u64).max(1);
        FlowLimits { bytes: self.bytes.min(share.max(LEAST_CHANNEL_BYTES)), ..self }
    }
}

impl Default for FlowLimits {
    fn default() -> Self {
        FlowLimits { records: 16 * 1_024, bytes: 4 << 20, total_bytes: u64::MAX }
    }
}

/// The counters of one channel, shared by its two ends; or those of one end, when the other is in another process.
#[derive(Debug)]
pub struct ChannelCredits {
    /// In flight; at the receiving end of a channel between processes: processed, and not yet told to the sender.
    records: AtomicU64,
    bytes: AtomicU64,
    /// May shrink below [`FlowLimits::records`] when the receiver is slow.
    limit_records: AtomicU64,
    limit_bytes: u64,
    gated: AtomicBool,
    far: Option<FarSender>,
}

/// What the receiving end of a channel between processes knows of the sender.
#[derive(Debug)]
struct FarSender {
    /// The limit that the sender was told last, in records.
    told_records: AtomicU64,
}

/// Credit on its way to a sender in another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReturnedCredit {
    /// Records that were processed.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many records may be in flight from now on.
    pub limit_records: u64,
}

impl ChannelCredits {
    /// An empty channel.
    #[must_use]
    pub fn new(limits: FlowLimits) -> Self {
        ChannelCredits {
            records: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            limit_records: AtomicU64::new(limits.records),
            limit_bytes: limits.bytes,
            gated: AtomicBool::new(false),
            far: None,
        }
    }

    /// The receiving end of an empty channel whose sender is in another process.
    #[must_use]
    pub fn from_far(limits: FlowLimits) -> Self {
        let far = FarSender { told_records: AtomicU64::new(limits.records) };
        ChannelCredits { far: Some(far), ..ChannelCredits::new(limits) }
    }

    /// The sender ships a batch.
    pub fn sent(&self, records: u64, bytes: u64) {
        self.records.fetch_add(records, Ordering::AcqRel);
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    /// The receiver has processed a batch. True when the sender waits and should be woken; of a sender in another process,
    /// when it is worth telling it ([`Self::take_returned`]).
    pub fn returned(&self, records: u64, bytes: u64) -> bool {
        if let Some(far) = &self.far {
            let records = self.records.fetch_add(records, Ordering::AcqRel) + records;
            let bytes = self.bytes.fetch_add(bytes, Ordering::AcqRel) + bytes;
            // By the limit that the sender knows: it waits until a quarter of that is free, so an eighth may be kept back.
            return records > far.told_records.load(Ordering::Acquire) / 8 || bytes > self.limit_bytes / 8;
        }
        self.records.fetch_sub(records, Ordering::SeqCst);
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        self.room() > 0 && self.gated.load(Ordering::SeqCst) && self.gated.swap(false, Ordering::SeqCst)
    }

    /// At the receiving end of a channel between processes: what the sender is to be told. Whoever takes it must tell it.
    pub fn take_returned(&self) -> Option<ReturnedCredit> {
        let far = self.far.as_ref()?;
        let limit_records = self.limit_records.load(Ordering::Acquire);
        far.told_records.store(limit_records, Ordering::Release);
        let (records, bytes) = (self.records.swap(0, Ordering::AcqRel), self.bytes.swap(0, Ordering::AcqRel));
        Some(ReturnedCredit { records, bytes, limit_records })
    }

    /// At the sending end: the receiver, in another process, has told this. True when the sender waits and should be woken;
    /// `None`, and nothing changes, when it returns more than is under way, which no receiver of ours does.
    pub fn take_in(&self, credit: ReturnedCredit) -> Option<bool> {
        let (records, bytes) = (self.records.load(Ordering::SeqCst), self.bytes.load(Ordering::SeqCst));
        if credit.records > records || credit.bytes > bytes {
            return None;
        }
        self.set_limit_records(credit.limit_records.max(1));
        Some(self.returned(credit.records, credit.bytes))
    }

    /// How many records the sender may still ship; 0 when it must wait. It waits for a good part of the limit: with
    /// whatever just came back it would send small batches, whose credit comes back in small pieces, for ever.
    #[must_use]
    pub fn room(&self) -> u64 {
        if worth(self.limit_bytes, self.bytes.load(Ordering::SeqCst)) == 0 {
            return 0;
        }
        worth(self.limit_records.load(Ordering::Acquire), self.records.load(Ordering::SeqCst))
    }

    /// How many bytes the sender may still ship.
    #[must_use]
    pub fn room_bytes(&self) -> u64 {
        self.limit_bytes.saturating_sub(self.bytes.load(Ordering::Acquire))
    }

    /// The sender is about to wait. Returns the room once more, so that a return in between is not
    /// missed.
    pub fn wait(&self) -> u64 {
        // Sequentially consistent on both sides: either we see the credit that is returned now, or the
        // receiver sees that we wait.
        self.gated.swap(true, Ordering::SeqCst);
        self.room()
    }

    /// The receiver says how many records it can process in the time that may lie in its queue.
    pub fn set_limit_records(&self, records: u64) {
        self.limit_records.store(records, Ordering::Release);
    }

    /// How many records may be in flight.
    #[must_use]
    pub fn limit_records(&self) -> u64 {
        self.limit_records.load(Ordering::Acquire)
    }

    /// Records in flight.
    #[must_use]
    pub fn in_flight_records(&self) -> u64 {
        self.records.load(Ordering::Acquire)
    }

    /// Bytes in flight.
    #[must_use]
    pub fn in_flight_bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }
}

/// What is left of a limit, if it is at least a quarter of it.
fn worth(limit: u64, taken: u64) -> u64 {
    let left = limit.saturating_sub(taken);
    if left < limit / 4 { 0 } else { left }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_channel_has_no_room_until_the_receiver_returns_credit() {
        let channel = ChannelCredits::new(FlowLimits { records: 10, bytes: 1_000, total_bytes: u64::MAX });
        channel.sent(10, 100);
        assert_eq!(channel.room(), 0);
        assert_eq!(channel.wait(), 0);
        assert!(channel.returned(4, 40), "the waiting sender is woken once");
        assert!(!channel.returned(4, 40), "and not again");
        assert_eq!(channel.room(), 8);
    }

    #[test]
    fn a_sender_that_waits_is_woken_when_a_quarter_is_free() {
        let channel = ChannelCredits::new(FlowLimits { records: 100, bytes: 1_000, total_bytes: u64::MAX });
        channel.sent(75, 100);
        assert_eq!(channel.room(), 25);
        channel.sent(10, 10);
        assert_eq!((channel.room(), channel.wait()), (0, 0));
        assert!(!channel.returned(9, 9));
        assert!(channel.returned(1, 1));
        channel.sent(0, 651);
        assert_eq!(channel.room(), 0, "of the bytes as well");
    }

    #[test]
    fn many_channels_share_the_bytes_of_the_process() {
        let limits = FlowLimits { records: 10, bytes: 4 << 20, total_bytes: 16 << 20 };
        let bytes = |channels| limits.shared_by(channels).bytes;
        assert_eq!([bytes(0), bytes(1), bytes(16), bytes(1_000_000)], [4 << 20, 4 << 20, 1 << 20, LEAST_CHANNEL_BYTES]);
    }

    #[test]
    fn credit_for_a_far_sender_is_kept_back_by_the_limit_that_it_knows() {
        let limits = FlowLimits { records: 80, bytes: 8_000, total_bytes: u64::MAX };
        let (near, far) = (ChannelCredits::new(limits), ChannelCredits::from_far(limits));
        near.sent(80, 80);
        assert_eq!(near.wait(), 0);
        assert!(!far.returned(10, 10));
        assert!(far.returned(1, 1), "more than an eighth");
        far.set_limit_records(8_000);
        let told = far.take_returned().unwrap();
        assert_eq!(told, ReturnedCredit { records: 11, bytes: 11, limit_records: 8_000 });
        assert_eq!(near.take_in(told), Some(true), "with the new limit there is room");
        assert_eq!((near.in_flight_records(), near.room()), (69, 7_931));
        far.set_limit_records(8);
        assert!(!far.returned(1_000, 10), "the sender still goes by 8,000");
        assert!(far.returned(0, 991), "an eighth of the bytes");
        let nonsense = ReturnedCredit { records: 70, bytes: 69, limit_records: 8 };
        assert_eq!(near.take_in(nonsense), None, "more than is under way");
        assert_eq!((near.in_flight_records(), near.room()), (69, 7_931));
        assert_eq!(near.take_in(ReturnedCredit { records: 69, ..nonsense }), Some(false), "it does not wait");
        assert_eq!(near.take_returned(), None, "this end takes credit in");
    }

    #[test]
    fn bytes_close_a_channel_as_well() {
        let channel = ChannelCredits::new(FlowLimits { records: 1_000, bytes: 100, total_bytes: u64::MAX });
        channel.sent(1, 100);
        assert_eq!(channel.room(), 0);
    }
}
