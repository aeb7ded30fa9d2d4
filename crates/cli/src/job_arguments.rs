//! What stands after `--` on the command line: for the job itself.

use std::sync::OnceLock;

static JOB_ARGUMENTS: OnceLock<Vec<String>> = OnceLock::new();

/// The arguments after `--` on the command line. Empty outside of a process that [`crate::main()`] runs.
///
/// They are the same on every worker and in every attempt, so that a job may be built from them.
#[must_use]
pub fn args() -> Vec<String> {
    JOB_ARGUMENTS.get().cloned().unwrap_or_default()
}

/// Remembers them; the first call counts.
pub(crate) fn set(arguments: &[String]) {
    let _ = JOB_ARGUMENTS.set(arguments.to_vec());
}
