//! Async map: order, capacity, marks of event time, failures, and what a checkpoint holds of calls under way.

#![expect(clippy::unwrap_used, reason = "outside of test functions, but only called by them")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use millpond_core::error::chain;
use millpond_core::{UserError, UserResult};
use millpond_dataflow::{Dataflow, SideTag};
use millpond_operators::{
    AsyncError, AsyncMap, BlockingPool, Failed, KeyedStreamOperators, Retry, StreamOperators, WatermarkStrategy,
};
use millpond_sim::{Snapshot, TestDriver, TestDriverBuilder, TestFlow, TestInput, TestOutput, TestStream};
use proptest::prelude::*;

const MS: fn(u64) -> Duration = Duration::from_millis;
const FAILED: SideTag<Failed<u64>> = SideTag::new("failed");
/// Records from here on say how far event time has come.
const MARK: u64 = 1_000_000;

/// Something outside that is called, and answers when the test wants.
#[derive(Clone, Default)]
struct Desk(Rc<RefCell<Calls>>);

#[derive(Default)]
struct Calls {
    /// All calls ever, in order.
    log: Vec<u64>,
    answers: BTreeMap<u64, Result<u64, String>>,
    open: BTreeMap<u64, Waker>,
}

struct Call(Desk, u64);

impl Desk {
    fn call(&self, record: u64) -> Call {
        self.0.borrow_mut().log.push(record);
        Call(self.clone(), record)
    }

    fn answer(&self, record: u64, answer: Result<u64, String>) {
        let mut calls = self.0.borrow_mut();
        calls.answers.insert(record, answer);
        if let Some(waker) = calls.open.remove(&record) {
            drop(calls);
            waker.wake();
        }
    }

    fn succeed(&self, record: u64) {
        self.answer(record, Ok(record * 10));
    }

    fn fail(&self, record: u64) {
        self.answer(record, Err(format!("no {record}")));
    }

    fn log(&self) -> Vec<u64> {
        self.0.borrow().log.clone()
    }

    fn open(&self) -> Vec<u64> {
        self.0.borrow().open.keys().copied().collect()
    }
}

impl Future for Call {
    type Output = UserResult<u64>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<UserResult<u64>> {
        let mut calls = self.0.0.borrow_mut();
        match calls.answers.remove(&self.1) {
            Some(answer) => Poll::Ready(answer.map_err(UserError::from)),
            None => {
                calls.open.insert(self.1, context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.0.0.borrow_mut().open.remove(&self.1);
    }
}

struct Rig {
    input: TestInput<u64>,
    output: TestOutput<u64>,
    failed: TestOutput<Failed<u64>>,
    desk: Desk,
}

impl Rig {
    fn new() -> Self {
        let (input, output, failed) = (TestInput::new(), TestOutput::new(), TestOutput::new());
        Rig { input, output, failed, desk: Desk::default() }
    }

    fn job<'a>(&'a self, how: &'a dyn Fn() -> AsyncMap<u64>) -> impl Fn(&mut Dataflow) -> UserResult + 'a {
        move |flow| {
            let marks = |record: &u64, _| (*record >= MARK).then(|| (*record - MARK) as i64);
            let strategy = WatermarkStrategy::punctuated(marks).timestamps(|record| *record as i64);
            let records = flow.timed_test_input("in", &self.input, strategy).filter(|record| *record < MARK);
            let desk = self.desk.clone();
            let answers = records.async_map("ask", how(), move |record| desk.call(record));
            answers.side_output(FAILED).test_output("failed", &self.failed);
            answers.test_output("out", &self.output);
            Ok(())
        }
    }

    fn push(&self, driver: &mut TestDriver, records: &[u64]) {
        records.iter().for_each(|record| self.input.push(*record));
        driver.run().unwrap();
    }

    /// Lets calls return, one after the other; what came out.
    fn succeed(&self, driver: &mut TestDriver, records: &[u64]) -> Vec<u64> {
        for record in records {
            self.desk.succeed(*record);
            driver.run().unwrap();
        }
        self.output.take()
    }
}

#[test]
fn results_come_in_order_or_as_they_are_there() {
    for (how, expected) in [
        (&(|| AsyncMap::ordered(10)) as &dyn Fn() -> AsyncMap<u64>, vec![10, 20, 30]),
        (&|| AsyncMap::unordered(10), vec![30, 10, 20]),
    ] {
        let rig = Rig::new();
        let mut driver = TestDriver::build(rig.job(how)).unwrap();
        rig.push(&mut driver, &[1, 2, 3]);
        assert_eq!((rig.desk.log(), rig.output.take()), (vec![1, 2, 3], vec![]), "all are called at once");
        assert_eq!(rig.succeed(&mut driver, &[3, 1, 2]), expected);
    }
}

#[test]
fn no_more_records_than_the_capacity_are_under_way_and_the_rest_waits() {
    let rig = Rig::new();
    let how = || AsyncMap::unordered(2);
    let mut driver = TestDriver::build(rig.job(&how)).unwrap();
    rig.push(&mut driver, &(0..5).collect::<Vec<_>>());
    assert_eq!(rig.desk.log(), [0, 1]);
    assert_eq!(rig.succeed(&mut driver, &[1]), [10]);
    assert_eq!(rig.desk.log(), [0, 1, 2]);
    rig.push(&mut driver, &[5, 6]);
    assert_eq!(rig.succeed(&mut driver, &[0, 2, 3, 4, 5, 6]), [0, 20, 30, 40, 50, 60]);
}

#[test]
fn wm_18_marks_do_not_overtake_records_and_records_do_not_overtake_marks() {
    for (how, expected) in [
        (&(|| AsyncMap::ordered(10)) as &dyn Fn() -> AsyncMap<u64>, vec![10, 20, 30, 40]),
        (&|| AsyncMap::unordered(10), vec![20, 10, 40, 30]),
    ] {
        let rig = Rig::new();
        let mut driver = TestDriver::build(rig.job(how)).unwrap();
        for records in [&[1, 2][..], &[MARK + 5], &[3, 4]] {
            rig.push(&mut driver, records);
        }
        rig.desk.succeed(4);
        assert_eq!(driver.watermarks("ask"), [5], "it has heard of it");
        let mut results = rig.succeed(&mut driver, &[2]);
        assert_eq!(driver.watermarks("out"), [i64::MIN], "but keeps it to itself");
        results.extend(rig.succeed(&mut driver, &[1]));
        assert_eq!(driver.watermarks("out"), [5]);
        results.extend(rig.succeed(&mut driver, &[3]));
        assert_eq!(results, expected);
    }
}

#[test]
fn wm_19_results_carry_the_times_of_their_records() {
    let (input, output) = (TestInput::new(), TestOutput::new());
    let job = |flow: &mut Dataflow| {
        let records = flow.test_input("in", &input);
        let doubled = records.async_map("ask", AsyncMap::unordered(3), |record: u64| async move { Ok(record * 2) });
        let times = doubled.key_by(|_| ()).process_with(
            "times",
            |_| Ok(()),
            |(), record, context, output| {
                output.emit((record, context.timestamp()));
                Ok(())
            },
        );
        times.test_output("out", &output);
        Ok(())
    };
    let mut driver = TestDriver::build(job).unwrap();
    input.push_at(1, 7);
    input.push(2);
    driver.run().unwrap();
    assert_eq!(output.take(), [(2, Some(7)), (4, None)]);
}

#[test]
fn a_failure_ends_the_attempt_and_names_operator_record_attempt_and_cause() {
    let rig = Rig::new();
    let how = || AsyncMap::ordered(10).retry(Retry::fixed(1, MS(0)));
    let mut driver = TestDriver::build(rig.job(&how)).unwrap();
    rig.push(&mut driver, &[1]);
    rig.desk.fail(1);
    driver.run().unwrap();
    rig.desk.fail(1);
    let error = chain(&driver.run().unwrap_err());
    assert!(error.contains("\"ask\"") && error.contains("in attempt 2") && error.contains("no 1"), "{error}");
}

#[test]
fn a_failed_call_is_repeated_after_its_pause_and_then_goes_to_the_side_output() {
    let rig = Rig::new();
    let how = || AsyncMap::ordered(10).retry(Retry::backoff(2, MS(100), MS(1_000))).failed_output(FAILED);
    let mut driver = TestDriver::build(rig.job(&how)).unwrap();
    rig.push(&mut driver, &[1, 2]);
    rig.desk.succeed(2);
    for (pause_ms, calls) in [(100, 3), (200, 4)] {
        rig.desk.fail(1);
        driver.run().unwrap();
        driver.advance_time(pause_ms - 1);
        driver.run().unwrap();
        assert_eq!(rig.desk.log().len(), calls - 1);
        driver.advance_time(1);
        driver.run().unwrap();
        assert_eq!(rig.desk.log().len(), calls);
    }
    assert!(rig.output.take().is_empty(), "the first is still under way");
    rig.desk.fail(1);
    driver.run().unwrap();
    let failed = rig.failed.take();
    assert!(failed.len() == 1 && failed[0].record == 1, "{failed:?}");
    assert!(failed[0].reason.contains("attempt 3") && failed[0].reason.contains("no 1"), "{failed:?}");
    assert_eq!(rig.output.take(), [20]);
}

#[test]
fn an_attempt_that_takes_too_long_is_given_up_and_repeated_where_that_is_worth_it() {
    let rig = Rig::new();
    let how = || {
        let retry = Retry::fixed(1, MS(10)).only_if(|error| matches!(error, AsyncError::TimedOut { .. }));
        AsyncMap::unordered(10).timeout(MS(50)).retry(retry)
    };
    let mut driver = TestDriver::build(rig.job(&how)).unwrap();
    rig.push(&mut driver, &[1]);
    driver.advance_time(50);
    driver.run().unwrap();
    assert!(rig.desk.open().is_empty(), "the future is dropped");
    driver.advance_time(10);
    driver.run().unwrap();
    assert_eq!((rig.desk.log(), rig.desk.open()), (vec![1, 1], vec![1]));
    driver.advance_time(49);
    driver.run().unwrap();
    driver.advance_time(1);
    let error = chain(&driver.run().unwrap_err());
    assert!(error.contains("longer than 50 ms") && error.contains("attempt 2"), "{error}");

    let rig = Rig::new();
    let mut driver = TestDriver::build(rig.job(&how)).unwrap();
    rig.push(&mut driver, &[1]);
    rig.desk.fail(1);
    assert!(chain(&driver.run().unwrap_err()).contains("attempt 1"), "not worth it");
}

#[test]
fn epochs_close_while_calls_are_under_way_and_these_are_made_again_after_a_restore() {
    let rig = Rig::new();
    let how = || AsyncMap::ordered(3);
    let mut driver = TestDriver::build(rig.job(&how)).unwrap();
    rig.push(&mut driver, &[1, 2, 3, 4, 5]);
    assert_eq!(rig.succeed(&mut driver, &[2, 1]), [10, 20]);
    let snapshot = driver.checkpoint().unwrap();
    driver.kill();
    assert_eq!(rig.output.committed(), [10, 20]);
    let mut driver = TestDriver::restore(rig.job(&how), &snapshot).unwrap();
    driver.run().unwrap();
    assert_eq!(rig.desk.log(), [1, 2, 3, 4, 5, 3, 4, 5]);
    assert_eq!(rig.succeed(&mut driver, &[5, 4, 3]), [30, 40, 50]);
    let snapshot = driver.finish().unwrap();
    driver.kill();
    let mut driver = TestDriver::restore(rig.job(&how), &snapshot).unwrap();
    driver.run().unwrap();
    assert_eq!(rig.desk.log().len(), 8, "what is done is not done again");
}

#[test]
fn the_end_of_the_input_waits_for_calls_on_other_threads() {
    let (input, output) = (TestInput::with_splits(3), TestOutput::new());
    let job = |flow: &mut Dataflow| {
        let pool = BlockingPool::new(2);
        let numbers = flow.test_input("in", &input);
        let squares = numbers.async_map("square", AsyncMap::unordered(5), move |number: u64| {
            pool.run(move || {
                std::thread::yield_now();
                Ok(number * number)
            })
        });
        squares.key_by(|_| ()).fold("sum", 0, |sum, square| *sum += square).test_output("out", &output);
        Ok(())
    };
    (1..=100).for_each(|number| input.push(number));
    let mut driver = TestDriver::builder().parallelism(2).build(job).unwrap();
    driver.finish().unwrap();
    assert_eq!(output.committed().last(), Some(&((), (1..=100).map(|number| number * number).sum::<u64>())));
}

#[test]
fn a_blocking_call_that_panics_is_an_error_and_not_a_hang() {
    for pool in [BlockingPool::new(1), BlockingPool::inline()] {
        let (input, output) = (TestInput::new(), TestOutput::<u64>::new());
        let job = |flow: &mut Dataflow| {
            let pool = pool.clone();
            let numbers = flow.test_input("in", &input);
            let calls = numbers.async_map("call", AsyncMap::ordered(5), move |number: u64| {
                pool.run(move || if number == 1 { panic!("one is too many") } else { Ok(number) })
            });
            calls.test_output("out", &output);
            Ok(())
        };
        let mut driver = TestDriver::build(job).unwrap();
        input.push(1);
        let error = chain(&driver.finish().unwrap_err());
        assert!(error.contains("panicked") && error.contains("one is too many"), "{error}");
    }
}

#[test]
fn a_capacity_of_nothing_is_refused_by_name() {
    let rig = Rig::new();
    let error = chain(&TestDriver::build(rig.job(&|| AsyncMap::ordered(0))).err().expect("refused"));
    assert!(error.contains("\"ask\"") && error.contains("capacity"), "{error}");
}

#[derive(Clone, Debug)]
enum Step {
    Push,
    Mark,
    /// An open call returns, or fails.
    Return(usize, bool),
    Advance(i64),
    Restore(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => Just(Step::Push),
        2 => Just(Step::Mark),
        8 => (any::<usize>(), any::<bool>()).prop_map(|(which, good)| Step::Return(which, good)),
        2 => (0i64..200).prop_map(Step::Advance),
        1 => (1u32..4).prop_map(Step::Restore),
    ];
    prop::collection::vec(step, 1..100)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn every_record_has_one_result_whatever_fails_and_however_often_it_is_restored(
        steps in steps(),
        ordered in any::<bool>(),
        capacity in 1usize..6,
    ) {
        let how = || {
            let how = if ordered { AsyncMap::ordered(capacity) } else { AsyncMap::unordered(capacity) };
            how.timeout(MS(150)).retry(Retry::fixed(u32::MAX, MS(20)))
        };
        let rig = Rig::new();
        let builder = |parallelism| -> TestDriverBuilder { TestDriver::builder().parallelism(parallelism) };
        let restore = |driver: TestDriver, parallelism: u32, snapshot: &Snapshot| {
            driver.kill();
            let mut driver = builder(parallelism).restore(rig.job(&how), snapshot).unwrap();
            driver.run().unwrap();
            driver
        };
        let (mut driver, mut pushed, mut rescaled) = (builder(1).build(rig.job(&how)).unwrap(), 0, false);
        for step in steps {
            match step {
                Step::Push => {
                    rig.input.push(pushed);
                    pushed += 1;
                }
                Step::Mark => rig.input.push(MARK + pushed),
                Step::Return(which, good) => {
                    let open = rig.desk.open();
                    if let Some(record) = open.get(which % open.len().max(1)) {
                        if good { rig.desk.succeed(*record) } else { rig.desk.fail(*record) }
                    }
                }
                Step::Advance(by_ms) => driver.advance_time(by_ms),
                Step::Restore(parallelism) => {
                    rescaled |= parallelism > 1;
                    let snapshot = driver.checkpoint().unwrap();
                    driver = restore(driver, parallelism, &snapshot);
                }
            }
            driver.run().unwrap();
            prop_assert!(rig.desk.open().len() <= capacity * 3);
        }
        for _ in 0..=pushed {
            driver.advance_time(20);
            driver.run().unwrap();
            rig.desk.open().into_iter().for_each(|record| rig.desk.succeed(record));
            driver.run().unwrap();
        }
        driver.finish().unwrap();
        let mut results = rig.output.committed();
        if !ordered || rescaled {
            results.sort_unstable();
        }
        prop_assert_eq!(results, (0..pushed).map(|record| record * 10).collect::<Vec<_>>());
    }
}
