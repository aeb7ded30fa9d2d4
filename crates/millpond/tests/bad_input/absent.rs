//! Input and output that was moved, added or taken away between starts, or under a running job.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millpond::prelude::*;
use millpond::storage::MemoryStorage;
use millpond::{Components, JobOutcome, JobSettings, RestartPolicy};

use crate::processes::{ended, lines};
use crate::support::{run, settings};

#[test]
fn a_finished_job_started_again_after_its_output_was_removed_is_still_finished() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.txt"), "a\n").unwrap();
    let arguments = "-w 2 --state-dir s -- lines a.txt out";
    ended("misbehave", directory.path(), arguments).succeeded();
    fs::remove_dir_all(directory.path().join("out")).unwrap();
    let again = ended("misbehave", directory.path(), arguments);
    again.succeeded();
    assert!(again.stderr.contains("the job has finished already"), "{}", again.stderr);
}

#[test]
fn a_job_started_elsewhere_finds_its_input_and_its_output_where_they_are() {
    let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(directory.path().join("a.txt"), "a\n").unwrap();
    ended("misbehave", directory.path(), "-w 2 --state-dir s -- lines a.txt out").succeeded();
    let state = directory.path().join("s");
    // The same words mean other paths here; what the checkpoint holds does not.
    let arguments = format!("-w 2 --state-dir {} -- lines a.txt out", state.display());
    let again = ended("misbehave", elsewhere.path(), &arguments);
    again.succeeded();
    assert_eq!(lines(&directory.path().join("out")), ["a"]);
    assert!(!again.stderr.contains("not there any more"), "{}", again.stderr);
}

#[test]
fn the_cause_of_a_failure_is_told_once() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("cut.gz"), [0x1f, 0x8b, 8, 0, 0, 0, 0, 0]).unwrap();
    let damaged = ended("misbehave", directory.path(), "-w 1 -- lines cut.gz out");
    damaged.refused(4, &["cut.gz is not a whole gzip file"]);
    assert_eq!(damaged.stderr.matches("is not a whole gzip file").count(), 1, "{}", damaged.stderr);
}

#[test]
fn rs_26_a_stop_while_the_job_waits_for_a_restart_is_a_stop() {
    let components = Components::new(Some(Arc::new(MemoryStorage::new())));
    let stop = Arc::clone(&components.stop);
    let job = move |flow: &mut Dataflow| {
        let stop = Arc::clone(&stop);
        let failing = flow.from_iter("numbers", 0..10u64).try_map(move |_| -> UserResult<u64> {
            stop.stop();
            Err("not now".into())
        });
        failing.collect("out", &Collector::new());
        Ok(())
    };
    let restart = RestartPolicy::Fixed { restarts: 1_000, delay_ms: 3_600_000 };
    let report = run(job, JobSettings { restart, ..settings(1) }, &components).unwrap();
    assert_eq!((report.outcome, report.restarts), (JobOutcome::Stopped, 0));
}

#[test]
fn an_output_directory_removed_under_a_running_job_costs_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let (inside, removed) = (out.clone(), Arc::new(AtomicBool::new(false)));
    let job = move |flow: &mut Dataflow| {
        let (out, removed) = (inside.clone(), Arc::clone(&removed));
        let numbers = flow.from_iter("numbers", 0..10u64).inspect(move |number| {
            if *number == 5 && !removed.swap(true, Ordering::Relaxed) {
                fs::remove_dir_all(&out).unwrap();
            }
        });
        numbers.sink("out", FileSink::lines(&inside));
        Ok(())
    };
    let restart = RestartPolicy::Fixed { restarts: 1, delay_ms: 1 };
    let components = Components::new(Some(Arc::new(MemoryStorage::new())));
    let report = run(job, JobSettings { restart, ..settings(1) }, &components).unwrap();
    assert_eq!((report.outcome, report.restarts), (JobOutcome::Finished, 1));
    assert_eq!(lines(&out).len(), 10);
}
