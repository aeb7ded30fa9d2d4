//! `millpond local-cluster` with a real job.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "outside of test functions, but only called by them")]

#[path = "../../millpond/tests/examples/mod.rs"]
mod examples;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use examples::example;

/// Long enough for the slowest machine; nothing is decided by it.
const PATIENCE: Duration = Duration::from_secs(120);

fn local_cluster(directory: &Path, processes: u32, job: &Command) -> Child {
    local_cluster_with(&[], directory, processes, job)
}

fn local_cluster_with(options: &[&str], directory: &Path, processes: u32, job: &Command) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millpond"));
    command.args(["local-cluster", "-n", &processes.to_string()]).args(options).arg("--");
    command.arg(job.get_program()).args(job.get_args()).current_dir(directory);
    let said = std::fs::File::create(directory.join("said")).unwrap();
    command.stdout(Stdio::null()).stderr(said).spawn().unwrap()
}

fn said(directory: &Path) -> String {
    std::fs::read_to_string(directory.join("said")).unwrap()
}

fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap().success());
}

/// The id that a process of the job had when it was started first.
fn pid_of(directory: &Path, process: u32) -> u32 {
    let started = format!("started process={process} ");
    let line = said(directory).lines().find(|line| line.contains(&started)).unwrap().to_owned();
    line.split("pid=").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap()
}

fn wait_until(directory: &Path, what: &str, reached: impl Fn() -> bool) {
    let begun = Instant::now();
    while !reached() {
        assert!(begun.elapsed() < PATIENCE, "not {what}: {}", said(directory));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn epoch(directory: &Path) -> u64 {
    let list = example("endless", directory, "checkpoints --json --state-dir state").output().unwrap();
    let Ok(json) = serde_json::from_slice::<serde_json::Value>(&list.stdout) else { return 0 };
    json.as_array().unwrap().last().map_or(0, |row| row["checkpoint"]["epoch"].as_u64().unwrap())
}

#[test]
fn a_process_that_dies_is_started_again_and_a_signal_ends_all() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let job = example("endless", at, "-w 1 --state-dir state --checkpoint-interval 50ms -- out 2000");
    let mut cluster = local_cluster(at, 3, &job);
    wait_until(at, "running", || epoch(at) >= 2);
    signal(pid_of(at, 1), "KILL");
    wait_until(at, "restarted", || said(at).contains("died, starting it again"));
    let reached = epoch(at);
    wait_until(at, "going on", || epoch(at) >= reached + 3);
    signal(cluster.id(), "TERM");
    assert_eq!(cluster.wait().unwrap().code(), Some(0), "{}", said(at));
}

#[cfg(target_os = "linux")]
#[test]
fn no_process_of_a_job_outlives_a_supervisor_that_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let job = example("endless", at, "-w 1 --state-dir state --checkpoint-interval 50ms -- out 2000");
    let mut cluster = local_cluster(at, 2, &job);
    wait_until(at, "running", || epoch(at) >= 2);
    let pids = [pid_of(at, 0), pid_of(at, 1)];
    signal(cluster.id(), "KILL");
    assert_eq!(cluster.wait().unwrap().code(), None);
    let runs = |pid: &u32| {
        // The third field of the line is the state; what is before it may hold spaces.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')')
            .next()
            .is_some_and(|fields| !fields.trim().is_empty() && !fields.trim().starts_with(['Z', 'X']))
    };
    wait_until(at, "ended", || !pids.iter().any(runs));
    // They have stopped as for anybody who asks: with a checkpoint, and nothing is locked.
    let again =
        example("endless", at, "-w 1 --state-dir state --checkpoint-interval 50ms -- out 2000").spawn().unwrap();
    let reached = epoch(at);
    wait_until(at, "going on", || epoch(at) > reached);
    signal(again.id(), "TERM");
    assert_eq!({ again }.wait().unwrap().code(), Some(0));
}

#[test]
fn the_code_of_a_job_that_cannot_run_is_that_of_the_cluster() {
    let directory = tempfile::tempdir().unwrap();
    let job = example("endless", directory.path(), "-w 1");
    let code = local_cluster(directory.path(), 2, &job).wait().unwrap().code();
    assert_eq!(code, Some(2), "{}", said(directory.path()));
    assert!(said(directory.path()).contains("give an output directory"));
}

#[test]
fn a_program_without_the_feature_tls_says_so() {
    if Command::new("openssl").arg("version").output().is_err() {
        eprintln!("SKIPPED: there is no openssl here");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let job = example("endless", at, "-w 1 --state-dir state -- out 2000");
    let code = local_cluster_with(&["--tls"], at, 2, &job).wait().unwrap().code();
    assert_eq!(code, Some(2), "{}", said(at));
    assert!(said(at).contains("built without the feature \"tls\""), "{}", said(at));
}
