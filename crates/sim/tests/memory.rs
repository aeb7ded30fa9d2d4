//! Jobs whose keyed state does not fit into memory, in the test driver.

use std::collections::BTreeMap;

use millpond_operators::{KeyedStreamOperators, StreamOperators};
use millpond_sim::{TestDriver, TestFlow, TestInput, TestOutput, TestStream};

#[test]
fn a_job_counts_right_with_everything_cold_through_kills_and_rescales() {
    let (numbers, counts) = (TestInput::new(), TestOutput::new());
    let job = |flow: &mut millpond_dataflow::Dataflow| {
        let numbers = flow.test_input("numbers", &numbers);
        numbers.key_by(|number: &u64| number % 300).count("count").test_output("counts", &counts);
        Ok(())
    };
    let mut driver = TestDriver::builder().memory_budget(0).build(job).unwrap();
    let mut expected = BTreeMap::new();
    for round in 0..12u32 {
        for number in 0..700u64 {
            numbers.push(number * u64::from(round + 1));
            *expected.entry(number * u64::from(round + 1) % 300).or_insert(0u64) += 1;
        }
        driver.run().unwrap();
        let snapshot = driver.checkpoint().unwrap();
        // Lost with the driver, and read again after the restore.
        numbers.push(u64::from(round));
        *expected.entry(u64::from(round)).or_insert(0) += 1;
        driver.run().unwrap();
        driver.kill();
        // From cold to cold, and from cold to all in memory.
        let builder = TestDriver::builder().parallelism(1 + round % 3);
        let builder = if round % 4 == 3 { builder } else { builder.memory_budget(0) };
        driver = builder.restore(job, &snapshot).unwrap();
        driver.run().unwrap();
    }
    for (key, count) in expected {
        let held = driver.keyed_state::<u64, u64>("count", "accumulator", &key).unwrap();
        assert_eq!(held, Some(count), "key {key}");
    }
    driver.finish().unwrap();
}
