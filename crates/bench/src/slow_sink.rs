//! `slow-sink`: a source as fast as it can be, a sink at a fraction of its rate: memory must stay flat and
//! checkpoints must go on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use millpond_core::UserResult;
use millpond_dataflow::Dataflow;
use millpond_jobmanager::{Job, JobOutcome};
use millpond_operators::{SinkOperators, SourceOperators, StreamOperators};

use crate::event::{Distribution, Input};
use crate::measure::rss_mb;
use crate::parameters::Parameters;
use crate::setup::Setup;
use crate::sink::{Checksum, ChecksumSink};

/// Records between two pauses of the slow sink.
const PAUSE_EVERY: u64 = 64;

fn job(input: Input, sink_rate: u64, checksum: &Arc<Checksum>) -> Job {
    let checksum = Arc::clone(checksum);
    let pause =
        if sink_rate == 0 { Duration::ZERO } else { Duration::from_secs_f64(PAUSE_EVERY as f64 / sink_rate as f64) };
    Arc::new(move |flow: &mut Dataflow| -> UserResult {
        let sink = ChecksumSink::new(&checksum).slow(pause);
        flow.source("gen", input).rebalance().map(|event| event).sink("slow", sink);
        Ok(())
    })
}

/// Runs for so long that the source's own rate shows, with a sink that only discards.
fn source_rate(parameters: &Parameters, input: Input) -> Result<f64, String> {
    let records = 20_000_000;
    let setup = Setup::new(parameters)?;
    let (settings, components) = (&setup.settings, &setup.components);
    let job = job(Input { records, ..input }, 0, &Arc::default());
    let started = Instant::now();
    millpond_jobmanager::run(&job, settings, components).map_err(|error| millpond_core::error::chain(&error))?;
    Ok(records as f64 / started.elapsed().as_secs_f64())
}

/// Runs the workload; returns the fields of its line.
pub(crate) fn run(parameters: &Parameters) -> Result<serde_json::Value, String> {
    let seconds = parameters.number("seconds", 300)?;
    let percent = parameters.number("percent", 1)?;
    let setup = Setup::new(parameters)?;
    let (settings, components) = (&setup.settings, &setup.components);
    let input = Input {
        records: u64::MAX / 2,
        keys: 1_000_000,
        drawn: 1_000_000,
        distribution: Distribution::Uniform,
        splits: u64::from(settings.workers),
        fill: 0,
        rate: 0,
        timed: false,
        probe: None,
    };
    let source_rate = source_rate(parameters, input)?;
    let sink_rate = (source_rate * percent as f64 / 100.0) as u64;
    // Each sink subtask takes its share of the rate.
    let per_subtask = (sink_rate / u64::from(settings.workers)).max(1);
    let checksum = Arc::new(Checksum::default());
    let job = job(input, per_subtask, &checksum);
    let (stop, status) = (Arc::clone(&components.stop), Arc::clone(&components.status));
    let watch = std::thread::spawn(move || watch(seconds, &stop, &status));
    let report =
        millpond_jobmanager::run(&job, settings, components).map_err(|error| millpond_core::error::chain(&error))?;
    let seen = watch.join().map_err(|_| "the watching thread panicked")?;
    Ok(serde_json::json!({
        "engine": "millpond",
        "workload": "slow-sink",
        "seconds": seconds,
        "parallelism": settings.workers,
        "checkpoint_ms": settings.checkpoints.interval_ms.unwrap_or(0),
        "source_records_per_s": source_rate.round(),
        "sink_records_per_s": sink_rate,
        "records": components.status.snapshot().records,
        "stopped": report.outcome == JobOutcome::Stopped,
        "epochs": report.epoch.0,
        "longest_checkpoint_ms": seen.longest_checkpoint_ms,
        "longest_gap_s": seen.longest_gap_s,
        "rss_mb_at_10_percent": seen.early_rss_mb,
        "rss_mb_at_end": seen.late_rss_mb,
        "rss_mb_max_after_10_percent": seen.max_rss_mb,
    }))
}

struct Seen {
    longest_checkpoint_ms: u64,
    longest_gap_s: f64,
    early_rss_mb: f64,
    late_rss_mb: f64,
    max_rss_mb: f64,
}

fn watch(seconds: u64, stop: &millpond_jobmanager::StopSignal, status: &millpond_jobmanager::JobStatus) -> Seen {
    let started = Instant::now();
    let mut seen =
        Seen { longest_checkpoint_ms: 0, longest_gap_s: 0.0, early_rss_mb: 0.0, late_rss_mb: 0.0, max_rss_mb: 0.0 };
    let (mut epoch, mut since) = (0, Instant::now());
    while started.elapsed() < Duration::from_secs(seconds) {
        std::thread::sleep(Duration::from_millis(100));
        let now = status.snapshot();
        if now.epoch != epoch {
            (epoch, since) = (now.epoch, Instant::now());
        }
        seen.longest_gap_s = seen.longest_gap_s.max(since.elapsed().as_secs_f64());
        seen.longest_checkpoint_ms = seen.longest_checkpoint_ms.max(now.checkpoint_ms);
        let rss = rss_mb();
        if started.elapsed().as_secs_f64() > seconds as f64 / 10.0 {
            if seen.early_rss_mb == 0.0 {
                seen.early_rss_mb = rss;
            }
            seen.max_rss_mb = seen.max_rss_mb.max(rss);
        }
        seen.late_rss_mb = rss;
    }
    stop.stop();
    seen
}
