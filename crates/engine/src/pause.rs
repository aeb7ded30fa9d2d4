//! How long workers are away from records because of a checkpoint.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use millpond_runtime::Gate;

/// Buckets by powers of two of microseconds: below 1, below 2, below 4, …
const BUCKETS: usize = 32;

/// A histogram of pauses, shared by all workers.
#[derive(Debug)]
pub struct PauseHistogram {
    buckets: [AtomicU64; BUCKETS],
    max_us: AtomicU64,
    total_us: AtomicU64,
}

impl Default for PauseHistogram {
    fn default() -> Self {
        PauseHistogram {
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
            max_us: AtomicU64::new(0),
            total_us: AtomicU64::new(0),
        }
    }
}

/// The histogram at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseSnapshot {
    /// Number of pauses below 2^i microseconds and not below 2^(i-1).
    pub buckets: Vec<u64>,
    /// The longest, in microseconds.
    pub max_us: u64,
    /// Their sum, in microseconds.
    pub total_us: u64,
}

impl PauseHistogram {
    /// Counts one pause.
    pub fn record(&self, us: u64) {
        let bucket = (64 - us.leading_zeros()) as usize;
        self.buckets[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
        self.max_us.fetch_max(us, Ordering::Relaxed);
        self.total_us.fetch_add(us, Ordering::Relaxed);
    }

    /// The counts as of now.
    #[must_use]
    pub fn snapshot(&self) -> PauseSnapshot {
        PauseSnapshot {
            buckets: self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect(),
            max_us: self.max_us.load(Ordering::Relaxed),
            total_us: self.total_us.load(Ordering::Relaxed),
        }
    }
}

impl PauseSnapshot {
    /// Number of pauses.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// An upper bound of the `per_mille`-th thousandth of all pauses, in microseconds.
    #[must_use]
    pub fn quantile_us(&self, per_mille: u64) -> u64 {
        let wanted = (self.count() * per_mille).div_ceil(1_000);
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return (1u64 << bucket).min(self.max_us);
            }
        }
        self.max_us
    }
}

/// Measures the pauses of one subtask.
pub(crate) struct PauseGate<'a> {
    histogram: &'a PauseHistogram,
    since: Option<Instant>,
}

impl<'a> PauseGate<'a> {
    pub(crate) fn new(histogram: &'a PauseHistogram) -> Self {
        PauseGate { histogram, since: None }
    }
}

impl Gate for PauseGate<'_> {
    fn pause(&mut self) {
        self.since = Some(Instant::now());
    }

    fn resume(&mut self) {
        if let Some(since) = self.since.take() {
            self.histogram.record(u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_upper_bounds() {
        let histogram = PauseHistogram::default();
        for us in 0..1_000 {
            histogram.record(us);
        }
        let snapshot = histogram.snapshot();
        assert_eq!(snapshot.count(), 1_000);
        assert_eq!(snapshot.max_us, 999);
        assert_eq!(snapshot.quantile_us(500), 512);
        assert_eq!(snapshot.quantile_us(990), 999);
    }
}
