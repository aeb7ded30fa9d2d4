//! Operators without state, one behaviour each.

use std::cell::RefCell;
use std::rc::Rc;

use millpond_core::UserResult;
use millpond_dataflow::{Dataflow, ProcessContext, SideTag, Stream};
use millpond_operators::{Process, StreamOperators};
use millpond_sim::{SimError, TestDriver, TestFlow, TestInput, TestOutput, TestStream};

const ODD: SideTag<String> = SideTag::new("odd");

/// Runs `pipeline` over `records` and returns what it emits.
fn outputs<T: millpond_core::Data, U: millpond_core::Data>(
    parallelism: u32,
    records: impl IntoIterator<Item = T>,
    pipeline: impl Fn(Stream<T>) -> Stream<U>,
) -> Result<Vec<U>, SimError> {
    let (input, output) = (TestInput::new(), TestOutput::new());
    let job = |flow: &mut Dataflow| {
        pipeline(flow.test_input("in", &input)).test_output("out", &output);
        Ok(())
    };
    let mut driver = TestDriver::builder().parallelism(parallelism).build(job)?;
    records.into_iter().for_each(|record| input.push(record));
    driver.run()?;
    Ok(output.take())
}

#[test]
fn map_changes_every_record_in_order() {
    let doubled = outputs(1, 0..3_000u64, |numbers| numbers.map(|n| n * 2)).unwrap();
    assert!(doubled.into_iter().eq((0..3_000).map(|n| n * 2)));
}

#[test]
fn filter_keeps_what_the_predicate_likes() {
    assert_eq!(outputs(1, 0..10u64, |numbers| numbers.filter(|n| n % 3 == 0)).unwrap(), [0, 3, 6, 9]);
}

#[test]
fn flat_map_emits_any_number_of_records_for_one() {
    let words = outputs(1, ["a b", "", "c"].map(str::to_owned), |lines| {
        lines.flat_map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    });
    assert_eq!(words.unwrap(), ["a", "b", "c"]);
}

#[test]
fn a_record_that_becomes_very_many_passes_whole_and_in_order() {
    let many = outputs(1, 0..4u64, |numbers| numbers.flat_map(|n| (0..30_000u64).map(move |i| (n, i))).map(|n| n));
    assert!(many.unwrap().into_iter().eq((0..4).flat_map(|n| (0..30_000).map(move |i| (n, i)))));
}

#[test]
fn inspect_sees_every_record_and_changes_none() {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let record = Rc::clone(&seen);
    let out = outputs(1, 0..5u64, move |numbers| {
        let record = Rc::clone(&record);
        numbers.inspect(move |n| record.borrow_mut().push(*n))
    });
    assert_eq!(out.unwrap(), *seen.borrow());
}

#[test]
fn union_has_the_records_of_both_streams() {
    let mut both = outputs(2, 0..10u64, |numbers| {
        let even = numbers.filter(|n| n % 2 == 0);
        let odd = numbers.filter(|n| n % 2 == 1).map(|n| n + 100);
        even.union(&odd)
    })
    .unwrap();
    both.sort_unstable();
    assert_eq!(both, [0, 2, 4, 6, 8, 101, 103, 105, 107, 109]);
}

#[test]
fn the_branches_of_a_stream_each_see_all_of_it() {
    let twice = outputs(1, 0..3u64, |numbers| numbers.map(|n| n).union(&numbers.map(|n| n * 10))).unwrap();
    let sum: u64 = twice.iter().sum();
    assert_eq!((twice.len(), sum), (6, 33));
}

#[test]
fn rebalance_loses_and_doubles_nothing() {
    let mut all = outputs(4, 0..5_000u64, |numbers| numbers.rebalance().map(|n| n)).unwrap();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..5_000));
}

#[test]
fn broadcast_gives_every_record_to_every_subtask() {
    let mut all = outputs(3, 0..4u64, |numbers| numbers.broadcast().map(|n| n)).unwrap();
    all.sort_unstable();
    assert_eq!(all, [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]);
}

/// Sends odd numbers aside, as text.
struct Split;

impl Process for Split {
    type Input = u64;
    type Output = u64;

    fn process(
        &mut self,
        record: u64,
        _context: &mut ProcessContext<'_>,
        output: &mut millpond_dataflow::Output<u64>,
    ) -> UserResult {
        if record % 2 == 1 {
            output.emit_side(ODD, format!("odd {record}"));
        } else {
            output.emit(record);
        }
        Ok(())
    }
}

#[test]
fn side_outputs_have_records_of_another_type() {
    let side = outputs(1, 0..5u64, |numbers| numbers.process("split", Split).side_output(ODD)).unwrap();
    assert_eq!(side, ["odd 1", "odd 3"]);
    let main = outputs(1, 0..5u64, |numbers| numbers.process("split", Split)).unwrap();
    assert_eq!(main, [0, 2, 4]);
}

#[test]
fn an_error_of_user_code_names_operator_and_subtask() {
    let failed = outputs(1, 0..5u64, |numbers| numbers.try_map(|n| if n == 3 { Err("three".into()) } else { Ok(n) }));
    let Err(SimError::Subtask(error)) = failed else { panic!("{failed:?}") };
    assert_eq!((error.operator.as_str(), error.index, error.parallelism), ("map-1", 0, 1));
    assert_eq!(error.cause.to_string(), "three");
}

#[test]
fn a_panic_of_user_code_is_an_error_of_its_operator() {
    let failed = outputs(1, 0..5u64, |numbers| {
        numbers.map(|n| if n == 3 { std::panic::resume_unwind(Box::new("boom")) } else { n })
    });
    let Err(SimError::Subtask(error)) = failed else { panic!("{failed:?}") };
    assert_eq!(error.cause.to_string(), "panicked: boom");
}

/// Emits the event time of each record.
struct Times;

impl Process for Times {
    type Input = u64;
    type Output = (u64, Option<i64>);

    fn process(
        &mut self,
        record: u64,
        context: &mut ProcessContext<'_>,
        output: &mut millpond_dataflow::Output<Self::Output>,
    ) -> UserResult {
        output.emit((record, context.timestamp()));
        Ok(())
    }
}

#[test]
fn wm_19_times_pass_through_map_filter_union_and_exchanges() {
    let (input, output) = (TestInput::new(), TestOutput::new());
    let job = |flow: &mut Dataflow| {
        let numbers = flow.test_input("in", &input).map(|n: u64| n + 1).filter(|n| *n != 3);
        let mapped = numbers.flat_map(|n| [n, n]).rebalance().inspect(|_| {}).union(&numbers.filter(|n| *n == 1));
        mapped.process("times", Times).test_output("out", &output);
        Ok(())
    };
    let mut driver = TestDriver::builder().parallelism(2).build(job).unwrap();
    input.push_at(0, 100);
    input.push_at(2, 102);
    input.push(3);
    input.push_at(4, -5);
    driver.run().unwrap();
    let mut found = output.take();
    found.sort_unstable();
    let expected = [1, 1, 1, 4, 4, 5, 5].map(|n| (n, [None, Some(100), None, None, None, Some(-5)][n as usize]));
    assert_eq!(found, expected);
}

#[test]
fn a_job_without_source_or_with_a_name_used_twice_does_not_build() {
    assert!(matches!(TestDriver::build(|_| Ok(())), Err(SimError::Graph(_))));
    let (input, output) = (TestInput::<u64>::new(), TestOutput::new());
    let job = |flow: &mut Dataflow| {
        let numbers = flow.test_input("in", &input);
        numbers.test_output("out", &output);
        numbers.test_output("out", &output);
        Ok(())
    };
    let error = TestDriver::build(job).map(drop).unwrap_err();
    assert!(millpond_core::error::chain(&error).contains("\"out\" is used twice"), "{error}");
}
