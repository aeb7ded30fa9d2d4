//! What can end a command, and what to do next.

use std::io;
use std::path::PathBuf;

use millpond_checkpoint::CheckpointError;
use millpond_core::ErrorKind;
use millpond_dataflow::GraphError;
use millpond_jobmanager::JobError;
use millpond_state_reader::ReaderError;
use millpond_storage::StorageError;

use crate::settings::{Origin, Setting};

/// A command that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// A settings file cannot be read.
    #[error("cannot read settings file {}", file.display())]
    SettingsFile {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A settings file is not TOML.
    #[error("{} is not valid TOML at line {line}: {reason}", file.display())]
    SettingsSyntax {
        /// The file.
        file: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// What is wrong there.
        reason: String,
    },
    /// A settings file holds a key that is no setting.
    #[error("unknown setting {key:?} in {}", file.display())]
    UnknownKey {
        /// The file.
        file: PathBuf,
        /// The key.
        key: String,
    },
    /// A setting has a value that it cannot have.
    #[error("bad value {value} for {setting} ({origin}): {reason}")]
    BadValue {
        /// The setting.
        setting: Setting,
        /// Its value, as written.
        value: String,
        /// Who gave it.
        origin: Origin,
        /// What is wrong with it.
        reason: String,
    },
    /// A setting that needs a value has none.
    #[error("setting {setting} has no value")]
    Missing {
        /// The setting.
        setting: Setting,
    },
    /// Another process of this machine uses the job's local directory.
    #[error("state directory {} is in use{}", directory.display(), holder.map_or(String::new(), |pid| format!(" by process {pid}")))]
    InUse {
        /// The directory.
        directory: PathBuf,
        /// Process id of the holder, if it has written it down.
        holder: Option<u32>,
    },
    /// The job's local directory cannot be used.
    #[error("cannot use state directory {}", directory.display())]
    StateDirectory {
        /// The directory.
        directory: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Checkpoints are asked for, and no directory is known to hold any.
    #[error("no checkpoint directory is set")]
    NoCheckpointDirectory,
    /// The checkpoint directory does not exist.
    #[error("checkpoint directory {} does not exist", directory.display())]
    NoSuchDirectory {
        /// The directory.
        directory: PathBuf,
    },
    /// The manifest to start from cannot be found.
    #[error("cannot find checkpoint {}", path.display())]
    NoSuchCheckpoint {
        /// The path that was asked for.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file to start from is neither a savepoint nor a manifest.
    #[error("{} is neither a savepoint nor a manifest in a checkpoint directory", path.display())]
    NotACheckpoint {
        /// The path that was asked for.
        path: PathBuf,
    },
    /// Only a savepoint can be claimed.
    #[error("only a savepoint can be claimed; checkpoints of the job are its own")]
    NothingToClaim,
    /// A running job is to be asked, and no state directory is known.
    #[error("no state directory is set: a running job is found by it")]
    NoStateDirectory,
    /// A savepoint is to be found or made, and nobody knows where.
    #[error("no path of a savepoint is given, and no state directory is set")]
    NoSavepointPath,
    /// The job has no checkpoint to make a savepoint of.
    #[error("job {job:?} has no completed checkpoint")]
    NothingToSave {
        /// The job.
        job: String,
    },
    /// A path cannot be sent to a running job.
    #[error("the path {} is not text", path.display())]
    NotText {
        /// The path.
        path: PathBuf,
    },
    /// A savepoint cannot be written, read or disposed of.
    #[error("savepoint {}", path.display())]
    Savepoint {
        /// Its directory.
        path: PathBuf,
        /// What went wrong.
        source: CheckpointError,
    },
    /// No job listens in the state directory.
    #[error("no job runs in state directory {}", directory.display())]
    NotRunning {
        /// The directory.
        directory: PathBuf,
    },
    /// What was given to look at or to compare names no checkpoint.
    #[error("{text:?} names no checkpoint: {reason}")]
    WrongCheckpoint {
        /// As given.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No job is named, and the checkpoint directory does not hold exactly one.
    #[error("{}", which_job(.jobs))]
    WhichJob {
        /// The jobs in the directory.
        jobs: Vec<String>,
    },
    /// State cannot be read.
    #[error(transparent)]
    Reader(Box<ReaderError>),
    /// The running job did not do what it was asked for.
    #[error("the job refused: {message}")]
    Refused {
        /// What it said.
        message: String,
        /// What to do next.
        kind: ErrorKind,
    },
    /// The conversation with the running job broke off: it may have done what it was asked for.
    #[error("cannot talk to the job in state directory {}", directory.display())]
    Control {
        /// The directory.
        directory: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The job has stopped, and its process does not end.
    #[error("the job has stopped, but its process still holds state directory {}", directory.display())]
    StillRunning {
        /// The directory.
        directory: PathBuf,
    },
    /// Stored bytes are missing or damaged, as listed.
    #[error("{faults} {} missing or damaged", if *faults == 1 { "thing is" } else { "things are" })]
    Damage {
        /// How many.
        faults: usize,
    },
    /// Checkpoint storage cannot be opened.
    #[error("cannot open checkpoint storage {place}")]
    Storage {
        /// The directory or address.
        place: String,
        /// What went wrong.
        source: StorageError,
    },
    /// The program was built without what opens such an address.
    #[error("cannot open checkpoint storage {address}: {}", match feature {
        Some(feature) => format!("this program was built without the feature {feature:?} of millpond"),
        None => format!("no storage is called {scheme:?}"),
    })]
    NoSuchScheme {
        /// The address.
        address: String,
        /// Its scheme.
        scheme: String,
        /// The feature that brings it, if there is one.
        feature: Option<&'static str>,
    },
    /// Checkpoints cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The job cannot be built.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The job failed.
    #[error(transparent)]
    Job(Box<JobError>),
    /// The handlers of SIGINT and SIGTERM cannot be installed.
    #[error("cannot listen for signals")]
    Signals {
        /// What the system said.
        source: io::Error,
    },
    /// The number of workers to rescale to was not given.
    #[error("rescale needs the new number of workers: --workers N")]
    NoWorkers,
    /// No ports are free for the processes of a local cluster.
    #[error("cannot find ports for the processes")]
    NoPort {
        /// What the system said.
        source: io::Error,
    },
    /// No program was given to run.
    #[error("no program is given after --")]
    NoProgram,
    /// A program cannot be started or watched.
    #[error("cannot run {program:?}")]
    Program {
        /// The program.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// Standard output cannot be written.
    #[error("cannot write to standard output")]
    Output {
        /// What the system said.
        source: io::Error,
    },
}

impl CliError {
    /// What to do next.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            CliError::SettingsFile { .. }
            | CliError::SettingsSyntax { .. }
            | CliError::UnknownKey { .. }
            | CliError::BadValue { .. }
            | CliError::Missing {
                setting: Setting::Hosts | Setting::Process | Setting::TlsCertificate | Setting::TlsKey | Setting::TlsCa,
            }
            | CliError::NoCheckpointDirectory
            | CliError::NoSuchDirectory { .. }
            | CliError::NoSuchScheme { .. }
            | CliError::NoSuchCheckpoint { .. }
            | CliError::WrongCheckpoint { .. }
            | CliError::WhichJob { .. }
            | CliError::NotACheckpoint { .. }
            | CliError::NothingToClaim
            | CliError::NoStateDirectory
            | CliError::NoSavepointPath
            | CliError::NothingToSave { .. }
            | CliError::NotText { .. }
            | CliError::NoProgram
            | CliError::NoWorkers
            | CliError::NotRunning { .. } => ErrorKind::Invalid,
            CliError::Savepoint { source, .. } => source.kind(),
            CliError::Refused { kind, .. } => *kind,
            CliError::Control { .. } | CliError::StillRunning { .. } => ErrorKind::Uncertain,
            CliError::Damage { .. } => ErrorKind::Corrupt,
            CliError::Reader(error) => error.kind(),
            CliError::Missing { .. } => ErrorKind::Bug,
            CliError::InUse { .. } => ErrorKind::Fenced,
            CliError::StateDirectory { source, .. } | CliError::Program { source, .. } => {
                kind_of_refusal(source.kind())
            }
            CliError::NoPort { .. } | CliError::Signals { .. } | CliError::Output { .. } => ErrorKind::Unavailable,
            CliError::Storage { source, .. } => source.kind(),
            CliError::Checkpoint(error) => error.kind(),
            CliError::Graph(error) => error.kind(),
            CliError::Job(error) => error.kind(),
        }
    }
}

/// Whether the same directory may do another time.
fn kind_of_refusal(refusal: io::ErrorKind) -> ErrorKind {
    match refusal {
        io::ErrorKind::PermissionDenied
        | io::ErrorKind::ReadOnlyFilesystem
        | io::ErrorKind::NotFound
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::AlreadyExists
        | io::ErrorKind::InvalidInput => ErrorKind::Invalid,
        _ => ErrorKind::Unavailable,
    }
}

fn which_job(jobs: &[String]) -> String {
    match jobs {
        [] => "the checkpoint directory holds no job".to_owned(),
        jobs => format!("the checkpoint directory holds the jobs {}", jobs.join(", ")),
    }
}

impl From<ReaderError> for CliError {
    fn from(error: ReaderError) -> Self {
        CliError::Reader(Box::new(error))
    }
}

/// Boxed, so that a result stays small.
impl From<JobError> for CliError {
    fn from(error: JobError) -> Self {
        CliError::Job(Box::new(error))
    }
}
