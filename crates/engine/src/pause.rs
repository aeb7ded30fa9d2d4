//! How long workers are away from records because of a checkpoint, or to keep state within its memory.
//!
//! Counted twice: in wall time, which is what records wait, and in the worker's own processor time. Where
//! the two differ, the worker was ready to run and did not (it was preempted), or waited for a disk.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millpond_runtime::Gate;

use crate::thread;

/// Buckets by powers of two of microseconds: below 1, below 2, below 4, …
const BUCKETS: usize = 32;
/// A slice of serialising ends when it has taken this long.
const SLICE: Duration = Duration::from_micros(300);

/// Histograms of pauses, shared by all workers.
#[derive(Debug, Default)]
pub struct PauseHistogram {
    wall: Histogram,
    processor: Histogram,
}

#[derive(Debug)]
struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    max_us: AtomicU64,
    total_us: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
            max_us: AtomicU64::new(0),
            total_us: AtomicU64::new(0),
        }
    }
}

/// A histogram at one moment.
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
    /// Counts one pause by the wall clock, and by the processor's if that is known, in microseconds.
    pub fn record(&self, wall_us: u64, processor_us: Option<u64>) {
        self.wall.record(wall_us);
        if let Some(us) = processor_us {
            self.processor.record(us);
        }
    }

    /// The pauses in wall time, as of now.
    #[must_use]
    pub fn snapshot(&self) -> PauseSnapshot {
        self.wall.snapshot()
    }

    /// The same pauses in processor time of the workers, as of now; empty where the system does not tell.
    #[must_use]
    pub fn processor_snapshot(&self) -> PauseSnapshot {
        self.processor.snapshot()
    }
}

impl Histogram {
    fn record(&self, us: u64) {
        let bucket = (64 - us.leading_zeros()) as usize;
        self.buckets[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
        self.max_us.fetch_max(us, Ordering::Relaxed);
        self.total_us.fetch_add(us, Ordering::Relaxed);
    }

    fn snapshot(&self) -> PauseSnapshot {
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
    since: Option<(Instant, Option<Duration>)>,
}

impl<'a> PauseGate<'a> {
    pub(crate) fn new(histogram: &'a PauseHistogram) -> Self {
        PauseGate { histogram, since: None }
    }
}

impl Gate for PauseGate<'_> {
    fn pause(&mut self) {
        self.since = Some((Instant::now(), thread::processor_time()));
    }

    fn resume(&mut self) {
        if let Some((since, used_before)) = self.since.take() {
            let used = thread::processor_time().zip(used_before).map(|(now, before)| now.saturating_sub(before));
            self.histogram.record(micros(since.elapsed()), used.map(micros));
        }
    }

    fn is_overdue(&mut self) -> bool {
        self.since.is_some_and(|(since, _)| since.elapsed() >= SLICE)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_in_which_the_worker_did_not_run_is_long_in_wall_time_alone() {
        let histogram = PauseHistogram::default();
        let mut gate = PauseGate::new(&histogram);
        gate.pause();
        std::thread::sleep(Duration::from_millis(20));
        assert!(gate.is_overdue());
        gate.resume();
        assert!(!gate.is_overdue(), "nothing is going on");
        assert!(histogram.snapshot().max_us >= 20_000);
        if cfg!(target_os = "linux") {
            let processor = histogram.processor_snapshot();
            assert_eq!(processor.count(), 1);
            assert!(processor.max_us < histogram.snapshot().max_us, "{processor:?}");
        }
    }

    #[test]
    fn quantiles_are_upper_bounds() {
        let histogram = PauseHistogram::default();
        for us in 0..1_000 {
            histogram.record(us, None);
        }
        let snapshot = histogram.snapshot();
        assert_eq!(snapshot.count(), 1_000);
        assert_eq!(snapshot.max_us, 999);
        assert_eq!(snapshot.quantile_us(500), 512);
        assert_eq!(snapshot.quantile_us(990), 999);
    }
}
