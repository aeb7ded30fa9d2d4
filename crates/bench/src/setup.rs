//! What every benchmark job runs with: settings and components by the parameters.

use std::sync::Arc;

use millpond_engine::PauseHistogram;
use millpond_jobmanager::{Backend, ClusterSettings, Components, Job, JobReport, JobSettings, RestartPolicy};
use millpond_storage::{LocalStorage, Meter, Storage};

use crate::event::{Distribution, Input};
use crate::parameters::Parameters;
use crate::probe::Probe;
use crate::processes;

/// What a benchmark job runs with.
pub(crate) struct Setup {
    pub(crate) settings: JobSettings,
    pub(crate) components: Components,
    /// The checkpoint storage, if there are checkpoints.
    pub(crate) meter: Option<Arc<Meter<LocalStorage>>>,
    /// Lives as long as the run.
    _directory: tempfile::TempDir,
}

impl Setup {
    /// Settings and components by the parameters.
    pub(crate) fn new(parameters: &Parameters) -> Result<Setup, String> {
        let checkpoint_ms = parameters.number("checkpoint_ms", 0)?;
        Setup::with_checkpoints(parameters, (checkpoint_ms > 0).then_some(checkpoint_ms), checkpoint_ms > 0)
    }

    /// The same, with a checkpoint storage and an interval of the caller's choice.
    pub(crate) fn with_checkpoints(
        parameters: &Parameters,
        interval_ms: Option<u64>,
        stored: bool,
    ) -> Result<Setup, String> {
        let mut builder = tempfile::Builder::new();
        let directory = builder.prefix("millpond-bench-");
        let directory = match parameters.text("dir", "") {
            "" => directory.tempdir(),
            path => directory.tempdir_in(path),
        };
        let directory = directory.map_err(|error| error.to_string())?;
        let mut settings = JobSettings {
            name: "bench".to_owned(),
            workers: parameters.number("parallelism", 1)? as u32,
            backend: backend(parameters)?,
            memory: parameters.bytes("memory")?,
            cluster: processes::cluster(parameters),
            restart: RestartPolicy::Never,
            ..JobSettings::default()
        };
        settings.channel_records = parameters.number("channel_records", settings.channel_records)?;
        settings.checkpoints.interval_ms = interval_ms;
        let path = match parameters.text("checkpoint_dir", "") {
            "" => directory.path().join("checkpoints"),
            path => path.into(),
        };
        let meter = if stored {
            let storage = LocalStorage::open(path).map_err(|error| error.to_string())?;
            Some(Arc::new(Meter::new(storage)))
        } else {
            None
        };
        let storage = meter.clone().map(|meter| meter as Arc<dyn Storage>);
        let mut components = Components::new(storage);
        components.local_directory = Some(directory.path().join("local"));
        #[cfg(feature = "rocksdb")]
        {
            components.cold_backend = Some(Arc::new(millpond_state_rocksdb::RocksBackend));
        }
        Ok(Setup { settings, components, meter, _directory: directory })
    }

    /// Runs a job to its end.
    pub(crate) fn run(&self, job: &Job) -> Result<JobReport, String> {
        let report = millpond_jobmanager::run(job, &self.settings, &self.components);
        report.map_err(|error| millpond_core::error::chain(&error))
    }

    /// The fields that every line has, in the peers' words.
    pub(crate) fn describe(&self, workload: &str, input: &Input) -> serde_json::Value {
        serde_json::json!({
            "engine": "millpond",
            "workload": workload,
            "records": input.records,
            "keys": input.keys,
            "dist": input.distribution.name(),
            "backend": self.settings.backend.name(),
            "memory": self.settings.memory,
            "parallelism": self.settings.workers,
            "processes": self.settings.cluster.as_ref().map_or(1, ClusterSettings::processes),
            "checkpoint_ms": self.settings.checkpoints.interval_ms.unwrap_or(0),
        })
    }
}

/// The peers call the backend in memory `hashmap`.
fn backend(parameters: &Parameters) -> Result<Backend, String> {
    match parameters.text("backend", "heap") {
        "heap" | "hashmap" => Ok(Backend::Heap),
        "rocksdb" => Ok(Backend::Rocksdb),
        other => Err(format!("unknown backend={other}")),
    }
}

/// The input of a workload without a fill.
pub(crate) fn input(parameters: &Parameters) -> Result<Input, String> {
    let keys = parameters.number("keys", 1_000_000)?;
    Ok(Input {
        records: parameters.number("records", 20_000_000)?,
        keys,
        drawn: keys,
        distribution: distribution(parameters)?,
        splits: parameters.number("splits", parameters.number("parallelism", 1)? * processes::count(parameters))?,
        fill: 0,
        rate: parameters.number("rate", 0)?,
        timed: false,
        probe: Some(Probe::leaked()),
    })
}

pub(crate) fn distribution(parameters: &Parameters) -> Result<Distribution, String> {
    match parameters.text("dist", "uniform") {
        "uniform" => Ok(Distribution::Uniform),
        "zipf" => Ok(Distribution::Zipf),
        other => Err(format!("unknown dist={other}")),
    }
}

/// Throughput of `records` measured records.
pub(crate) fn add_rates(line: &mut serde_json::Value, records: u64, (wall_s, cpu_s, other_cpu_s): (f64, f64, f64)) {
    line["measured_records"] = records.into();
    line["records_per_s"] = (records as f64 / wall_s.max(1e-9)).round().into();
    line["records_per_cpu_s"] = (records as f64 / cpu_s.max(0.01)).round().into();
    line["wall_s"] = wall_s.into();
    line["cpu_s"] = cpu_s.into();
    line["other_cpu_s"] = other_cpu_s.into();
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
