//! `big-state`: a payload per key; the keys are filled first, then drawn keys are read, bumped and written
//! back, at a fixed rate if one is given. The fill is not measured.
//!
//! With `changed=1` only keys of the first 1 % are drawn: what a checkpoint costs must follow what changed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millpond_checkpoint::History;

use crate::event::Input;
use crate::measure::peak_rss_mb;
use crate::parameters::Parameters;
use crate::payload::{expected_from, payload_job};
use crate::probe::Probe;
use crate::setup::{Setup, add_pauses, add_rates, distribution};
use crate::sink::Checksum;

fn input(parameters: &Parameters, probe: &'static Probe) -> Result<Input, String> {
    let keys = parameters.number("keys", 1_000_000)?;
    // The peers count the fill among `records`.
    let records = match parameters.number("updates", 0)? {
        0 => parameters.number("records", 20_000_000)?,
        updates => keys + updates,
    };
    let rate = parameters.number("rate", 0)?;
    Ok(Input {
        records,
        keys,
        drawn: (keys * parameters.number("changed", 100)? / 100).max(1),
        distribution: distribution(parameters)?,
        splits: parameters.number("splits", 12)?,
        fill: keys,
        rate,
        timed: rate > 0,
        probe: Some(probe),
    })
}

/// Runs the workload; returns the fields of its line.
pub(crate) fn run(parameters: &Parameters) -> Result<serde_json::Value, String> {
    let payload = parameters.number("payload", 1_000)? as usize;
    let mut setup = Setup::new(parameters)?;
    let probe = Probe::leaked();
    let input = input(parameters, probe)?;
    if parameters.text("keep", "off") == "on" {
        // Keep every checkpoint as it was taken, so that its size can be read afterwards.
        setup.settings.checkpoints.retained = 10_000;
        setup.settings.checkpoints.compaction.max_running = 0;
    }
    let checksum = Arc::new(Checksum::default());
    setup.run(&payload_job(input, payload, &checksum))?;
    let span = probe.stop();
    let mut line = setup.describe("big-state", &input);
    add_rates(&mut line, input.records.saturating_sub(input.fill), span);
    line["payload"] = payload.into();
    line["rate"] = input.rate.into();
    line["changed_percent"] = parameters.number("changed", 100)?.into();
    line["checksum"] = checksum.sum.load(Ordering::Relaxed).to_string().into();
    line["outputs"] = checksum.outputs.load(Ordering::Relaxed).into();
    line["peak_rss_mb"] = peak_rss_mb().into();
    if input.timed {
        probe.latencies.add_to(&mut line);
    }
    if parameters.text("check", "off") == "on" {
        line["checksum_expected"] = expected_from(&input, |_| 0).to_string().into();
    }
    if let Some(meter) = &setup.meter {
        line["checkpoint_bytes_written"] = meter.snapshot().bytes_written().into();
        line["checkpoint_list"] = checkpoints(Arc::clone(meter), &setup.settings.name)?.into();
        add_pauses(&mut line, &setup.components.pauses);
    }
    Ok(line)
}

/// Rows, bytes and duration of each checkpoint.
fn checkpoints<S: millpond_storage::Storage + Clone>(storage: S, job: &str) -> Result<Vec<serde_json::Value>, String> {
    let failed = |error: millpond_checkpoint::CheckpointError| millpond_core::error::chain(&error);
    let history = History::new(storage, job).map_err(failed)?;
    let entries = history.entries().map_err(failed)?;
    let manifests = entries.iter().filter_map(|entry| entry.checkpoint());
    let list = manifests.map(|manifest| {
        let runs = manifest.operators.iter().flat_map(|operator| &operator.runs);
        let own: Vec<_> = runs.filter(|run| run.epoch == manifest.epoch).collect();
        serde_json::json!({
            "epoch": manifest.epoch.0,
            "rows": own.iter().map(|run| run.rows).sum::<u64>(),
            "bytes": own.iter().map(|run| run.bytes).sum::<u64>(),
            "state_bytes": manifest.state_bytes(),
            "duration_ms": manifest.duration_ms,
        })
    });
    Ok(list.collect())
}
