//! The other side of the control socket: asks a running job and waits for its answer.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use millpond_core::ErrorKind;

use super::server::short_name;
use super::{DIRECTORY, Outcome, Reply, Request};
use crate::error::CliError;

/// Asks the job that runs in `state_directory`. Waits as long as it takes.
///
/// # Errors
/// [`CliError::NotRunning`] when no job listens there, [`CliError::Refused`] when it does not do what it
/// is asked for, [`CliError::Control`] when the connection breaks: then it may have done it.
pub(crate) fn ask(state_directory: &Path, request: &Request) -> Result<Outcome, CliError> {
    let not_running = || CliError::NotRunning { directory: state_directory.to_owned() };
    let broken = |source| CliError::Control { directory: state_directory.to_owned(), source };
    let directory = match File::open(state_directory.join(DIRECTORY)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(not_running()),
        other => other.map_err(broken)?,
    };
    let mut stream = match UnixStream::connect(short_name(&directory)) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Err(not_running());
        }
        other => other.map_err(broken)?,
    };
    let mut line = serde_json::to_string(request).map_err(|error| broken(error.into()))?;
    line.push('\n');
    stream.write_all(line.as_bytes()).map_err(broken)?;
    let mut answer = String::new();
    BufReader::new(&stream).read_line(&mut answer).map_err(broken)?;
    if answer.is_empty() {
        let gone = io::Error::new(io::ErrorKind::UnexpectedEof, "the job ended without an answer");
        return Err(broken(gone));
    }
    match serde_json::from_str(&answer).map_err(|error| broken(error.into()))? {
        Reply::Ok(outcome) => Ok(outcome),
        Reply::Error { message, kind } => Err(CliError::Refused { message, kind: kind_of(&kind) }),
    }
}

fn kind_of(text: &str) -> ErrorKind {
    let kinds = [
        ErrorKind::Unavailable,
        ErrorKind::Uncertain,
        ErrorKind::Fenced,
        ErrorKind::Corrupt,
        ErrorKind::Invalid,
        ErrorKind::Bug,
    ];
    kinds.into_iter().find(|kind| kind.to_string() == text).unwrap_or(ErrorKind::Bug)
}
