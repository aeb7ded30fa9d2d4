//! What the tests share: a job from one input to one output, and steps with restores between them.

use millpond_core::{Data, UserResult};
use millpond_dataflow::{Dataflow, Stream};
use millpond_operators::{StreamOperators, WatermarkStrategy};
use millpond_sim::{TestDriver, TestDriverBuilder, TestFlow, TestInput, TestOutput, TestStream};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

/// A row: key, value, and something that tells equal ones apart, or not.
pub(crate) type Row = (u64, u64, u64);

/// A job, its driver, its input and its output.
pub(crate) struct Rig<'a, T, U> {
    pipeline: &'a dyn Fn(Stream<T>) -> Stream<U>,
    builder: TestDriverBuilder,
    pub(crate) driver: Option<TestDriver>,
    pub(crate) input: TestInput<Step<T>>,
    pub(crate) output: TestOutput<U>,
}

/// A record with its time, or how far time has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step<T> {
    Record(T, i64),
    Watermark(i64),
}

impl<'a, T: Data, U: Data> Rig<'a, T, U> {
    pub(crate) fn start(builder: TestDriverBuilder, pipeline: &'a dyn Fn(Stream<T>) -> Stream<U>) -> Self {
        let mut rig = Rig { pipeline, builder, driver: None, input: TestInput::new(), output: TestOutput::new() };
        rig.driver = Some(rig.builder.clone().build(rig.job()).unwrap());
        rig
    }

    pub(crate) fn job(&self) -> impl Fn(&mut Dataflow) -> UserResult + use<'a, T, U> {
        let (input, output, pipeline) = (self.input.clone(), self.output.clone(), self.pipeline);
        move |flow| {
            let marks = |step: &Step<T>, _| match step {
                Step::Watermark(watermark) => Some(*watermark),
                Step::Record(..) => None,
            };
            let times = |step: &Step<T>| match step {
                Step::Watermark(_) => i64::MIN,
                Step::Record(_, time_ms) => *time_ms,
            };
            let strategy = WatermarkStrategy::punctuated(marks).timestamps(times);
            let records = flow.timed_test_input("in", &input, strategy).flat_map(|step| match step {
                Step::Record(record, _) => Some(record),
                Step::Watermark(_) => None,
            });
            pipeline(records).test_output("out", &output);
            Ok(())
        }
    }

    /// Lets a record through; what came out since the last time.
    pub(crate) fn push(&mut self, record: T) -> Vec<U> {
        self.push_at(record, 0)
    }

    pub(crate) fn push_at(&mut self, record: T, time_ms: i64) -> Vec<U> {
        self.input.push(Step::Record(record, time_ms));
        self.run()
    }

    /// Lets event time come to `watermark`; what came out since the last time.
    pub(crate) fn advance(&mut self, watermark: i64) -> Vec<U> {
        self.input.push(Step::Watermark(watermark));
        self.run()
    }

    fn run(&mut self) -> Vec<U> {
        self.driver.as_mut().unwrap().run().unwrap();
        self.output.take()
    }

    /// A checkpoint, and a restore of it at another parallelism.
    pub(crate) fn restore(&mut self, parallelism: u32) {
        let mut driver = self.driver.take().unwrap();
        let snapshot = driver.checkpoint().unwrap();
        driver.kill();
        let builder = self.builder.clone().parallelism(parallelism);
        self.driver = Some(builder.restore(self.job(), &snapshot).unwrap());
    }

    /// The error of the step that must fail.
    pub(crate) fn refused(&mut self, record: T) -> String {
        self.input.push(Step::Record(record, 0));
        millpond_core::error::chain(&self.driver.as_mut().unwrap().run().unwrap_err())
    }

    /// The end of the input; what came out.
    pub(crate) fn finish(mut self) -> Vec<U> {
        self.driver.take().unwrap().finish().unwrap();
        self.output.take()
    }
}

pub(crate) fn one() -> TestDriverBuilder {
    TestDriver::builder().max_parallelism(16)
}

/// With all of the state in memory, or as little of it as can be.
pub(crate) fn builders() -> impl Strategy<Value = TestDriverBuilderOf> {
    prop_oneof![3 => Just(TestDriverBuilderOf(None)), 1 => Just(TestDriverBuilderOf(Some(0)))]
}

/// How much memory a driver gets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TestDriverBuilderOf(Option<usize>);

impl TestDriverBuilderOf {
    pub(crate) fn get(self) -> TestDriverBuilder {
        self.0.map_or(one(), |bytes| one().memory_budget(bytes))
    }
}
