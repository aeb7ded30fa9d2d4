//! `sum-window`: sum and count per key over tumbling windows of a second of event time.
//!
//! Record i happens at `max(0, i / per_ms - hash(!i) mod (jitter_ms + 1))`; watermarks lag by `jitter_ms`. With
//! `slide_ms`, windows of `size_ms` slide instead (not in the peers).
//!
//! With `rate`, records come at so many a second, event time runs as fast as the clock, and the latency of each result is
//! taken: from the moment at which the record is due that lets the watermark pass the window, to the result.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use millpond_core::seed::mix64;
use millpond_core::{SplitMix64, UserResult};
use millpond_dataflow::{Dataflow, Output};
use millpond_jobmanager::Job;
use millpond_operators::{
    KeyedStreamOperators, SinkOperators, SourceOperators, StreamOperators, WatermarkStrategy, Window, Windows,
};
use millpond_state::AggregateFunction;

use crate::count::run_keyed;
use crate::event::{Event, Input};
use crate::parameters::Parameters;
use crate::sink::{Checksum, ChecksumSink};

/// Event time of the input, and the windows over it.
#[derive(Clone, Copy, Debug)]
struct Times {
    per_ms: u64,
    jitter_ms: u64,
    size_ms: u64,
    slide_ms: u64,
    rate: u64,
}

impl Times {
    fn new(parameters: &Parameters) -> Result<Times, String> {
        let size_ms = parameters.number("size_ms", 1_000)?;
        let rate = parameters.number("rate", 0)?;
        let per_ms = if rate > 0 { rate / 1_000 } else { 1_000 };
        Ok(Times {
            rate,
            per_ms: parameters.number("per_ms", per_ms)?.max(1),
            jitter_ms: parameters.number("jitter_ms", 50)?,
            size_ms,
            slide_ms: parameters.number("slide_ms", size_ms)?,
        })
    }

    /// The event time of record `index`, in milliseconds.
    #[inline]
    fn of(self, index: u64) -> i64 {
        let jitter_ms = SplitMix64::nth(!index) % (self.jitter_ms + 1);
        (index / self.per_ms).saturating_sub(jitter_ms) as i64
    }

    /// When the first record is due that lets the watermark pass a window, after the first record of all.
    fn passed_after_ns(self, window_end_ms: u64) -> u64 {
        let records = (window_end_ms + self.jitter_ms) * self.per_ms;
        (records as f64 * 1e9 / self.rate as f64) as u64
    }
}

struct SumCount;

impl AggregateFunction for SumCount {
    type Input = Event;
    type Accumulator = (u64, u64);
    type Output = (u64, u64);

    fn create_accumulator(&self) -> (u64, u64) {
        (0, 0)
    }

    #[inline]
    fn add(&self, event: Event, (sum, count): &mut (u64, u64)) {
        *sum = sum.wrapping_add(event.value);
        *count += 1;
    }

    #[inline]
    fn result(&self, accumulator: &(u64, u64)) -> (u64, u64) {
        *accumulator
    }

    fn merge(&self, one: (u64, u64), other: (u64, u64)) -> (u64, u64) {
        (one.0.wrapping_add(other.0), one.1 + other.1)
    }
}

#[inline]
fn window_hash(key: u64, end_ms: u64, (sum, count): (u64, u64)) -> u64 {
    let inner = mix64(sum.wrapping_add(mix64(count)));
    mix64(key.wrapping_add(mix64(end_ms.wrapping_add(inner))))
}

fn job(times: Times, input: Input, checksum: &Arc<Checksum>) -> Job {
    let checksum = Arc::clone(checksum);
    Arc::new(move |flow: &mut Dataflow| -> UserResult {
        let strategy = WatermarkStrategy::bounded_out_of_orderness(Duration::from_millis(times.jitter_ms))
            .timestamps(move |event: &Event| times.of(event.value));
        let (size, slide) = (Duration::from_millis(times.size_ms), Duration::from_millis(times.slide_ms));
        let windows = if size == slide { Windows::tumbling(size) } else { Windows::sliding(size, slide) };
        let probe = input.probe.filter(|_| times.rate > 0);
        let emit = move |key: &u64, window: Window, held: (u64, u64), output: &mut Output<Event>| {
            // The last windows fire because the input ends.
            if let Some(probe) = probe
                && (window.end as u64 + times.jitter_ms) * times.per_ms < input.records
            {
                probe.latencies.record(probe.since_due_ns(times.passed_after_ns(window.end as u64)));
            }
            output.emit(Event { key: *key, value: window_hash(*key, window.end as u64, held) });
            Ok(())
        };
        flow.timed_source("gen", input, strategy)
            .key_by(|event| event.key)
            .window(windows)
            .aggregate_with("window", SumCount, emit)
            .sink("sink", ChecksumSink::new(&checksum));
        Ok(())
    })
}

/// The checksum by a plain replay.
fn expected(times: Times, input: &Input) -> u64 {
    let mut windows: HashMap<(u64, i64), (u64, u64)> = HashMap::new();
    for index in 0..input.records {
        let (key, time_ms) = (input.key(index), times.of(index));
        let mut start = time_ms - time_ms.rem_euclid(times.slide_ms as i64);
        while start > time_ms - times.size_ms as i64 {
            let held = windows.entry((key, start + times.size_ms as i64)).or_default();
            held.0 = held.0.wrapping_add(index);
            held.1 += 1;
            start -= times.slide_ms as i64;
        }
    }
    let hashes = windows.into_iter().map(|((key, end_ms), held)| window_hash(key, end_ms as u64, held));
    hashes.fold(0, u64::wrapping_add)
}

/// Runs the workload; returns the fields of its line.
pub(crate) fn run(parameters: &Parameters) -> Result<serde_json::Value, String> {
    let times = Times::new(parameters)?;
    let build = |input: Input, checksum: &Arc<Checksum>| job(times, input, checksum);
    let mut line = run_keyed(parameters, "sum-window", &build, &|input| expected(times, input))?;
    line["per_ms"] = times.per_ms.into();
    line["jitter_ms"] = times.jitter_ms.into();
    line["size_ms"] = times.size_ms.into();
    line["slide_ms"] = times.slide_ms.into();
    Ok(line)
}
