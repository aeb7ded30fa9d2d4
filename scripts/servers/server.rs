//! Real servers for tests, started and stopped by the scripts beside this file. Test suites of several crates include it.

#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "only called by tests")]
#![allow(dead_code, clippy::allow_attributes, reason = "not every suite stops and restarts its server")]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use serde_json::Value;

/// A server that runs until it is dropped.
pub(crate) struct Server {
    script: PathBuf,
    directory: tempfile::TempDir,
    pub(crate) facts: Value,
}

impl Server {
    /// Starts the server of `scripts/servers/KIND`; `None`, and a loud word, where it cannot be installed.
    pub(crate) fn start(kind: &str) -> Option<Server> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/servers").join(kind);
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let facts = call(&script, directory.path())?;
        Some(Server { script, directory, facts })
    }

    pub(crate) fn text(&self, fact: &str) -> &str {
        self.facts[fact].as_str().unwrap()
    }

    /// Where its files are.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The ids of its processes.
    fn pids(&self) -> Vec<u64> {
        match &self.facts["pids"] {
            Value::Array(pids) => pids.iter().map(|pid| pid.as_u64().unwrap()).collect(),
            _ => vec![self.facts["pid"].as_u64().unwrap()],
        }
    }

    /// Sends a signal to its processes: `STOP`, `CONT`, `KILL`.
    pub(crate) fn signal(&self, signal: &str) {
        for pid in self.pids() {
            let status = Command::new("kill").args([format!("-{signal}"), pid.to_string()]).status().unwrap();
            assert!(status.success());
        }
    }

    /// Stops it in good order.
    pub(crate) fn stop(&self) -> ExitStatus {
        Command::new(&self.script).arg("stop").arg(self.directory.path()).status().unwrap()
    }

    /// Starts it again, on the same data and ports, after it was killed or stopped.
    pub(crate) fn restart(&mut self) {
        self.facts = call(&self.script, self.directory.path()).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = Command::new(&self.script).arg("stop").arg(self.directory.path()).status();
    }
}

fn call(script: &Path, directory: &Path) -> Option<Value> {
    // What is installed is shared by all runs in one target directory.
    let installed = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("servers");
    let mut command = Command::new(script);
    if std::env::var_os("MILLPOND_SERVERS").is_none() {
        command.env("MILLPOND_SERVERS", installed);
    }
    let output = command.arg("start").arg(directory).stderr(std::process::Stdio::inherit()).output().unwrap();
    if output.status.code() == Some(3) {
        eprintln!("SKIPPED: {} cannot be installed here; nothing was tested", script.display());
        return None;
    }
    assert!(output.status.success(), "{} failed: {}", script.display(), output.status);
    Some(serde_json::from_slice(&output.stdout).unwrap())
}
