//! A process of a job that `local-cluster` has started does not outlive it.
//!
//! Where the system can send a signal to the children of a process that dies (Linux), each child asks for it when it starts.

use std::process::Command;

/// Tells a child the id of the process that supervises it.
const VARIABLE: &str = "MILLPOND_SUPERVISOR";

/// Lets what `command` starts end when this process does, however it does.
pub(crate) fn supervise(command: &mut Command) {
    command.env(VARIABLE, std::process::id().to_string());
}

/// When this process was started by a supervisor: asks for SIGTERM at its end, with which the job stops as it does for people.
/// A process that was started by something else between, a shell for example, is left alone.
pub(crate) fn follow() {
    let supervisor = std::env::var(VARIABLE).ok().and_then(|id| id.parse::<i32>().ok());
    if let Some(supervisor) = supervisor
        && let Err(error) = ask(supervisor)
    {
        tracing::warn!(%error, supervisor, "this process will not be ended when the one that supervises it is");
    }
}

#[cfg(target_os = "linux")]
fn ask(supervisor: i32) -> std::io::Result<()> {
    use rustix::process::{Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal};

    if getppid().map(Pid::as_raw_nonzero).map(std::num::NonZero::get) != Some(supervisor) {
        return Ok(());
    }
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // It may have ended just before.
    if getppid().map(Pid::as_raw_nonzero).map(std::num::NonZero::get) != Some(supervisor) {
        kill_process(getpid(), Signal::TERM)?;
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn ask(_: i32) -> std::io::Result<()> {
    Err(std::io::Error::from(std::io::ErrorKind::Unsupported))
}
