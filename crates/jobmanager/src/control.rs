//! How somebody outside asks a running job for something, and hears what became of it.
//!
//! Owns the queue of requests and the answers. Does *not* own what is done for them (see `attempt`) nor
//! how requests get into the process (see `cli`).
//!
//! Every request is answered exactly once: with what was done, with why it could not be, or with the end
//! of the job.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millpond_checkpoint::{CheckpointError, Reason, SavepointReport};
use millpond_core::key_group::ParallelismError;
use millpond_core::{Epoch, ErrorKind};
use millpond_storage::Storage;

/// Why a request was not carried out.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ControlError {
    /// The job has ended, or ended meanwhile.
    #[error("the job has ended")]
    Ended,
    /// The job keeps no checkpoints.
    #[error("the job runs without durable checkpoints: there is nothing to make a savepoint of")]
    NotDurable,
    /// The epoch that was to answer the request did not come about; the job goes on.
    #[error("{epoch} was aborted: {reason}")]
    Aborted {
        /// Which epoch.
        epoch: Epoch,
        /// Why.
        reason: String,
    },
    /// The attempt failed before the request was carried out; the job may go on in another one.
    #[error("the attempt failed before the request was carried out: {reason}")]
    AttemptFailed {
        /// Why.
        reason: String,
    },
    /// The job cannot have so many workers.
    #[error("cannot rescale")]
    Workers(#[from] ParallelismError),
    /// The savepoint could not be written; the job goes on.
    #[error("cannot write the savepoint")]
    Savepoint(#[source] CheckpointError),
}

impl ControlError {
    /// What to do next.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            ControlError::Ended | ControlError::NotDurable => ErrorKind::Invalid,
            ControlError::Workers(error) => error.kind(),
            ControlError::Aborted { .. } | ControlError::AttemptFailed { .. } => ErrorKind::Unavailable,
            ControlError::Savepoint(error) => error.kind(),
        }
    }
}

/// What was done for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The epoch that answers it: it holds everything that had happened when the request was made.
    pub epoch: Epoch,
    /// The savepoint, if one was asked for.
    pub savepoint: Option<SavepointReport>,
    /// After a change of the number of workers: how long no records flowed, in milliseconds.
    pub still_ms: Option<u64>,
}

/// The answer to a request.
pub type Answer = Result<Done, ControlError>;

/// How a job is to stop.
#[derive(Clone, Default)]
pub struct StopRequest {
    /// Whether operators are told of the end, so that they emit what they hold, before the last epoch.
    pub drain: bool,
    /// Where a savepoint of the last epoch goes, if anywhere.
    pub savepoint: Option<Arc<dyn Storage>>,
}

/// What is asked for.
pub(crate) enum Wish {
    Checkpoint,
    Savepoint(Arc<dyn Storage>),
    Stop(StopRequest),
    /// Another number of workers in each process.
    Rescale(u32),
}

impl Wish {
    /// What the coordinator is told.
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Wish::Checkpoint | Wish::Savepoint(_) => Reason::Manual,
            Wish::Stop(StopRequest { drain: true, .. }) => Reason::Drain,
            Wish::Stop(_) | Wish::Rescale(_) => Reason::Stop,
        }
    }

    /// Where a savepoint goes, if one is asked for.
    pub(crate) fn target(&self) -> Option<&Arc<dyn Storage>> {
        match self {
            Wish::Checkpoint | Wish::Rescale(_) => None,
            Wish::Savepoint(target) => Some(target),
            Wish::Stop(request) => request.savepoint.as_ref(),
        }
    }

    pub(crate) fn is_stop(&self) -> bool {
        matches!(self, Wish::Stop(_))
    }

    /// Whether it is answered by an epoch that is followed by none of its attempt.
    pub(crate) fn ends_attempt(&self) -> bool {
        matches!(self, Wish::Stop(_) | Wish::Rescale(_))
    }
}

/// A request on its way. Dropped without an answer, it is answered with the end of the job.
pub(crate) struct Asked {
    pub(crate) wish: Wish,
    reply: Sender<Answer>,
}

impl Asked {
    pub(crate) fn answer(self, answer: Answer) {
        // Whoever asked may have gone.
        let _ = self.reply.send(answer);
    }
}

/// Asks a running job for checkpoints, savepoints and its end, from any thread of the process. Requests
/// made before the job runs, or while it restarts, wait for it.
#[derive(Default)]
pub struct JobControl {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Asked>,
    ended: bool,
}

impl JobControl {
    /// Takes a checkpoint and waits until it is complete.
    ///
    /// # Errors
    /// When the checkpoint is aborted, the attempt fails, or the job ends first.
    pub fn checkpoint(&self) -> Answer {
        wait(&self.ask(Wish::Checkpoint))
    }

    /// Takes a checkpoint, and writes it to `target` as a savepoint while the job goes on. Waits until
    /// that is done.
    ///
    /// # Errors
    /// As [`Self::checkpoint`], and when the savepoint cannot be written. The job goes on all the same.
    pub fn savepoint(&self, target: Arc<dyn Storage>) -> Answer {
        wait(&self.ask(Wish::Savepoint(target)))
    }

    /// Stops the job with a last checkpoint, and a savepoint of it if one is asked for. Waits until that
    /// is done; the job ends at about the same time.
    ///
    /// # Errors
    /// As [`Self::savepoint`]: the job has not stopped then, or starts again (RS-26), unless it has ended.
    pub fn stop(&self, request: StopRequest) -> Answer {
        wait(&self.ask(Wish::Stop(request)))
    }

    /// Goes on with `workers` workers in each process: stops with a checkpoint, and starts from it at once in the same
    /// processes. Waits until records flow again. Processes that are started again later begin with the number in their settings.
    ///
    /// # Errors
    /// When the job keeps no checkpoints or cannot have so many workers, and as [`Self::checkpoint`].
    pub fn rescale(&self, workers: u32) -> Answer {
        wait(&self.ask(Wish::Rescale(workers)))
    }

    fn ask(&self, wish: Wish) -> Receiver<Answer> {
        let (reply, answer) = channel();
        let asked = Asked { wish, reply };
        let mut queue = self.lock();
        if !queue.ended {
            queue.waiting.push_back(asked);
        }
        answer
    }

    /// What was asked since the last call.
    pub(crate) fn take(&self) -> Vec<Asked> {
        self.lock().waiting.drain(..).collect()
    }

    /// Whether somebody waits for the end of the job.
    pub(crate) fn is_stop_waiting(&self) -> bool {
        self.lock().waiting.iter().any(|asked| asked.wish.is_stop() && asked.wish.target().is_none())
    }

    /// The job has stopped between two attempts: who asked for just that is answered.
    pub(crate) fn stopped(&self, epoch: Epoch) {
        for asked in self.take() {
            if asked.wish.is_stop() && asked.wish.target().is_none() {
                asked.answer(Ok(Done { epoch, savepoint: None, still_ms: None }));
            }
        }
    }

    /// A run of the job begins.
    pub(crate) fn begin(&self) {
        self.lock().ended = false;
    }

    /// The job has ended: what still waits is dropped, and so answered.
    pub(crate) fn end(&self) {
        let mut queue = self.lock();
        queue.ended = true;
        queue.waiting.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wait(answer: &Receiver<Answer>) -> Answer {
    answer.recv().unwrap_or(Err(ControlError::Ended))
}

impl std::fmt::Debug for JobControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let queue = self.lock();
        f.debug_struct("JobControl").field("waiting", &queue.waiting.len()).field("ended", &queue.ended).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_when_the_job_ends_is_answered() {
        let control = JobControl::default();
        let answer = control.ask(Wish::Checkpoint);
        control.end();
        assert!(matches!(wait(&answer), Err(ControlError::Ended)));
        assert!(matches!(control.checkpoint(), Err(ControlError::Ended)));
        control.begin();
        let answer = control.ask(Wish::Stop(StopRequest::default()));
        assert!(control.is_stop_waiting());
        drop(control.take());
        assert!(matches!(wait(&answer), Err(ControlError::Ended)));
    }

    #[test]
    fn an_answer_reaches_who_asked() {
        let control = JobControl::default();
        let answer = control.ask(Wish::Checkpoint);
        let done = Done { epoch: Epoch(7), savepoint: None, still_ms: None };
        for asked in control.take() {
            asked.answer(Ok(done.clone()));
        }
        assert_eq!(wait(&answer).unwrap(), done);
    }
}
