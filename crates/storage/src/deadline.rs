//! A layer that gives up on a call that does not end: a hung network file system, a dead mount.
//!
//! Owns the threads on which calls are made, and how long their callers wait. Does *not* own what
//! becomes of a call that was given up: it may still happen, at any later time.
//!
//! ```text
//! caller → a thread of the layer → inner storage
//!        ← answer, or no answer in time: Unavailable (reads), Uncertain (create, delete)
//! ```
//!
//! A thread that hangs is left behind; it takes part again if its call ever ends. When
//! [`MAX_HUNG_CALLS`] hang at once, further calls fail before they are made.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::error::{Operation, StorageError, cause};
use crate::interrupt::Interrupt;
use crate::name::ObjectName;
use crate::storage::{ObjectInfo, Storage};

/// Calls in flight, hung ones included, at most.
pub const MAX_HUNG_CALLS: usize = 64;
/// How long a call that is under way is still waited for after an interrupt.
const GRACE: Duration = Duration::from_secs(2);
/// How often a waiting caller looks at the interrupt.
const LOOK: Duration = Duration::from_millis(50);
/// The slowest transfer that counts as one, in bytes per second: large objects have more time.
const SLOWEST_BYTES_PER_SECOND: u64 = 1 << 20;

/// The time that a call has that moves `bytes` bytes: `limit`, and more for large objects.
#[must_use]
pub fn time_for(limit: Duration, bytes: u64) -> Duration {
    limit.saturating_add(Duration::from_secs(bytes / SLOWEST_BYTES_PER_SECOND))
}

/// Why a call was given up.
#[derive(Debug, thiserror::Error)]
enum NoAnswer {
    #[error("{store} gave no answer within {} ms", limit.as_millis())]
    TimedOut { store: String, limit: Duration },
    #[error("{store} had given no answer when the attempt ended")]
    Interrupted { store: String },
    #[error("the call panicked")]
    Panicked,
}

/// Wraps a storage and bounds how long its callers wait.
///
/// Content is copied for the duration of a create.
pub struct Deadline<S> {
    inner: Arc<S>,
    limit: Duration,
    interrupt: Interrupt,
    threads: Arc<Threads>,
}

impl<S: Storage> Deadline<S> {
    /// A layer around `inner` whose calls have `limit`, and more for large objects: see [`time_for`].
    /// After `interrupt` is raised, calls under way have two seconds left.
    pub fn new(inner: S, limit: Duration, interrupt: Interrupt) -> Self {
        Deadline { inner: Arc::new(inner), limit, interrupt, threads: Arc::default() }
    }

    fn run<T: Send + 'static>(
        &self,
        operation: Operation,
        name: &str,
        bytes: u64,
        call: impl FnOnce(&S) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, StorageError> {
        let (answer, answers) = sync_channel(1);
        let inner = Arc::clone(&self.inner);
        let job = Box::new(move || {
            let result = call(&inner);
            drop(inner);
            // A caller that has given up does not listen any more.
            let _ = answer.send(result);
        });
        let unavailable =
            |source| StorageError::Unavailable { operation, name: name.to_owned(), source: cause(source) };
        self.threads.start(job).map_err(unavailable)?;
        let reason = match self.wait(&answers, time_for(self.limit, bytes)) {
            Ok(result) => return result,
            Err(reason) => reason,
        };
        let (name, source) = (name.to_owned(), cause(reason));
        Err(match operation {
            Operation::Create | Operation::Delete => StorageError::Uncertain { operation, name, source },
            _ => StorageError::Unavailable { operation, name, source },
        })
    }

    fn wait<T>(&self, answers: &Receiver<T>, limit: Duration) -> Result<T, NoAnswer> {
        let mut end = Instant::now() + limit;
        let mut interrupted = false;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match answers.recv_timeout(left.min(LOOK)) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Disconnected) => return Err(NoAnswer::Panicked),
                Err(RecvTimeoutError::Timeout) if left > LOOK => {}
                Err(RecvTimeoutError::Timeout) => {
                    let store = self.inner.location();
                    return Err(if interrupted {
                        NoAnswer::Interrupted { store }
                    } else {
                        NoAnswer::TimedOut { store, limit }
                    });
                }
            }
            if !interrupted && self.interrupt.is_raised() {
                interrupted = true;
                end = end.min(Instant::now() + GRACE);
            }
        }
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// Threads that wait for jobs.
#[derive(Default)]
struct Threads {
    idle: Mutex<Vec<Sender<Job>>>,
    busy: Arc<AtomicUsize>,
}

impl Threads {
    /// Runs `job` on a thread that has nothing else to do.
    fn start(self: &Arc<Self>, job: Job) -> Result<(), String> {
        if self.busy.fetch_add(1, Ordering::SeqCst) >= MAX_HUNG_CALLS {
            self.busy.fetch_sub(1, Ordering::SeqCst);
            return Err(format!("{MAX_HUNG_CALLS} earlier calls have not ended"));
        }
        let busy = Busy(Arc::clone(&self.busy));
        let job: Job = Box::new(move || {
            let _busy = busy;
            job();
        });
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        // A thread that is gone gives the job back.
        let job = match idle {
            Some(thread) => match thread.send(job) {
                Ok(()) => return Ok(()),
                Err(refused) => refused.0,
            },
            None => job,
        };
        self.spawn(job).map_err(|error| format!("no thread for the call: {error}"))
    }

    fn spawn(self: &Arc<Self>, first: Job) -> std::io::Result<()> {
        let threads = Arc::downgrade(self);
        std::thread::Builder::new().name("storage-call".to_owned()).spawn(move || work(first, &threads))?;
        Ok(())
    }
}

/// Counts a call until it has ended, be it by a panic.
struct Busy(Arc<AtomicUsize>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Does one job after the other. While it waits, the list of idle threads holds the only sender: when
/// the layer is gone, so is the sender, and the thread ends.
fn work(first: Job, threads: &Weak<Threads>) {
    let mut job = first;
    loop {
        job();
        let (sender, jobs) = channel::<Job>();
        let Some(threads) = threads.upgrade() else { return };
        threads.idle.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
        drop(threads);
        match jobs.recv() {
            Ok(next) => job = next,
            Err(_) => return,
        }
    }
}

impl<S: Storage> Storage for Deadline<S> {
    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), StorageError> {
        let (own_name, own_bytes): (ObjectName, Box<[u8]>) = (name.clone(), bytes.into());
        self.run(Operation::Create, name.as_str(), bytes.len() as u64, move |inner| inner.create(&own_name, &own_bytes))
    }

    fn read(&self, name: &ObjectName) -> Result<Vec<u8>, StorageError> {
        let own_name = name.clone();
        self.run(Operation::Read, name.as_str(), 0, move |inner| inner.read(&own_name))
    }

    fn read_range(&self, name: &ObjectName, offset: u64, length: u64) -> Result<Vec<u8>, StorageError> {
        let own_name = name.clone();
        let call = move |inner: &S| inner.read_range(&own_name, offset, length);
        self.run(Operation::ReadRange, name.as_str(), length, call)
    }

    fn size(&self, name: &ObjectName) -> Result<u64, StorageError> {
        let own_name = name.clone();
        self.run(Operation::Size, name.as_str(), 0, move |inner| inner.size(&own_name))
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, StorageError> {
        let own_prefix = prefix.to_owned();
        self.run(Operation::List, prefix, 0, move |inner| inner.list(&own_prefix))
    }

    fn delete(&self, name: &ObjectName) -> Result<(), StorageError> {
        let own_name = name.clone();
        self.run(Operation::Delete, name.as_str(), 0, move |inner| inner.delete(&own_name))
    }

    fn location(&self) -> String {
        self.inner.location()
    }

    fn ends_calls(&self) -> bool {
        true
    }
}
