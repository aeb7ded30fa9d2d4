//! Sources, sinks and operator state across kills, restores and other parallelisms.

use std::collections::BTreeSet;

use millpond_core::hash::stable_hash;
use millpond_core::{Epoch, KeyHash, MaxParallelism, UserResult};
use millpond_dataflow::{Dataflow, OpenContext, Output, ProcessContext};
use millpond_operators::{KeyedStreamOperators, Process, StreamOperators};
use millpond_runtime::RestoreError;
use millpond_sim::{SimError, TestDriver, TestFlow, TestInput, TestOutput, TestStream};

/// Counts numbers; the source runs on `sources` subtasks, the count on all.
fn classic(
    input: &TestInput<u64>,
    output: &TestOutput<(u64, u64)>,
    sources: u32,
) -> impl Fn(&mut Dataflow) -> UserResult {
    move |flow| {
        let numbers = flow.test_input("numbers", input).parallelism(sources);
        numbers.key_by(|n: &u64| *n).count("count").test_output("out", output);
        Ok(())
    }
}

#[test]
fn the_classic_example_five_splits_one_to_two_sources_keyed_two_to_three() {
    let (input, output) = (TestInput::with_splits(5), TestOutput::new());
    let mut driver = TestDriver::builder().parallelism(2).build(classic(&input, &output, 1)).unwrap();
    // Split s holds s + 1 times ten numbers, so that every position is another.
    for split in 0..5u64 {
        (0..10 * (split + 1)).for_each(|n| input.push_to(split as usize, n));
    }
    let snapshot = driver.checkpoint().unwrap();
    let before: Vec<Vec<(u64, u64)>> = driver.operator_list("numbers", "splits").unwrap();
    assert_eq!(before.len(), 1);
    let positions: BTreeSet<(u64, u64)> = before[0].iter().copied().collect();
    assert_eq!(positions, (0..5).map(|split| (split, 10 * (split + 1))).collect());
    // After the checkpoint: read once now, and once more by the restored job.
    (0..5).for_each(|split| input.push_to(split, 1_000));
    driver.run().unwrap();
    driver.kill();

    let mut driver = TestDriver::builder().parallelism(3).restore(classic(&input, &output, 2), &snapshot).unwrap();
    // OS-10: five elements on two subtasks are runs of three and two.
    let after: Vec<Vec<(u64, u64)>> = driver.operator_list("numbers", "splits").unwrap();
    assert_eq!(after, [before[0][..3].to_vec(), before[0][3..].to_vec()]);
    // KG-04, KG-05: a key's state is with the subtask whose range holds its group.
    let max = MaxParallelism::default();
    for number in 0..50u64 {
        let group = KeyHash::from_stable(stable_hash(&number, &mut Vec::new()).unwrap(), max).group();
        let owner = driver.owner_of("count", &number).unwrap();
        assert_eq!(owner, max.owner_of(group, 3));
        assert!(max.range_of(owner, 3).contains(group));
        let count = driver.keyed_state::<u64, u64>("count", "accumulator", &number).unwrap();
        assert_eq!(count, Some(5 - number / 10), "number {number}");
    }
    assert_eq!(driver.keyed_state::<u64, u64>("count", "accumulator", &1_000).unwrap(), None);
    driver.finish().unwrap();
    let count = driver.keyed_state::<u64, u64>("count", "accumulator", &1_000).unwrap();
    assert_eq!(count, Some(5), "nothing is lost, nothing read twice");
    let mut committed = output.committed();
    committed.sort_unstable();
    let mut expected: Vec<(u64, u64)> = (0..50).flat_map(|n| (1..=5 - n / 10).map(move |count| (n, count))).collect();
    expected.extend((1..=5).map(|count| (1_000, count)));
    assert_eq!(committed, expected);
}

#[test]
fn sr_04_output_is_committed_with_its_epoch_and_never_twice() {
    let (input, output) = (TestInput::with_splits(2), TestOutput::new());
    let mut driver = TestDriver::builder().parallelism(2).build(classic(&input, &output, 2)).unwrap();
    (0..10).for_each(|n| input.push(n));
    driver.run().unwrap();
    assert_eq!((output.take().len(), output.committed().len()), (10, 0), "emitted, not committed");
    let snapshot = driver.checkpoint().unwrap();
    assert_eq!(output.committed().len(), 10);
    driver.kill();
    for parallelism in [1, 3, 2] {
        let driver = TestDriver::builder().parallelism(parallelism).restore(classic(&input, &output, 1), &snapshot);
        driver.unwrap().kill();
        assert_eq!(output.committed().len(), 10, "committing again changes nothing");
    }
}

#[test]
fn an_input_that_is_closed_ends_and_stays_ended_after_a_restore() {
    let (input, output) = (TestInput::with_splits(2), TestOutput::new());
    let mut driver = TestDriver::build(classic(&input, &output, 1)).unwrap();
    (0..4).for_each(|n| input.push(n));
    input.close();
    let snapshot = driver.checkpoint().unwrap();
    let mut driver = TestDriver::builder().parallelism(2).restore(classic(&input, &output, 2), &snapshot).unwrap();
    driver.finish().unwrap();
    assert_eq!(output.committed().len(), 4);
}

/// Counts records in raw state, a piece per subtask.
#[derive(Default)]
struct Tally(u64);

impl Process for Tally {
    type Input = u64;
    type Output = u64;

    fn open(&mut self, context: &mut OpenContext<'_>) -> UserResult {
        let pieces = context.states.raw_pieces().iter();
        self.0 = pieces.map(|piece| piece.len() as u64).sum();
        Ok(())
    }

    fn process(&mut self, _record: u64, _: &mut ProcessContext<'_>, _: &mut Output<u64>) -> UserResult {
        self.0 += 1;
        Ok(())
    }

    fn snapshot(&mut self, _epoch: Epoch, context: &mut ProcessContext<'_>) -> UserResult {
        context.operator_states_mut().set_raw_pieces([vec![0; self.0 as usize]]);
        Ok(())
    }

    fn on_end(&mut self, _context: &mut ProcessContext<'_>, output: &mut Output<u64>) -> UserResult {
        output.emit(self.0);
        Ok(())
    }
}

#[test]
fn os_16_raw_pieces_are_dealt_out_like_a_list() {
    let (input, output) = (TestInput::new(), TestOutput::new());
    let job = |flow: &mut Dataflow| {
        flow.test_input("in", &input).rebalance().process("tally", Tally::default()).test_output("out", &output);
        Ok(())
    };
    let mut driver = TestDriver::builder().parallelism(4).build(job).unwrap();
    // More than fits inside a manifest, in many batches.
    (0..100_000).for_each(|n| input.push(n));
    let snapshot = driver.checkpoint().unwrap();
    driver.kill();
    let mut driver = TestDriver::builder().parallelism(3).restore(job, &snapshot).unwrap();
    (0..10).for_each(|n| input.push(n));
    driver.finish().unwrap();
    assert_eq!(output.committed().iter().sum::<u64>(), 100_010);
}

#[test]
fn rs_11_state_of_an_operator_that_is_gone_is_refused() {
    let (input, output) = (TestInput::new(), TestOutput::new());
    let mut driver = TestDriver::build(classic(&input, &output, 1)).unwrap();
    input.push(1);
    let snapshot = driver.checkpoint().unwrap();
    let renamed = |flow: &mut Dataflow| {
        flow.test_input("numbers", &input).key_by(|n: &u64| *n).count("tally").test_output("out", &output);
        Ok(())
    };
    let error = TestDriver::restore(renamed, &snapshot).map(drop).unwrap_err();
    assert!(matches!(&error, SimError::Restore(RestoreError::UnknownOperator { operator, .. }) if operator == "count"));
}

#[test]
fn rs_07_another_number_of_key_groups_is_refused() {
    let (input, output) = (TestInput::new(), TestOutput::new());
    let mut driver = TestDriver::builder().max_parallelism(16).build(classic(&input, &output, 1)).unwrap();
    let snapshot = driver.checkpoint().unwrap();
    let other = TestDriver::builder().max_parallelism(32).restore(classic(&input, &output, 1), &snapshot);
    assert!(matches!(other, Err(SimError::Restore(RestoreError::MaxParallelism { stored: 16, given: 32 }))));
    let too_many = TestDriver::builder().parallelism(17).restore(classic(&input, &output, 1), &snapshot);
    assert!(matches!(too_many, Err(SimError::Parallelism(_))));
}

#[test]
fn a_slow_reader_of_short_channels_still_gets_everything() {
    let (input, output) = (TestInput::with_splits(3), TestOutput::new());
    let builder = TestDriver::builder().parallelism(3).channel_records(4);
    let mut driver = builder.build(classic(&input, &output, 3)).unwrap();
    (0..5_000).for_each(|n| input.push(n % 700));
    driver.checkpoint().unwrap();
    assert_eq!(output.committed().len(), 5_000);
}
