//! Settings of a job, gathered from four layers.
//!
//! Owns which settings there are, how they are spelt, and which of several values counts. Does *not*
//! own what they do.
//!
//! ```text
//! defaults  <  TOML file  <  environment  <  flags   →  one layer  →  checked, typed Settings
//! ```
//!
//! Every value passes the same check, wherever it comes from, and keeps its origin for messages.

mod cluster;
mod environment;
mod file;
mod layer;
mod print;
mod setting;
#[cfg(test)]
mod tests;
mod value;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use millpond_core::{MaxParallelism, name::check_name};
use millpond_jobmanager::{ClusterSettings, JobSettings, StartFrom, StorageSettings, UploadLimits};
use tracing_subscriber::filter::Targets;

use crate::error::CliError;
use crate::units::{bytes_text, duration_text, parse_bytes, parse_duration_ms};
use file::DEFAULT_FILE;
use layer::Given;
pub(crate) use layer::Layer;
pub use layer::Origin;
pub use setting::Setting;
pub(crate) use value::{LogFormat, Place, Start, parse_start};
use value::{
    parse_backend, parse_claim, parse_interval, parse_log, parse_log_format, parse_memory, parse_number, parse_place,
    parse_restart, parse_switch, restart_text,
};

/// What is logged when nobody says otherwise.
const DEFAULT_LOG: &str = "info";
/// Time between checkpoints when nobody says otherwise, in milliseconds.
const DEFAULT_INTERVAL_MS: u64 = 10_000;
/// Where checkpoints go inside the job's local directory.
const CHECKPOINTS_BELOW_STATE: &str = "checkpoints";

/// What settings are gathered from.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// Name of the job when no layer gives one; empty in a program without a job, which may then have none.
    pub(crate) name: String,
    /// Number of workers when no layer gives one.
    pub(crate) cores: u32,
    /// Where [`DEFAULT_FILE`] is looked for.
    pub(crate) directory: PathBuf,
    /// The settings file named by a flag.
    pub(crate) config: Option<PathBuf>,
    /// The environment.
    pub(crate) variables: Vec<(OsString, OsString)>,
    /// The flags.
    pub(crate) flags: Layer,
}

/// Settings that were checked.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// How the job runs. Its `from` is not set yet: see [`Settings::start`].
    pub(crate) job: JobSettings,
    /// Where the user wants to start from.
    pub(crate) start: Start,
    /// Whether the job owns the savepoint that it starts from.
    pub(crate) claim: bool,
    /// Number of key groups of a job that starts without a checkpoint.
    pub(crate) max_parallelism: MaxParallelism,
    /// The job's local directory.
    pub(crate) state_directory: Option<PathBuf>,
    /// Whether what checkpoints hold is also kept in the local directory.
    pub(crate) local_recovery: bool,
    /// Where checkpoints go; `None` for a job without durable checkpoints.
    pub(crate) checkpoints: Option<Place>,
    /// What is logged.
    pub(crate) log: Targets,
    /// How it is logged.
    pub(crate) log_format: LogFormat,
    /// Whether progress is shown on a terminal.
    pub(crate) progress: bool,
    /// Environment variables that look like settings and are none.
    pub(crate) unknown_variables: Vec<String>,
    effective: Layer,
}

impl Settings {
    /// Gathers and checks the settings.
    ///
    /// # Errors
    /// The first thing that is wrong, with the setting, its value and where that comes from.
    pub(crate) fn gather(facts: Facts) -> Result<Settings, CliError> {
        let host_name = cluster::host_name(&facts.variables);
        let environment = environment::read(facts.variables)?;
        let file = match facts.config.or(environment.config) {
            Some(named) => file::read(&named)?,
            None => {
                let default = facts.directory.join(DEFAULT_FILE);
                if default.exists() { file::read(&default)? } else { Layer::default() }
            }
        };
        let defaults = defaults(&facts.name, facts.cores);
        let effective = facts.flags.over(environment.layer).over(file).over(defaults);
        check(effective, environment.unknown, host_name.as_deref())
    }

    /// The effective settings as a TOML file, each with its origin.
    #[must_use]
    pub(crate) fn to_toml(&self) -> String {
        print::to_toml(&self.effective)
    }

    /// Whether a flag gives this setting.
    #[must_use]
    pub(crate) fn is_flag(&self, setting: Setting) -> bool {
        self.effective.get(setting).is_some_and(|given| matches!(given.origin, Origin::Flag(_)))
    }

    /// A setting as it was given, by whomever.
    #[must_use]
    pub(crate) fn text(&self, setting: Setting) -> Option<String> {
        self.effective.get(setting).map(|given| given.text.clone())
    }
}

/// The lowest layer. Settings without a default are absent.
fn defaults(name: &str, cores: u32) -> Layer {
    let job = JobSettings::default();
    let (checkpoints, cluster) = (&job.checkpoints, ClusterSettings::default());
    let mut layer = Layer::default();
    if !name.is_empty() {
        layer.give(Setting::Name, name, Origin::Default);
    }
    let values = [
        (Setting::Workers, cores.max(1).to_string()),
        (Setting::Backend, job.backend.to_string()),
        (Setting::LocalRecovery, false.to_string()),
        (Setting::CheckpointInterval, duration_text(DEFAULT_INTERVAL_MS)),
        (Setting::MinPause, duration_text(checkpoints.min_pause_ms)),
        (Setting::Timeout, duration_text(checkpoints.timeout_ms)),
        (Setting::MaxConcurrent, checkpoints.max_concurrent.to_string()),
        (Setting::TolerableFailures, checkpoints.tolerable_failures.to_string()),
        (Setting::Retain, checkpoints.retained.to_string()),
        (Setting::ExcessLimit, checkpoints.excess_limit_percent.to_string()),
        (Setting::From, "latest".to_owned()),
        (Setting::Claim, "no-claim".to_owned()),
        (Setting::AllowDroppedState, job.allow_dropped_state.to_string()),
        (Setting::Restart, restart_text(&job.restart)),
        (Setting::StorageTimeout, duration_text(job.storage.timeout_ms)),
        (Setting::StoragePatience, duration_text(job.storage.patience_ms)),
        (Setting::UploadThreads, job.uploads.threads.to_string()),
        (Setting::UploadKeptBytes, bytes_text(job.uploads.kept_bytes)),
        (Setting::ChannelRecords, job.channel_records.to_string()),
        (Setting::ChannelBytes, bytes_text(job.channel_bytes)),
        (Setting::PeerWait, duration_text(cluster.wait_ms)),
        (Setting::Heartbeat, duration_text(cluster.heartbeat_ms)),
        (Setting::LostAfter, duration_text(cluster.lost_after_ms)),
        (Setting::Log, DEFAULT_LOG.to_owned()),
        (Setting::LogFormat, "text".to_owned()),
        (Setting::Progress, "true".to_owned()),
    ];
    for (setting, text) in values {
        layer.give(setting, text, Origin::Default);
    }
    layer
}

/// Turns the one effective layer into types.
fn check(effective: Layer, unknown_variables: Vec<String>, host_name: Option<&str>) -> Result<Settings, CliError> {
    let reader = Reader { layer: &effective };
    let defaults = JobSettings::default();
    let checkpoints = millpond_checkpoint::Settings {
        interval_ms: reader.read(Setting::CheckpointInterval, parse_interval)?,
        min_pause_ms: reader.read(Setting::MinPause, parse_duration_ms)?,
        timeout_ms: reader.read(Setting::Timeout, parse_positive_duration_ms)?,
        max_concurrent: reader.read(Setting::MaxConcurrent, |text| parse_number(text, 1))?,
        tolerable_failures: reader.read(Setting::TolerableFailures, |text| parse_number(text, 0))?,
        retained: reader.read(Setting::Retain, |text| parse_number(text, 1))?,
        excess_limit_percent: reader.read(Setting::ExcessLimit, |text| parse_number(text, 0))?,
        ..defaults.checkpoints
    };
    let max_parallelism = reader.read_if_given(Setting::MaxParallelism, parse_max_parallelism)?;
    let workers: u32 = reader.read(Setting::Workers, |text| {
        let workers = parse_number(text, 1)?;
        let enough = max_parallelism.map_or(Ok(()), |max| max.check(workers));
        enough.map(|()| workers).map_err(|error| error.to_string())
    })?;
    let cluster = cluster::read(&reader, host_name)?;
    let name = reader.read_if_given(Setting::Name, |text| {
        check_name(text).map(|()| text.to_owned()).map_err(|error| error.to_string())
    })?;
    let job = JobSettings {
        name: name.unwrap_or_default(),
        workers,
        cluster,
        max_parallelism: max_parallelism.map(MaxParallelism::get),
        backend: reader.read(Setting::Backend, parse_backend)?,
        memory: reader.read_if_given(Setting::Memory, parse_memory)?,
        checkpoints,
        restart: reader.read(Setting::Restart, parse_restart)?,
        from: StartFrom::default(),
        allow_dropped_state: reader.read(Setting::AllowDroppedState, parse_switch)?,
        storage: StorageSettings {
            timeout_ms: reader.read(Setting::StorageTimeout, parse_positive_duration_ms)?,
            patience_ms: reader.read(Setting::StoragePatience, parse_duration_ms)?,
        },
        uploads: UploadLimits {
            threads: reader.read(Setting::UploadThreads, |text| parse_number(text, 1))?,
            kept_bytes: reader.read(Setting::UploadKeptBytes, parse_bytes)?,
            ..defaults.uploads
        },
        channel_records: reader.read(Setting::ChannelRecords, |text| parse_number(text, 1))?,
        channel_bytes: reader.read(Setting::ChannelBytes, parse_positive_bytes)?,
    };
    let state_directory = reader.read_if_given(Setting::StateDir, parse_path)?;
    let local_recovery = reader.read(Setting::LocalRecovery, |text| match parse_switch(text)? {
        true if state_directory.is_none() => Err("the copies would go to the state-dir, and there is none".to_owned()),
        switch => Ok(switch),
    })?;
    let below_state =
        state_directory.as_deref().map(|directory: &Path| Place::Directory(directory.join(CHECKPOINTS_BELOW_STATE)));
    Ok(Settings {
        start: reader.read(Setting::From, parse_start)?,
        claim: reader.read(Setting::Claim, parse_claim)?,
        checkpoints: reader.read_if_given(Setting::CheckpointDir, parse_place)?.or(below_state),
        max_parallelism: max_parallelism.unwrap_or_default(),
        state_directory: cluster::local_directory(state_directory, job.cluster.as_ref()),
        job,
        local_recovery,
        log: reader.read(Setting::Log, parse_log)?,
        log_format: reader.read(Setting::LogFormat, parse_log_format)?,
        progress: reader.read(Setting::Progress, parse_switch)?,
        unknown_variables,
        effective,
    })
}

/// Reads typed values out of the effective layer.
struct Reader<'a> {
    layer: &'a Layer,
}

impl Reader<'_> {
    fn read<T>(&self, setting: Setting, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<T, CliError> {
        self.read_if_given(setting, parse)?.ok_or(CliError::Missing { setting })
    }

    fn read_if_given<T>(
        &self,
        setting: Setting,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, CliError> {
        let Some(Given { text, origin }) = self.layer.get(setting) else {
            return Ok(None);
        };
        let bad = |reason| CliError::BadValue { setting, value: format!("{text:?}"), origin: origin.clone(), reason };
        parse(text).map(Some).map_err(bad)
    }
}

fn parse_max_parallelism(text: &str) -> Result<MaxParallelism, String> {
    MaxParallelism::new(parse_number(text, 1)?).map_err(|error| error.to_string())
}

fn parse_positive_duration_ms(text: &str) -> Result<u64, String> {
    parse_duration_ms(text).and_then(|ms| if ms > 0 { Ok(ms) } else { Err("expected a duration above 0".to_owned()) })
}

fn parse_positive_bytes(text: &str) -> Result<u64, String> {
    parse_bytes(text).and_then(|bytes| if bytes > 0 { Ok(bytes) } else { Err("expected a size above 0".to_owned()) })
}

fn parse_path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("expected the path of a directory".to_owned()) } else { Ok(PathBuf::from(text)) }
}
