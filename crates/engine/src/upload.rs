//! Background threads that store snapshots.
//!
//! A subtask's snapshots always go to the same thread, so they are stored oldest first, and reach the cold stores
//! in this order; without storage the threads serve the cold stores alone. Memory is bounded:
//! the coordinator lets few epochs be in flight, and what waits of epochs before them, which failed and
//! whose rows must not be lost, may not exceed [`UploadLimits::kept_bytes`].

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use millpond_checkpoint::SubtaskId;
use millpond_core::{ErrorKind, SubtaskIndex, error::chain};
use millpond_runtime::{SnapshotKind, SubtaskSnapshot, SubtaskUploads, UploadSettings, apply_cold};
use millpond_storage::Storage;
use serde::{Deserialize, Serialize};

use crate::control::Control;
use crate::error::EngineError;
use crate::event::EngineEvent;
use crate::thread::run_in_background;
use crate::waiting::Waiting;

/// How much uploading may take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UploadLimits {
    /// Threads that encode and store snapshots, at least 1.
    pub threads: u32,
    /// Bytes of earlier snapshots that may wait for storage when another one comes; beyond it the attempt
    /// fails.
    pub kept_bytes: u64,
    /// Files of rows that have reached this size are finished, in bytes; two of each thread are in memory at a time.
    pub file_bytes: u64,
}

impl Default for UploadLimits {
    fn default() -> Self {
        UploadLimits { threads: 2, kept_bytes: 1 << 30, file_bytes: 64 << 20 }
    }
}

/// Where snapshots go.
#[derive(Clone)]
pub(crate) struct UploadTarget {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) settings: UploadSettings,
}

/// The threads.
pub(crate) struct UploadPool {
    queue: UploadQueue,
    threads: Vec<JoinHandle<()>>,
}

/// One end of the pool, for a worker.
#[derive(Clone)]
pub(crate) struct UploadQueue {
    queues: Vec<Sender<(SubtaskId, SubtaskSnapshot)>>,
    waiting: Arc<Mutex<Waiting>>,
    limit: u64,
    storage: Option<Arc<dyn Storage>>,
}

impl UploadPool {
    pub(crate) fn start(
        limits: &UploadLimits,
        target: Option<&UploadTarget>,
        control: &Arc<Control>,
        events: &Sender<EngineEvent>,
    ) -> std::io::Result<UploadPool> {
        let waiting = Arc::default();
        let (limit, storage) = (limits.kept_bytes, target.map(|target| Arc::clone(&target.storage)));
        let queue = UploadQueue { queues: Vec::new(), waiting, limit, storage };
        let mut pool = UploadPool { queue, threads: Vec::new() };
        for index in 0..limits.threads.max(1) {
            let (queue, jobs) = channel();
            let (target, control, events) = (target.cloned(), Arc::clone(control), events.clone());
            let waiting = Arc::clone(&pool.queue.waiting);
            let thread = std::thread::Builder::new().name(format!("upload-{index}"));
            pool.threads.push(thread.spawn(move || {
                run_in_background();
                store_snapshots(&jobs, target.as_ref(), &control, &events, &waiting);
            })?);
            pool.queue.queues.push(queue);
        }
        Ok(pool)
    }

    pub(crate) fn queue(&self) -> UploadQueue {
        self.queue.clone()
    }

    /// Waits until everything that was sent is stored, or given up because of an abort.
    pub(crate) fn join(self) {
        drop(self.queue);
        for thread in self.threads {
            // A panic in an upload has already ended the attempt by its missing acknowledgement.
            let _ = thread.join();
        }
    }
}

impl UploadQueue {
    /// Sends a snapshot on its way.
    ///
    /// # Errors
    /// [`EngineError::UploadsBehind`] when too much of earlier ones still waits.
    pub(crate) fn send(&self, subtask: SubtaskId, snapshot: SubtaskSnapshot) -> Result<(), EngineError> {
        let mut all = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = all.add(subtask, snapshot.epoch, snapshot.row_bytes());
        drop(all);
        if waiting > self.limit {
            let store = self.storage.as_ref().map_or_else(|| "the cold store".to_owned(), |storage| storage.location());
            return Err(EngineError::UploadsBehind { waiting, limit: self.limit, store });
        }
        let index = (subtask.chain + subtask.index) as usize % self.queues.len();
        // The pool outlives the workers; after an abort nobody waits for the answer.
        let _ = self.queues[index].send((subtask, snapshot));
        Ok(())
    }
}

fn store_snapshots(
    jobs: &Receiver<(SubtaskId, SubtaskSnapshot)>,
    target: Option<&UploadTarget>,
    control: &Control,
    events: &Sender<EngineEvent>,
    waiting: &Mutex<Waiting>,
) {
    let mut uploads: BTreeMap<SubtaskId, SubtaskUploads> = BTreeMap::new();
    for (subtask, mut snapshot) in jobs {
        if control.is_aborted() {
            continue;
        }
        let (epoch, kind) = (snapshot.epoch, snapshot.kind);
        let Some(target) = target else {
            apply_cold(&mut snapshot);
            drop(snapshot);
            waiting.lock().unwrap_or_else(PoisonError::into_inner).stored(subtask);
            if kind == SnapshotKind::Whole {
                let _ = events.send(EngineEvent::Acknowledged { subtask, epoch, pieces: Vec::new() });
            }
            continue;
        };
        let own = uploads
            .entry(subtask)
            .or_insert_with(|| SubtaskUploads::new(target.settings.clone(), SubtaskIndex(subtask.index)));
        own.completed(control.completed());
        let outcome =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| own.upload(snapshot, target.storage.as_ref())));
        let mut all = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(outcome, Ok(Ok(_))) {
            all.stored(subtask)
        } else {
            all.failed(subtask)
        }
        drop(all);
        if kind == SnapshotKind::Part {
            // What could not be stored goes with the snapshot of its epoch, and is told then.
            continue;
        }
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
