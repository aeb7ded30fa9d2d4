//! What the tests share: records, a job around a windowed stream, and how event time is moved.

use std::time::Duration;

use millpond_core::{Data, UserResult};
use millpond_dataflow::{Dataflow, KeyedContext, KeyedStream, Output, SideTag, Stream};
use millpond_operators::{InWindow, StreamOperators, WatermarkStrategy, Window, WindowProcess, Windowed};
use millpond_sim::{Snapshot, TestDriver, TestDriverBuilder, TestFlow, TestInput, TestOutput, TestStream};
use millpond_state::AggregateFunction;
use serde::{Deserialize, Serialize};

/// A record: key, time, value; or a word about event time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Record {
    Value(u64, i64, u64),
    Untimed(u64, u64),
    Watermark(i64),
}

impl Record {
    pub(crate) fn value(self) -> u64 {
        match self {
            Record::Value(_, _, value) | Record::Untimed(_, value) => value,
            Record::Watermark(_) => 0,
        }
    }

    fn key(self) -> u64 {
        match self {
            Record::Value(key, ..) | Record::Untimed(key, _) => key,
            Record::Watermark(_) => 0,
        }
    }
}

pub(crate) const LATE: SideTag<Record> = SideTag::new("late");

pub(crate) const MS: fn(u64) -> Duration = Duration::from_millis;

/// Sum and number of values.
pub(crate) struct Sum;

impl AggregateFunction for Sum {
    type Input = Record;
    type Accumulator = (u64, u64);
    type Output = (u64, u64);

    fn create_accumulator(&self) -> (u64, u64) {
        (0, 0)
    }

    fn add(&self, input: Record, (sum, count): &mut (u64, u64)) {
        *sum += input.value();
        *count += 1;
    }

    fn result(&self, accumulator: &(u64, u64)) -> (u64, u64) {
        *accumulator
    }

    fn merge(&self, one: (u64, u64), other: (u64, u64)) -> (u64, u64) {
        (one.0 + other.0, one.1 + other.1)
    }
}

/// The same over all records of a window.
pub(crate) struct SumAll;

impl WindowProcess for SumAll {
    type Key = u64;
    type Input = Record;
    type Output = Windowed<u64, (u64, u64)>;

    fn process(
        &mut self,
        window: Window,
        records: &[InWindow<Record>],
        context: &mut KeyedContext<'_, u64>,
        output: &mut Output<Self::Output>,
    ) -> UserResult {
        let sum = records.iter().map(|(record, _)| record.value()).sum();
        output.emit(Windowed { key: *context.key()?, window, value: (sum, records.len() as u64) });
        Ok(())
    }
}

/// A job: records of one timed split and one that is always quiet, keyed, through `pipeline`.
pub(crate) struct Rig<U> {
    pub(crate) input: TestInput<Record>,
    pub(crate) output: TestOutput<U>,
    pub(crate) late: TestOutput<Record>,
}

impl<U: Data> Rig<U> {
    pub(crate) fn new() -> Self {
        Rig { input: TestInput::with_splits(2), output: TestOutput::new(), late: TestOutput::new() }
    }

    pub(crate) fn job<'a>(
        &'a self,
        pipeline: &'a dyn Fn(KeyedStream<u64, Record>) -> Stream<U>,
    ) -> impl Fn(&mut Dataflow) -> UserResult + 'a {
        move |flow| {
            let announced = |record: &Record, _| match record {
                Record::Watermark(watermark) => Some(*watermark),
                _ => None,
            };
            let times = |record: &Record| match record {
                Record::Value(_, time, _) => *time,
                _ => i64::MIN,
            };
            let strategy = WatermarkStrategy::punctuated(announced).timestamps(times).idle_after(MS(1_000));
            let records = flow.timed_test_input("in", &self.input, strategy);
            let values = records.filter(|record| !matches!(record, Record::Watermark(_)));
            let windows = pipeline(values.key_by(|record| record.key()));
            windows.side_output(LATE).test_output("late", &self.late);
            windows.test_output("out", &self.output);
            Ok(())
        }
    }

    pub(crate) fn start(
        &self,
        builder: TestDriverBuilder,
        from: Option<&Snapshot>,
        pipeline: &dyn Fn(KeyedStream<u64, Record>) -> Stream<U>,
    ) -> TestDriver {
        let job = self.job(pipeline);
        let mut driver = match from {
            None => builder.build(job).unwrap(),
            Some(snapshot) => builder.restore(job, snapshot).unwrap(),
        };
        // The second split becomes idle.
        driver.run().unwrap();
        driver.advance_time(1_001);
        driver.run().unwrap();
        driver
    }

    pub(crate) fn push(&self, record: Record) {
        self.input.push_to(0, record);
    }

    pub(crate) fn value(&self, key: u64, time: i64, value: u64) {
        self.push(Record::Value(key, time, value));
    }

    /// Lets event time come to `watermark`; what came out since the last time, in order.
    pub(crate) fn advance(&self, driver: &mut TestDriver, watermark: i64) -> Vec<U> {
        self.push(Record::Watermark(watermark));
        driver.run().unwrap();
        self.output.take()
    }

    /// Processes what was pushed; what came out.
    pub(crate) fn run(&self, driver: &mut TestDriver) -> Vec<U> {
        driver.run().unwrap();
        self.output.take()
    }
}

/// Key, window and sum of a result, short.
pub(crate) type Short = (u64, i64, i64, u64);

pub(crate) fn short(results: Vec<Windowed<u64, (u64, u64)>>) -> Vec<Short> {
    results.into_iter().map(|r| (r.key, r.window.start, r.window.end, r.value.0)).collect()
}
