//! The requests that an attempt is about to answer.
//!
//! A request passes through: asked → told to the coordinator → attached to the next epoch that is
//! triggered → that epoch, or a later one, is complete → answered, after the savepoint is written if one
//! was asked for. Owns the requests and the threads that write savepoints. Does *not* own the coordinator.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

use millpond_checkpoint::{AbortReason, CheckpointError, Event, Manifest, Reason, SavepointReport, savepoint};
use millpond_core::{Clock, Epoch, error::chain};
use millpond_storage::Storage;

use crate::attempt::Message;
use crate::control::{Asked, ControlError, Done, Wish};

/// Where savepoints of the attempt come from.
#[derive(Clone)]
pub(crate) struct SavepointSource {
    /// The storage of the job's checkpoints.
    pub(crate) storage: Arc<dyn Storage>,
    /// What the names of all objects of the job begin with.
    pub(crate) prefix: String,
    /// The time.
    pub(crate) clock: Arc<dyn Clock>,
}

impl SavepointSource {
    fn write(&self, manifest: &Manifest, target: &Arc<dyn Storage>) -> Result<SavepointReport, CheckpointError> {
        savepoint::write(&self.storage, manifest, &self.prefix, target, self.clock.now_ms())
    }
}

/// The requests of one attempt.
pub(crate) struct Requests {
    /// None for a job that keeps no checkpoints.
    source: Option<SavepointSource>,
    waiting: Vec<Waiting>,
    writers: Vec<JoinHandle<()>>,
}

struct Waiting {
    asked: Asked,
    epoch: Option<Epoch>,
}

impl Requests {
    pub(crate) fn new(source: Option<SavepointSource>) -> Requests {
        Requests { source, waiting: Vec::new(), writers: Vec::new() }
    }

    /// Takes in a request; returns what the coordinator is to be told, if anything.
    pub(crate) fn add(&mut self, asked: Asked) -> Option<Reason> {
        if let Some(target) = asked.wish.target() {
            if self.source.is_none() {
                asked.answer(Err(ControlError::NotDurable));
                return None;
            }
            // Said now, rather than after the job has stopped.
            if let Err(error) = savepoint::check_target(target) {
                asked.answer(Err(ControlError::Savepoint(error)));
                return None;
            }
        }
        if self.source.is_none() && matches!(asked.wish, Wish::Rescale(_)) {
            asked.answer(Err(ControlError::NotDurable));
            return None;
        }
        let reason = asked.wish.reason();
        self.waiting.push(Waiting { asked, epoch: None });
        Some(reason)
    }

    /// An epoch begins: it holds all that happened before the requests that wait. `last` says that it is
    /// followed by none.
    pub(crate) fn triggered(&mut self, epoch: Epoch, last: bool) {
        for waiting in &mut self.waiting {
            if waiting.epoch.is_none() && (last || !waiting.asked.wish.ends_attempt()) {
                waiting.epoch = Some(epoch);
            }
        }
    }

    /// An epoch will not exist. One that a later epoch has overtaken is answered by that one.
    pub(crate) fn aborted(&mut self, epoch: Epoch, reason: &AbortReason) {
        if matches!(reason, AbortReason::Subsumed(_)) {
            return;
        }
        for asked in self.drain(|waiting| waiting.epoch == Some(epoch)) {
            asked.answer(Err(ControlError::Aborted { epoch, reason: reason.to_string() }));
        }
    }

    /// `manifest` is in the log. Requests that do not stop the job are answered; returns how many copies of
    /// it are being written, which is how often it must be pinned.
    pub(crate) fn completed(&mut self, manifest: &Manifest, messages: &Sender<Message>) -> usize {
        let epoch = manifest.epoch;
        let answered = self
            .drain(|waiting| !waiting.asked.wish.ends_attempt() && waiting.epoch.is_some_and(|asked| asked <= epoch));
        let mut copies = 0;
        for asked in answered {
            match (asked.wish.target().cloned(), self.source.clone()) {
                (Some(target), Some(source)) => {
                    copies += usize::from(self.write_aside(asked, target, source, manifest, messages.clone()));
                }
                _ => asked.answer(Ok(Done { epoch, savepoint: None, still_ms: None })),
            }
        }
        copies
    }

    /// Writes a savepoint on a thread of its own, since that may take long.
    fn write_aside(
        &mut self,
        asked: Asked,
        target: Arc<dyn Storage>,
        source: SavepointSource,
        manifest: &Manifest,
        messages: Sender<Message>,
    ) -> bool {
        let manifest = manifest.clone();
        let write = move || {
            let written = source.write(&manifest, &target);
            if let Err(error) = &written {
                tracing::warn!(epoch = manifest.epoch.0, error = %chain(error), "cannot write a savepoint");
            }
            let _ = messages.send(Message::Checkpoint(Event::Unpin { sequence: manifest.sequence }));
            let done = written.map(|report| Done { epoch: manifest.epoch, savepoint: Some(report), still_ms: None });
            asked.answer(done.map_err(ControlError::Savepoint));
        };
        match std::thread::Builder::new().name("savepoint".to_owned()).spawn(write) {
            Ok(thread) => {
                self.writers.retain(|writer| !writer.is_finished());
                self.writers.push(thread);
                true
            }
            // The request went with the closure, and is answered by that.
            Err(error) => {
                tracing::warn!(%error, "cannot start a thread for a savepoint");
                false
            }
        }
    }

    /// Takes out the wish for another number of workers, if the attempt ended for that: the last one, unless the job is to stop.
    /// Others of its kind are answered with the end of the attempt.
    pub(crate) fn take_rescale(&mut self) -> Option<(Asked, u32)> {
        if self.waiting.iter().any(|waiting| waiting.asked.wish.is_stop()) {
            return None;
        }
        let wishes = self.drain(|waiting| matches!(waiting.asked.wish, Wish::Rescale(_)));
        let last = wishes.into_iter().last()?;
        let Wish::Rescale(workers) = last.wish else { return None };
        Some((last, workers))
    }

    /// The last epoch is durable and committed: everything that waits is answered with it.
    ///
    /// # Errors
    /// The first savepoint that could not be written: then the job must not end (RS-26).
    pub(crate) fn finished(mut self, manifest: &Manifest) -> Result<(), CheckpointError> {
        let epoch = manifest.epoch;
        let mut failure = None;
        for asked in self.drain(|_| true) {
            let written = match (asked.wish.target(), &self.source) {
                (Some(target), Some(source)) => source.write(manifest, target).map(Some),
                _ => Ok(None),
            };
            if let Err(error) = &written
                && asked.wish.is_stop()
            {
                failure = Some(error.clone());
            }
            let done = written.map(|savepoint| Done { epoch, savepoint, still_ms: None });
            asked.answer(done.map_err(ControlError::Savepoint));
        }
        for writer in self.writers.drain(..) {
            // A panic there has answered its request by not answering.
            let _ = writer.join();
        }
        failure.map_or(Ok(()), Err)
    }

    /// The attempt has failed. Savepoints that are being written go on: they notice what is gone.
    pub(crate) fn failed(mut self, reason: &str) {
        for asked in self.drain(|_| true) {
            asked.answer(Err(ControlError::AttemptFailed { reason: reason.to_owned() }));
        }
    }

    fn drain(&mut self, which: impl Fn(&Waiting) -> bool) -> Vec<Asked> {
        let (taken, left): (Vec<Waiting>, Vec<Waiting>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|waiting| which(waiting));
        self.waiting = left;
        taken.into_iter().map(|waiting| waiting.asked).collect()
    }
}
