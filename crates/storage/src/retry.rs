//! A layer that tries again: what did not happen is repeated, what may have happened is looked at.
//!
//! Owns the number of attempts, the waits between them, and the time after which it gives up. Does *not*
//! own time or chance: the waiting is handed in, the jitter comes from a seed.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use millpond_core::{ErrorKind, SplitMix64};

use crate::error::{Cause, Operation, StorageError, cause};
use crate::name::ObjectName;
use crate::storage::{ObjectInfo, Storage};

/// How often and how patiently to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts in total, the first included; 0 counts as 1.
    pub attempts: u32,
    /// Longest wait after the first failed attempt; doubles with each further one.
    pub first_backoff: Duration,
    /// Upper bound of every wait.
    pub max_backoff: Duration,
    /// No attempt begins after this time since the first one.
    pub patience: Duration,
}

impl Default for RetryPolicy {
    /// Any number of attempts within 2 minutes; waits of up to 50, 100, 200, … ms, and 5 s at most.
    fn default() -> Self {
        let (first_backoff, max_backoff) = (Duration::from_millis(50), Duration::from_secs(5));
        RetryPolicy { attempts: u32::MAX, first_backoff, max_backoff, patience: Duration::from_secs(120) }
    }
}

/// Why a storage was given up, with the last error as its source.
#[derive(Debug, thiserror::Error)]
#[error("gave up on {store} after {attempts} attempts in {} ms", elapsed.as_millis())]
struct GaveUp {
    store: String,
    attempts: u32,
    elapsed: Duration,
    source: Cause,
}

/// Waits. Handed in, so that tests and the simulator take no time.
pub trait Sleep: Send + Sync + 'static {
    /// Returns after `duration`, or earlier when it is interrupted.
    fn sleep(&self, duration: Duration);

    /// The time since any fixed moment. Where it stands still, only waits count as time.
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether nobody needs the outcome any more.
    fn is_interrupted(&self) -> bool {
        false
    }
}

impl<F: Fn(Duration) + Send + Sync + 'static> Sleep for F {
    fn sleep(&self, duration: Duration) {
        self(duration);
    }
}

/// Blocks the calling thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadSleep;

impl Sleep for ThreadSleep {
    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }

    fn now(&self) -> Duration {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed()
    }
}

/// Wraps a storage and repeats operations that failed as unavailable, with exponential back-off and
/// full jitter: each wait is drawn evenly from `0..=first_backoff * 2^n`, bounded, so that many waiting
/// for one storage do not come back together.
///
/// An uncertain delete is repeated. An uncertain create is repeated too, and if the name turns out
/// to be taken, the object is read: equal bytes mean success, others `AlreadyExists`. So repeating
/// both finds out and makes sure that what is found is durable. Writers whose objects could be
/// equal must not race for a name: put the writer's identity (attempt, subtask) into the content.
///
/// Once an operation may have happened, giving up says `Uncertain`, whatever the last error was. Giving
/// up names the storage, the attempts and the time.
pub struct Retry<S> {
    inner: S,
    policy: RetryPolicy,
    jitter: Mutex<SplitMix64>,
    sleep: Box<dyn Sleep>,
}

impl<S: Storage> Retry<S> {
    /// A layer around `inner`; `seed` fixes the jitter.
    pub fn new(inner: S, policy: RetryPolicy, seed: u64, sleep: impl Sleep) -> Self {
        Retry { inner, policy, jitter: Mutex::new(SplitMix64::new(seed)), sleep: Box::new(sleep) }
    }

    /// Calls `once` until it succeeds, fails for good, or patience is used up. `once` is told whether
    /// an earlier attempt may have happened.
    fn run<T>(&self, once: impl Fn(bool) -> Result<T, StorageError>) -> Result<T, StorageError> {
        let started = self.sleep.now();
        let mut waited = Duration::ZERO;
        let mut uncertain = None;
        let mut attempts = 1;
        loop {
            let error = match once(uncertain.is_some()) {
                Ok(value) => return Ok(value),
                Err(error @ StorageError::AlreadyExists { .. }) => return Err(error),
                Err(error) => error,
            };
            let kind = error.kind();
            let last = uncertain.clone().unwrap_or_else(|| error.clone());
            if kind == ErrorKind::Uncertain {
                uncertain = Some(error);
            } else if kind != ErrorKind::Unavailable {
                return Err(last);
            }
            let elapsed = self.sleep.now().saturating_sub(started).max(waited);
            let left = self.policy.patience.saturating_sub(elapsed);
            if attempts >= self.policy.attempts || left.is_zero() || self.sleep.is_interrupted() {
                let store = self.inner.location();
                return Err(last.because(|source| cause(GaveUp { store, attempts, elapsed, source })));
            }
            // The last attempt is made when patience ends, not before.
            let wait = self.backoff(attempts).min(left);
            self.sleep.sleep(wait);
            waited += wait;
            attempts += 1;
        }
    }

    /// The wait after the failed attempt number `attempt`.
    fn backoff(&self, attempt: u32) -> Duration {
        let doubled = 1u32.checked_shl(attempt - 1).unwrap_or(u32::MAX);
        let bound = self.policy.first_backoff.saturating_mul(doubled).min(self.policy.max_backoff);
        let nanos = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
        let draw = self.jitter.lock().unwrap_or_else(PoisonError::into_inner).below(nanos.saturating_add(1));
        Duration::from_nanos(draw)
    }

    fn create_once(&self, name: &ObjectName, bytes: &[u8], may_exist: bool) -> Result<(), StorageError> {
        let taken = match self.inner.create(name, bytes) {
            Err(taken @ StorageError::AlreadyExists { .. }) if may_exist => taken,
            result => return result,
        };
        match self.inner.read(name) {
            Ok(found) if found == bytes => Ok(()),
            Ok(_) => Err(taken),
            Err(StorageError::NotFound { .. }) => Err(StorageError::Uncertain {
                operation: Operation::Create,
                name: name.to_string(),
                source: cause("the object was seen and then deleted"),
            }),
            Err(error) => Err(error),
        }
    }
}

impl<S: Storage> Storage for Retry<S> {
    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), StorageError> {
        self.run(|may_exist| self.create_once(name, bytes, may_exist))
    }

    fn read(&self, name: &ObjectName) -> Result<Vec<u8>, StorageError> {
        self.run(|_| self.inner.read(name))
    }

    fn read_range(&self, name: &ObjectName, offset: u64, length: u64) -> Result<Vec<u8>, StorageError> {
        self.run(|_| self.inner.read_range(name, offset, length))
    }

    fn size(&self, name: &ObjectName) -> Result<u64, StorageError> {
        self.run(|_| self.inner.size(name))
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, StorageError> {
        self.run(|_| self.inner.list(prefix))
    }

    fn delete(&self, name: &ObjectName) -> Result<(), StorageError> {
        self.run(|_| self.inner.delete(name))
    }

    fn location(&self) -> String {
        self.inner.location()
    }

    fn ends_calls(&self) -> bool {
        self.inner.ends_calls()
    }
}
