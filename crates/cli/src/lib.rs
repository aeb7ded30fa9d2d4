//! The command line that every job has: `run`, `plan`, `checkpoints`, `savepoint`, `stop` and `state`; and that
//! of the program `millpond`, which has no job.
//!
//! Owns arguments, settings and their layers, exit codes, signals, the control socket, progress, and every sentence said to
//! people. Does *not* own the life of a job (see `jobmanager`) nor what a checkpoint is (see
//! `checkpoint`).
//!
//! ```text
//! arguments → settings (defaults < file < environment < flags) → command → exit code
//! ```

mod alike;
mod arguments;
mod checkpoints;
mod error;
mod exit;
mod extensions;
mod inspect;
mod job_arguments;
mod local_cluster;
mod lock;
mod logging;
mod message;
mod place;
mod plan;
mod progress;
mod run;
mod savepoint;
mod settings;
mod signals;
mod socket;
mod state;
mod storage;
mod supervisor;
mod terminal;
mod tool;
mod units;

use std::io::{self, Write};
use std::num::NonZero;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use millpond_checkpoint::History;
use millpond_core::UserResult;
use millpond_dataflow::Dataflow;
use millpond_jobmanager::Job;

use arguments::{Arguments, CheckpointsCommand, Command, SavepointCommand};
pub use error::CliError;
pub use extensions::Extensions;
pub use job_arguments::args;
use settings::{Facts, Settings};
pub use settings::{Origin, Setting};
use storage::Opening;
use terminal::Terminal;
pub use tool::main as tool_main;

/// The whole `main` of a job: reads the command line, does what it says, and returns the exit code.
/// The job is called like the program.
pub fn main(job: impl Fn(&mut Dataflow) -> UserResult + Send + Sync + 'static) -> ExitCode {
    main_with(&Extensions::default(), None, job)
}

/// Like [`main()`], for a job that is called `name` unless the user says otherwise.
pub fn main_named(name: &str, job: impl Fn(&mut Dataflow) -> UserResult + Send + Sync + 'static) -> ExitCode {
    main_with(&Extensions::default(), Some(name), job)
}

/// Like [`main()`], with what the program adds; the job is called `name`, else like the program.
pub fn main_with(
    extensions: &Extensions,
    name: Option<&str>,
    job: impl Fn(&mut Dataflow) -> UserResult + Send + Sync + 'static,
) -> ExitCode {
    let program = std::env::args_os().next();
    let stem = program.as_deref().map(Path::new).and_then(Path::file_stem);
    let stem = stem.map_or_else(|| "job".to_owned(), |stem| stem.to_string_lossy().into_owned());
    let (name, job): (&str, Job) = (name.unwrap_or(&stem), Arc::new(job));
    let command = match Arguments::read(name, std::env::args_os()) {
        Ok(command) => command,
        Err(usage) => {
            let _ = usage.print();
            return ExitCode::from(if usage.use_stderr() { exit::INVALID } else { exit::SUCCESS });
        }
    };
    job_arguments::set(command.settings().job_arguments());
    let terminal = Terminal::stderr();
    match execute(name, &job, &command, extensions, &terminal) {
        Ok(()) => ExitCode::from(exit::SUCCESS),
        Err(error) => {
            terminal.print(&message::failure(&error));
            ExitCode::from(exit::code(error.kind()))
        }
    }
}

fn execute(
    name: &str,
    job: &Job,
    command: &Command,
    extensions: &Extensions,
    terminal: &Arc<Terminal>,
) -> Result<(), CliError> {
    let settings = Settings::gather(Facts {
        name: name.to_owned(),
        cores: std::thread::available_parallelism().map_or(1, NonZero::get).try_into().unwrap_or(u32::MAX),
        config: command.settings().config(),
        variables: std::env::vars_os().collect(),
        flags: command.settings().layer(),
        ..Facts::default()
    })?;
    logging::start(&settings, terminal);
    for name in &settings.unknown_variables {
        tracing::warn!("{}", message::unknown_variable(name));
    }
    let opening = Opening::new(&settings, extensions);
    match command {
        Command::Run(arguments) if arguments.print_settings => write_out(&settings.to_toml()),
        Command::Run(_) => run::run(job, &settings, extensions, terminal),
        Command::Plan(arguments) => write_out(&plan::describe(job, &settings, arguments.dot)?),
        Command::Checkpoints(arguments) => match &arguments.command {
            None => list_checkpoints(&settings, &settings.job.name, opening, arguments.json),
            Some(CheckpointsCommand::List(list)) => {
                list_checkpoints(&settings, &settings.job.name, opening, list.flags.json)
            }
            Some(CheckpointsCommand::Verify(verify)) => say(inspect::verify(&verify.flags, &settings, opening)?),
            Some(CheckpointsCommand::Fsck(fsck)) => say(inspect::fsck(&fsck.flags, &settings, opening)?),
        },
        Command::Savepoint(arguments) => match &arguments.command {
            SavepointCommand::Create(create) => write_out(&savepoint::create(&create.flags, &settings, opening)?),
            SavepointCommand::List(list) => write_out(&savepoint::list(&list.flags, &settings, opening)?),
            SavepointCommand::Dispose(dispose) => write_out(&savepoint::dispose(&dispose.flags.path, opening)?),
            SavepointCommand::Verify(verify) => say(inspect::verify_savepoint(&verify.flags.path, opening)?),
        },
        Command::State(arguments) => show_state(&arguments.command, &settings, extensions),
        Command::Rescale(_) => write_out(&savepoint::rescale(&settings)?),
        Command::Stop(arguments) => write_out(&savepoint::stop(arguments, &settings)?),
    }
}

/// Writes what was found before it is judged.
fn say((text, judgement): (String, Result<(), CliError>)) -> Result<(), CliError> {
    write_out(&text)?;
    judgement
}

fn show_state(
    command: &state::arguments::StateCommand,
    settings: &Settings,
    extensions: &Extensions,
) -> Result<(), CliError> {
    state::run(command, settings, extensions, &mut io::BufWriter::new(io::stdout()))
}

fn list_checkpoints(settings: &Settings, job: &str, opening: Opening<'_>, json: bool) -> Result<(), CliError> {
    let place = settings.checkpoints.as_ref().ok_or(CliError::NoCheckpointDirectory)?;
    let storage = opening.for_reading(place)?.storage;
    let rows = checkpoints::rows(&History::new(storage, job)?)?;
    write_out(&if json { checkpoints::to_json(&rows) } else { checkpoints::to_text(job, &rows) })
}

/// A reader that has seen enough (`| head`) is no failure.
fn write_out(text: &str) -> Result<(), CliError> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(source) if source.kind() != io::ErrorKind::BrokenPipe => Err(CliError::Output { source }),
        _ => Ok(()),
    }
}
