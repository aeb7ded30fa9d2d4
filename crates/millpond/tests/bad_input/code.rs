//! Functions of the user that fail, and job functions that cannot be built.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use millpond::prelude::*;
use millpond::storage::MemoryStorage;
use millpond::{Components, ErrorKind, JobError, JobSettings, RestartPolicy};

use crate::support::{assert_says, run, settings, words};

const FIXED: RestartPolicy = RestartPolicy::Fixed { restarts: 2, delay_ms: 1 };

/// How a function fails on record 7, and how often.
#[derive(Clone)]
struct Trouble {
    panics: bool,
    left: Arc<AtomicU32>,
}

impl Trouble {
    fn new(panics: bool, times: u32) -> Self {
        Trouble { panics, left: Arc::new(AtomicU32::new(times)) }
    }

    fn look_at(&self, number: u64) -> UserResult<u64> {
        let fails =
            number == 7 && self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok();
        assert!(!(fails && self.panics), "number {number} is too much");
        if fails { Err(format!("number {number} is refused").into()) } else { Ok(number) }
    }
}

fn job(trouble: &Trouble, out: &Collector<(u64, u64)>) -> impl Fn(&mut Dataflow) -> UserResult + Send + Sync + use<> {
    let (trouble, out) = (trouble.clone(), out.clone());
    move |flow| {
        let trouble = trouble.clone();
        let checked = flow.from_iter("numbers", 0..20u64).try_map(move |number| trouble.look_at(number));
        checked.key_by(|number| number % 2).count("counts").collect("out", &out);
        Ok(())
    }
}

fn attempted(trouble: &Trouble, restart: RestartPolicy, out: &Collector<(u64, u64)>) -> Result<u32, JobError> {
    let components = Components::new(Some(Arc::new(MemoryStorage::new())));
    let settings = JobSettings { restart, ..settings(2) };
    let outcome = run(job(trouble, out), settings, &components).map(|report| report.restarts);
    if outcome.is_err() {
        assert!(out.snapshot().is_empty(), "what failed shows nothing");
        // A correct run from the same checkpoint.
        trouble.left.store(0, Ordering::Relaxed);
        run(job(trouble, out), JobSettings { restart: RestartPolicy::Never, ..JobSettings::default() }, &components)?;
    }
    let mut counts = out.snapshot();
    counts.sort_unstable();
    let expected = (0..2).flat_map(|key| (1..=10).map(move |count| (key, count)));
    assert!(counts.into_iter().eq(expected), "exactly once");
    outcome
}

#[test]
fn an_error_names_operator_subtask_and_cause_and_honours_the_restart_policy() {
    for (panics, cause) in [(false, "number 7 is refused"), (true, "panicked: number 7 is too much")] {
        let error = attempted(&Trouble::new(panics, 9), RestartPolicy::Never, &Collector::new()).unwrap_err();
        let text = words(&error);
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{text}");
        assert!(!text.contains("restarts"), "{text}");
        assert_says(&text, &["operator \"map-1\"", "subtask 0 of 2", "while processing a batch", cause]);

        let error = attempted(&Trouble::new(panics, 9), FIXED, &Collector::new()).unwrap_err();
        assert_says(&words(&error), &["after 2 restarts", "operator \"map-1\"", cause]);

        assert_eq!(attempted(&Trouble::new(panics, 2), FIXED, &Collector::new()).unwrap(), 2);
    }
}

/// The error of a job that cannot be built.
fn unbuilt(job: impl Fn(&mut Dataflow) -> UserResult + Send + Sync + 'static) -> String {
    let storage = Arc::new(MemoryStorage::new());
    let restart = RestartPolicy::Fixed { restarts: 1_000, delay_ms: 1_000 };
    let settings = JobSettings { restart, ..settings(2) };
    let error = run(job, settings, &Components::new(Some(Arc::clone(&storage) as _))).unwrap_err();
    let text = words(&error);
    assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
    assert_eq!(storage.snapshot().iter().count(), 0, "a job that cannot be built claims nothing");
    text
}

#[test]
fn a_job_that_cannot_be_built_is_refused_with_the_places() {
    let twice = unbuilt(|flow| {
        let numbers = flow.from_iter("numbers", 0..3u64).key_by(|number| *number);
        numbers.count("counts");
        numbers.count("counts");
        Ok(())
    });
    assert_says(&twice, &["operator name \"counts\" is used twice"]);
    assert_eq!(twice.matches("code.rs:").count(), 2, "{twice}");
    let unnamed = unbuilt(|flow| {
        flow.from_iter("", 0..3u64);
        Ok(())
    });
    assert_says(&unnamed, &["code.rs:", "name", "empty"]);
    assert_says(&unbuilt(|_| Ok(())), &["the job has no source"]);
    assert_says(&unbuilt(|_| Err("no table of prices".into())), &["the job could not be built: no table of prices"]);
    assert_says(&unbuilt(|_| panic!("prices are gone")), &["the job function panicked: prices are gone"]);
    let none = unbuilt(|flow| {
        let _ = flow.from_iter("numbers", 0..3u64).map(|number| number).parallelism(0);
        Ok(())
    });
    assert_says(&none, &["map-1", "parallelism must be at least 1"]);
}

#[test]
fn a_source_without_records_is_no_error() {
    let out = Collector::new();
    let inside = out.clone();
    let job = move |flow: &mut Dataflow| {
        flow.from_iter("numbers", std::iter::empty::<u64>()).collect("out", &inside);
        Ok(())
    };
    run(job, settings(2), &Components::new(Some(Arc::new(MemoryStorage::new())))).unwrap();
    assert!(out.take().is_empty());
}

#[test]
fn a_job_function_that_builds_different_graphs_is_refused_with_the_difference() {
    let calls = AtomicU32::new(0);
    let job = move |flow: &mut Dataflow| {
        let call = calls.fetch_add(1, Ordering::Relaxed);
        flow.from_iter("numbers", 0..3u64).key_by(|number| *number).count(&format!("counts {call}"));
        Ok(())
    };
    let restart = RestartPolicy::Fixed { restarts: 1_000, delay_ms: 1_000 };
    let components = Components::new(Some(Arc::new(MemoryStorage::new())));
    let error = run(job, JobSettings { restart, ..settings(3) }, &components).unwrap_err();
    let text = words(&error);
    assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
    assert_says(&text, &["the job function built different graphs", "counts 1", "same one every time"]);
    assert!(!text.contains('\n'), "{text}");
}
