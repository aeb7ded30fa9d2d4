//! The command line: commands and flags, as text. What a value means is decided in `settings`, so
//! that a flag, a variable and a file are held to the same rules.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

mod cluster;
mod look;

use crate::settings::{Layer, Origin, Setting};
use crate::state::arguments::StateCommand;
use cluster::ClusterFlags;
pub(crate) use look::{CreateFlags, FsckFlags, JsonFlag, ListFlags, LocationArguments, PathFlag, VerifyFlags};

const AFTER_HELP: &str = "\
Settings come from four layers, later ones cover earlier ones: defaults, a TOML file (--config, else \
millpond.toml in the current directory), environment variables (MILLPOND_WORKERS for --workers), flags.

Exit codes: 0 finished or stopped, 1 failed, 2 wrong usage, settings, job or input, 3 somebody else runs the job, \
4 stored bytes are damaged.";

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    about = "A Millpond job. Without a command, runs it.",
    version = concat!("on Millpond ", env!("CARGO_PKG_VERSION")),
    after_help = AFTER_HELP,
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArguments,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the job (the default).
    #[command(after_help = AFTER_HELP)]
    Run(RunArguments),
    /// Print how the job would be laid out: chains of operators and the exchanges between them.
    Plan(PlanArguments),
    /// List the job's checkpoints, or look after them.
    Checkpoints(CheckpointsArguments),
    /// Make, list and dispose of savepoints: copies of checkpoints that stay until you delete them.
    Savepoint(SavepointArguments),
    /// Stop the running job with a last checkpoint.
    Stop(StopArguments),
    /// Let the running job go on with the number of --workers, from a checkpoint, in the same processes.
    Rescale(RescaleArguments),
    /// Look at the state in a checkpoint.
    State(Box<StateArguments>),
}

/// Arguments of `state`.
#[derive(Debug, Args)]
pub(crate) struct StateArguments {
    #[command(subcommand)]
    pub(crate) command: StateCommand,
    #[command(flatten)]
    location: LocationArguments,
    /// The location as settings.
    #[arg(skip)]
    settings: SettingArguments,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// Print the effective settings with their origins, and exit.
    #[arg(long)]
    pub(crate) print_settings: bool,
    #[command(flatten)]
    settings: SettingArguments,
}

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub(crate) struct PlanArguments {
    /// Print a graph in the DOT language.
    #[arg(long)]
    pub(crate) dot: bool,
    #[command(flatten)]
    settings: SettingArguments,
}

/// Arguments of `checkpoints`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct CheckpointsArguments {
    #[command(subcommand)]
    pub(crate) command: Option<CheckpointsCommand>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    settings: SettingArguments,
}

/// What to do with the checkpoints; without a word, list them.
#[derive(Debug, Subcommand)]
pub(crate) enum CheckpointsCommand {
    /// List them (the default).
    List(Box<ListCheckpointsArguments>),
    /// Read everything that the checkpoints name, and say what is missing or damaged.
    Verify(Box<VerifyArguments>),
    /// Find what is missing and what nobody needs, without reading it.
    Fsck(Box<FsckArguments>),
}

/// Arguments of `checkpoints list`.
#[derive(Debug, Args)]
pub(crate) struct ListCheckpointsArguments {
    #[command(flatten)]
    pub(crate) flags: JsonFlag,
    #[command(flatten)]
    settings: SettingArguments,
}

/// Arguments of `checkpoints verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    #[command(flatten)]
    pub(crate) flags: VerifyFlags,
    #[command(flatten)]
    settings: SettingArguments,
}

/// Arguments of `checkpoints fsck`.
#[derive(Debug, Args)]
pub(crate) struct FsckArguments {
    #[command(flatten)]
    pub(crate) flags: FsckFlags,
    #[command(flatten)]
    settings: SettingArguments,
}

/// Arguments of `savepoint`.
#[derive(Debug, Args)]
pub(crate) struct SavepointArguments {
    #[command(subcommand)]
    pub(crate) command: SavepointCommand,
}

/// What to do with savepoints.
#[derive(Debug, Subcommand)]
pub(crate) enum SavepointCommand {
    /// Make one: of the running job, else of its newest checkpoint, or of what --from names.
    Create(CreateArguments),
    /// List those in a directory and below [default: savepoints in the state directory]
    List(ListArguments),
    /// Delete one, whole or half-written.
    Dispose(PathArguments),
    /// Read everything in one, and say what is missing or damaged.
    Verify(PathArguments),
}

/// Arguments of `savepoint create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArguments {
    #[command(flatten)]
    pub(crate) flags: CreateFlags,
    #[command(flatten)]
    settings: SettingArguments,
}

/// Arguments of `savepoint list`.
#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    #[command(flatten)]
    pub(crate) flags: ListFlags,
    #[command(flatten)]
    settings: SettingArguments,
}

/// Arguments of commands about one savepoint.
#[derive(Debug, Args)]
pub(crate) struct PathArguments {
    #[command(flatten)]
    pub(crate) flags: PathFlag,
    #[command(flatten)]
    settings: SettingArguments,
}

/// Arguments of `stop`.
#[derive(Debug, Args)]
pub(crate) struct StopArguments {
    /// Write a savepoint of the last checkpoint to this directory
    #[arg(long, value_name = "PATH")]
    pub(crate) savepoint: Option<PathBuf>,
    /// Let operators emit what they hold before the last checkpoint, as at the end of input
    #[arg(long)]
    pub(crate) drain: bool,
    #[command(flatten)]
    settings: SettingArguments,
}

/// Arguments of `rescale`.
#[derive(Debug, Args)]
pub(crate) struct RescaleArguments {
    #[command(flatten)]
    settings: SettingArguments,
}

/// Flags that every command takes.
#[derive(Debug, Default, Args)]
pub(crate) struct SettingArguments {
    /// Settings file [default: millpond.toml, if there is one]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Name of the job in checkpoint storage [default: name of the program]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Number of threads that process records [default: number of cores]
    #[arg(long, short, value_name = "N")]
    workers: Option<String>,
    /// Number of key groups, fixed when the job first starts [default: as in the checkpoint, else 1024]
    #[arg(long, value_name = "N")]
    max_parallelism: Option<String>,
    /// The job's local directory: one process at a time, checkpoints in it
    #[arg(long, value_name = "DIR")]
    state_dir: Option<String>,
    /// Where keyed state lives: heap, or rocksdb for more than fits memory [default: heap]
    #[arg(long, value_name = "BACKEND")]
    backend: Option<String>,
    /// Memory of the whole process, with backend rocksdb [default: half of the machine's]
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Where checkpoints go: a directory, or an address such as s3://BUCKET/PREFIX [default: checkpoints in the
    /// state directory]
    #[arg(long, value_name = "WHERE")]
    checkpoint_dir: Option<String>,
    /// Also keep what checkpoints hold in the state directory, and restore from there what is intact
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    local_recovery: Option<String>,
    /// Time between checkpoints, or none [default: 10s]
    #[arg(long, value_name = "DURATION")]
    checkpoint_interval: Option<String>,
    /// Least time between the end of a checkpoint and the next [default: 0]
    #[arg(long, value_name = "DURATION")]
    min_pause: Option<String>,
    /// How long a checkpoint may take [default: 10m]
    #[arg(long, value_name = "DURATION")]
    timeout: Option<String>,
    /// Checkpoints in flight at once [default: 1]
    #[arg(long, value_name = "N")]
    max_concurrent: Option<String>,
    /// Failed checkpoints in a row that the job survives [default: 0]
    #[arg(long, value_name = "N")]
    tolerable_failures: Option<String>,
    /// Completed checkpoints that are kept [default: 3]
    #[arg(long, value_name = "N")]
    retain: Option<String>,
    /// Percent beside live state from which on checkpoints wait for merging, 0 for never [default: 200]
    #[arg(long, value_name = "PERCENT")]
    excess_limit: Option<String>,
    /// Start from: latest, none, an epoch number or the path of a savepoint or manifest [default: latest]
    #[arg(long, value_name = "WHERE")]
    from: Option<String>,
    /// Who owns the savepoint to start from: claim (the job disposes of it) or no-claim [default: no-claim]
    #[arg(long, value_name = "WHO")]
    claim: Option<String>,
    /// Drop state in the checkpoint that the job does not know
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    allow_dropped_state: Option<String>,
    /// After a failure: never, fixed:N:DELAY or backoff:N:INITIAL:MAX [default: backoff:10:100ms:1m]
    #[arg(long, value_name = "POLICY")]
    restart: Option<String>,
    /// The time that a call to checkpoint storage has [default: 1m]
    #[arg(long, value_name = "DURATION")]
    storage_timeout: Option<String>,
    /// How long an outage of checkpoint storage is waited for [default: 2m]
    #[arg(long, value_name = "DURATION")]
    storage_patience: Option<String>,
    /// Threads that store snapshots [default: 2]
    #[arg(long, value_name = "N")]
    upload_threads: Option<String>,
    /// Bytes of snapshots of failed checkpoints that may wait for storage [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    upload_kept_bytes: Option<String>,
    /// Records in flight on one channel
    #[arg(long, value_name = "N")]
    channel_records: Option<String>,
    /// Bytes in flight on one channel
    #[arg(long, value_name = "SIZE")]
    channel_bytes: Option<String>,
    #[command(flatten)]
    cluster: ClusterFlags,
    /// What is logged: a level, or levels per target as in warn,millpond=debug [default: info]
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// How it is logged: text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Show no progress on the terminal
    #[arg(long)]
    no_progress: bool,
    /// Arguments of the job itself
    #[arg(last = true, value_name = "JOB ARGUMENTS")]
    job_arguments: Vec<String>,
}

impl Arguments {
    /// Reads the arguments of a process, its own name first. `job` names it in the version line.
    ///
    /// # Errors
    /// Wrong usage; and what looks like it: the help text and the version.
    pub(crate) fn read<A>(job: &str, arguments: impl IntoIterator<Item = A>) -> Result<Command, clap::Error>
    where
        A: Into<OsString> + Clone,
    {
        let matches = Arguments::command().name(job.to_owned()).try_get_matches_from(arguments)?;
        let Arguments { command, run } = Arguments::from_arg_matches(&matches)?;
        Ok(match command.unwrap_or(Command::Run(run)) {
            Command::State(state) => {
                let settings = state.location.settings();
                Command::State(Box::new(StateArguments { settings, ..*state }))
            }
            other => other,
        })
    }
}

impl Command {
    /// The flags that every command takes.
    #[must_use]
    pub(crate) fn settings(&self) -> &SettingArguments {
        match self {
            Command::Run(arguments) => &arguments.settings,
            Command::Plan(arguments) => &arguments.settings,
            Command::Checkpoints(arguments) => match &arguments.command {
                None => &arguments.settings,
                Some(CheckpointsCommand::List(arguments)) => &arguments.settings,
                Some(CheckpointsCommand::Verify(arguments)) => &arguments.settings,
                Some(CheckpointsCommand::Fsck(arguments)) => &arguments.settings,
            },
            Command::Savepoint(arguments) => match &arguments.command {
                SavepointCommand::Create(arguments) => &arguments.settings,
                SavepointCommand::List(arguments) => &arguments.settings,
                SavepointCommand::Dispose(arguments) | SavepointCommand::Verify(arguments) => &arguments.settings,
            },
            Command::Stop(arguments) => &arguments.settings,
            Command::Rescale(arguments) => &arguments.settings,
            Command::State(arguments) => &arguments.settings,
        }
    }
}

impl SettingArguments {
    /// The settings file.
    #[must_use]
    pub(crate) fn config(&self) -> Option<PathBuf> {
        self.config.clone()
    }

    /// What stands after `--`.
    #[must_use]
    pub(crate) fn job_arguments(&self) -> &[String] {
        &self.job_arguments
    }

    /// The flags as a layer of settings.
    #[must_use]
    pub(crate) fn layer(&self) -> Layer {
        let given = [
            (Setting::Name, &self.name),
            (Setting::Workers, &self.workers),
            (Setting::MaxParallelism, &self.max_parallelism),
            (Setting::StateDir, &self.state_dir),
            (Setting::Backend, &self.backend),
            (Setting::Memory, &self.memory),
            (Setting::CheckpointDir, &self.checkpoint_dir),
            (Setting::LocalRecovery, &self.local_recovery),
            (Setting::CheckpointInterval, &self.checkpoint_interval),
            (Setting::MinPause, &self.min_pause),
            (Setting::Timeout, &self.timeout),
            (Setting::MaxConcurrent, &self.max_concurrent),
            (Setting::TolerableFailures, &self.tolerable_failures),
            (Setting::Retain, &self.retain),
            (Setting::ExcessLimit, &self.excess_limit),
            (Setting::From, &self.from),
            (Setting::Claim, &self.claim),
            (Setting::AllowDroppedState, &self.allow_dropped_state),
            (Setting::Restart, &self.restart),
            (Setting::StorageTimeout, &self.storage_timeout),
            (Setting::StoragePatience, &self.storage_patience),
            (Setting::UploadThreads, &self.upload_threads),
            (Setting::UploadKeptBytes, &self.upload_kept_bytes),
            (Setting::ChannelRecords, &self.channel_records),
            (Setting::ChannelBytes, &self.channel_bytes),
            (Setting::Log, &self.log),
            (Setting::LogFormat, &self.log_format),
        ];
        let mut layer = Layer::default();
        for (setting, text) in given.into_iter().chain(self.cluster.given()) {
            if let Some(text) = text {
                layer.give(setting, text.clone(), Origin::Flag(format!("--{setting}")));
            }
        }
        if self.no_progress {
            layer.give(Setting::Progress, "false", Origin::Flag("--no-progress".to_owned()));
        }
        layer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Command, clap::Error> {
        Arguments::read("wordcount", std::iter::once("wordcount").chain(line.split_whitespace()))
    }

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn run_is_the_default_command() {
        for line in ["--workers 2 -- a b", "run --workers 2 -- a b"] {
            let command = read(line).unwrap();
            assert!(matches!(command, Command::Run(_)), "{line}");
            assert_eq!(command.settings().layer().get(Setting::Workers).unwrap().text, "2");
            assert_eq!(command.settings().job_arguments(), ["a", "b"]);
        }
        assert!(matches!(read("").unwrap(), Command::Run(_)));
    }

    #[test]
    fn the_other_commands_take_their_own_flags_and_all_settings() {
        assert!(matches!(read("plan --dot -w 4 -- x").unwrap(), Command::Plan(PlanArguments { dot: true, .. })));
        let list = read("checkpoints --json --state-dir s").unwrap();
        assert!(matches!(list, Command::Checkpoints(CheckpointsArguments { json: true, .. })));
        let list = read("checkpoints list --json --state-dir s").unwrap();
        assert!(matches!(list, Command::Checkpoints(CheckpointsArguments { command: Some(_), .. })));
        assert_eq!(list.settings().layer().get(Setting::StateDir).unwrap().text, "s");
        assert!(read("plan --json").is_err());
    }

    #[test]
    fn every_setting_has_a_flag() {
        let mut line = "run --no-progress --allow-dropped-state --local-recovery".to_owned();
        for setting in Setting::ALL {
            if !matches!(setting, Setting::Progress | Setting::AllowDroppedState | Setting::LocalRecovery) {
                line.push_str(&format!(" --{setting} value-of-{setting}"));
            }
        }
        let layer = read(&line).unwrap().settings().layer();
        for setting in Setting::ALL {
            let text = &layer.get(setting).unwrap().text;
            match setting {
                Setting::Progress => assert_eq!(text, "false"),
                Setting::AllowDroppedState | Setting::LocalRecovery => assert_eq!(text, "true"),
                _ => assert_eq!(*text, format!("value-of-{setting}")),
            }
        }
    }

    #[test]
    fn a_switch_takes_its_value_only_behind_an_equals_sign() {
        let layer = read("--allow-dropped-state=false -- true").unwrap().settings().layer();
        assert_eq!(layer.get(Setting::AllowDroppedState).unwrap().text, "false");
    }

    #[test]
    fn wrong_usage_is_refused_and_help_is_not_an_error() {
        assert!(read("--wrokers 2").unwrap_err().use_stderr());
        assert!(read("walk").unwrap_err().use_stderr());
        assert!(!read("--help").unwrap_err().use_stderr());
        let version = read("--version").unwrap_err().to_string();
        assert!(version.starts_with("wordcount on Millpond "), "{version}");
    }
}
