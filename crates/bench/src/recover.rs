//! `recover`: fill, some updates, one snapshot, end; then restore at another parallelism and run on to the end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::event::Input;
use crate::measure::{cpu_seconds, peak_rss_mb};
use crate::parameters::Parameters;
use crate::payload::{expected_from, payload_job};
use crate::probe::Probe;
use crate::setup::{Setup, distribution};
use crate::sink::Checksum;

/// Records of the job that is stopped by hand.
const WITHOUT_END: u64 = u64::MAX / 4;

/// Runs the workload; returns the fields of its line.
pub(crate) fn run(parameters: &Parameters) -> Result<serde_json::Value, String> {
    let keys = parameters.number("keys", 1_000_000)?;
    let payload = parameters.number("payload", 1_000)? as usize;
    let mut setup = Setup::with_checkpoints(parameters, None, true)?;
    let building = Input {
        records: WITHOUT_END,
        keys,
        drawn: keys,
        distribution: distribution(parameters)?,
        splits: parameters.number("splits", 12)?,
        fill: keys,
        rate: parameters.number("build_rate", 50_000)?,
        timed: false,
        probe: Some(Probe::leaked()),
    };
    let built = build(parameters, &setup, building, payload)?;
    let probe = Probe::leaked();
    let records = built.progress + parameters.number("updates_after", 2_000_000)?;
    let restored = Input { records, rate: 0, probe: Some(probe), ..building };
    let workers = parameters.number("restore_parallelism", u64::from(setup.settings.workers))?;
    let mut line = setup.describe("recover", &restored);
    setup.settings.workers = workers as u32;
    setup.components = fresh(&setup);
    let checksum = Arc::new(Checksum::default());
    let before_cpu_s = cpu_seconds();
    setup.run(&payload_job(restored, payload, &checksum))?;
    let (first_ns, last_ns, subtasks) = probe.first_records();
    let wall_s = (probe.now_ns() - first_ns) as f64 / 1e9;
    let outputs = checksum.outputs.load(Ordering::Relaxed);
    let starts = probe.split_starts();
    line["payload"] = payload.into();
    line["restore_parallelism"] = workers.into();
    line["snapshot_ms"] = built.snapshot_ms.into();
    line["snapshot_bytes"] = built.snapshot_bytes.into();
    line["restore_state_ready_ms"] = probe.reading_ms().into();
    line["restore_first_record_ms"] = (first_ns as f64 / 1e6).into();
    line["restore_all_subtasks_ms"] = (last_ns as f64 / 1e6).into();
    line["subtasks_seen"] = subtasks.into();
    line["restored_job_cpu_s"] = (cpu_seconds() - before_cpu_s).into();
    line["records_after_restore"] = outputs.into();
    line["records_per_s_after_restore"] = (outputs as f64 / wall_s.max(1e-9)).round().into();
    line["wall_s"] = wall_s.into();
    line["checksum"] = checksum.sum.load(Ordering::Relaxed).to_string().into();
    let start_of = |split: u64| starts.get(&split).copied().unwrap_or(split);
    line["checksum_expected"] = expected_from(&restored, start_of).to_string().into();
    line["peak_rss_mb"] = peak_rss_mb().into();
    Ok(line)
}

/// The snapshot to restore from.
struct Built {
    progress: u64,
    snapshot_ms: f64,
    snapshot_bytes: u64,
}

/// Fills, updates, and stops with a snapshot.
fn build(parameters: &Parameters, setup: &Setup, input: Input, payload: usize) -> Result<Built, String> {
    let probe = input.probe.ok_or("the job is measured")?;
    let wanted = input.keys + parameters.number("updates_before", 500_000)?;
    let stop = Arc::clone(&setup.components.stop);
    let (ended, end) = std::sync::mpsc::channel::<()>();
    let asking = std::thread::spawn(move || {
        while probe.progress() < wanted {
            // The job may fail before it comes so far.
            if !matches!(end.recv_timeout(Duration::from_millis(5)), Err(std::sync::mpsc::RecvTimeoutError::Timeout)) {
                break;
            }
        }
        stop.stop();
        Instant::now()
    });
    let outcome = setup.run(&payload_job(input, payload, &Arc::default()));
    drop(ended);
    let asked = asking.join().map_err(|_| "the waiting thread panicked")?;
    outcome?;
    let status = setup.components.status.snapshot();
    let snapshot_bytes = status.checkpoint_bytes;
    Ok(Built { progress: probe.progress(), snapshot_ms: asked.elapsed().as_secs_f64() * 1e3, snapshot_bytes })
}

/// Components of the restored job: the same storage, nothing else of the first.
pub(crate) fn fresh(setup: &Setup) -> millpond_jobmanager::Components {
    let before = &setup.components;
    let mut components = millpond_jobmanager::Components::new(before.storage.clone());
    components.local_directory.clone_from(&before.local_directory);
    components.cold_backend.clone_from(&before.cold_backend);
    components
}
