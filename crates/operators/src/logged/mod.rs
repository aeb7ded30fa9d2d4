//! Exactly-once sinks by the *logged* contract: the output of an epoch is part of its checkpoint, and is applied to
//! the target after the checkpoint is durable, together with a marker, in one transaction of the target.
//!
//! Owns: the log of an epoch, who may apply it, what a marker means after a crash. Does *not* own: transactions of a
//! target ([`LoggedTarget`]), when a checkpoint is durable.
//!
//! ```text
//! record ─► encode ─► log of the open epoch ─► operator state (prepare) ─► published ─► apply + marker ─► forgotten
//! restore:  log of a former writer ─► claim: fence it, read its marker ─► apply what the marker does not cover
//! ```
//!
//! Invariants:
//! * A subtask of an attempt is one *writer*, under a name that nobody had before. Its first transaction holds nothing
//!   but the marker of epoch 0, so that a marker that is missing later is one that was lost.
//! * Whoever holds a writer's log from a checkpoint claims the name first: nothing that an older holder has under
//!   way becomes visible after that.
//! * The log of a writer is one element of operator state: it is never split between two subtasks.
//! * An attempt that is over claims nothing, and begins nothing under a name that it has claimed: it would take the name
//!   from the attempt after it. What it has under way, the next claim settles.
//! * No transaction is open between two calls of [`LoggedTarget::apply`].
//! * The log of a subtask is bounded: a sink whose log is full takes no records until an epoch of it is applied.

mod applier;
mod claim;
#[cfg(test)]
mod ended;
mod log;
mod operator;
#[cfg(test)]
mod tests;

use std::panic::Location;
use std::time::Duration;

use millpond_core::{Data, Epoch, UserResult};
use millpond_dataflow::graph::{Naming, NewOperator};
use millpond_dataflow::{SinkContext, SinkStream, Stream};

pub use applier::{Applier, Patience};
pub use claim::{LoggedError, LostMarker};
pub use log::EpochLog;

/// Something with transactions that keeps a marker for every writer.
pub trait LoggedTarget: 'static {
    /// Takes over the name `writer` and says which epoch its marker names; `None` when it has none. When it returns,
    /// everything that another holder of the name began is either visible or never will be, and the marker
    /// says which.
    ///
    /// # Errors
    /// When that is not certain.
    fn claim(&mut self, writer: &str) -> UserResult<Option<Epoch>>;

    /// In one transaction: makes the entries of `logs` visible, in order, and sets the marker of the writer claimed
    /// last to `epoch`. The transaction is over when this returns, or will be by the next [`LoggedTarget::claim`]
    /// of the writer.
    ///
    /// # Errors
    /// It may have happened or not: the writer is claimed again. Errors of class fenced, invalid, corrupt and bug
    /// end the attempt, others are tried again.
    fn apply(&mut self, epoch: Epoch, logs: &[EpochLog]) -> UserResult;
}

/// Turns records into entries of a log, and connects to the target that applies them.
pub trait LoggedSink: 'static {
    /// What it takes.
    type Record: Data;

    /// Connects to the target. Called once, before the first record.
    ///
    /// # Errors
    /// Ends the attempt.
    fn open(&mut self, context: &SinkContext<'_>) -> UserResult<Applier>;

    /// A name for this subtask in this attempt, which no writer of the target ever had.
    fn writer(&self, context: &SinkContext<'_>) -> String;

    /// Appends the record, as the target wants it, to `entry`. `time` is its event time in milliseconds.
    ///
    /// # Errors
    /// Ends the attempt.
    fn encode(&mut self, record: Self::Record, time: Option<i64>, entry: &mut Vec<u8>) -> UserResult;

    /// How many bytes the log of a subtask may have, over all epochs that are not applied. Beyond it the sink takes
    /// no records. What it takes in memory is about four times as much while a checkpoint is being stored.
    fn log_limit_bytes(&self) -> usize;

    /// How many bytes of logs go into one transaction: epochs that are due together beyond it, as after a long outage
    /// of the target, go into several, in order. An epoch is never divided.
    fn transaction_bytes(&self) -> usize {
        usize::MAX
    }

    /// After how long without output the marker is set anew, for targets that forget markers; `None` for never.
    fn renew_marker_every(&self) -> Option<Duration> {
        None
    }

    /// What to do when the marker of a restored log is gone.
    fn lost_marker(&self) -> LostMarker {
        LostMarker::Fail
    }
}

/// Methods of a stream that end it in a logged sink.
pub trait LoggedSinkOperators<T: Data> {
    /// Sends the stream to a sink of the logged contract. `name` identifies its log in checkpoints.
    #[track_caller]
    fn logged_sink<S: LoggedSink<Record = T>>(&self, name: &str, sink: S) -> SinkStream;
}

impl<T: Data> LoggedSinkOperators<T> for Stream<T> {
    #[track_caller]
    fn logged_sink<S: LoggedSink<Record = T>>(&self, name: &str, sink: S) -> SinkStream {
        let added = NewOperator {
            naming: Naming::Given(name),
            kind: "sink",
            location: Location::caller(),
            inputs: vec![self.input()],
        };
        SinkStream::new(self.dataflow().add_operator(added, operator::LoggedOperator::new(sink)))
    }
}
