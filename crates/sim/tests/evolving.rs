//! Types of keyed state that change between two starts of a job, in the test driver.

#![expect(clippy::unwrap_used, reason = "outside of test functions, but only called by them")]

use std::ops::Range;

use millpond_operators::{KeyedStreamOperators, StreamOperators};
use millpond_sim::{SimError, Snapshot, TestDriver, TestFlow, TestInput, TestOutput, TestStream};
use serde::{Deserialize, Serialize};

const KEYS: u64 = 100;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Total1 {
    count: u32,
    unused: Option<String>,
    sum: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Total2 {
    #[serde(alias = "sum")]
    total: u64,
    count: u64,
    #[serde(default)]
    last: Option<u64>,
}

/// What there is of one key after numbers were added to it that are below `end`.
fn total_of(key: u64, end: u64) -> (u64, u64) {
    let numbers = (0..end).filter(|number| number % KEYS == key);
    numbers.fold((0, 0), |(count, total), number| (count + 1, total + number))
}

fn first_version(numbers: &TestInput<u64>, cold: bool, end: u64) -> Snapshot {
    let totals = TestOutput::new();
    let job = |flow: &mut millpond_dataflow::Dataflow| {
        let keyed = flow.test_input("numbers", numbers).key_by(|number: &u64| number % KEYS);
        let totals_of_keys = keyed.fold("totals", Total1 { count: 0, unused: None, sum: 0 }, |total, number| {
            (total.count, total.sum) = (total.count + 1, total.sum + number);
        });
        totals_of_keys.test_output("out", &totals);
        Ok(())
    };
    let builder = if cold { TestDriver::builder().memory_budget(0) } else { TestDriver::builder() };
    let mut driver = builder.build(job).unwrap();
    (0..end).for_each(|number| numbers.push(number));
    driver.run().unwrap();
    driver.checkpoint().unwrap()
}

/// Restores `snapshot` with the second type, adds numbers, and checks every key.
fn second_version(
    numbers: &TestInput<u64>,
    cold: bool,
    snapshot: &Snapshot,
    added: Range<u64>,
    parallelism: u32,
) -> Snapshot {
    let totals = TestOutput::new();
    let job = |flow: &mut millpond_dataflow::Dataflow| {
        let keyed = flow.test_input("numbers", numbers).key_by(|number: &u64| number % KEYS);
        let totals_of_keys = keyed.fold("totals", Total2 { total: 0, count: 0, last: None }, |total, number| {
            *total = Total2 { total: total.total + number, count: total.count + 1, last: Some(number) };
        });
        totals_of_keys.test_output("out", &totals);
        Ok(())
    };
    let builder = TestDriver::builder().parallelism(parallelism);
    let builder = if cold { builder.memory_budget(0) } else { builder };
    let mut driver = builder.restore(job, snapshot).unwrap();
    added.clone().for_each(|number| numbers.push(number));
    driver.run().unwrap();
    let snapshot = driver.checkpoint().unwrap();
    for key in 0..KEYS {
        let held = driver.keyed_state::<u64, Total2>("totals", "accumulator", &key).unwrap().unwrap();
        assert_eq!((held.count, held.total), total_of(key, added.end), "key {key}");
    }
    snapshot
}

#[test]
fn se_03_se_05_a_job_goes_on_with_a_changed_type_in_memory_and_in_the_cold_store() {
    for (cold_before, cold_after) in [(false, false), (false, true), (true, false), (true, true)] {
        let numbers = TestInput::new();
        let snapshot = first_version(&numbers, cold_before, 3 * KEYS);
        // Half of the keys change, so that the next start meets rows of both types.
        let snapshot = second_version(&numbers, cold_after, &snapshot, 3 * KEYS..3 * KEYS + KEYS / 2, 2);
        let snapshot = second_version(&numbers, cold_before, &snapshot, 3 * KEYS + KEYS / 2..4 * KEYS - 1, 3);
        second_version(&numbers, cold_after, &snapshot, 4 * KEYS - 1..4 * KEYS - 1, 1);
    }
}

#[test]
fn se_01_se_04_a_changed_type_that_loses_something_is_refused_before_anything_runs() {
    let numbers = TestInput::new();
    let snapshot = first_version(&numbers, false, KEYS);
    for cold in [false, true] {
        let totals = TestOutput::new();
        let job = |flow: &mut millpond_dataflow::Dataflow| {
            let keyed = flow.test_input("numbers", &numbers).key_by(|number: &u64| number % KEYS);
            keyed.fold("totals", (0u64, 0u64), |_, _| {}).test_output("out", &totals);
            Ok(())
        };
        let builder = if cold { TestDriver::builder().memory_budget(0) } else { TestDriver::builder() };
        let error: SimError = builder.restore(job, &snapshot).map(|_| ()).unwrap_err();
        let mut text = error.to_string();
        let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(&error);
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        assert!(text.contains("\"accumulator\"") && text.contains("cannot be read"), "{text}");
    }
}
