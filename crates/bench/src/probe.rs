//! The measuring board that the parts of one benchmark job share.
//!
//! Owns when the measured part began, where splits began, who has seen a record, and latencies.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use crate::measure::Span;

/// One job's board. Leaked, one per job: benchmarks run few jobs, and sources are copied freely.
#[derive(Debug)]
pub(crate) struct Probe {
    created: Instant,
    /// Begins when the first measured record leaves its source.
    span: OnceLock<Span>,
    /// The first index of each split, as handed to its reader.
    split_starts: Mutex<BTreeMap<u64, u64>>,
    /// Nanoseconds since `created` of each subtask's first record.
    first_seen: Mutex<BTreeMap<u32, u64>>,
    /// Nanoseconds since `created` at which the first source was read.
    reading: AtomicU64,
    /// The highest index that was read.
    progress: AtomicU64,
    pub(crate) latencies: Latencies,
}

impl Probe {
    pub(crate) fn leaked() -> &'static Probe {
        Box::leak(Box::new(Probe {
            created: Instant::now(),
            span: OnceLock::new(),
            split_starts: Mutex::default(),
            first_seen: Mutex::default(),
            reading: AtomicU64::new(0),
            progress: AtomicU64::new(0),
            latencies: Latencies::default(),
        }))
    }

    pub(crate) fn mark_start(&self) {
        self.span.get_or_init(Span::start);
    }

    /// Wall seconds, CPU seconds of this process and of everybody else since the first measured record.
    pub(crate) fn stop(&self) -> (f64, f64, f64) {
        self.span.get().map_or((0.0, 0.0, 0.0), Span::stop)
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.created.elapsed().as_nanos() as u64
    }

    pub(crate) fn split_starts_at(&self, split: u64, next: u64) {
        self.split_starts.lock().unwrap_or_else(PoisonError::into_inner).insert(split, next);
    }

    pub(crate) fn split_starts(&self) -> BTreeMap<u64, u64> {
        self.split_starts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A reader of a source has been asked for records.
    pub(crate) fn read(&self, next: u64) {
        if self.reading.load(Ordering::Relaxed) == 0 {
            self.reading.store(self.now_ns().max(1), Ordering::Relaxed);
        }
        self.progress.fetch_max(next, Ordering::Relaxed);
    }

    pub(crate) fn progress(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }

    /// How long ago something was due that is due `after_ns` after the first source was read, in nanoseconds.
    pub(crate) fn since_due_ns(&self, after_ns: u64) -> u64 {
        self.now_ns().saturating_sub(self.reading.load(Ordering::Relaxed) + after_ns)
    }

    /// Milliseconds until the first source was read.
    pub(crate) fn reading_ms(&self) -> f64 {
        self.reading.load(Ordering::Relaxed) as f64 / 1e6
    }

    pub(crate) fn first_record(&self, subtask: u32) {
        let now = self.now_ns();
        self.first_seen.lock().unwrap_or_else(PoisonError::into_inner).entry(subtask).or_insert(now);
    }

    /// Nanoseconds until the first and the last subtask saw its first record, and how many have seen one.
    pub(crate) fn first_records(&self) -> (u64, u64, usize) {
        let seen = self.first_seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, last) = (seen.values().min(), seen.values().max());
        (first.copied().unwrap_or(0), last.copied().unwrap_or(0), seen.len())
    }
}

/// Buckets per doubling.
const STEPS: u64 = 32;

/// Counts of durations, 3 % wide.
#[derive(Debug)]
pub(crate) struct Latencies {
    counts: Vec<AtomicU64>,
    max_ns: AtomicU64,
}

impl Default for Latencies {
    fn default() -> Self {
        Latencies { counts: (0..64 * STEPS).map(|_| AtomicU64::new(0)).collect(), max_ns: AtomicU64::new(0) }
    }
}

impl Latencies {
    pub(crate) fn record(&self, ns: u64) {
        let ns = ns.max(STEPS);
        let octave = u64::from(ns.ilog2());
        let step = (ns >> (octave - 5)) - STEPS;
        self.counts[(octave * STEPS + step) as usize].fetch_add(1, Ordering::Relaxed);
        self.max_ns.fetch_max(ns, Ordering::Relaxed);
    }

    /// The duration that `per_mille` of 1,000 do not exceed, in milliseconds.
    fn quantile_ms(&self, per_mille: u64) -> f64 {
        let counts: Vec<u64> = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let wanted = (counts.iter().sum::<u64>() * per_mille).div_ceil(1_000);
        let mut seen = 0;
        for (bucket, count) in counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && *count > 0 {
                let (octave, step) = (bucket as u64 / STEPS, bucket as u64 % STEPS);
                return ((STEPS + step + 1) << octave.saturating_sub(5)) as f64 / 1e6;
            }
        }
        0.0
    }

    pub(crate) fn add_to(&self, line: &mut serde_json::Value) {
        let count: u64 = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        line["latency_n"] = count.into();
        line["latency_p50_ms"] = self.quantile_ms(500).into();
        line["latency_p99_ms"] = self.quantile_ms(990).into();
        line["latency_p999_ms"] = self.quantile_ms(999).into();
        line["latency_max_ms"] = (self.max_ns.load(Ordering::Relaxed) as f64 / 1e6).into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_bucket() {
        let latencies = Latencies::default();
        (1..=1_000u64).for_each(|ms| latencies.record(ms * 1_000_000));
        for (per_mille, ms) in [(500, 500.0), (990, 990.0), (999, 999.0)] {
            let found = latencies.quantile_ms(per_mille);
            assert!((found / ms - 1.0).abs() < 0.05, "{found} for {ms}");
        }
    }
}
