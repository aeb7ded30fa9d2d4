//! Real processes of one job: killed, stopped, started with wrong settings, and with other numbers.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "outside of test functions, but only called by them")]

mod examples;

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use examples::example;

/// Long enough for the slowest machine; nothing is decided by it.
const PATIENCE: Duration = Duration::from_secs(120);

/// Addresses that were free a moment ago.
fn free_hosts(processes: usize) -> Vec<String> {
    let listeners: Vec<_> = (0..processes).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    listeners.iter().map(|listener| listener.local_addr().unwrap().to_string()).collect()
}

/// The processes of the job `endless` in one directory.
struct Cluster {
    directory: PathBuf,
    hosts: Vec<String>,
    workers: u32,
    children: Vec<Child>,
}

impl Cluster {
    fn start(directory: &Path, processes: usize, workers: u32) -> Cluster {
        let hosts = free_hosts(processes);
        let mut cluster = Cluster { directory: directory.to_owned(), hosts, workers, children: Vec::new() };
        for process in 0..processes {
            let child = cluster.spawn(process);
            cluster.children.push(child);
        }
        cluster
    }

    fn flags(&self, process: usize) -> String {
        let (hosts, workers) = (self.hosts.join(","), self.workers);
        format!("--hosts {hosts} --process {process} -w {workers} --heartbeat 200ms --lost-after 1s")
    }

    fn spawn(&self, process: usize) -> Child {
        let flags = self.flags(process);
        let settings = "--state-dir state --checkpoint-interval 50ms --restart fixed:1000:50ms";
        let mut command = example("endless", &self.directory, &format!("{flags} {settings} -- out 2000"));
        let said = fs::File::options().create(true).append(true).open(self.said(process)).unwrap();
        command.stderr(said).spawn().unwrap()
    }

    fn said(&self, process: usize) -> PathBuf {
        self.directory.join(format!("said-{process}"))
    }

    fn signal(&self, process: usize, name: &str) {
        let pid = self.children[process].id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    fn kill(&mut self, process: usize) {
        self.children[process].kill().unwrap();
        self.children[process].wait().unwrap();
    }

    fn start_again(&mut self, process: usize) {
        self.children[process] = self.spawn(process);
    }

    /// The newest epoch that is listed, 0 for none.
    fn epoch(&self) -> u64 {
        let list = example("endless", &self.directory, "checkpoints --json --state-dir state").output().unwrap();
        let Ok(json) = serde_json::from_slice::<serde_json::Value>(&list.stdout) else { return 0 };
        json.as_array().unwrap().last().map_or(0, |row| row["checkpoint"]["epoch"].as_u64().unwrap())
    }

    /// Waits until the job has gone on for some epochs.
    fn wait_for_progress(&self) {
        let (begun, from) = (Instant::now(), self.epoch());
        while self.epoch() < from + 3 {
            assert!(begun.elapsed() < PATIENCE, "no progress: {}", self.all_said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn wait_until_said(&self, process: usize, words: &str) {
        let begun = Instant::now();
        while !fs::read_to_string(self.said(process)).unwrap().contains(words) {
            assert!(begun.elapsed() < PATIENCE, "{words:?} is not said: {}", self.all_said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn all_said(&self) -> String {
        let said = |process| fs::read_to_string(self.said(process)).unwrap_or_default();
        (0..self.children.len()).map(|process| format!("\n== {process}:\n{}", said(process))).collect()
    }

    /// Asks one process to stop; all must end well.
    fn stop(mut self, asked: usize) {
        self.signal(asked, "TERM");
        let codes: Vec<_> = self.children.iter_mut().map(|child| child.wait().unwrap().code()).collect();
        assert!(codes.iter().all(|code| *code == Some(0)), "{codes:?}: {}", self.all_said());
        assert!(!self.all_said().contains("panicked"), "{}", self.all_said());
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// All lines of the visible files in `directory`.
fn lines(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let visible = entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
    let texts = visible.map(|entry| fs::read_to_string(entry.path()).unwrap());
    texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// Every count of every key is there once: 1, 2, 3, …
fn check_counts(directory: &Path) -> usize {
    let mut counts: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let lines = lines(&directory.join("out"));
    for line in &lines {
        let (key, count): (u64, u64) = serde_json::from_str(line).unwrap();
        counts.entry(key).or_default().push(count);
    }
    assert_eq!(counts.len(), 10);
    for (key, mut seen) in counts {
        seen.sort_unstable();
        assert!(seen.iter().copied().eq(1..=seen.len() as u64), "key {key}: {seen:?}");
    }
    lines.len()
}

#[test]
fn any_process_may_be_killed_and_numbers_changed_and_each_result_is_there_once() {
    let directory = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(directory.path(), 3, 1);
    cluster.wait_for_progress();
    for process in [1, 0, 2] {
        cluster.kill(process);
        cluster.start_again(process);
        cluster.wait_for_progress();
    }
    cluster.stop(1);
    let before = check_counts(directory.path());
    for (processes, workers) in [(2, 2), (1, 3)] {
        let cluster = Cluster::start(directory.path(), processes, workers);
        cluster.wait_for_progress();
        cluster.stop(0);
    }
    assert!(check_counts(directory.path()) > before);
}

#[test]
fn a_running_job_goes_on_with_another_number_of_workers() {
    for processes in [1, 2] {
        let directory = tempfile::tempdir().unwrap();
        let cluster = Cluster::start(directory.path(), processes, 1);
        cluster.wait_for_progress();
        let rescale = |workers: u32| {
            let arguments = format!("rescale --state-dir state --workers {workers}");
            example("endless", directory.path(), &arguments).output().unwrap()
        };
        for workers in [3, 1] {
            let output = rescale(workers);
            let said = String::from_utf8(output.stdout).unwrap();
            assert!(said.starts_with(&format!("goes on with {workers} workers from epoch ")), "{said}");
            cluster.wait_for_progress();
        }
        assert_eq!(rescale(2_000).status.code(), Some(2));
        cluster.wait_for_progress();
        cluster.stop(0);
        check_counts(directory.path());
    }
}

#[test]
fn a_process_that_hangs_is_lost_and_takes_part_again_when_it_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(directory.path(), 3, 1);
    cluster.wait_for_progress();
    cluster.signal(2, "STOP");
    cluster.wait_until_said(0, "no sign of life");
    cluster.signal(2, "CONT");
    cluster.wait_for_progress();
    cluster.signal(0, "STOP");
    cluster.wait_until_said(1, "process 0 is lost");
    cluster.signal(0, "CONT");
    cluster.wait_for_progress();
    cluster.stop(2);
    check_counts(directory.path());
}

#[test]
fn a_leader_that_was_replaced_while_it_hung_is_fenced() {
    let directory = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(directory.path(), 2, 1);
    cluster.wait_for_progress();
    cluster.signal(0, "STOP");
    cluster.wait_until_said(1, "process 0 is lost");
    // Another leader, as on another machine: another address and local directory, the same checkpoints.
    let hosts = free_hosts(2);
    let checkpoints = directory.path().join("state/checkpoints");
    let mut others: Vec<Child> = (0..2)
        .map(|process| {
            let flags = format!("--hosts {} --process {process} -w 1", hosts.join(","));
            let settings = "--state-dir other --checkpoint-interval 50ms --log warn";
            let arguments = format!("{flags} {settings} --checkpoint-dir {} -- out 2000", checkpoints.display());
            example("endless", directory.path(), &arguments).spawn().unwrap()
        })
        .collect();
    cluster.wait_for_progress();
    cluster.signal(0, "CONT");
    assert_eq!(cluster.children[0].wait().unwrap().code(), Some(3), "{}", cluster.all_said());
    cluster.kill(1);
    cluster.wait_for_progress();
    let pid = others[0].id().to_string();
    assert!(Command::new("kill").args(["-s", "TERM", &pid]).status().unwrap().success());
    assert!(others.iter_mut().all(|child| child.wait().unwrap().success()));
    check_counts(directory.path());
}

/// Runs a process to its end; returns its exit code and its last complaint.
fn ended(directory: &Path, arguments: &str) -> (Option<i32>, String) {
    ended_as("endless", directory, arguments)
}

fn ended_as(program: &str, directory: &Path, arguments: &str) -> (Option<i32>, String) {
    finish(example(program, directory, &format!("--log off {arguments}")).stderr(Stdio::piped()).spawn().unwrap())
}

fn finish(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let error = said.lines().find_map(|line| line.strip_prefix("error: ")).unwrap_or(&said);
    (ExitStatus::code(&output.status), error.to_owned())
}

fn assert_refused((code, said): (Option<i32>, String), expected: i32, parts: &[&str]) {
    assert_eq!(code, Some(expected), "{said}");
    assert!(parts.iter().all(|part| said.contains(part)), "{said}");
}

#[test]
fn wrong_hosts_and_indexes_are_refused_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    fs::write(at.join("hosts"), "127.0.0.1:7001\n127.0.0.1:7002 # two\n127.0.0.1:7001\n").unwrap();
    let refused = |arguments: &str, parts: &[&str]| assert_refused(ended(at, arguments), 2, parts);
    refused("--hosts hosts --process 0", &["hosts", "127.0.0.1:7001 is process 0 and process 2"]);
    refused("--hosts 127.0.0.1:1,127.0.0.1:2 --processes 3 --process 0", &["name 2 processes, not 3"]);
    refused("--hosts 127.0.0.1:1,127.0.0.1:2 --process 2", &["there is no process 2 among 2"]);
    refused("--hosts 127.0.0.1:1,127.0.0.1:2", &["process has no value"]);
    refused("--processes 2 --process 0", &["hosts has no value"]);
    refused("--hosts nowhere --process 0", &["\"nowhere\"", "cannot read it"]);
    refused("--hosts 127.0.0.1:1,localhost --process 0", &["line 2 of the hosts is \"localhost\""]);
    refused("--hosts 127.0.0.1:1,127.0.0.1:2 --process 0 --lost-after 600ms", &["at least twice the heartbeat"]);
}

#[test]
fn who_cannot_listen_or_reach_the_others_says_so_and_ends() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap();
    let free = free_hosts(1).remove(0);
    let in_use = ended(at, &format!("--hosts {port},{free} --process 0 --restart never -- out"));
    assert_refused(in_use, 1, &["process 0 cannot listen at", &port.to_string(), "which another process uses"]);
    let hosts = free_hosts(2).join(",");
    let alone = format!("--hosts {hosts} --restart never --peer-wait 500ms");
    assert_refused(ended(at, &format!("{alone} --process 0 -- out")), 1, &["waited 500 ms for process 1"]);
    assert_refused(ended(at, &format!("{alone} --process 1 -- out")), 1, &["cannot reach process 0 at"]);
}

#[test]
fn a_process_of_another_kind_is_refused_with_the_difference() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(directory.path(), 2, 1);
    cluster.wait_for_progress();
    let flags = cluster.flags(1);
    let listen = format!("--listen {} --peer-wait 20s --state-dir second", free_hosts(1)[0]);
    let refused = |program: &str, arguments: &str, code: i32, parts: &[&str]| {
        let ended = ended_as(program, directory.path(), &format!("{flags} {listen} {arguments}"));
        assert_refused(ended, code, parts);
    };
    refused("endless", "--name another -- out 2000", 2, &["this is job \"endless\", not \"another\""]);
    refused("endless", "-- out 3000", 2, &["job arguments is", "\"number 2: "]);
    refused("wordcount", "--name endless -- out 2000", 2, &["binary is"]);
    // The same index a second time: it waits whether the first one is about to be lost.
    let elsewhere = "--checkpoint-dir second/checkpoints -- out 2000";
    refused("endless", elsewhere, 2, &["checkpoint-dir is not set in process 0"]);
    refused("endless", "-- out 2000", 3, &["process 1 of the job runs already"]);
    cluster.wait_for_progress();
    cluster.stop(1);
    check_counts(directory.path());
}

#[test]
fn processes_that_do_not_share_their_checkpoints_are_told_so() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let hosts = free_hosts(2).join(",");
    let started: Vec<Child> = directories
        .iter()
        .enumerate()
        .map(|(process, directory)| {
            let arguments = format!("--hosts {hosts} --process {process} -w 1 --state-dir state --log off -- out");
            example("endless", directory.path(), &arguments).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for child in started {
        assert_refused(finish(child), 2, &["does not hold the checkpoints of process 0"]);
    }
}
