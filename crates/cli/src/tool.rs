//! The program `millpond`: looks at checkpoints of any job, without its code.
//!
//! Has the same settings, messages and exit codes as a job's own command line; only that the job need not
//! be named where a directory holds no other.

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand};

use crate::arguments::LocationArguments;
use crate::error::CliError;
use crate::extensions::Extensions;
use crate::settings::{Facts, Settings};
use crate::state::arguments::StateCommand;
use crate::storage::Opening;
use crate::terminal::Terminal;
use crate::{exit, list_checkpoints, logging, message, show_state, state};

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
    /// List the checkpoints of a job.
    Checkpoints {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Look at the state in a checkpoint.
    State {
        #[command(subcommand)]
        command: StateCommand,
    },
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
        Ok(()) => ExitCode::from(exit::SUCCESS),
        Err(error) => {
            terminal.print(&message::failure(&error));
            ExitCode::from(exit::code(error.kind()))
        }
    }
}

fn execute(arguments: &ToolArguments, extensions: &Extensions, terminal: &Arc<Terminal>) -> Result<(), CliError> {
    let given = arguments.location.settings();
    let settings = Settings::gather(Facts {
        cores: 1,
        config: given.config(),
        variables: std::env::vars_os().collect(),
        flags: given.layer(),
        ..Facts::default()
    })?;
    logging::start(&settings, terminal);
    match &arguments.command {
        ToolCommand::Checkpoints { json } => {
            let opening = Opening::new(&settings, extensions);
            list_checkpoints(&settings, &state::job_name(&settings, extensions)?, opening, *json)
        }
        ToolCommand::State { command } => show_state(command, &settings, extensions),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound_and_flags_may_stand_anywhere() {
        ToolArguments::command().debug_assert();
        for line in ["millpond --checkpoint-dir c --job j state ls", "millpond state ls --job j --checkpoint-dir c"] {
            let arguments = ToolArguments::try_parse_from(line.split(' ')).unwrap();
            assert!(matches!(arguments.command, ToolCommand::State { command: StateCommand::Ls { .. } }));
            let layer = arguments.location.settings().layer();
            assert_eq!(layer.get(crate::Setting::CheckpointDir).unwrap().text, "c", "{line}");
            assert_eq!(layer.get(crate::Setting::Name).unwrap().text, "j", "{line}");
        }
    }
}
