//! `count`: per record one `ValueState` get and update, and an emitted count.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millpond_core::UserResult;
use millpond_dataflow::Dataflow;
use millpond_jobmanager::Job;
use millpond_operators::{KeyedStreamOperators, SinkOperators, SourceOperators, StreamOperators};

use crate::event::{Event, Input};
use crate::measure::peak_rss_mb;
use crate::parameters::Parameters;
use crate::probe::Probe;
use crate::processes::{self, Others};
use crate::setup::{Setup, add_pauses, add_rates, input};
use crate::sink::{Checksum, ChecksumSink};

/// Builds the job.
pub(crate) fn count_job(input: Input, checksum: &Arc<Checksum>) -> Job {
    let checksum = Arc::clone(checksum);
    Arc::new(move |flow: &mut Dataflow| -> UserResult {
        flow.source("gen", input)
            .key_by(|event| event.key)
            .process_with(
                "count",
                |states| states.value::<u64>("count"),
                |count, event, context, output| {
                    let seen = count.get(context)?.copied().unwrap_or(0) + 1;
                    count.set(context, seen)?;
                    output.emit(Event { key: event.key, value: seen });
                    Ok(())
                },
            )
            .sink("sink", ChecksumSink::new(&checksum));
        Ok(())
    })
}

/// The checksum by a plain replay.
pub(crate) fn expected(input: &Input) -> u64 {
    let mut counts = vec![0u32; input.keys as usize];
    let mut sum = 0u64;
    for index in 0..input.records {
        let count = &mut counts[input.key(index) as usize];
        *count += 1;
        sum = sum.wrapping_add(u64::from(*count));
    }
    sum
}

/// Runs the workload; returns the fields of its line.
pub(crate) fn run(parameters: &Parameters) -> Result<serde_json::Value, String> {
    if processes::count(parameters) == 1 || processes::cluster(parameters).is_some() {
        return run_keyed(parameters, "count", &count_job, &expected);
    }
    let (own, others) = Others::start("count", parameters)?;
    let mut line = run_keyed(&own, "count", &count_job, &expected)?;
    others.add_to(&mut line)?;
    Ok(line)
}

/// Runs a keyed workload: a warm-up, then the measured job.
pub(crate) fn run_keyed(
    parameters: &Parameters,
    workload: &str,
    job: &dyn Fn(Input, &Arc<Checksum>) -> Job,
    expected: &dyn Fn(&Input) -> u64,
) -> Result<serde_json::Value, String> {
    let warmup = parameters.number("warmup", 0)?;
    if warmup > 0 {
        let input = Input { records: warmup, ..input(parameters)? };
        Setup::new(parameters)?.run(&job(input, &Arc::default()))?;
    }
    let (setup, input) = (Setup::new(parameters)?, input(parameters)?);
    let checksum = Arc::new(Checksum::default());
    let report = setup.run(&job(input, &checksum))?;
    let span = input.probe.map_or((0.0, 0.0, 0.0), Probe::stop);
    let mut line = setup.describe(workload, &input);
    add_rates(&mut line, input.records, span);
    line["checksum"] = checksum.sum.load(Ordering::Relaxed).to_string().into();
    line["outputs"] = checksum.outputs.load(Ordering::Relaxed).into();
    line["epochs"] = report.epoch.0.into();
    line["peak_rss_mb"] = peak_rss_mb().into();
    line["rate"] = input.rate.into();
    if let Some(probe) = input.probe.filter(|_| input.rate > 0) {
        probe.latencies.add_to(&mut line);
    }
    if parameters.text("check", "off") == "on" {
        line["checksum_expected"] = expected(&input).to_string().into();
    }
    if let Some(meter) = &setup.meter {
        line["checkpoint_bytes_written"] = meter.snapshot().bytes_written().into();
        add_pauses(&mut line, &setup.components.pauses);
    }
    Ok(line)
}
