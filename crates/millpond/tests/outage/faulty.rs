//! A store that fails on purpose, from a fault layer.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use millpond::ErrorKind;
use millpond::storage::{Effect, FaultPlan, FaultRule, Faults, MemoryStorage, Operation};

use millpond::prelude::*;

use crate::{Running, chain, expected, settings, sorted};

fn store(plan: &FaultPlan) -> Arc<Faults<MemoryStorage>> {
    Arc::new(Faults::new(MemoryStorage::new(), plan.clone()))
}

#[test]
fn cf_an_outage_within_patience_makes_checkpoints_late_and_fails_nothing() {
    let (plan, out) = (FaultPlan::new(1), Collector::new());
    let job = Running::start(store(&plan), settings(60_000), &out);
    job.wait_for_epoch(2);
    plan.add(FaultRule::new(Effect::FailBefore));
    job.flow_for(Duration::from_millis(600));
    let during = job.epoch();
    plan.clear();
    job.wait_for_epoch(during + 2);
    assert_eq!(job.finish().unwrap().restarts, 0);
    assert_eq!(sorted(&out), expected());
}

#[test]
fn cf_an_outage_beyond_patience_ends_the_job_with_an_error_that_names_the_storage() {
    let (plan, out) = (FaultPlan::new(1), Collector::new());
    let job = Running::start(store(&plan), settings(300), &out);
    job.wait_for_epoch(2);
    plan.add(FaultRule::new(Effect::FailBefore));
    let error = job.fail();
    let text = chain(&error);
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{text}");
    assert!(text.contains("gave up on memory after"), "{text}");
}

#[test]
fn cf_a_storage_with_errors_in_every_fifth_call_and_lost_answers_gives_the_same_output_without_restarts() {
    let (plan, out) = (FaultPlan::new(7), Collector::new());
    plan.add(FaultRule::new(Effect::FailBefore).chance(100));
    plan.add(FaultRule::new(Effect::LoseRequest).chance(50));
    plan.add(FaultRule::new(Effect::FailAfter).chance(50));
    let job = Running::start(store(&plan), settings(60_000), &out);
    job.flow_for(Duration::from_secs(1));
    assert_eq!(job.finish().unwrap().restarts, 0);
    assert_eq!(sorted(&out), expected());
    assert!(plan.injected() > 10, "{}", plan.injected());
}

#[test]
fn cf_a_storage_that_always_lies_about_creates_gives_the_same_output() {
    let (plan, out) = (FaultPlan::new(7), Collector::new());
    // Every second create happens and says that it may not have.
    plan.add(FaultRule::new(Effect::FailAfter).on(Operation::Create).chance(500));
    let job = Running::start(store(&plan), settings(60_000), &out);
    job.flow_for(Duration::from_secs(1));
    assert_eq!(job.finish().unwrap().restarts, 0);
    assert_eq!(sorted(&out), expected());
}

#[test]
fn cf_a_slow_storage_makes_few_checkpoints_and_the_same_output() {
    let (plan, out) = (FaultPlan::new(1), Collector::new());
    plan.before_each_call(|_, _| std::thread::sleep(Duration::from_millis(100)));
    let job = Running::start(store(&plan), settings(60_000), &out);
    job.flow_for(Duration::from_secs(1));
    assert_eq!(job.finish().unwrap().restarts, 0);
    assert_eq!(sorted(&out), expected());
}

/// From the first create of a run on, calls hang until the sender is dropped.
fn hang_after_epoch_2(plan: &FaultPlan) -> std::sync::mpsc::Sender<()> {
    let (release, held) = channel::<()>();
    let held = Mutex::new(held);
    plan.before_each_call(move |operation, _| {
        if operation == Operation::Create {
            let _ = held.lock().map(|held| held.recv());
        }
    });
    release
}

#[test]
fn cf_a_hung_call_is_given_up_and_its_repetition_succeeds() {
    let (plan, out) = (FaultPlan::new(1), Collector::new());
    let job = Running::start(store(&plan), settings(60_000), &out);
    job.wait_for_epoch(2);
    let release = hang_after_epoch_2(&plan);
    job.flow_for(Duration::from_millis(700));
    let during = job.epoch();
    plan.clear();
    drop(release);
    job.wait_for_epoch(during + 2);
    assert_eq!(job.finish().unwrap().restarts, 0);
    assert_eq!(sorted(&out), expected());
}

#[test]
fn cf_a_call_that_never_ends_does_not_hold_up_the_end_of_the_attempt() {
    let (plan, out) = (FaultPlan::new(1), Collector::new());
    // Patience for a day, but the checkpoint has only half a second.
    let mut settings = settings(86_400_000);
    settings.storage.timeout_ms = 86_400_000;
    settings.checkpoints.timeout_ms = 500;
    let job = Running::start(store(&plan), settings, &out);
    job.wait_for_epoch(2);
    let _release = hang_after_epoch_2(&plan);
    let started = Instant::now();
    assert_eq!(job.fail().kind(), ErrorKind::Unavailable);
    assert!(started.elapsed() < Duration::from_secs(60), "the attempt ended after {:?}", started.elapsed());
}

#[test]
fn cf_snapshots_of_failed_checkpoints_do_not_pile_up() {
    let (plan, out) = (FaultPlan::new(1), Collector::new());
    let mut settings = settings(86_400_000);
    settings.checkpoints.timeout_ms = 100;
    settings.checkpoints.tolerable_failures = u32::MAX;
    settings.uploads.kept_bytes = 300;
    let job = Running::start(store(&plan), settings, &out);
    job.wait_for_epoch(2);
    plan.add(FaultRule::new(Effect::FailBefore).on(Operation::Create));
    let error = job.fail();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = chain(&error);
    assert!(text.contains("bytes of snapshots of failed checkpoints wait for memory, 300 are allowed"), "{text}");
}
