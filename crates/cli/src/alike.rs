//! What must be alike in all processes of a job, beside what the job manager compares by itself.

use std::fs;

use millpond_core::hash::hash_bytes;

use crate::job_arguments;
use crate::settings::{Setting, Settings};

/// Settings that decide what the job does; all others may differ between its processes.
const DECISIVE: [Setting; 3] = [Setting::CheckpointDir, Setting::From, Setting::AllowDroppedState];

/// Names and values for the comparison of processes.
pub(crate) fn facts(settings: &Settings) -> Vec<(String, String)> {
    let given = DECISIVE.iter().filter_map(|setting| Some((setting.key().to_owned(), settings.text(*setting)?)));
    let arguments = ("job arguments".to_owned(), hashes(&job_arguments::args()));
    given.chain([arguments]).chain(binary().map(|hash| ("binary".to_owned(), hash))).collect()
}

/// A line for each argument, with a hash of it: it may be a secret, and travels to whoever asks.
fn hashes(arguments: &[String]) -> String {
    let line =
        |(at, argument): (usize, &String)| format!("number {}: {:016x}", at + 1, hash_bytes(argument.as_bytes()));
    arguments.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
}

/// A hash of the running program.
fn binary() -> Option<String> {
    let path = std::env::current_exe().ok()?;
    // Still the running one when its file has been replaced meanwhile.
    let bytes = fs::read("/proc/self/exe").or_else(|_| fs::read(path)).ok()?;
    Some(format!("{:016x}", hash_bytes(&bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_compared_without_being_shown() {
        let args = |last: &str| hashes(&["--user".to_owned(), last.to_owned()]);
        assert!(!args("hunter2").contains("hunter2"));
        assert_ne!(args("hunter2").lines().nth(1), args("hunter3").lines().nth(1));
        assert_eq!(args("hunter2").lines().next(), args("hunter3").lines().next());
    }

    #[test]
    fn a_program_is_known_by_a_hash() {
        let hash = binary().unwrap();
        assert_eq!((hash.len(), binary().unwrap()), (16, hash));
    }
}
