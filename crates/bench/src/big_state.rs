//! `big-state`: a payload per key; the keys are filled first, then drawn keys are read, bumped and written
//! back, at a fixed rate if one is given.
//!
//! With `changed=1` only keys of the first 1 % are drawn: what a checkpoint costs must follow what changed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millpond_checkpoint::History;
use millpond_core::UserResult;
use millpond_dataflow::Dataflow;
use millpond_jobmanager::Job;
use millpond_operators::{KeyedStreamOperators, SinkOperators, SourceOperators, StreamOperators};

use crate::count::{add_pauses, setup};
use crate::event::{Distribution, Event, Input};
use crate::measure::{Span, peak_rss_mb};
use crate::parameters::Parameters;
use crate::sink::{Checksum, ChecksumSink};

fn job(input: Input, payload: usize, changed_percent: u64, checksum: &Arc<Checksum>) -> Job {
    let checksum = Arc::clone(checksum);
    let changed_keys = (input.keys * changed_percent / 100).max(1);
    Arc::new(move |flow: &mut Dataflow| -> UserResult {
        flow.source("gen", input)
            .map(move |event| {
                let filled = event.value < input.fill;
                Event { key: if filled { event.key } else { event.key % changed_keys }, ..event }
            })
            .key_by(|event| event.key)
            .process_with(
                "payload",
                |states| states.value::<Vec<u8>>("payload"),
                move |state, event, context, output| {
                    let count = state.modify(context, |bytes| {
                        let bytes = bytes.get_or_insert_with(|| vec![0x5a; payload.max(8)]);
                        let (counter, _) = bytes.split_at_mut(8);
                        let count = u64::from_le_bytes(counter.try_into().unwrap_or_default()) % (1 << 40) + 1;
                        counter.copy_from_slice(&count.to_le_bytes());
                        count
                    })?;
                    output.emit(Event { key: event.key, value: count });
                    Ok(())
                },
            )
            .sink("sink", ChecksumSink::new(&checksum));
        Ok(())
    })
}

/// Runs the workload; returns the fields of its line.
pub(crate) fn run(parameters: &Parameters) -> Result<serde_json::Value, String> {
    let keys = parameters.number("keys", 1_000_000)?;
    let payload = parameters.number("payload", 1_000)? as usize;
    let changed = parameters.number("changed", 100)?;
    let updates = parameters.number("updates", 5_000_000)?;
    let mut setup = setup(parameters)?;
    let settings = &mut setup.settings;
    let input = Input {
        records: keys + updates,
        keys,
        distribution: Distribution::Uniform,
        splits: u64::from(settings.workers) * 6,
        fill: keys,
        rate: parameters.number("rate", 0)?,
    };
    // Keep every checkpoint as it was taken, so that its size can be read afterwards.
    settings.checkpoints.retained = 10_000;
    settings.checkpoints.compaction.max_running = 0;
    let checksum = Arc::new(Checksum::default());
    let job = job(input, payload, changed, &checksum);
    let span = Span::start();
    millpond_jobmanager::run(&job, settings, &setup.components).map_err(|error| millpond_core::error::chain(&error))?;
    let (wall_s, cpu_s, other_cpu_s) = span.stop();
    let mut line = serde_json::json!({
        "engine": "millpond",
        "workload": "big-state",
        "keys": keys,
        "payload": payload,
        "updates": updates,
        "changed_percent": changed,
        "rate": input.rate,
        "parallelism": settings.workers,
        "checkpoint_ms": settings.checkpoints.interval_ms.unwrap_or(0),
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "other_cpu_s": other_cpu_s,
        "outputs": checksum.outputs.load(Ordering::Relaxed),
        "peak_rss_mb": peak_rss_mb(),
    });
    if let Some(meter) = &setup.meter {
        line["checkpoint_list"] = checkpoints(Arc::clone(meter), &settings.name)?.into();
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
