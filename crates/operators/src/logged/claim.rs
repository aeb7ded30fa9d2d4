//! A writer's name in somebody's hands: what of its log is still to be applied.
//!
//! Nothing here waits or tries again; calling [`Claimed::apply`] once more after an error is always right.

use millpond_core::error::Classified;
use millpond_core::{Epoch, ErrorKind, UserError, UserResult};
use millpond_dataflow::AttemptEnd;

use super::log::{WriterLog, within};
use super::{EpochLog, LoggedTarget};

/// What to do with a restored log whose marker is gone, so that nobody knows whether it was applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LostMarker {
    /// The job does not start.
    #[default]
    Fail,
    /// The log is applied: its output may be there twice.
    Apply,
    /// The log is dropped: its output may be missing.
    Drop,
}

/// A log that cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum LoggedError {
    /// The target keeps no marker of a writer that set one: it has deleted it.
    #[error(
        "the marker of writer {writer} is gone: nobody knows whether its output of {first} to {last}, {entries} entries, was applied"
    )]
    MarkerLost {
        /// The writer.
        writer: String,
        /// First epoch of its log.
        first: Epoch,
        /// Last epoch of its log.
        last: Epoch,
        /// Entries of its log.
        entries: u64,
    },
    /// A name that must be new is not.
    #[error("writer {writer} is not new: its marker names {marker}")]
    WriterNotNew {
        /// The writer.
        writer: String,
        /// Its marker.
        marker: Epoch,
    },
    /// The target did not take a log within the time it had.
    #[error("output of {epoch}, {entries} entries, could not be applied for {waited_ms} ms")]
    GaveUp {
        /// The last epoch of the log.
        epoch: Epoch,
        /// Entries of the log.
        entries: u64,
        /// How long it was tried.
        waited_ms: u128,
        /// What the target said last.
        source: UserError,
    },
    /// The attempt was over before the log was applied; the next one applies it.
    #[error("the attempt is over: output of writer {writer} is left to the next one")]
    Over {
        /// The writer.
        writer: String,
    },
    /// The thread that applies could not be started.
    #[error("cannot start a thread for a sink")]
    Thread {
        /// What the system said.
        source: std::io::Error,
    },
    /// The thread that applies panicked.
    #[error("the thread of a sink panicked: {message}")]
    Panicked {
        /// Its message.
        message: String,
    },
}

impl LoggedError {
    /// What to do next.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            LoggedError::MarkerLost { .. } | LoggedError::WriterNotNew { .. } => ErrorKind::Invalid,
            LoggedError::GaveUp { .. } | LoggedError::Over { .. } | LoggedError::Thread { .. } => {
                ErrorKind::Unavailable
            }
            LoggedError::Panicked { .. } => ErrorKind::Bug,
        }
    }

    pub(super) fn classified(self) -> UserError {
        Classified::new(self.kind(), self).into()
    }
}

/// A writer whose name is ours.
pub(super) struct Claimed<T> {
    pub(super) target: T,
    writer: String,
    phase: Phase,
    end: AttemptEnd,
}

/// What is known of the marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing: the name has to be claimed. With `new`, there may be no marker.
    Unclaimed { new: bool },
    /// The target's marker is this.
    Known(Epoch),
}

impl<T: LoggedTarget> Claimed<T> {
    /// A writer that does not exist yet.
    pub(super) fn new(target: T, writer: String, end: AttemptEnd) -> Self {
        Claimed { target, writer, phase: Phase::Unclaimed { new: true }, end }
    }

    /// Sets the first marker of a new writer.
    pub(super) fn begin(&mut self) -> UserResult {
        if let Some(marker) = self.claim()?
            && marker != Epoch::ZERO
        {
            return Err(LoggedError::WriterNotNew { writer: self.writer.clone(), marker }.classified());
        }
        self.target.apply(Epoch::ZERO, &[])?;
        self.phase = Phase::Known(Epoch::ZERO);
        Ok(())
    }

    /// Whoever claims takes the name from others, so an attempt that is over does not; and if it ends meanwhile, it
    /// goes no further, since the next one may have read the marker.
    fn claim(&mut self) -> UserResult<Option<Epoch>> {
        let over = |writer: &String| LoggedError::Over { writer: writer.clone() }.classified();
        if self.end.is_over() {
            return Err(over(&self.writer));
        }
        let marker = self.target.claim(&self.writer)?;
        if self.end.is_over() { Err(over(&self.writer)) } else { Ok(marker) }
    }

    /// The marker, asked for if it is not known. With `logs`, what cannot be told apart when it is gone.
    fn marker(&mut self, logs: &[EpochLog]) -> UserResult<Epoch> {
        let marker = match self.phase {
            Phase::Known(marker) => marker,
            Phase::Unclaimed { new } => match self.claim()? {
                Some(marker) => marker,
                None if new => Epoch::ZERO,
                None => return Err(lost(&self.writer, logs)),
            },
        };
        self.phase = Phase::Known(marker);
        Ok(marker)
    }

    /// Sets the marker to what it is, so that the target goes on keeping it.
    pub(super) fn renew(&mut self) -> UserResult {
        let marker = self.marker(&[])?;
        self.phase = Phase::Unclaimed { new: false };
        self.target.apply(marker, &[])?;
        self.phase = Phase::Known(marker);
        Ok(())
    }

    /// Applies the logs that the marker does not cover. `logs` are in order of their epochs.
    pub(super) fn apply(&mut self, logs: &[EpochLog]) -> UserResult {
        let marker = self.marker(logs)?;
        let rest = &logs[logs.partition_point(|log| log.epoch() <= marker)..];
        let Some(last) = rest.last() else { return Ok(()) };
        // Whatever becomes of the call: only its success is certain.
        self.phase = Phase::Unclaimed { new: false };
        self.target.apply(last.epoch(), rest)?;
        self.phase = Phase::Known(last.epoch());
        Ok(())
    }
}

/// Applies what a former writer has logged, as far as its marker does not cover it, `limit_bytes` in a transaction.
pub(super) fn apply_restored<T: LoggedTarget>(
    target: T,
    log: &WriterLog,
    (lost_marker, limit_bytes): (LostMarker, usize),
    end: &AttemptEnd,
) -> (T, UserResult) {
    let WriterLog { writer, epochs } = log;
    let phase = Phase::Unclaimed { new: lost_marker == LostMarker::Apply };
    let mut claimed = Claimed { target, writer: writer.clone(), phase, end: end.clone() };
    let mut result = claimed.marker(epochs).map(drop);
    let mut rest = epochs.as_slice();
    while result.is_ok() && !rest.is_empty() {
        let (now, later) = rest.split_at(within(rest, limit_bytes));
        (result, rest) = (claimed.apply(now), later);
    }
    if lost_marker == LostMarker::Drop
        && let Err(error) = &result
        && is_lost(error)
    {
        tracing::warn!(writer, epochs = epochs.len(), "drops output whose marker is gone");
        result = Ok(());
    }
    (claimed.target, result)
}

fn lost(writer: &str, logs: &[EpochLog]) -> UserError {
    let epoch = |log: Option<&EpochLog>| log.map_or(Epoch::ZERO, EpochLog::epoch);
    let (first, last) = (epoch(logs.first()), epoch(logs.last()));
    let entries = logs.iter().map(EpochLog::len).sum();
    LoggedError::MarkerLost { writer: writer.to_owned(), first, last, entries }.classified()
}

fn is_lost(error: &UserError) -> bool {
    let classified = error.downcast_ref::<Classified>();
    let inner = classified.and_then(|classified| classified.get_ref().downcast_ref::<LoggedError>());
    matches!(inner, Some(LoggedError::MarkerLost { .. }))
}

/// Whether another try may succeed.
pub(super) fn may_pass(error: &UserError) -> bool {
    let kind = error.downcast_ref::<Classified>().map_or(ErrorKind::Unavailable, Classified::kind);
    matches!(kind, ErrorKind::Unavailable | ErrorKind::Uncertain)
}
