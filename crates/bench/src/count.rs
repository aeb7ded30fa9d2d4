//! `count`: per record one `ValueState` get and update, and an emitted count.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millpond_core::UserResult;
use millpond_dataflow::Dataflow;
use millpond_engine::PauseHistogram;
use millpond_jobmanager::{Components, Job, JobSettings, RestartPolicy};
use millpond_operators::{KeyedStreamOperators, SinkOperators, SourceOperators, StreamOperators};
use millpond_storage::{LocalStorage, Meter, Storage};

use crate::event::{Distribution, Event, Input};
use crate::measure::{Span, peak_rss_mb};
use crate::parameters::Parameters;
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

pub(crate) fn input(parameters: &Parameters) -> Result<Input, String> {
    let distribution = match parameters.text("dist", "uniform") {
        "uniform" => Distribution::Uniform,
        "zipf" => Distribution::Zipf,
        other => return Err(format!("unknown dist={other}")),
    };
    Ok(Input {
        records: parameters.number("records", 20_000_000)?,
        keys: parameters.number("keys", 1_000_000)?,
        distribution,
        splits: parameters.number("splits", parameters.number("parallelism", 1)?)?,
        fill: 0,
        rate: parameters.number("rate", 0)?,
    })
}

/// What a benchmark job runs with.
pub(crate) struct Setup {
    pub(crate) settings: JobSettings,
    pub(crate) components: Components,
    /// The checkpoint storage, if there are checkpoints.
    pub(crate) meter: Option<Arc<Meter<LocalStorage>>>,
    /// Lives as long as the run.
    _directory: tempfile::TempDir,
}

/// Settings and components by the parameters.
pub(crate) fn setup(parameters: &Parameters) -> Result<Setup, String> {
    let checkpoint_ms = parameters.number("checkpoint_ms", 0)?;
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut settings = JobSettings {
        name: "bench".to_owned(),
        workers: parameters.number("parallelism", 1)? as u32,
        restart: RestartPolicy::Never,
        ..JobSettings::default()
    };
    settings.channel_records = parameters.number("channel_records", settings.channel_records)?;
    settings.checkpoints.interval_ms = (checkpoint_ms > 0).then_some(checkpoint_ms);
    let path = match parameters.text("checkpoint_dir", "") {
        "" => directory.path().join("checkpoints"),
        path => path.into(),
    };
    let meter = if checkpoint_ms > 0 {
        let storage = LocalStorage::open(path).map_err(|error| error.to_string())?;
        Some(Arc::new(Meter::new(storage)))
    } else {
        None
    };
    let storage = meter.clone().map(|meter| meter as Arc<dyn Storage>);
    Ok(Setup { settings, components: Components::new(storage), meter, _directory: directory })
}

/// Runs the workload; returns the fields of its line.
pub(crate) fn run(parameters: &Parameters) -> Result<serde_json::Value, String> {
    let input = input(parameters)?;
    let warmup = parameters.number("warmup", 0)?;
    if warmup > 0 {
        let Setup { settings, components, _directory, .. } = setup(parameters)?;
        let job = count_job(Input { records: warmup, ..input }, &Arc::default());
        millpond_jobmanager::run(&job, &settings, &components).map_err(|error| millpond_core::error::chain(&error))?;
    }
    let Setup { settings, components, meter, _directory } = setup(parameters)?;
    let checksum = Arc::new(Checksum::default());
    let job = count_job(input, &checksum);
    let span = Span::start();
    let report =
        millpond_jobmanager::run(&job, &settings, &components).map_err(|error| millpond_core::error::chain(&error))?;
    let (wall_s, cpu_s, other_cpu_s) = span.stop();
    let mut line = serde_json::json!({
        "engine": "millpond",
        "workload": "count",
        "records": input.records,
        "keys": input.keys,
        "dist": parameters.text("dist", "uniform"),
        "backend": parameters.text("backend", "heap"),
        "parallelism": settings.workers,
        "checkpoint_ms": settings.checkpoints.interval_ms.unwrap_or(0),
        "records_per_s": (input.records as f64 / wall_s).round(),
        "records_per_cpu_s": (input.records as f64 / cpu_s.max(0.01)).round(),
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "other_cpu_s": other_cpu_s,
        "checksum": checksum.sum.load(Ordering::Relaxed).to_string(),
        "outputs": checksum.outputs.load(Ordering::Relaxed),
        "epochs": report.epoch.0,
        "peak_rss_mb": peak_rss_mb(),
    });
    if parameters.text("check", "off") == "on" {
        line["checksum_expected"] = expected(&input).to_string().into();
    }
    if let Some(meter) = meter {
        line["checkpoint_bytes_written"] = meter.snapshot().bytes_written().into();
        add_pauses(&mut line, &components.pauses);
    }
    Ok(line)
}

/// How long workers were away from records because of checkpoints.
pub(crate) fn add_pauses(line: &mut serde_json::Value, pauses: &PauseHistogram) {
    let processor = pauses.processor_snapshot();
    line["pause_cpu_p50_us"] = processor.quantile_us(500).into();
    line["pause_cpu_p99_us"] = processor.quantile_us(990).into();
    line["pause_cpu_max_us"] = processor.max_us.into();
    line["pause_cpu_histogram_us"] = processor.buckets.into();
    let pauses = pauses.snapshot();
    line["pauses"] = pauses.count().into();
    line["pause_total_ms"] = (pauses.total_us as f64 / 1_000.0).into();
    line["pause_p50_us"] = pauses.quantile_us(500).into();
    line["pause_p99_us"] = pauses.quantile_us(990).into();
    line["pause_max_us"] = pauses.max_us.into();
    line["pause_histogram_us"] = pauses.buckets.into();
}
