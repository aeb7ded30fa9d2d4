//! Background threads that store snapshots.
//!
//! A subtask's snapshots always go to the same thread, so they are stored oldest first. Memory is bounded
//! by the number of epochs that the coordinator lets be in flight.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use millpond_checkpoint::SubtaskId;
use millpond_core::{ErrorKind, SubtaskIndex, error::chain};
use millpond_runtime::{SubtaskSnapshot, SubtaskUploads, UploadSettings};
use millpond_storage::Storage;

use crate::control::Control;
use crate::event::EngineEvent;
use crate::thread::run_in_background;

/// Where snapshots go.
#[derive(Clone)]
pub(crate) struct UploadTarget {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) settings: UploadSettings,
}

/// The threads.
pub(crate) struct UploadPool {
    queues: Vec<Sender<(SubtaskId, SubtaskSnapshot)>>,
    threads: Vec<JoinHandle<()>>,
}

/// One end of the pool, for a worker.
#[derive(Clone)]
pub(crate) struct UploadQueue {
    queues: Vec<Sender<(SubtaskId, SubtaskSnapshot)>>,
}

impl UploadPool {
    pub(crate) fn start(
        threads: usize,
        target: &UploadTarget,
        control: &Arc<Control>,
        events: &Sender<EngineEvent>,
    ) -> std::io::Result<UploadPool> {
        let mut pool = UploadPool { queues: Vec::new(), threads: Vec::new() };
        for index in 0..threads {
            let (queue, jobs) = channel();
            let (target, control, events) = (target.clone(), Arc::clone(control), events.clone());
            let thread = std::thread::Builder::new().name(format!("upload-{index}"));
            pool.threads.push(thread.spawn(move || {
                run_in_background();
                store_snapshots(&jobs, &target, &control, &events);
            })?);
            pool.queues.push(queue);
        }
        Ok(pool)
    }

    pub(crate) fn queue(&self) -> UploadQueue {
        UploadQueue { queues: self.queues.clone() }
    }

    /// Waits until everything that was sent is stored, or given up because of an abort.
    pub(crate) fn join(self) {
        drop(self.queues);
        for thread in self.threads {
            // A panic in an upload has already ended the attempt by its missing acknowledgement.
            let _ = thread.join();
        }
    }
}

impl UploadQueue {
    pub(crate) fn send(&self, subtask: SubtaskId, snapshot: SubtaskSnapshot) {
        let index = (subtask.chain + subtask.index) as usize % self.queues.len();
        // The pool outlives the workers; after an abort nobody waits for the answer.
        let _ = self.queues[index].send((subtask, snapshot));
    }
}

fn store_snapshots(
    jobs: &Receiver<(SubtaskId, SubtaskSnapshot)>,
    target: &UploadTarget,
    control: &Control,
    events: &Sender<EngineEvent>,
) {
    let mut uploads: BTreeMap<SubtaskId, SubtaskUploads> = BTreeMap::new();
    for (subtask, snapshot) in jobs {
        if control.is_aborted() {
            continue;
        }
        let epoch = snapshot.epoch;
        let own = uploads
            .entry(subtask)
            .or_insert_with(|| SubtaskUploads::new(target.settings.clone(), SubtaskIndex(subtask.index)));
        own.completed(control.completed());
        let outcome =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| own.upload(snapshot, target.storage.as_ref())));
        let event = match outcome {
            Ok(Ok(pieces)) => EngineEvent::Acknowledged { subtask, epoch, pieces },
            Ok(Err(error)) => EngineEvent::Declined { subtask, epoch, kind: error.kind(), reason: chain(&error) },
            Err(payload) => {
                let message = millpond_runtime::panic_message(payload.as_ref());
                let reason = format!("encoding or storing a snapshot panicked: {message}");
                EngineEvent::Declined { subtask, epoch, kind: ErrorKind::Bug, reason }
            }
        };
        // Nobody listens any more after the attempt has ended.
        let _ = events.send(event);
    }
}
