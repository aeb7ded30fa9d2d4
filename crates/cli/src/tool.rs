//! The program `millpond`: looks at checkpoints of any job, without its code.
//!
//! Has the same settings, messages and exit codes as a job's own command line; only that the job need not
//! be named where a directory holds no other.

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand};

use crate::arguments::{CreateFlags, FsckFlags, JsonFlag, ListFlags, LocationArguments, PathFlag, VerifyFlags};
use crate::error::CliError;
use crate::extensions::Extensions;
use crate::local_cluster::{self, LocalClusterArguments};
use crate::settings::{Facts, Settings, Start};
use crate::state::arguments::StateCommand;
use crate::storage::Opening;
use crate::terminal::Terminal;
use crate::{exit, inspect, list_checkpoints, logging, message, savepoint, say, show_state, state, write_out};

/// The command line of the program.
#[derive(Debug, Parser)]
#[command(
    name = "millpond",
    about = "Looks at the checkpoints and the state of Millpond jobs, without the job's code.",
    version
)]
struct ToolArguments {
    #[command(subcommand)]
    command: ToolCommand,
    #[command(flatten)]
    location: LocationArguments,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum ToolCommand {
    /// List the checkpoints of a job, or look after them.
    Checkpoints {
        #[command(subcommand)]
        command: Option<ToolCheckpoints>,
        #[command(flatten)]
        flags: JsonFlag,
    },
    /// Make, list and dispose of savepoints: copies of checkpoints that stay until you delete them.
    Savepoint {
        #[command(subcommand)]
        command: ToolSavepoint,
    },
    /// Run a job in several processes on this machine, and start again those that die.
    LocalCluster(LocalClusterArguments),
    /// Look at the state in a checkpoint or savepoint.
    State {
        #[command(subcommand)]
        command: StateCommand,
    },
}

/// What to do with checkpoints; without a word, list them.
#[derive(Debug, Subcommand)]
enum ToolCheckpoints {
    /// List them (the default).
    List(JsonFlag),
    /// Read everything that the checkpoints name, and say what is missing or damaged.
    Verify(VerifyFlags),
    /// Find what is missing and what nobody needs, without reading it.
    Fsck(FsckFlags),
}

/// What to do with savepoints.
#[derive(Debug, Subcommand)]
enum ToolSavepoint {
    /// Make one: of the job that runs in --state-dir, else of its newest checkpoint, or of what --from names.
    Create(CreateFlags),
    /// List those in a directory and below [default: savepoints in the state directory]
    List(ListFlags),
    /// Delete one, whole or half-written.
    Dispose(PathFlag),
    /// Read everything in one, and say what is missing or damaged.
    Verify(PathFlag),
}

/// The whole `main` of the program `millpond`, with the storages in `extensions`.
#[must_use]
pub fn main(extensions: &Extensions) -> ExitCode {
    let arguments = match ToolArguments::try_parse() {
        Ok(arguments) => arguments,
        Err(usage) => {
            let _ = usage.print();
            return ExitCode::from(if usage.use_stderr() { exit::INVALID } else { exit::SUCCESS });
        }
    };
    let terminal = Terminal::stderr();
    match execute(&arguments, extensions, &terminal) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            terminal.print(&message::failure(&error));
            ExitCode::from(exit::code(error.kind()))
        }
    }
}

fn execute(arguments: &ToolArguments, extensions: &Extensions, terminal: &Arc<Terminal>) -> Result<u8, CliError> {
    let given = arguments.location.settings();
    let settings = Settings::gather(Facts {
        cores: 1,
        config: given.config(),
        variables: std::env::vars_os().collect(),
        flags: given.layer(),
        ..Facts::default()
    })?;
    logging::start(&settings, terminal);
    if let ToolCommand::LocalCluster(arguments) = &arguments.command {
        return local_cluster::run(arguments);
    }
    look(&arguments.command, &settings, extensions).map(|()| exit::SUCCESS)
}

fn look(command: &ToolCommand, settings: &Settings, extensions: &Extensions) -> Result<(), CliError> {
    let opening = Opening::new(settings, extensions);
    match command {
        ToolCommand::LocalCluster(_) => Ok(()),
        ToolCommand::Checkpoints { command, flags } => {
            let settings = with_job(settings, extensions)?;
            let list = |json: bool| list_checkpoints(&settings, &settings.job.name, opening, json);
            match command {
                None => list(flags.json),
                Some(ToolCheckpoints::List(more)) => list(flags.json || more.json),
                Some(ToolCheckpoints::Verify(flags)) => say(inspect::verify(flags, &settings, opening)?),
                Some(ToolCheckpoints::Fsck(flags)) => say(inspect::fsck(flags, &settings, opening)?),
            }
        }
        ToolCommand::Savepoint { command } => match command {
            ToolSavepoint::Create(flags) => {
                // A savepoint or manifest that is copied tells its job itself.
                let named = !matches!(settings.start, Start::Path(_));
                let settings = if named { with_job(settings, extensions)? } else { settings.clone() };
                write_out(&savepoint::create(flags, &settings, opening)?)
            }
            ToolSavepoint::List(flags) => write_out(&savepoint::list(flags, settings, opening)?),
            ToolSavepoint::Dispose(flag) => write_out(&savepoint::dispose(&flag.path, opening)?),
            ToolSavepoint::Verify(flag) => say(inspect::verify_savepoint(&flag.path, opening)?),
        },
        ToolCommand::State { command } => show_state(command, settings, extensions),
    }
}

/// The same settings for the job that is named, or the only one in the checkpoint directory.
fn with_job(settings: &Settings, extensions: &Extensions) -> Result<Settings, CliError> {
    let mut settings = settings.clone();
    settings.job.name = state::job_name(&settings, extensions)?;
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound_and_flags_may_stand_anywhere() {
        ToolArguments::command().debug_assert();
        for line in
            ["checkpoints", "checkpoints --json", "checkpoints list --json", "checkpoints fsck --delete-orphans"]
        {
            assert!(ToolArguments::try_parse_from(format!("millpond {line} --job j").split(' ')).is_ok(), "{line}");
        }
        for line in ["millpond --checkpoint-dir c --job j state ls", "millpond state ls --job j --checkpoint-dir c"] {
            let arguments = ToolArguments::try_parse_from(line.split(' ')).unwrap();
            assert!(matches!(arguments.command, ToolCommand::State { command: StateCommand::Ls { .. } }));
            let layer = arguments.location.settings().layer();
            assert_eq!(layer.get(crate::Setting::CheckpointDir).unwrap().text, "c", "{line}");
            assert_eq!(layer.get(crate::Setting::Name).unwrap().text, "j", "{line}");
        }
    }
}
