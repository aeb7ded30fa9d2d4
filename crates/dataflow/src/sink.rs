//! Sinks, exactly once by two phases: prepare at the epoch's end, commit after the checkpoint is
//! durable.

use millpond_core::{Data, Epoch, UserResult};

use crate::context::{AttemptEnd, SubtaskInfo};
use crate::graph::OperatorHandle;

/// Given to a sink when it opens.
pub struct SinkContext<'a> {
    /// Who we are.
    pub info: &'a SubtaskInfo,
    /// Whether the job starts from a checkpoint.
    pub restored: bool,
    /// Whether the attempt is over, for whoever waits long or has threads.
    pub end: &'a AttemptEnd,
}

/// One subtask's writer.
///
/// Records written since the last `prepare` belong to the epoch that the next `prepare` names. What
/// `prepare` returns is kept in the checkpoint and handed to `commit` once that checkpoint is durable,
/// in this attempt or in a later one, in another subtask perhaps, and perhaps more than once.
pub trait Sink: 'static {
    /// What it takes.
    type Record: Data;
    /// What identifies prepared output: enough to make it visible from any subtask.
    type Committable: Data;

    /// Gets ready to write.
    ///
    /// # Errors
    /// Ends the attempt.
    fn open(&mut self, context: &SinkContext<'_>) -> UserResult;

    /// Writes one record.
    ///
    /// # Errors
    /// Ends the attempt.
    fn write(&mut self, record: Self::Record) -> UserResult;

    /// Makes everything written so far durable, but not visible.
    ///
    /// # Errors
    /// Ends the attempt.
    fn prepare(&mut self, epoch: Epoch) -> UserResult<Vec<Self::Committable>>;

    /// Makes prepared output visible. Idempotent: done already counts as success (TP-06, TP-22).
    ///
    /// # Errors
    /// Ends the attempt; the commit is tried again by the next one.
    fn commit(&mut self, committable: Self::Committable) -> UserResult;

    /// Makes output visible that a restored checkpoint holds; it may have been made visible before. With
    /// `finished`, the job had come to its end: nobody else is going to look for its output.
    ///
    /// # Errors
    /// As [`Sink::commit`].
    fn commit_restored(&mut self, committable: Self::Committable, finished: bool) -> UserResult {
        let _ = finished;
        self.commit(committable)
    }

    /// The first checkpoint of this attempt is durable and all that was restored is committed: what
    /// older attempts left unprepared or unpublished can go. Called on subtask 0 only.
    ///
    /// # Errors
    /// Ends the attempt.
    fn clean_up(&mut self) -> UserResult {
        Ok(())
    }
}

/// The end of a stream, to set properties of its sink.
pub struct SinkStream {
    handle: OperatorHandle,
}

impl SinkStream {
    /// For whoever adds a sink to a graph.
    #[must_use]
    pub fn new(handle: OperatorHandle) -> Self {
        SinkStream { handle }
    }

    /// Limits the sink to `subtasks` parallel instances.
    pub fn parallelism(self, subtasks: u32) -> Self {
        self.handle.set_parallelism(subtasks);
        self
    }
}
