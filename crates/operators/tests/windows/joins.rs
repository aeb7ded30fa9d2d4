//! Window join and co-group: each rule on its own, and against the naive model over both sides.

use std::time::Duration;

use millpond_core::{Data, UserResult};
use millpond_dataflow::{Dataflow, KeyedStream, Output, SideTag, Stream, TimeDomain};
use millpond_operators::{
    EvictWhen, Evictors, KeyedStreamOperators, Sided, StreamOperators, Triggers, WatermarkStrategy, WindowJoined,
    Windows,
};
use millpond_sim::{SimError, TestDriver, TestDriverBuilder, TestFlow, TestInput, TestOutput, TestStream};
use proptest::prelude::*;

use crate::model::{Fired, Model};
use crate::random::{shapes, windows};
use crate::support::MS;

/// Key, time, value.
type Row = (u64, i64, u64);
/// A keyed side.
type Side = KeyedStream<u64, Row>;

const LATE_LEFT: SideTag<Row> = SideTag::new("late left");
const LATE_RIGHT: SideTag<Row> = SideTag::new("late right");
/// Rows of this key say how far event time has come.
const MARK: u64 = u64::MAX;

/// A job: two timed inputs, keyed, through `pipeline`.
struct Rig<U> {
    left: TestInput<Row>,
    right: TestInput<Row>,
    output: TestOutput<U>,
    late: TestOutput<Row>,
}

impl<U: Data> Rig<U> {
    fn new() -> Self {
        Rig { left: TestInput::new(), right: TestInput::new(), output: TestOutput::new(), late: TestOutput::new() }
    }

    fn job<'a>(&'a self, pipeline: &'a dyn Fn(Side, Side) -> Stream<U>) -> impl Fn(&mut Dataflow) -> UserResult + 'a {
        move |flow| {
            let strategy = || {
                let marks = |row: &Row, _| (row.0 == MARK).then_some(row.1);
                WatermarkStrategy::punctuated(marks).timestamps(|row: &Row| row.1)
            };
            let left = flow.timed_test_input("left", &self.left, strategy()).filter(|row| row.0 != MARK);
            let right = flow.timed_test_input("right", &self.right, strategy()).filter(|row| row.0 != MARK);
            let joined = pipeline(left.key_by(|row| row.0), right.key_by(|row| row.0));
            joined.side_output(LATE_LEFT).test_output("late left", &self.late);
            joined.side_output(LATE_RIGHT).test_output("late right", &self.late);
            joined.test_output("out", &self.output);
            Ok(())
        }
    }

    fn advance(&self, driver: &mut TestDriver, watermark: i64) -> Vec<U> {
        self.left.push((MARK, watermark, 0));
        self.right.push((MARK, watermark, 0));
        driver.run().unwrap();
        self.output.take()
    }
}

/// Values of both sides of a pair.
type Pair = (Option<u64>, Option<u64>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Inner,
    Left,
    Right,
    Full,
}

fn join(joined: WindowJoined<u64, Row, Row>, kind: Kind) -> Stream<Pair> {
    fn emit(left: Option<&Row>, right: Option<&Row>, output: &mut Output<Pair>) -> UserResult {
        output.emit((left.map(|row| row.2), right.map(|row| row.2)));
        Ok(())
    }
    match kind {
        Kind::Inner => joined.inner("join", |left, right, output| emit(Some(left), Some(right), output)),
        Kind::Left => joined.left_outer("join", |left, right, output| emit(Some(left), right, output)),
        Kind::Right => joined.right_outer("join", |left, right, output| emit(left, Some(right), output)),
        Kind::Full => joined.full_outer("join", emit),
    }
}

#[test]
fn jn_10_a_window_join_emits_all_pairs_of_a_key_and_window_and_jn_11_nothing_with_an_empty_side() {
    for (kind, expected) in [
        (Kind::Inner, vec![(Some(1), Some(10)), (Some(1), Some(11)), (Some(2), Some(10)), (Some(2), Some(11))]),
        (Kind::Left, vec![(Some(3), None)]),
        (Kind::Right, vec![(None, Some(12))]),
        (Kind::Full, vec![(None, Some(12)), (Some(3), None)]),
    ] {
        let rig = Rig::new();
        let pipeline = |left: Side, right: Side| join(left.join(&right).window(Windows::tumbling(MS(10))), kind);
        let mut driver = TestDriver::build(rig.job(&pipeline)).unwrap();
        for row in [(1, 3, 1), (1, 9, 2), (1, 10, 3)] {
            rig.left.push(row);
        }
        for row in [(1, 0, 10), (1, 5, 11), (2, 5, 12)] {
            rig.right.push(row);
        }
        rig.left.push((MARK, 100, 0));
        driver.run().unwrap();
        assert_eq!(rig.output.take(), [], "the other side has not come so far");
        let mut pairs = rig.advance(&mut driver, 100);
        let both = |pair: &Pair| pair.0.is_some() && pair.1.is_some();
        assert_eq!(pairs.iter().filter(|pair| both(pair)).count(), 4, "{kind:?}");
        pairs.retain(|pair| kind == Kind::Inner || !both(pair));
        pairs.sort_unstable();
        assert_eq!(pairs, expected, "{kind:?}");
    }
}

#[test]
fn jn_11_pairs_carry_the_last_time_of_their_window() {
    let rig = Rig::new();
    let pipeline = |left: Side, right: Side| {
        let pairs = join(left.join(&right).window(Windows::tumbling(MS(10))), Kind::Inner);
        pairs.key_by(|_| ()).process_with(
            "times",
            |_| Ok(()),
            |(), _, context, output| {
                output.emit(context.timestamp().unwrap());
                Ok(())
            },
        )
    };
    let mut driver = TestDriver::build(rig.job(&pipeline)).unwrap();
    rig.left.push((1, 13, 1));
    rig.right.push((1, 11, 1));
    assert_eq!(rig.advance(&mut driver, 30), [19]);
}

/// Key, window, the values of both sides.
type Group = (u64, i64, i64, Vec<u64>, Vec<u64>);

fn co_group(joined: WindowJoined<u64, Row, Row>) -> Stream<Group> {
    joined.co_group("groups", |key, window, lefts, rights, output| {
        let values = |side: &[(Row, i64)]| side.iter().map(|(row, _)| row.2).collect();
        output.emit((*key, window.start, window.end, values(lefts), values(rights)));
        Ok(())
    })
}

#[test]
fn jn_12_a_co_group_is_called_also_with_one_side_empty() {
    let rig = Rig::new();
    let pipeline = |left: Side, right: Side| co_group(left.join(&right).window(Windows::sliding(MS(10), MS(5))));
    let mut driver = TestDriver::build(rig.job(&pipeline)).unwrap();
    rig.left.push((1, 7, 1));
    rig.right.push((1, 2, 2));
    let mut groups = rig.advance(&mut driver, 100);
    groups.sort_unstable();
    assert_eq!(groups, [(1, -5, 5, vec![], vec![2]), (1, 0, 10, vec![1], vec![2]), (1, 5, 15, vec![1], vec![])]);
}

#[test]
fn jn_13_both_sides_build_sessions_together() {
    let rig = Rig::new();
    let pipeline = |left: Side, right: Side| co_group(left.join(&right).window(Windows::session(MS(10))));
    let mut driver = TestDriver::build(rig.job(&pipeline)).unwrap();
    for time in [0, 20] {
        rig.left.push((1, time, time as u64));
    }
    rig.left.push((2, 0, 7));
    driver.run().unwrap();
    rig.right.push((1, 10, 10));
    let mut groups = rig.advance(&mut driver, 100);
    groups.sort_unstable();
    assert_eq!(groups, [(1, 0, 30, vec![0, 20], vec![10]), (2, 0, 10, vec![7], vec![])]);
}

#[test]
fn wi_15_a_late_record_of_either_side_fires_its_window_again_and_wi_14_a_later_one_goes_to_its_side() {
    let rig = Rig::new();
    let pipeline = |left: Side, right: Side| {
        let joined = left.join(&right).window(Windows::tumbling(MS(10))).allowed_lateness(MS(5));
        co_group(joined.late_left(LATE_LEFT).late_right(LATE_RIGHT))
    };
    let mut driver = TestDriver::build(rig.job(&pipeline)).unwrap();
    rig.left.push((1, 3, 1));
    assert_eq!(rig.advance(&mut driver, 9), [(1, 0, 10, vec![1], vec![])]);
    rig.right.push((1, 4, 2));
    driver.run().unwrap();
    assert_eq!(rig.output.take(), [(1, 0, 10, vec![1], vec![2])]);
    assert_eq!(rig.advance(&mut driver, 14), []);
    rig.right.push((1, 4, 3));
    rig.left.push((1, 4, 4));
    driver.run().unwrap();
    let mut late = rig.late.take();
    late.sort_unstable();
    assert_eq!((late, rig.output.take()), (vec![(1, 4, 3), (1, 4, 4)], vec![]));
}

#[test]
fn triggers_and_evictors_see_both_sides_in_the_order_of_arrival() {
    let rig = Rig::new();
    let pipeline = |left: Side, right: Side| {
        let joined = left.join(&right).window(Windows::global());
        co_group(joined.trigger(Triggers::count(3)).evictor(Evictors::count(2, EvictWhen::Before)))
    };
    let mut driver = TestDriver::build(rig.job(&pipeline)).unwrap();
    for (value, input) in
        [(1, &rig.left), (2, &rig.right), (3, &rig.left), (4, &rig.left), (5, &rig.right), (6, &rig.right)]
    {
        input.push((1, 0, value));
        driver.run().unwrap();
    }
    let groups: Vec<_> = rig.output.take().into_iter().map(|group| (group.3, group.4)).collect();
    assert_eq!(groups, [(vec![3], vec![2]), (vec![], vec![5, 6])]);
}

#[test]
fn gaps_of_sessions_may_depend_on_the_side() {
    let rig = Rig::new();
    let pipeline = |left: Side, right: Side| {
        let gap = |record: &Sided<Row, Row>| match record {
            Sided::Left(_) => MS(10),
            Sided::Right(_) => MS(1),
        };
        co_group(left.join(&right).window(Windows::dynamic_session(gap)))
    };
    let mut driver = TestDriver::build(rig.job(&pipeline)).unwrap();
    rig.left.push((1, 0, 1));
    rig.right.push((1, 20, 2));
    let mut groups = rig.advance(&mut driver, 100);
    groups.sort_unstable();
    assert_eq!(groups, [(1, 0, 10, vec![1], vec![]), (1, 20, 21, vec![], vec![2])]);
}

fn refused(pipeline: &dyn Fn(Side, Side) -> Stream<Group>) -> String {
    let error: SimError = TestDriver::build(Rig::new().job(pipeline)).err().expect("refused");
    millpond_core::error::chain(&error)
}

#[test]
fn wi_08_windows_of_a_join_that_cannot_be_are_refused_by_name() {
    let error = refused(&|left, right| co_group(left.join(&right).window(Windows::tumbling(Duration::ZERO))));
    assert!(error.contains("groups") && error.contains("size of a window"), "{error}");
    let error = refused(&|left, right| {
        let sessions = left.join(&right).window(Windows::session(MS(5)));
        co_group(sessions.trigger(Triggers::delta(1.0, |_, _| 0.0)))
    });
    assert!(error.contains("its trigger"), "{error}");
}

#[test]
fn wi_07_a_record_without_a_time_is_an_error_that_says_so() {
    let rig = Rig::new();
    let pipeline = |left: Side, right: Side| co_group(left.join(&right).window(Windows::tumbling(MS(5))));
    let mut driver = TestDriver::build(rig.job(&pipeline)).unwrap();
    rig.right.push((1, i64::MIN, 1));
    let error = millpond_core::error::chain(&driver.run().unwrap_err());
    assert!(error.contains("without event time"), "{error}");
}

#[derive(Clone, Debug)]
enum Step {
    /// Whether it is a left one, key, time.
    Record(bool, u64, i64),
    /// How far event time has come on the left, or on the right.
    Advance(bool, i64),
    /// A checkpoint, and a restore with so many subtasks.
    Restore(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        10 => (any::<bool>(), 0u64..4, -40i64..120).prop_map(|(left, key, time)| Step::Record(left, key, time)),
        4 => (any::<bool>(), -40i64..140).prop_map(|(left, watermark)| Step::Advance(left, watermark)),
        1 => (1u32..4).prop_map(Step::Restore),
    ];
    prop::collection::vec(step, 1..60)
}

/// How often a kind of join emits each pair of the values of a window: even ones are of the left, odd ones of the right.
fn pairs_of(kind: Kind, (_, _, values): &Fired) -> Vec<Pair> {
    let (lefts, rights): (Vec<u64>, Vec<u64>) = values.iter().partition(|value| **value % 2 == 0);
    let mut pairs = Vec::new();
    for left in &lefts {
        pairs.extend(rights.iter().map(|right| (Some(*left), Some(*right))));
    }
    if rights.is_empty() && matches!(kind, Kind::Left | Kind::Full) {
        pairs.extend(lefts.iter().map(|left| (Some(*left), None)));
    }
    if lefts.is_empty() && matches!(kind, Kind::Right | Kind::Full) {
        pairs.extend(rights.iter().map(|right| (None, Some(*right))));
    }
    pairs
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn jn_10_window_joins_of_every_kind_agree_with_a_naive_model_over_restores(
        (shape, offset) in shapes(),
        lateness in prop_oneof![Just(0u64), 1u64..40],
        kind in prop_oneof![Just(Kind::Inner), Just(Kind::Left), Just(Kind::Right), Just(Kind::Full)],
        with_trigger in any::<bool>(),
        memory in prop_oneof![3 => Just(None), 1 => Just(Some(0usize))],
        steps in steps(),
    ) {
        let pipeline = |left: Side, right: Side| {
            let joined = left.join(&right).window(windows(shape, offset)).allowed_lateness(MS(lateness));
            let joined = joined.late_left(LATE_LEFT).late_right(LATE_RIGHT);
            join(if with_trigger { joined.trigger(Triggers::at_end(TimeDomain::Event)) } else { joined }, kind)
        };
        let builder = |parallelism| -> TestDriverBuilder {
            let builder = TestDriver::builder().parallelism(parallelism).max_parallelism(16);
            memory.map_or(builder.clone(), |bytes| builder.memory_budget(bytes))
        };
        let (rig, mut model) = (Rig::new(), Model::new(shape, offset, lateness as i64));
        let mut driver = builder(2).build(rig.job(&pipeline)).unwrap();
        let mut reached = (i64::MIN, i64::MIN);
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Record(is_left, key, time) => {
                    let value = 2 * number as u64 + u64::from(!is_left);
                    (if is_left { &rig.left } else { &rig.right }).push((key, time, value));
                    model.record(key, time, value);
                }
                Step::Advance(is_left, watermark) => {
                    (if is_left { &rig.left } else { &rig.right }).push((MARK, watermark, 0));
                    let side = if is_left { &mut reached.0 } else { &mut reached.1 };
                    *side = watermark.max(*side);
                    model.advance(reached.0.min(reached.1));
                }
                Step::Restore(parallelism) => {
                    let snapshot = driver.checkpoint().unwrap();
                    driver.kill();
                    driver = builder(parallelism).restore(rig.job(&pipeline), &snapshot).unwrap();
                    reached = (i64::MIN, i64::MIN);
                }
            }
            driver.run().unwrap();
        }
        driver.finish().unwrap();
        model.advance(i64::MAX);
        let mut expected: Vec<Pair> = model.fired.iter().flat_map(|fired| pairs_of(kind, fired)).collect();
        let (mut pairs, mut late) = (rig.output.take(), rig.late.take());
        for list in [&mut expected, &mut pairs] {
            list.sort_unstable();
        }
        late.sort_unstable();
        model.late.sort_unstable();
        prop_assert_eq!(pairs, expected);
        prop_assert_eq!(late, model.late);
    }
}
