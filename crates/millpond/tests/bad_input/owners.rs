//! Two processes that want one job.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millpond::checkpoint::{Publisher, RestoreFrom, WriterId};
use millpond::prelude::*;
use millpond::storage::MemoryStorage;
use millpond::{Components, ErrorKind, JobSettings, RestartPolicy};

use crate::examples::example;
use crate::processes::{Running, check_counts, ended};
use crate::support::{PATIENCE, assert_says, run, settings, words};

/// Starts the endless job with state directory `state` and the common checkpoint directory.
fn start(directory: &Path, state: &str, workers: u32) -> Running {
    let flags =
        format!("-w {workers} --state-dir {state} --checkpoint-dir checkpoints --checkpoint-interval 20ms -- out 4000");
    Running::start(example("endless", directory, &flags), directory, state)
}

/// Waits until the newest checkpoint is of an attempt after `attempt`, and of an epoch after `epoch`.
fn wait_for(directory: &Path, attempt: u64, epoch: u64) -> (u64, u64) {
    let begun = Instant::now();
    loop {
        let list = ended("endless", directory, "checkpoints --checkpoint-dir checkpoints --json");
        if let Ok(rows) = serde_json::from_str::<serde_json::Value>(&list.stdout)
            && let Some(newest) = rows.as_array().unwrap().last()
        {
            let number = |key: &str| newest["checkpoint"][key].as_u64().unwrap();
            if number("attempt") > attempt && number("epoch") > epoch {
                return (number("attempt"), number("epoch"));
            }
        }
        assert!(begun.elapsed() < PATIENCE, "no checkpoint after epoch {epoch}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_older_of_two_processes_on_one_checkpoint_directory_is_fenced_and_says_by_whom() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("checkpoints")).unwrap();
    let mut older = start(directory.path(), "state-0", 2);
    let (mut attempt, mut epoch) = wait_for(directory.path(), 0, 1);
    for round in 1..=4 {
        let newer = start(directory.path(), &format!("state-{round}"), 1 + round % 3);
        let fenced = older.wait();
        fenced.refused(3, &[&format!("attempt {attempt} is fenced by attempt {}", attempt + 1)]);
        let reached = wait_for(directory.path(), attempt, epoch + 2);
        assert_eq!(reached.0, attempt + 1, "the fenced one did not come back");
        (attempt, epoch) = reached;
        older = newer;
    }
    older.stop();
    older.wait().succeeded();
    assert!(check_counts(&directory.path().join("out")) > 0);
}

#[test]
fn two_processes_with_one_state_directory_are_told_apart_by_the_lock() {
    let directory = tempfile::tempdir().unwrap();
    let first = start(directory.path(), "state", 1);
    wait_for(directory.path(), 0, 1);
    let second = ended("endless", directory.path(), "-w 1 --state-dir state -- out");
    second.refused(3, &["state directory state is in use by process", &first.child.id().to_string()]);
    first.stop();
    first.wait().succeeded();
    assert!(check_counts(&directory.path().join("out")) > 0);
}

#[test]
fn a_job_that_fails_because_it_was_fenced_does_not_come_back() {
    for panics in [false, true] {
        let storage = Arc::new(MemoryStorage::new());
        let out = Collector::new();
        let inside = (out.clone(), Arc::clone(&storage));
        let job = move |flow: &mut Dataflow| {
            let (out, storage) = inside.clone();
            // Somebody else starts the job; whatever this one does then, it may fail at it.
            let numbers = flow.from_iter("numbers", 0..10u64).try_map(move |number: u64| {
                if number == 5 {
                    let other = Publisher::new(Arc::clone(&storage), "job", WriterId(5))?;
                    other.fence(RestoreFrom::Latest, 16, 0)?;
                    assert!(!panics, "the file is gone");
                    return Err("the file is gone".into());
                }
                Ok(number)
            });
            numbers.collect("out", &out);
            Ok(())
        };
        let restart = RestartPolicy::Fixed { restarts: 1_000, delay_ms: 1_000 };
        let components = Components::new(Some(Arc::clone(&storage) as _));
        let error = run(job, JobSettings { restart, ..settings(1) }, &components).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
        assert_says(&words(&error), &["attempt 1 is fenced by attempt 2"]);
        assert!(out.snapshot().is_empty());
    }
}
