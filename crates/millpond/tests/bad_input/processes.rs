//! Jobs as processes: what they say on standard error, and their exit codes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::examples::example;
use crate::support::PATIENCE;

/// A process that has ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// The error line, without `error: `; there is exactly one, and no panic reaches the terminal.
    pub(crate) fn complaint(&self) -> &str {
        assert!(!self.stderr.contains("panicked at"), "{}", self.stderr);
        let errors: Vec<&str> = self.stderr.lines().filter_map(|line| line.strip_prefix("error: ")).collect();
        assert_eq!(errors.len(), 1, "{}", self.stderr);
        errors[0]
    }

    /// Checks the exit code and the words of the error.
    pub(crate) fn refused(&self, code: i32, parts: &[&str]) {
        println!("{code} | {}", self.complaint());
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        crate::support::assert_says(self.complaint(), parts);
    }

    /// Checks that it succeeded.
    pub(crate) fn succeeded(&self) {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
    }
}

/// A process that is killed when nobody waits for it any more.
pub(crate) struct Running {
    pub(crate) child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Running {
    /// Starts it; what it says goes to files beside the job, called after `name`.
    pub(crate) fn start(mut command: Command, directory: &Path, name: &str) -> Running {
        let [stdout, stderr] = ["stdout", "stderr"].map(|stream| directory.join(format!("{name}.{stream}")));
        let to = |path: &PathBuf| Stdio::from(fs::File::create(path).unwrap());
        let child = command.stdout(to(&stdout)).stderr(to(&stderr)).spawn().unwrap();
        Running { child, stdout, stderr }
    }

    /// Watches a process whose standard output goes elsewhere.
    pub(crate) fn watch(child: Child, stderr: &Path) -> Running {
        Running { child, stdout: stderr.to_owned(), stderr: stderr.to_owned() }
    }

    /// Asks it to stop with a last checkpoint.
    pub(crate) fn stop(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", "TERM", &pid]).status().unwrap().success());
    }

    /// Waits for its end; fails when that does not come.
    pub(crate) fn wait(mut self) -> Ended {
        let begun = Instant::now();
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None => assert!(begun.elapsed() < PATIENCE, "the process hangs"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let read = |path: &PathBuf| fs::read_to_string(path).unwrap();
        Ended { code: status.code(), stdout: read(&self.stdout), stderr: read(&self.stderr) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs an example to its end.
pub(crate) fn ended(name: &str, directory: &Path, arguments: &str) -> Ended {
    Running::start(example(name, directory, arguments), directory, name).wait()
}

/// All lines of the visible files in `directory`, sorted.
pub(crate) fn lines(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let visible =
        entries.map(|entry| entry.unwrap()).filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
    let texts = visible.map(|entry| fs::read_to_string(entry.path()).unwrap());
    let mut lines: Vec<String> = texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    lines.sort_unstable();
    lines
}

/// Checks lines such as `[KEY,COUNT]`: every key's counts go from 1 on without a gap. Says how many there are.
pub(crate) fn check_counts(directory: &Path) -> usize {
    let lines = lines(directory);
    let mut counts: Vec<(u64, u64)> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    counts.sort_unstable();
    let mut expected = (u64::MAX, 0);
    for (key, count) in counts {
        expected = if key == expected.0 { (key, expected.1 + 1) } else { (key, 1) };
        assert_eq!((key, count), expected, "a count is missing or stands twice");
    }
    lines.len()
}
