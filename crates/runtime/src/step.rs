//! How much one step of a subtask may do, and what it came to.

use millpond_dataflow::BATCH_RECORDS;

/// How much one call of [`crate::Subtask::run`] may do.
#[derive(Clone, Copy, Debug)]
pub struct RunLimits {
    /// Batches taken from the queue or the source.
    pub batches: usize,
    /// Bytes of state serialised at once; bounds how long records wait because of a checkpoint. A slice
    /// also ends when the [`Gate`] says that it has taken long enough.
    pub slice_bytes: usize,
    /// Records asked of a source at once, at most.
    pub poll_records: usize,
}

impl Default for RunLimits {
    fn default() -> Self {
        RunLimits { batches: 8, slice_bytes: 64 << 10, poll_records: BATCH_RECORDS }
    }
}

/// What a subtask wants after [`crate::Subtask::run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// To be run again soon.
    Ready,
    /// Nothing until something arrives; a source that may have more later says so as well.
    Idle,
    /// Nothing until credit is returned.
    Gated,
    /// Nothing but notices any more: the stream has ended here.
    Ended,
}

/// Watches how long a subtask is away from records because of a checkpoint, or to keep state within its memory.
pub trait Gate {
    /// Such work begins.
    fn pause(&mut self);
    /// Such work has ended, if any had begun.
    fn resume(&mut self);
    /// Whether the work that is going on has taken as long as it should: what can wait waits.
    fn is_overdue(&mut self) -> bool {
        false
    }
}
