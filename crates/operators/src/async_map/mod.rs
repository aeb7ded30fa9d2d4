//! Async map: each record waits for something outside of the job, many at a time.
//!
//! Owns the settings and what can go wrong. Files: `flights` holds the records under way and says which result may go
//! out next; `alarm` hears of futures that can go on; `operator` runs them on the subtask's own thread; `blocking` is
//! a pool of threads for calls that block. See decision 0009.

mod alarm;
mod blocking;
mod flights;
mod operator;

use std::time::Duration;

use millpond_core::{ErrorKind, UserError};
use millpond_dataflow::SideTag;
use serde::{Deserialize, Serialize};

pub use blocking::BlockingPool;
pub(crate) use operator::AsyncOperator;

/// An async map that cannot be, or what became of a record in it.
#[derive(Debug, thiserror::Error)]
pub enum AsyncError {
    /// Without a single record under way nothing ever happens.
    #[error("an async map needs a capacity of at least one record")]
    Capacity,
    /// The last attempt failed.
    #[error("the call for a record failed, in attempt {attempts}")]
    Failed {
        /// How many attempts there were.
        attempts: u32,
        /// Why the last one failed.
        source: UserError,
    },
    /// The last attempt took too long.
    #[error("the call for a record took longer than {timeout_ms} ms, in attempt {attempts}")]
    TimedOut {
        /// How many attempts there were.
        attempts: u32,
        /// How long an attempt may take, in milliseconds.
        timeout_ms: i64,
    },
    /// A blocking call panicked.
    #[error("a blocking call panicked: {message}")]
    Panicked {
        /// The panic's message.
        message: String,
    },
    /// The system has no thread for blocking calls.
    #[error("no thread could be started for blocking calls")]
    Thread(#[source] std::io::Error),
}

impl AsyncError {
    /// Whether the job is wrong, or something outside of it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            AsyncError::Capacity => ErrorKind::Invalid,
            AsyncError::Panicked { .. } => ErrorKind::Bug,
            AsyncError::Failed { .. } | AsyncError::TimedOut { .. } | AsyncError::Thread(_) => ErrorKind::Unavailable,
        }
    }
}

/// A record whose last attempt failed, where [`AsyncMap::failed_output`] is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed<T> {
    /// The record.
    pub record: T,
    /// What happened, with all causes.
    pub reason: String,
}

/// Which errors are worth another attempt.
type IsWorthRetrying = Box<dyn FnMut(&AsyncError) -> bool>;

/// Whether and when a failed attempt is repeated. It takes its place among the records under way meanwhile.
///
/// ```
/// use std::time::Duration;
/// use millpond_operators::{AsyncError, Retry};
///
/// // After 100 ms, 200 ms, 400 ms, … up to 5 s, eight times; only where the call took too long.
/// let patient = Retry::backoff(8, Duration::from_millis(100), Duration::from_secs(5))
///     .only_if(|error| matches!(error, AsyncError::TimedOut { .. }));
/// ```
pub struct Retry {
    retries: u32,
    first_ms: i64,
    most_ms: i64,
    worth: Option<IsWorthRetrying>,
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl Retry {
    /// The first failure counts.
    #[must_use]
    pub fn never() -> Self {
        Retry { retries: 0, first_ms: 0, most_ms: 0, worth: None }
    }

    /// Up to `retries` more attempts, each `pause` after the failure of the one before.
    #[must_use]
    pub fn fixed(retries: u32, pause: Duration) -> Self {
        Retry { retries, first_ms: millis(pause), most_ms: millis(pause), worth: None }
    }

    /// Up to `retries` more attempts, after pauses that double from `first` up to `most`.
    #[must_use]
    pub fn backoff(retries: u32, first: Duration, most: Duration) -> Self {
        Retry { retries, first_ms: millis(first), most_ms: millis(most).max(millis(first)), worth: None }
    }

    /// Only errors for which this holds are worth another attempt.
    #[must_use]
    pub fn only_if(self, worth: impl FnMut(&AsyncError) -> bool + 'static) -> Self {
        Retry { worth: Some(Box::new(worth)), ..self }
    }

    /// How long to wait before the next attempt, in milliseconds; `None` when `error` is final.
    fn pause_ms(&mut self, attempts: u32, error: &AsyncError) -> Option<i64> {
        if attempts > self.retries || !self.worth.as_mut().is_none_or(|worth| worth(error)) {
            return None;
        }
        let doublings = attempts.saturating_sub(1).min(62);
        Some(self.first_ms.saturating_mul(1 << doublings).min(self.most_ms))
    }
}

/// How an async map works: how many records at a time, in which order, for how long.
///
/// ```
/// use std::time::Duration;
/// use millpond_dataflow::Stream;
/// use millpond_operators::{AsyncMap, BlockingPool, Retry, StreamOperators};
///
/// fn with_names(ids: &Stream<u64>) -> Stream<(u64, String)> {
///     let pool = BlockingPool::new(8);
///     let how = AsyncMap::unordered(100)
///         .timeout(Duration::from_secs(5))
///         .retry(Retry::fixed(3, Duration::from_millis(200)));
///     ids.async_map("names", how, move |id| {
///         // A client that blocks; one with futures of its own is awaited instead.
///         pool.run(move || Ok((id, format!("name of {id}"))))
///     })
/// }
/// ```
pub struct AsyncMap<T> {
    ordered: bool,
    capacity: usize,
    timeout_ms: Option<i64>,
    retry: Retry,
    failed: Option<SideTag<Failed<T>>>,
}

impl<T> AsyncMap<T> {
    /// Results come in the order of their records. Up to `capacity` records of a subtask are under way at a time, those
    /// included whose results wait for an earlier one.
    #[must_use]
    pub fn ordered(capacity: usize) -> Self {
        AsyncMap { ordered: true, capacity, timeout_ms: None, retry: Retry::never(), failed: None }
    }

    /// Results come when they are there, but never on the other side of a watermark than their record.
    #[must_use]
    pub fn unordered(capacity: usize) -> Self {
        AsyncMap { ordered: false, ..AsyncMap::ordered(capacity) }
    }

    /// How long an attempt may take; its future is dropped then. Without it, for ever.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        AsyncMap { timeout_ms: Some(millis(timeout)), ..self }
    }

    /// What happens when an attempt fails or takes too long. Without it, the failure is final.
    #[must_use]
    pub fn retry(self, retry: Retry) -> Self {
        AsyncMap { retry, ..self }
    }

    /// Where records go whose last attempt failed. Without it, the failure ends the attempt of the job.
    #[must_use]
    pub fn failed_output(self, tag: SideTag<Failed<T>>) -> Self {
        AsyncMap { failed: Some(tag), ..self }
    }

    /// Whether it can work at all.
    pub(crate) fn check(&self) -> Result<(), AsyncError> {
        if self.capacity == 0 { Err(AsyncError::Capacity) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn pauses_double_up_to_the_most_and_end_after_the_last_retry() {
        let error = AsyncError::TimedOut { attempts: 1, timeout_ms: 5 };
        let pauses = |mut retry: Retry| (1..7).map(|attempts| retry.pause_ms(attempts, &error)).collect::<Vec<_>>();
        assert_eq!(pauses(Retry::never()), [None; 6]);
        assert_eq!(pauses(Retry::fixed(2, MS(7))), [Some(7), Some(7), None, None, None, None]);
        let doubled = [Some(10), Some(20), Some(40), Some(50), Some(50), None];
        assert_eq!(pauses(Retry::backoff(5, MS(10), MS(50))), doubled);
        assert_eq!(Retry::backoff(200, MS(10), Duration::MAX).pause_ms(150, &error), Some(i64::MAX));
        let mut picky = Retry::fixed(9, MS(1)).only_if(|error| matches!(error, AsyncError::Failed { .. }));
        assert_eq!(picky.pause_ms(1, &error), None);
        assert_eq!(picky.pause_ms(1, &AsyncError::Failed { attempts: 1, source: "no".into() }), Some(1));
    }
}
