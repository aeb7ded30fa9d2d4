//! The threads on which the job manager waits for storage.
//!
//! One publishes, lists and deletes, in the order asked. The others merge, which may take long: one at low priority,
//! and for urgent merges some at that of the workers.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use millpond_checkpoint::{CompactionPlan, Event, Manifest, PublishOutcome, PublishRight, Publisher, savepoint};
use millpond_engine::run_in_background;
use millpond_runtime::{RunSettings, compact};
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

/// Threads for urgent merges: the coordinator plans two at a time.
const URGENT_THREADS: usize = 2;

/// The threads.
pub(crate) struct Keeper {
    errands: Sender<Errand>,
    merges: Sender<CompactionPlan>,
    urgent_merges: Sender<CompactionPlan>,
    threads: Vec<JoinHandle<()>>,
}

type JobPublisher = Publisher<Arc<dyn Storage>>;

/// What a thread that merges needs.
#[derive(Clone)]
struct Merger {
    publisher: JobPublisher,
    right: PublishRight,
    runs: RunSettings,
    messages: Sender<Message>,
}

impl Keeper {
    pub(crate) fn start(
        publisher: &JobPublisher,
        right: PublishRight,
        runs: RunSettings,
        messages: Sender<Message>,
    ) -> std::io::Result<Keeper> {
        let (errands, own_errands) = channel();
        let (first, first_messages, first_right) = (publisher.clone(), messages.clone(), right.clone());
        let keep = std::thread::Builder::new().name("checkpoint-log".to_owned());
        let mut threads = vec![keep.spawn(move || {
            run_in_background();
            run_errands(&own_errands, &first, &first_right, &first_messages);
        })?];
        let merger = Merger { publisher: publisher.clone(), right, runs, messages };
        let (merges, plans) = channel();
        let plans = Arc::new(Mutex::new(plans));
        threads.push(merger.clone().spawn("compaction", &plans, true)?);
        let (urgent_merges, plans) = channel();
        let plans = Arc::new(Mutex::new(plans));
        for _ in 0..URGENT_THREADS {
            threads.push(merger.clone().spawn("urgent-merge", &plans, false)?);
        }
        Ok(Keeper { errands, merges, urgent_merges, threads })
    }

    pub(crate) fn send(&self, errand: Errand) {
        // The threads end only when this end is dropped.
        match errand {
            Errand::Compact(plan) if plan.urgent => drop(self.urgent_merges.send(plan)),
            Errand::Compact(plan) => drop(self.merges.send(plan)),
            errand => drop(self.errands.send(errand)),
        }
    }

    /// Waits until what was asked is done.
    pub(crate) fn stop(self) {
        drop((self.errands, self.merges, self.urgent_merges));
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

impl Merger {
    fn spawn(
        self,
        name: &str,
        plans: &Arc<Mutex<Receiver<CompactionPlan>>>,
        low_priority: bool,
    ) -> std::io::Result<JoinHandle<()>> {
        let plans = Arc::clone(plans);
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            if low_priority {
                run_in_background();
            }
            // One of those that have nothing to do waits for a plan, the others for their turn to wait.
            let next = || plans.lock().unwrap_or_else(PoisonError::into_inner).recv();
            while let Ok(plan) = next() {
                self.merge(&plan);
            }
        })
    }

    fn merge(&self, plan: &CompactionPlan) {
        let history = self.publisher.history();
        let work = std::panic::AssertUnwindSafe(|| {
            compact(plan, self.right.attempt(), history.names(), &self.runs, history.storage())
        });
        let outcome = std::panic::catch_unwind(work).unwrap_or_else(|_| Err("the compaction panicked".to_owned()));
        if let Err(reason) = &outcome {
            tracing::warn!(plan = plan.id, operator = plan.operator, reason, "compaction failed");
        }
        let _ = self.messages.send(Message::Checkpoint(Event::Compacted { plan: plan.id, outcome }));
    }
}
