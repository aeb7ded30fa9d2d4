//! Jobs run inside a program of their own.

use std::sync::Arc;

use millpond::prelude::*;
use millpond::storage::MemoryStorage;
use millpond::{Components, ErrorKind, JobOutcome, JobSettings, RestartPolicy};

fn settings(workers: u32) -> JobSettings {
    JobSettings { workers, ..JobSettings::default() }
}

#[test]
fn every_worker_count_gives_the_same_counts() {
    for workers in [1, 2, 3] {
        let out = Collector::new();
        let inside = out.clone();
        let job = move |flow: &mut Dataflow| {
            flow.from_iter("numbers", 0..1_000u64)
                .key_by(|number| number % 7)
                .fold("sums", 0, |sum: &mut u64, number| *sum += number)
                .collect("out", &inside);
            Ok(())
        };
        let report = millpond::run(job, &settings(workers)).unwrap();
        assert_eq!((report.outcome, report.restarts), (JobOutcome::Finished, 0));
        let mut last = [0; 7];
        for (key, sum) in out.take() {
            last[usize::try_from(key).unwrap()] = sum;
        }
        let expected: Vec<u64> = (0..7).map(|key| (0..1_000).filter(|number| number % 7 == key).sum()).collect();
        assert_eq!(last, *expected, "{workers} workers");
    }
}

#[test]
fn a_panic_names_operator_subtask_and_cause() {
    let job = |flow: &mut Dataflow| {
        let keyed = flow.from_iter("numbers", 0..10u64).key_by(|number| *number);
        keyed.fold("checks", 0, |sum: &mut u64, number| {
            assert!(number < 5, "number {number} is too large");
            *sum += number;
        });
        Ok(())
    };
    let settings = JobSettings { restart: RestartPolicy::Never, ..settings(1) };
    let error = millpond::run(job, &settings).unwrap_err().to_string();
    assert!(error.contains("operator \"checks\", subtask 0 of 1"), "{error}");
    assert!(error.contains("panicked: number 5 is too large"), "{error}");
}

#[test]
fn a_job_that_cannot_be_built_is_invalid() {
    let error = millpond::run(|_| Ok(()), &settings(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[test]
fn a_second_run_on_the_same_storage_has_nothing_left_to_do() {
    let components = Components::new(Some(Arc::new(MemoryStorage::new())));
    let out = Collector::new();
    for _ in 0..2 {
        let inside = out.clone();
        let job = move |flow: &mut Dataflow| {
            flow.from_iter("numbers", 0..10u64).collect("out", &inside);
            Ok(())
        };
        millpond::run_with(job, &settings(2), &components).unwrap();
    }
    let mut numbers = out.take();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..10));
}

#[test]
fn records_may_derive_through_the_facade() {
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(crate = "millpond::serde")]
    struct Flight {
        carrier: String,
    }
    let out = Collector::new();
    let inside = out.clone();
    let job = move |flow: &mut Dataflow| {
        flow.from_iter("flights", [Flight { carrier: "AA".to_owned() }]).collect("out", &inside);
        Ok(())
    };
    millpond::run(job, &settings(1)).unwrap();
    assert_eq!(out.take(), [Flight { carrier: "AA".to_owned() }]);
}

#[test]
fn a_running_job_answers_questions_about_its_state() {
    let components = Components::new(Some(Arc::new(MemoryStorage::new())));
    let query = components.query();
    let ask = |key: u64| query.value::<u64, u64>("counts", "accumulator", &key);
    assert_eq!(ask(3).unwrap_err().kind(), ErrorKind::Unavailable, "nothing runs yet");
    let inside = components.clone();
    let running = std::thread::spawn(move || {
        let job = |flow: &mut Dataflow| {
            flow.source("numbers", GeneratorSource::new(u64::MAX, 2, |number| number).rate(50_000))
                .key_by(|number| number % 7)
                .count("counts");
            Ok(())
        };
        millpond::run_with(job, &settings(2), &inside)
    });
    for key in 0..7 {
        loop {
            match ask(key) {
                Ok(Some(count)) if count > 10 => break,
                Ok(_) => std::thread::yield_now(),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
            }
        }
    }
    assert_eq!(ask(7).unwrap(), None, "a key that never comes has no value");
    let mut keys = query.keys::<u64>("counts", "accumulator").unwrap();
    keys.sort_unstable();
    assert_eq!(keys, [0, 1, 2, 3, 4, 5, 6]);
    let wrong = query.value::<u64, u64>("counts", "count", &3).unwrap_err().to_string();
    assert_eq!(wrong, "operator \"counts\" has no keyed state \"count\", only accumulator");
    for error in [
        query.value::<u64, u64>("sums", "accumulator", &3).unwrap_err(),
        query.value::<String, u64>("counts", "accumulator", &"3".to_owned()).unwrap_err(),
        query.value::<u64, String>("counts", "accumulator", &3).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    components.stop.stop();
    running.join().unwrap().unwrap();
    assert_eq!(ask(3).unwrap_err().kind(), ErrorKind::Unavailable, "nothing runs any more");
}
