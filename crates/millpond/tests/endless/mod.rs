//! The example `endless` as a running process, and what it has written.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::examples::example;

/// Long enough for the slowest machine; nothing is decided by it.
const PATIENCE: Duration = Duration::from_secs(60);

/// All lines of the visible files in `directory`.
pub(crate) fn lines(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let visible =
        entries.map(|entry| entry.unwrap()).filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
    let texts = visible.map(|entry| fs::read_to_string(entry.path()).unwrap());
    texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// A running example that counts for ever.
pub(crate) struct Endless {
    pub(crate) process: Child,
    directory: PathBuf,
    state: &'static str,
    /// The flag that names the job, if it has another name than the program.
    name: String,
}

impl Endless {
    pub(crate) fn start(directory: &Path, flags: &str) -> Endless {
        Endless::start_in(directory, "state", "out", flags)
    }

    /// With its state in `state` and its output in `out`, below `directory`.
    pub(crate) fn start_in(directory: &Path, state: &'static str, out: &str, flags: &str) -> Endless {
        let arguments = format!("{flags} --state-dir {state} --checkpoint-interval 50ms -- {out} 2000");
        let process = example("endless", directory, &arguments).stderr(Stdio::piped()).spawn().unwrap();
        let name = flags.split_once("--name ").and_then(|(_, rest)| rest.split_whitespace().next());
        let name = name.map_or(String::new(), |name| format!("--name {name}"));
        Endless { process, directory: directory.to_owned(), state, name }
    }

    /// Another command of the same program about the same job.
    pub(crate) fn ask(&self, command: &str) -> std::process::Output {
        let arguments = format!("{command} --state-dir {} {}", self.state, self.name);
        example("endless", &self.directory, &arguments).output().unwrap()
    }

    /// Waits for the end of the process.
    pub(crate) fn end(&mut self) -> ExitStatus {
        self.process.wait().unwrap()
    }

    /// The newest epoch that is listed, 0 for none.
    pub(crate) fn epoch(&self) -> u64 {
        let list = self.ask("checkpoints --json");
        let Ok(json) = serde_json::from_slice::<serde_json::Value>(&list.stdout) else { return 0 };
        json.as_array().unwrap().last().map_or(0, |row| row["checkpoint"]["epoch"].as_u64().unwrap())
    }

    pub(crate) fn wait_for_epoch(&mut self, epoch: u64) {
        let begun = Instant::now();
        while self.epoch() < epoch {
            assert_eq!(self.process.try_wait().unwrap(), None, "the job ended early");
            assert!(begun.elapsed() < PATIENCE, "no epoch {epoch} for {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
