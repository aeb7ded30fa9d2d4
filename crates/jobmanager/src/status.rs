//! What can be seen of a running job from outside, and how to ask it to stop.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Asks a job to stop: it takes a last checkpoint and ends. Cheap to share behind an `Arc`.
#[derive(Debug, Default)]
pub struct StopSignal {
    asked: AtomicBool,
}

impl StopSignal {
    /// Asks for the stop.
    pub fn stop(&self) {
        self.asked.store(true, Ordering::Release);
    }

    /// Whether somebody asked.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }
}

/// Counters of a running job, updated by the job, read by whoever likes.
#[derive(Debug, Default)]
pub struct JobStatus {
    pub(crate) attempt: AtomicU64,
    pub(crate) restarts: AtomicU64,
    pub(crate) records: AtomicU64,
    pub(crate) epoch: AtomicU64,
    pub(crate) checkpoint_bytes: AtomicU64,
    pub(crate) checkpoint_ms: AtomicU64,
    pub(crate) state_entries: AtomicU64,
    pub(crate) state_bytes: AtomicU64,
}

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusSnapshot {
    /// Which execution.
    pub attempt: u64,
    /// Restarts since the job began.
    pub restarts: u64,
    /// Records that sources have emitted in this process, repeats after a restart included.
    pub records: u64,
    /// The last completed epoch; 0 for none.
    pub epoch: u64,
    /// Bytes that the last checkpoint added to storage.
    pub checkpoint_bytes: u64,
    /// Time from trigger to completion of the last checkpoint, in milliseconds.
    pub checkpoint_ms: u64,
    /// Live keyed entries.
    pub state_entries: u64,
    /// Bytes of memory of keyed state, estimated.
    pub state_bytes: u64,
}

impl JobStatus {
    /// All counters as of now.
    #[must_use]
    pub fn snapshot(&self) -> StatusSnapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StatusSnapshot {
            attempt: read(&self.attempt),
            restarts: read(&self.restarts),
            records: read(&self.records),
            epoch: read(&self.epoch),
            checkpoint_bytes: read(&self.checkpoint_bytes),
            checkpoint_ms: read(&self.checkpoint_ms),
            state_entries: read(&self.state_entries),
            state_bytes: read(&self.state_bytes),
        }
    }
}
