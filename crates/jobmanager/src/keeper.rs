//! The threads on which the job manager waits for storage.
//!
//! One publishes, lists and deletes, in the order asked; the other compacts, which may take long.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use millpond_checkpoint::{CompactionPlan, Event, Manifest, PublishOutcome, PublishRight, Publisher, savepoint};
use millpond_engine::run_in_background;
use millpond_runtime::compact;
use millpond_storage::{ObjectName, Storage};

use crate::attempt::Message;

/// Something to do on storage.
pub(crate) enum Errand {
    /// List all objects of the job.
    Look,
    /// Publish a manifest.
    Publish(Box<Manifest>),
    /// Delete objects.
    Delete(Vec<ObjectName>),
    /// Dispose of a claimed savepoint, which is not needed any more.
    Dispose(Arc<dyn Storage>),
    /// Merge runs.
    Compact(CompactionPlan),
}

/// The threads.
pub(crate) struct Keeper {
    errands: Sender<Errand>,
    compactions: Sender<CompactionPlan>,
    threads: Vec<JoinHandle<()>>,
}

type JobPublisher = Publisher<Arc<dyn Storage>>;

impl Keeper {
    pub(crate) fn start(
        publisher: &JobPublisher,
        right: PublishRight,
        messages: Sender<Message>,
    ) -> std::io::Result<Keeper> {
        let (errands, own_errands) = channel();
        let (compactions, own_compactions) = channel();
        let (first, second) = (publisher.clone(), publisher.clone());
        let (first_messages, first_right) = (messages.clone(), right.clone());
        let keep = std::thread::Builder::new().name("checkpoint-log".to_owned());
        let merge = std::thread::Builder::new().name("compaction".to_owned());
        let threads = vec![
            keep.spawn(move || {
                run_in_background();
                run_errands(&own_errands, &first, &first_right, &first_messages);
            })?,
            merge.spawn(move || {
                run_in_background();
                run_compactions(&own_compactions, &second, &right, &messages);
            })?,
        ];
        Ok(Keeper { errands, compactions, threads })
    }

    pub(crate) fn send(&self, errand: Errand) {
        // The threads end only when this end is dropped.
        match errand {
            Errand::Compact(plan) => drop(self.compactions.send(plan)),
            errand => drop(self.errands.send(errand)),
        }
    }

    /// Waits until what was asked is done.
    pub(crate) fn stop(self) {
        drop((self.errands, self.compactions));
        for thread in self.threads {
            // A panic has already ended the attempt by its missing answer.
            let _ = thread.join();
        }
    }
}

fn run_errands(errands: &Receiver<Errand>, publisher: &JobPublisher, right: &PublishRight, messages: &Sender<Message>) {
    for errand in errands {
        let event = match errand {
            Errand::Look => match publisher.objects() {
                Ok(existing) => Event::Found { existing },
                Err(error) => {
                    tracing::warn!(error = %millpond_core::error::chain(&error), "cannot look for orphans");
                    continue;
                }
            },
            Errand::Publish(manifest) => {
                let outcome = publisher.publish(right, &manifest);
                let outcome = PublishOutcome::of(&outcome);
                Event::PublishFinished { epoch: manifest.epoch, outcome }
            }
            Errand::Delete(objects) => {
                if let Err(error) = publisher.delete(&objects) {
                    tracing::warn!(error = %millpond_core::error::chain(&error), "cannot delete what is not needed");
                }
                Event::CleanupFinished
            }
            Errand::Dispose(claimed) => {
                match savepoint::dispose(&claimed) {
                    Ok(objects) => tracing::info!(objects, "disposed of the claimed savepoint"),
                    Err(error) => {
                        tracing::warn!(error = %millpond_core::error::chain(&error), "cannot dispose of the claimed savepoint");
                    }
                }
                continue;
            }
            Errand::Compact(_) => continue,
        };
        let _ = messages.send(Message::Checkpoint(event));
    }
}

fn run_compactions(
    plans: &Receiver<CompactionPlan>,
    publisher: &JobPublisher,
    right: &PublishRight,
    messages: &Sender<Message>,
) {
    let names = publisher.history().names();
    for plan in plans {
        let storage = publisher.history().storage();
        let outcome =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| compact(&plan, right.attempt(), names, storage)));
        let outcome = outcome.unwrap_or_else(|_| Err("the compaction panicked".to_owned()));
        if let Err(reason) = &outcome {
            tracing::warn!(plan = plan.id, operator = plan.operator, reason, "compaction failed");
        }
        let _ = messages.send(Message::Checkpoint(Event::Compacted { plan: plan.id, outcome }));
    }
}
