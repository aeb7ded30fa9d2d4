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
    let arguments = ("job arguments".to_owned(), job_arguments::args().join(" "));
    given.chain([arguments]).chain(binary().map(|hash| ("binary".to_owned(), hash))).collect()
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
    fn a_program_is_known_by_a_hash() {
        let hash = binary().unwrap();
        assert_eq!((hash.len(), binary().unwrap()), (16, hash));
    }
}
