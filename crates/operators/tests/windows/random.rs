//! Every kind of windows against the naive model: any order, any lateness, watermarks, an idle input, checkpoints,
//! and restores at another parallelism.

use millpond_dataflow::{KeyedStream, Stream, TimeDomain};
use millpond_operators::{KeyedStreamOperators, Triggers, Windowed, Windows};
use millpond_sim::TestDriver;
use proptest::prelude::*;

use crate::model::{Model, Shape};
use crate::support::{LATE, MS, Record, Rig, Sum, SumAll};

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Record(u64, i64, u64),
    Advance(i64),
    /// A checkpoint, and a restore with so many subtasks.
    Restore(u32),
    /// A checkpoint, and on.
    Checkpoint,
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (0u64..6, -60i64..200, 1u64..100).prop_map(|(key, time, value)| Step::Record(key, time, value)),
        4 => (-60i64..220).prop_map(Step::Advance),
        1 => (1u32..4).prop_map(Step::Restore),
        1 => Just(Step::Checkpoint),
    ];
    prop::collection::vec(step, 1..80)
}

/// How the windows are computed.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// An aggregate, as it is.
    Aggregate,
    /// An aggregate with a trigger of its own, which takes the general operator.
    Triggered,
    /// All records of a window.
    Process,
}

pub(crate) fn shapes() -> impl Strategy<Value = (Shape, i64)> {
    let regular = prop_oneof![
        (1i64..30).prop_map(|size| (Shape::Tumbling(size), size)),
        (1i64..30, 1i64..30).prop_map(|(size, slide)| (Shape::Sliding(size, slide), slide)),
        (1i64..10, 1i64..5).prop_map(|(step, steps)| (Shape::Cumulative(step * steps, step), step * steps)),
    ];
    prop_oneof![
        3 => (regular, any::<i64>()).prop_map(|((shape, step), offset)| (shape, offset % step)),
        2 => (1i64..30).prop_map(|gap| (Shape::Session(gap), 0)),
    ]
}

pub(crate) fn windows<T>(shape: Shape, offset: i64) -> Windows<T> {
    let ms = |length: i64| MS(length.unsigned_abs());
    let windows = match shape {
        Shape::Tumbling(size) => Windows::tumbling(ms(size)),
        Shape::Sliding(size, slide) => Windows::sliding(ms(size), ms(slide)),
        Shape::Cumulative(size, step) => Windows::cumulative(ms(size), ms(step)),
        Shape::Session(gap) => Windows::session(ms(gap)),
    };
    windows.offset_ms(offset)
}

type Results = Stream<Windowed<u64, (u64, u64)>>;

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn wi_42_windows_of_every_kind_agree_with_a_naive_model_over_restores(
        (shape, offset) in shapes(),
        lateness in prop_oneof![Just(0u64), 1u64..60],
        way in prop_oneof![Just(Way::Aggregate), Just(Way::Triggered), Just(Way::Process)],
        memory in prop_oneof![3 => Just(None), 1 => Just(Some(0usize))],
        parallelism in 1u32..4,
        steps in steps(),
    ) {
        let pipeline = |keyed: KeyedStream<u64, Record>| -> Results {
            let windowed = keyed.window(windows(shape, offset)).allowed_lateness(MS(lateness)).late_output(LATE);
            match way {
                Way::Aggregate => windowed.aggregate("windows", Sum),
                Way::Triggered => windowed.trigger(Triggers::at_end(TimeDomain::Event)).aggregate("windows", Sum),
                Way::Process => windowed.process("windows", SumAll),
            }
        };
        let builder = |parallelism| {
            let builder = TestDriver::builder().parallelism(parallelism).max_parallelism(16);
            match memory {
                Some(bytes) => builder.memory_budget(bytes),
                None => builder,
            }
        };
        let rig = Rig::new();
        let mut driver = rig.start(builder(parallelism), None, &pipeline);
        let mut model = Model::new(shape, offset, lateness as i64);
        let (mut results, mut late) = (Vec::new(), Vec::new());
        for step in steps {
            match step {
                Step::Record(key, time, value) => {
                    rig.value(key, time, value);
                    model.record(key, time, value);
                }
                Step::Advance(watermark) => {
                    rig.push(Record::Watermark(watermark));
                    driver.run().unwrap();
                    model.advance(watermark);
                }
                Step::Checkpoint => {
                    driver.checkpoint().unwrap();
                }
                Step::Restore(parallelism) => {
                    let snapshot = driver.checkpoint().unwrap();
                    driver.kill();
                    driver = rig.start(builder(parallelism), Some(&snapshot), &pipeline);
                }
            }
        }
        driver.finish().unwrap();
        model.advance(i64::MAX);
        results.extend(rig.output.take().into_iter().map(|r| (r.key, r.window.start, r.window.end, r.value.0, r.value.1)));
        late.extend(rig.late.take().into_iter().map(|record| match record {
            Record::Value(key, time, value) => (key, time, value),
            other => panic!("{other:?} is not late"),
        }));
        results.sort_unstable();
        late.sort_unstable();
        model.late.sort_unstable();
        prop_assert_eq!(results, model.results());
        prop_assert_eq!(late, model.late);
    }
}
