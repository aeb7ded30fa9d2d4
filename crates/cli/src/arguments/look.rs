//! Flags of the commands that look at checkpoints and savepoints: a job's own command line and the program
//! `millpond` both have them.

use std::path::PathBuf;

use clap::Args;

use super::SettingArguments;

/// How a list is printed.
#[derive(Debug, Args)]
pub(crate) struct JsonFlag {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is verified.
#[derive(Debug, Args)]
pub(crate) struct VerifyFlags {
    /// Verify this epoch only
    #[arg(long, value_name = "N")]
    pub(crate) epoch: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is done about orphans.
#[derive(Debug, Args)]
pub(crate) struct FsckFlags {
    /// Delete what nobody needs
    #[arg(long)]
    pub(crate) delete_orphans: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which savepoint is made.
#[derive(Debug, Args)]
pub(crate) struct CreateFlags {
    /// Directory of the savepoint, which must be empty or missing [default: savepoints/NAME-TIME in the state directory]
    #[arg(long, value_name = "PATH")]
    pub(crate) to: Option<PathBuf>,
    /// Ask the running job for a new checkpoint, and fail if there is no running job
    #[arg(long)]
    pub(crate) live: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which savepoints are listed.
#[derive(Debug, Args)]
pub(crate) struct ListFlags {
    /// Where to look
    #[arg(value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// One savepoint.
#[derive(Debug, Args)]
pub(crate) struct PathFlag {
    /// Directory of the savepoint
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
}

/// Flags that say which checkpoint is looked at; they may stand anywhere.
#[derive(Clone, Debug, Args)]
pub(crate) struct LocationArguments {
    /// Settings file [default: millpond.toml, if there is one]
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Name of the job in checkpoint storage
    #[arg(long, visible_alias = "job", value_name = "NAME", global = true)]
    name: Option<String>,
    /// The job's local directory, with checkpoints in it
    #[arg(long, value_name = "DIR", global = true)]
    state_dir: Option<String>,
    /// Where checkpoints are [default: checkpoints in the state directory]
    #[arg(long, value_name = "DIR", global = true)]
    checkpoint_dir: Option<String>,
    /// Which checkpoint: latest, an epoch number, or the path of a savepoint, checkpoint directory or manifest
    /// [default: latest]
    #[arg(long, value_name = "WHERE", global = true)]
    from: Option<String>,
    /// What is logged [default: info]
    #[arg(long, value_name = "FILTER", global = true)]
    log: Option<String>,
    /// How it is logged: text or json [default: text]
    #[arg(long, value_name = "FORMAT", global = true)]
    log_format: Option<String>,
}

impl LocationArguments {
    /// The same as flags of the other commands.
    #[must_use]
    pub(crate) fn settings(&self) -> SettingArguments {
        SettingArguments {
            config: self.config.clone(),
            name: self.name.clone(),
            state_dir: self.state_dir.clone(),
            checkpoint_dir: self.checkpoint_dir.clone(),
            from: self.from.clone(),
            log: self.log.clone(),
            log_format: self.log_format.clone(),
            ..SettingArguments::default()
        }
    }
}
