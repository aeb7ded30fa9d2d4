//! The interval join, one rule each, and against a naive model.

#![expect(clippy::unwrap_used, reason = "outside of test functions, but only called by them")]

use millpond_core::UserResult;
use millpond_dataflow::{Dataflow, Output, SideTag};
use millpond_operators::{Interval, KeyedStreamOperators, StreamOperators, WatermarkStrategy};
use millpond_sim::{TestDriver, TestFlow, TestInput, TestOutput, TestStream};
use proptest::prelude::*;

/// Key, time, name.
type Row = (u64, i64, u64);

const LATE_LEFT: SideTag<Row> = SideTag::new("late left");
const LATE_RIGHT: SideTag<Row> = SideTag::new("late right");
/// Rows of this key say how far event time has come.
const MARK: u64 = u64::MAX;

/// Which records are shown without partners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Inner,
    Left,
    Right,
    Full,
}

/// A pair, or one record alone.
type Shown = (Option<Row>, Option<Row>);

struct Rig {
    left: TestInput<Row>,
    right: TestInput<Row>,
    pairs: TestOutput<(Row, Row)>,
    shown: TestOutput<Shown>,
    late: TestOutput<Row>,
}

impl Rig {
    fn new() -> Self {
        Rig {
            left: TestInput::new(),
            right: TestInput::new(),
            pairs: TestOutput::new(),
            shown: TestOutput::new(),
            late: TestOutput::new(),
        }
    }

    fn job(&self, interval: Interval) -> impl Fn(&mut Dataflow) -> UserResult + '_ {
        move |flow| {
            let strategy = || {
                let marks = |row: &Row, _| (row.0 == MARK).then_some(row.1);
                WatermarkStrategy::punctuated(marks).timestamps(|row: &Row| row.1)
            };
            let left = flow.timed_test_input("left", &self.left, strategy()).filter(|row| row.0 != MARK);
            let right = flow.timed_test_input("right", &self.right, strategy()).filter(|row| row.0 != MARK);
            let (left, right) = (left.key_by(|row| row.0), right.key_by(|row| row.0));
            let joined = left.interval_join(&right, interval).late_left(LATE_LEFT).late_right(LATE_RIGHT);
            let pairs = joined.process("join", |left, right, output: &mut Output<(Row, Row)>| {
                output.emit((*left, *right));
                Ok(())
            });
            pairs.side_output(LATE_LEFT).test_output("late left", &self.late);
            pairs.side_output(LATE_RIGHT).test_output("late right", &self.late);
            pairs.test_output("pairs", &self.pairs);
            Ok(())
        }
    }

    fn outer_job(&self, interval: Interval, kind: Kind) -> impl Fn(&mut Dataflow) -> UserResult + '_ {
        fn show(left: Option<&Row>, right: Option<&Row>, output: &mut Output<Shown>) -> UserResult {
            output.emit((left.copied(), right.copied()));
            Ok(())
        }
        move |flow| {
            let strategy = || {
                let marks = |row: &Row, _| (row.0 == MARK).then_some(row.1);
                WatermarkStrategy::punctuated(marks).timestamps(|row: &Row| row.1)
            };
            let left = flow.timed_test_input("left", &self.left, strategy()).filter(|row| row.0 != MARK);
            let right = flow.timed_test_input("right", &self.right, strategy()).filter(|row| row.0 != MARK);
            let joined = left.key_by(|row| row.0).interval_join(&right.key_by(|row| row.0), interval);
            let shown = match kind {
                Kind::Inner => joined.process("join", |left, right, output| show(Some(left), Some(right), output)),
                Kind::Left => joined.left_outer("join", |left, right, output| show(Some(left), right, output)),
                Kind::Right => joined.right_outer("join", |left, right, output| show(left, Some(right), output)),
                Kind::Full => joined.full_outer("join", show),
            };
            shown.test_output("shown", &self.shown);
            Ok(())
        }
    }

    fn advance(&self, driver: &mut TestDriver, watermark: i64) {
        self.left.push((MARK, watermark, 0));
        self.right.push((MARK, watermark, 0));
        driver.run().unwrap();
    }
}

#[test]
fn jn_01_records_join_within_inclusive_bounds_and_jn_03_each_pair_once() {
    let rig = Rig::new();
    let mut driver = TestDriver::build(rig.job(Interval::between_ms(-1, 2))).unwrap();
    for time in 0..10 {
        rig.left.push((1, time, time as u64));
    }
    driver.run().unwrap();
    rig.right.push((1, 5, 100));
    rig.right.push((2, 5, 101));
    driver.run().unwrap();
    let joined: Vec<i64> = rig.pairs.take().iter().map(|(left, _)| left.1).collect();
    assert_eq!(joined, [3, 4, 5, 6]);
}

#[test]
fn jn_02_bounds_may_be_exclusive_and_what_cannot_be_is_refused() {
    let rig = Rig::new();
    let interval = Interval::between_ms(-1, 2).exclusive_lower().exclusive_upper();
    let mut driver = TestDriver::build(rig.job(interval)).unwrap();
    rig.right.push((1, 5, 100));
    for time in 0..10 {
        rig.left.push((1, time, 0));
    }
    driver.run().unwrap();
    let joined: Vec<i64> = rig.pairs.take().iter().map(|(left, _)| left.1).collect();
    assert_eq!(joined, [4, 5]);
    for interval in [Interval::between_ms(1, 0), Interval::between_ms(3, 3).exclusive_upper()] {
        let error = TestDriver::build(Rig::new().job(interval)).err().expect("refused");
        assert!(millpond_core::error::chain(&error).contains("lower bound"), "{error}");
    }
}

#[test]
fn jn_04_a_record_older_than_the_watermark_is_late() {
    let rig = Rig::new();
    let mut driver = TestDriver::build(rig.job(Interval::between_ms(-10, 10))).unwrap();
    rig.advance(&mut driver, 100);
    rig.left.push((1, 99, 1));
    rig.right.push((1, 99, 2));
    rig.left.push((1, 100, 3));
    rig.right.push((1, 105, 4));
    driver.run().unwrap();
    let mut late: Vec<u64> = rig.late.take().iter().map(|row| row.2).collect();
    late.sort_unstable();
    assert_eq!(late, [1, 2]);
    assert_eq!(rig.pairs.take(), [((1, 100, 3), (1, 105, 4))]);
}

#[test]
fn jn_05_records_go_when_nothing_can_meet_them_any_more() {
    let rig = Rig::new();
    let mut driver = TestDriver::build(rig.job(Interval::between_ms(-3, 5))).unwrap();
    rig.left.push((1, 10, 1));
    rig.right.push((1, 10, 2));
    rig.right.push((2, 10, 2));
    driver.run().unwrap();
    let held = |driver: &mut TestDriver, state: &str| {
        driver.keyed_map::<u64, i64, Vec<(Row, bool)>>("join", state, &1).map(|entries| entries.len()).unwrap()
    };
    rig.advance(&mut driver, 12);
    assert_eq!((held(&mut driver, "left"), held(&mut driver, "right")), (1, 1));
    rig.advance(&mut driver, 13);
    assert_eq!((held(&mut driver, "left"), held(&mut driver, "right")), (1, 0));
    rig.advance(&mut driver, 15);
    assert_eq!((held(&mut driver, "left"), held(&mut driver, "right")), (0, 0));
}

#[test]
fn an_outer_join_shows_a_record_that_has_met_none_when_it_can_meet_none_any_more() {
    let rig = Rig::new();
    let mut driver = TestDriver::build(rig.outer_job(Interval::between_ms(-3, 5), Kind::Full)).unwrap();
    let (met, alone, other) = ((1, 10, 1), (2, 10, 2), (3, 10, 3));
    rig.left.push(met);
    rig.left.push(alone);
    rig.right.push(other);
    driver.run().unwrap();
    rig.right.push((1, 12, 4));
    driver.run().unwrap();
    assert_eq!(rig.shown.take(), [(Some(met), Some((1, 12, 4)))]);
    rig.advance(&mut driver, 12);
    assert_eq!(rig.shown.take(), []);
    rig.advance(&mut driver, 13);
    assert_eq!(rig.shown.take(), [(None, Some(other))]);
    rig.advance(&mut driver, 15);
    assert_eq!(rig.shown.take(), [(Some(alone), None)]);
}

#[test]
fn jn_06_a_record_without_a_time_is_an_error_that_says_so() {
    let rig = Rig::new();
    let mut driver = TestDriver::build(rig.job(Interval::between_ms(0, 0))).unwrap();
    rig.left.push((1, i64::MIN, 1));
    let error = millpond_core::error::chain(&driver.run().unwrap_err());
    assert!(error.contains("without event time"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn jn_01_all_pairs_within_the_bounds_join_once_whatever_the_order_over_restores(
        rows in prop::collection::vec((any::<bool>(), 0u64..4, -50i64..50), 0..80),
        lower in -20i64..20,
        length in 0i64..20,
        restores in prop::collection::vec((0usize..80, 1u32..4), 0..3),
        memory in prop::option::of(Just(0usize)),
    ) {
        let rig = Rig::new();
        let interval = Interval::between_ms(lower, lower + length);
        let builder = |parallelism| {
            let builder = TestDriver::builder().parallelism(parallelism).max_parallelism(16);
            memory.map_or(builder.clone(), |bytes| builder.memory_budget(bytes))
        };
        let mut driver = builder(1).build(rig.job(interval)).unwrap();
        let mut expected = Vec::new();
        for (index, (is_left, key, time)) in rows.iter().copied().enumerate() {
            if let Some((_, parallelism)) = restores.iter().find(|(at, _)| *at == index) {
                let snapshot = driver.checkpoint().unwrap();
                driver.kill();
                driver = builder(*parallelism).restore(rig.job(interval), &snapshot).unwrap();
            }
            let input = if is_left { &rig.left } else { &rig.right };
            input.push((key, time, index as u64));
        }
        driver.finish().unwrap();
        for (l, (_, key, left)) in rows.iter().enumerate().filter(|(_, row)| row.0) {
            for (r, (_, other, right)) in rows.iter().enumerate().filter(|(_, row)| !row.0) {
                if key == other && left + lower <= *right && *right <= left + lower + length {
                    expected.push(((*key, *left, l as u64), (*other, *right, r as u64)));
                }
            }
        }
        let mut pairs = rig.pairs.take();
        pairs.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(pairs, expected);
    }

    #[test]
    fn jn_01_outer_joins_show_each_unmet_record_once_whatever_the_order_over_restores(
        rows in prop::collection::vec((any::<bool>(), 0u64..4, -50i64..50), 0..60),
        lower in -20i64..20,
        length in 0i64..20,
        kind in prop_oneof![Just(Kind::Inner), Just(Kind::Left), Just(Kind::Right), Just(Kind::Full)],
        restores in prop::collection::vec((0usize..60, 1u32..4), 0..3),
    ) {
        let rig = Rig::new();
        let interval = Interval::between_ms(lower, lower + length);
        let builder = |parallelism| TestDriver::builder().parallelism(parallelism).max_parallelism(16);
        let mut driver = builder(1).build(rig.outer_job(interval, kind)).unwrap();
        for (index, (is_left, key, time)) in rows.iter().copied().enumerate() {
            if let Some((_, parallelism)) = restores.iter().find(|(at, _)| *at == index) {
                let snapshot = driver.checkpoint().unwrap();
                driver.kill();
                driver = builder(*parallelism).restore(rig.outer_job(interval, kind), &snapshot).unwrap();
            }
            (if is_left { &rig.left } else { &rig.right }).push((key, time, index as u64));
        }
        driver.finish().unwrap();
        let side = |left: bool| -> Vec<Row> {
            let rows = rows.iter().enumerate().filter(|(_, row)| row.0 == left);
            rows.map(|(index, (_, key, time))| (*key, *time, index as u64)).collect()
        };
        let (lefts, rights) = (side(true), side(false));
        let joins = |l: &Row, r: &Row| l.0 == r.0 && l.1 + lower <= r.1 && r.1 <= l.1 + lower + length;
        let mut expected: Vec<Shown> = Vec::new();
        for left in &lefts {
            expected.extend(rights.iter().filter(|right| joins(left, right)).map(|right| (Some(*left), Some(*right))));
        }
        if matches!(kind, Kind::Left | Kind::Full) {
            let alone = lefts.iter().filter(|left| !rights.iter().any(|right| joins(left, right)));
            expected.extend(alone.map(|left| (Some(*left), None)));
        }
        if matches!(kind, Kind::Right | Kind::Full) {
            let alone = rights.iter().filter(|right| !lefts.iter().any(|left| joins(left, right)));
            expected.extend(alone.map(|right| (None, Some(*right))));
        }
        let mut shown = rig.shown.take();
        shown.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(shown, expected);
    }
}
