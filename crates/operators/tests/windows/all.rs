//! Windows over all keys, in one stage and in two, against the naive model.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millpond_core::UserResult;
use millpond_dataflow::{Dataflow, KeyedContext, Output, TimeDomain};
use millpond_operators::{InWindow, StreamOperators, Triggers, WatermarkStrategy, Window, WindowProcess, Windowed};
use millpond_sim::{TestDriver, TestFlow, TestInput, TestOutput, TestStream};
use millpond_state::AggregateFunction;
use proptest::prelude::*;

use crate::model::{Model, Shape};
use crate::random::{Step, shapes, steps, windows};
use crate::support::{LATE, MS, Record, Sum};

/// How the windows are computed.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// In two stages.
    Aggregate,
    /// In one stage, because late records are wanted.
    Late,
    /// In one stage, with a trigger.
    Triggered,
    /// All records of a window.
    Process,
}

/// Sum and number of the values of a window.
struct SumAll;

impl WindowProcess for SumAll {
    type Key = ();
    type Input = Record;
    type Output = Windowed<(), (u64, u64)>;

    fn process(
        &mut self,
        window: Window,
        records: &[InWindow<Record>],
        _context: &mut KeyedContext<'_, ()>,
        output: &mut Output<Self::Output>,
    ) -> UserResult {
        let sum = records.iter().map(|(record, _)| record.value()).sum();
        output.emit(Windowed { key: (), window, value: (sum, records.len() as u64) });
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn wi_42_windows_over_all_keys_agree_with_a_naive_model_over_restores(
        (shape, offset) in shapes(),
        lateness in prop_oneof![Just(0u64), 1u64..60],
        way in prop_oneof![2 => Just(Way::Aggregate), 1 => Just(Way::Late), 1 => Just(Way::Triggered), 1 => Just(Way::Process)],
        parallelism in 1u32..4,
        steps in steps(),
    ) {
        let input = TestInput::with_splits(1);
        let (output, late) = (TestOutput::new(), TestOutput::new());
        let job = |flow: &mut Dataflow| {
            let announced = |record: &Record, _| match record {
                Record::Watermark(watermark) => Some(*watermark),
                _ => None,
            };
            let times = |record: &Record| match record {
                Record::Value(_, time, _) => *time,
                _ => i64::MIN,
            };
            let records = flow.timed_test_input("in", &input, WatermarkStrategy::punctuated(announced).timestamps(times));
            let values = records.filter(|record| !matches!(record, Record::Watermark(_))).rebalance();
            let windowed = values.window_all(windows(shape, offset)).allowed_lateness(MS(lateness));
            let results = match way {
                Way::Aggregate => windowed.aggregate("windows", Sum),
                Way::Late => windowed.late_output(LATE).aggregate("windows", Sum),
                Way::Triggered => windowed.trigger(Triggers::at_end(TimeDomain::Event)).aggregate("windows", Sum),
                Way::Process => windowed.process("windows", SumAll),
            };
            results.side_output(LATE).test_output("late", &late);
            results.test_output("out", &output);
            Ok(())
        };
        let builder = |parallelism| TestDriver::builder().parallelism(parallelism).max_parallelism(16);
        let mut driver = builder(parallelism).build(job).unwrap();
        let mut model = Model::new(shape, offset, lateness as i64);
        for step in steps {
            match step {
                Step::Record(_, time, value) => {
                    input.push_to(0, Record::Value(0, time, value));
                    model.record(0, time, value);
                    // Late records that come together would fire once.
                    if lateness > 0 {
                        driver.run().unwrap();
                    }
                }
                Step::Advance(watermark) => {
                    input.push_to(0, Record::Watermark(watermark));
                    driver.run().unwrap();
                    model.advance(watermark);
                }
                Step::Checkpoint => {
                    driver.checkpoint().unwrap();
                }
                Step::Restore(parallelism) => {
                    let snapshot = driver.checkpoint().unwrap();
                    driver.kill();
                    driver = builder(parallelism).restore(job, &snapshot).unwrap();
                }
            }
        }
        driver.finish().unwrap();
        model.advance(i64::MAX);
        let mut results: Vec<_> =
            output.take().into_iter().map(|r: Windowed<(), (u64, u64)>| (0, r.window.start, r.window.end, r.value.0, r.value.1)).collect();
        results.sort_unstable();
        prop_assert_eq!(results, model.results());
        if matches!(way, Way::Late) {
            let mut late: Vec<_> = late.take().into_iter().map(Record::value).collect();
            let mut expected: Vec<_> = model.late.iter().map(|(_, _, value)| *value).collect();
            late.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(late, expected);
        }
    }
}

/// [`Sum`], and how often two were merged.
struct Merges {
    merges: Arc<AtomicU64>,
}

impl AggregateFunction for Merges {
    type Input = Record;
    type Accumulator = (u64, u64);
    type Output = (u64, u64);

    fn create_accumulator(&self) -> (u64, u64) {
        Sum.create_accumulator()
    }

    fn add(&self, input: Record, accumulator: &mut (u64, u64)) {
        Sum.add(input, accumulator);
    }

    fn result(&self, accumulator: &(u64, u64)) -> (u64, u64) {
        *accumulator
    }

    fn merge(&self, one: (u64, u64), other: (u64, u64)) -> (u64, u64) {
        self.merges.fetch_add(1, Ordering::Relaxed);
        Sum.merge(one, other)
    }
}

#[test]
fn two_stages_send_a_few_partial_results_and_not_every_record() {
    let merges = Arc::new(AtomicU64::new(0));
    let input = TestInput::with_splits(1);
    let output = TestOutput::new();
    let job = |flow: &mut Dataflow| {
        let strategy = WatermarkStrategy::monotonous().timestamps(|record: &Record| match record {
            Record::Value(_, time, _) => *time,
            _ => i64::MIN,
        });
        let records = flow.timed_test_input("in", &input, strategy);
        let counting = Merges { merges: Arc::clone(&merges) };
        records.window_all(windows(Shape::Tumbling(100), 0)).aggregate("windows", counting).test_output("out", &output);
        Ok(())
    };
    let mut driver = TestDriver::builder().parallelism(2).build(job).unwrap();
    for time in 0..1_000 {
        input.push_to(0, Record::Value(7, time, 1));
    }
    driver.finish().unwrap();
    let results: Vec<Windowed<(), (u64, u64)>> = output.take();
    assert_eq!(results.iter().map(|r| r.value).collect::<Vec<_>>(), vec![(100, 100); 10]);
    let merges = merges.load(Ordering::Relaxed);
    assert!(merges <= 30, "{merges} partial results were merged for 1,000 records");
}

#[test]
fn wi_07_a_record_without_event_time_is_a_typed_error_also_in_two_stages() {
    let input = TestInput::with_splits(1);
    let output = TestOutput::<Windowed<(), (u64, u64)>>::new();
    let job = |flow: &mut Dataflow| {
        let records = flow.test_input("in", &input);
        records.window_all(windows(Shape::Tumbling(100), 0)).aggregate("windows", Sum).test_output("out", &output);
        Ok(())
    };
    let mut driver = TestDriver::builder().build(job).unwrap();
    input.push_to(0, Record::Value(1, 1, 1));
    let error = millpond_core::error::chain(&driver.run().unwrap_err());
    assert!(error.contains("without event time"), "{error}");
}
