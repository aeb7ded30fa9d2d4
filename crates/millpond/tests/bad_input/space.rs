//! Full disks and missing rights, at checkpoint storage.

use std::sync::Arc;

use millpond::prelude::*;
use millpond::storage::{Effect, FaultPlan, FaultRule, Faults, LocalStorage, MemoryStorage, Operation, Storage};
use millpond::{Components, ErrorKind, JobSettings, RestartPolicy};

use crate::support::{assert_says, run, settings, words};

fn numbers(out: &Collector<u64>) -> impl Fn(&mut Dataflow) -> UserResult + Send + Sync + use<> {
    let out = out.clone();
    move |flow| {
        // One split: two would be read in turn, in pieces that depend on how busy the machine is.
        let source = GeneratorSource::new(300, 1, |index| index).rate(1_000);
        flow.source("numbers", source)
            .key_by(|number| number % 7)
            .fold("sums", 0, |sum: &mut u64, number| *sum += number)
            .map(|(_, sum)| sum)
            .collect("out", &out);
        Ok(())
    }
}

/// All sums that a run without trouble gives, sorted.
fn expected() -> Vec<u64> {
    let mut sums = [0; 7];
    let mut all: Vec<u64> = (0..300u64)
        .map(|number| {
            let sum = &mut sums[usize::try_from(number % 7).unwrap()];
            *sum += number;
            *sum
        })
        .collect();
    all.sort_unstable();
    all
}

fn sorted(out: &Collector<u64>) -> Vec<u64> {
    let mut all = out.snapshot();
    all.sort_unstable();
    all
}

/// One worker and one split, so that sums come in one order; a checkpoint every 20 ms. What fails is not
/// repeated, so that it is for the restarts.
fn patient(restart: RestartPolicy) -> JobSettings {
    let mut settings = JobSettings { restart, ..settings(1) };
    settings.storage.patience_ms = 0;
    settings.checkpoints.interval_ms = Some(20);
    settings
}

#[test]
fn cf_a_full_checkpoint_storage_ends_the_job_as_unavailable_and_space_lets_it_go_on() {
    println!("disk full at checkpoint storage: simulated by a fault layer");
    for under in ["job/manifests/", "job/"] {
        let plan = FaultPlan::new(1);
        let storage = Faults::new(MemoryStorage::new(), plan.clone());
        let components = Components::new(Some(Arc::new(storage)));
        let out = Collector::new();
        // The fence is written, then the disk is full.
        plan.add(FaultRule::new(Effect::Full).on(Operation::Create).under(under).after(1));
        let restart = RestartPolicy::Fixed { restarts: 1, delay_ms: 1 };
        let error = run(numbers(&out), patient(restart.clone()), &components).unwrap_err();
        let text = words(&error);
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{text}");
        assert_says(&text, &["after 1 restarts", "cannot create", "storage is full"]);
        plan.clear();
        run(numbers(&out), patient(restart), &components).unwrap();
        assert_eq!(sorted(&out), expected());
    }
}

#[test]
fn cf_a_storage_that_is_full_for_a_while_costs_restarts_and_nothing_else() {
    let plan = FaultPlan::new(1);
    let components = Components::new(Some(Arc::new(Faults::new(MemoryStorage::new(), plan.clone()))));
    let out = Collector::new();
    plan.add(FaultRule::new(Effect::Full).on(Operation::Create).after(2).times(12));
    let report = run(numbers(&out), patient(RestartPolicy::Fixed { restarts: 20, delay_ms: 1 }), &components).unwrap();
    assert!(report.restarts > 0, "{report:?}");
    assert_eq!(sorted(&out), expected());
}

#[test]
fn a_storage_without_the_right_to_write_is_refused_at_once() {
    // Root may write anywhere, and in no directory with a file in its way.
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("job"), "in the way").unwrap();
    let storage: Arc<dyn Storage> = Arc::new(LocalStorage::open(directory.path()).unwrap());
    let out = Collector::new();
    let restart = RestartPolicy::Fixed { restarts: 1_000, delay_ms: 1_000 };
    let error = run(numbers(&out), patient(restart), &Components::new(Some(storage))).unwrap_err();
    let text = words(&error);
    assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
    assert_says(&text, &["job", "a file is where a directory would have to be"]);
    assert!(out.snapshot().is_empty());
}

#[test]
fn checkpoints_that_vanish_under_a_running_job_are_not_replaced_by_a_fresh_start() {
    let storage = Arc::new(MemoryStorage::new());
    let out = Collector::new();
    let inside = (out.clone(), Arc::clone(&storage));
    let job = move |flow: &mut Dataflow| {
        let (out, storage) = inside.clone();
        let numbers = flow.from_iter("numbers", 0..10u64).try_map(move |number: u64| {
            if number == 5 {
                storage.restore(MemoryStorage::new().snapshot());
                return Err("gone".into());
            }
            Ok(number)
        });
        numbers.collect("out", &out);
        Ok(())
    };
    let settings = JobSettings { restart: RestartPolicy::Fixed { restarts: 2, delay_ms: 1 }, ..settings(1) };
    let error = run(job, settings, &Components::new(Some(storage))).unwrap_err();
    assert_says(&words(&error), &["no manifest is left, though attempt 1 has written one"]);
    assert!(out.snapshot().is_empty());
}
