//! The temporal join, one rule each, and against a naive model.

#![expect(clippy::unwrap_used, reason = "outside of test functions, but only called by them")]

use std::collections::BTreeMap;

use millpond_core::UserResult;
use millpond_dataflow::{Dataflow, Output, SideTag};
use millpond_operators::{KeyedStreamOperators, StreamOperators, WatermarkStrategy};
use millpond_sim::{TestDriver, TestFlow, TestInput, TestOutput, TestStream};
use proptest::prelude::*;

/// Key, time, name.
type Probe = (u64, i64, u64);
/// Key, time, value; none when the key is gone from that time on.
type Version = (u64, i64, Option<u64>);
/// Key, time and name of a probe, and the value that it met.
type Met = (u64, i64, u64, Option<u64>);

const LATE: SideTag<Probe> = SideTag::new("late");
/// Rows of this key say how far event time has come.
const MARK: u64 = u64::MAX;

struct Rig {
    probes: TestInput<Probe>,
    versions: TestInput<Version>,
    met: TestOutput<Met>,
    late: TestOutput<Probe>,
}

impl Rig {
    fn new() -> Self {
        let (probes, versions) = (TestInput::new(), TestInput::new());
        Rig { probes, versions, met: TestOutput::new(), late: TestOutput::new() }
    }

    fn job(&self, outer: bool) -> impl Fn(&mut Dataflow) -> UserResult + '_ {
        move |flow| {
            let mark = |key: u64, time: i64| (key == MARK).then_some(time);
            let times = WatermarkStrategy::punctuated(move |row: &Probe, _| mark(row.0, row.1));
            let probes = flow.timed_test_input("probes", &self.probes, times.timestamps(|row| row.1));
            let times = WatermarkStrategy::punctuated(move |row: &Version, _| mark(row.0, row.1));
            let versions = flow.timed_test_input("versions", &self.versions, times.timestamps(|row| row.1));
            let probes = probes.filter(|row| row.0 != MARK).key_by(|row| row.0);
            let versions = versions.filter(|row| row.0 != MARK).key_by(|row| row.0);
            let joined = probes.temporal_join(&versions).deleted_when(|row| row.2.is_none()).late_output(LATE);
            let emit = |probe: &Probe, version: Option<&Version>, output: &mut Output<Met>| {
                output.emit((probe.0, probe.1, probe.2, version.and_then(|version| version.2)));
                Ok(())
            };
            let met = match outer {
                true => joined.left_outer("join", emit),
                false => joined.inner("join", move |probe, version, output| emit(probe, Some(version), output)),
            };
            met.side_output(LATE).test_output("late", &self.late);
            met.test_output("met", &self.met);
            Ok(())
        }
    }

    /// Lets event time of both sides come to `watermark`; what was met.
    fn advance(&self, driver: &mut TestDriver, watermark: i64) -> Vec<Met> {
        self.probes.push((MARK, watermark, 0));
        self.versions.push((MARK, watermark, None));
        driver.run().unwrap();
        self.met.take()
    }
}

fn versions_of(driver: &mut TestDriver, key: u64) -> usize {
    driver.keyed_map::<u64, i64, Version>("join", "versions", &key).unwrap().len()
}

#[test]
fn a_record_meets_the_newest_version_up_to_its_time_once_both_sides_have_come_so_far() {
    let rig = Rig::new();
    let mut driver = TestDriver::build(rig.job(true)).unwrap();
    for row in [(1, 30, 4), (1, 10, 2), (1, 9, 1), (1, 29, 3), (2, 10, 5)] {
        rig.probes.push(row);
    }
    rig.probes.push((MARK, 100, 0));
    driver.run().unwrap();
    for row in [(1, 30, Some(30)), (1, 10, Some(10)), (1, 31, Some(31))] {
        rig.versions.push(row);
    }
    driver.run().unwrap();
    assert_eq!(rig.met.take(), [], "versions may come yet");
    let met = rig.advance(&mut driver, 29);
    let of = |key: u64, met: &[Met]| met.iter().filter(|row| row.0 == key).copied().collect::<Vec<_>>();
    assert_eq!(of(1, &met), [(1, 9, 1, None), (1, 10, 2, Some(10)), (1, 29, 3, Some(10))], "in the order of time");
    assert_eq!(of(2, &met), [(2, 10, 5, None)]);
    assert_eq!(rig.advance(&mut driver, 30), [(1, 30, 4, Some(30))]);
}

#[test]
fn an_inner_join_emits_nothing_where_there_is_no_version_or_a_deletion() {
    let rig = Rig::new();
    let mut driver = TestDriver::build(rig.job(false)).unwrap();
    for (time, name) in [(5, 1), (15, 2), (25, 3), (35, 4)] {
        rig.probes.push((1, time, name));
    }
    for row in [(1, 10, Some(7)), (1, 20, None), (1, 30, Some(8))] {
        rig.versions.push(row);
    }
    assert_eq!(rig.advance(&mut driver, 50), [(1, 15, 2, Some(7)), (1, 35, 4, Some(8))]);
}

#[test]
fn of_versions_with_one_time_the_last_to_come_counts() {
    let rig = Rig::new();
    let mut driver = TestDriver::build(rig.job(false)).unwrap();
    rig.versions.push((1, 10, Some(1)));
    rig.versions.push((1, 10, Some(2)));
    rig.probes.push((1, 10, 1));
    assert_eq!(rig.advance(&mut driver, 50), [(1, 10, 1, Some(2))]);
}

#[test]
fn only_the_newest_version_that_time_has_passed_is_kept_and_no_deletion() {
    let rig = Rig::new();
    let mut driver = TestDriver::build(rig.job(true)).unwrap();
    for time in 0..100 {
        rig.versions.push((1, time, Some(time as u64)));
        rig.versions.push((2, time, (time < 60).then_some(0)));
    }
    driver.run().unwrap();
    assert_eq!((versions_of(&mut driver, 1), versions_of(&mut driver, 2)), (100, 100));
    rig.advance(&mut driver, 49);
    assert_eq!((versions_of(&mut driver, 1), versions_of(&mut driver, 2)), (51, 51));
    rig.advance(&mut driver, 1_000);
    assert_eq!((versions_of(&mut driver, 1), versions_of(&mut driver, 2)), (1, 0));
    rig.probes.push((1, 2_000, 1));
    rig.probes.push((2, 2_000, 2));
    let mut met = rig.advance(&mut driver, 3_000);
    met.sort_unstable();
    assert_eq!(met, [(1, 2_000, 1, Some(99)), (2, 2_000, 2, None)]);
    assert_eq!(driver.keyed_map::<u64, i64, Vec<Probe>>("join", "probes", &1).unwrap().len(), 0);
}

#[test]
fn a_record_older_than_the_watermark_is_late_and_stays_so_over_a_restore() {
    let rig = Rig::new();
    let mut driver = TestDriver::build(rig.job(true)).unwrap();
    rig.versions.push((1, 10, Some(1)));
    rig.advance(&mut driver, 100);
    rig.probes.push((1, 99, 1));
    rig.probes.push((1, 100, 2));
    let snapshot = driver.checkpoint().unwrap();
    driver.kill();
    assert_eq!(rig.late.take(), [(1, 99, 1)]);
    let mut driver = TestDriver::builder().parallelism(3).restore(rig.job(true), &snapshot).unwrap();
    rig.probes.push((1, 98, 3));
    driver.run().unwrap();
    assert_eq!(rig.late.take(), [(1, 98, 3)]);
    assert_eq!(rig.advance(&mut driver, 101), [(1, 100, 2, Some(1))]);
}

#[test]
fn a_late_version_is_met_by_the_records_after_it() {
    let rig = Rig::new();
    let mut driver = TestDriver::build(rig.job(true)).unwrap();
    rig.versions.push((1, 10, Some(1)));
    rig.advance(&mut driver, 100);
    rig.versions.push((1, 50, Some(2)));
    rig.versions.push((1, 5, Some(3)));
    rig.probes.push((1, 120, 1));
    assert_eq!(rig.advance(&mut driver, 200), [(1, 120, 1, Some(2))]);
}

#[test]
fn jn_06_a_record_or_version_without_a_time_is_an_error_that_says_so() {
    for is_version in [false, true] {
        let rig = Rig::new();
        let mut driver = TestDriver::build(rig.job(true)).unwrap();
        if is_version {
            rig.versions.push((1, i64::MIN, None));
        } else {
            rig.probes.push((1, i64::MIN, 1));
        }
        let error = millpond_core::error::chain(&driver.run().unwrap_err());
        assert!(error.contains("join") && error.contains("without event time"), "{error}");
    }
}

/// All versions and records in lists; what is due is looked up when event time moves.
struct Model {
    reached: i64,
    /// How far records were joined, over restores.
    clock: i64,
    versions: BTreeMap<(u64, i64), Option<u64>>,
    waiting: Vec<Probe>,
    met: Vec<Met>,
    late: Vec<Probe>,
}

impl Model {
    fn new() -> Self {
        let (versions, waiting, met, late) = (BTreeMap::new(), Vec::new(), Vec::new(), Vec::new());
        Model { reached: i64::MIN, clock: i64::MIN, versions, waiting, met, late }
    }

    fn probe(&mut self, probe: Probe) {
        if probe.1 < self.clock { self.late.push(probe) } else { self.waiting.push(probe) }
    }

    fn advance(&mut self, watermark: i64) {
        if watermark <= self.reached {
            return;
        }
        (self.reached, self.clock) = (watermark, self.clock.max(watermark));
        let newest = |versions: &BTreeMap<(u64, i64), Option<u64>>, key: u64, until: i64| {
            versions.range((key, i64::MIN)..=(key, until)).next_back().map(|(at, value)| (at.1, *value))
        };
        for (key, time, name) in std::mem::take(&mut self.waiting) {
            if time > watermark {
                self.waiting.push((key, time, name));
                continue;
            }
            let version = newest(&self.versions, key, time).and_then(|(_, value)| value);
            self.met.push((key, time, name, version));
        }
        let keeps = |(key, time): &(u64, i64)| {
            let last = newest(&self.versions, *key, watermark);
            *time > watermark || last.is_some_and(|(at, value)| at == *time && value.is_some())
        };
        let kept: Vec<(u64, i64)> = self.versions.keys().copied().filter(keeps).collect();
        self.versions.retain(|at, _| kept.contains(at));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Probe(u64, i64),
    Version(u64, i64, bool),
    /// How far event time has come for probes, or for versions.
    Advance(bool, i64),
    /// A checkpoint, and a restore with so many subtasks.
    Restore(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0u64..4, -40i64..120).prop_map(|(key, time)| Step::Probe(key, time)),
        6 => (0u64..4, -40i64..120, prop::bool::weighted(0.2)).prop_map(|(key, time, gone)| Step::Version(key, time, gone)),
        4 => (any::<bool>(), -40i64..140).prop_map(|(of_probes, watermark)| Step::Advance(of_probes, watermark)),
        1 => (1u32..4).prop_map(Step::Restore),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn every_record_meets_the_version_of_its_time_whatever_the_order_over_restores(
        steps in steps(),
        memory in prop_oneof![3 => Just(None), 1 => Just(Some(0usize))],
    ) {
        let builder = |parallelism| {
            let builder = TestDriver::builder().parallelism(parallelism).max_parallelism(16);
            memory.map_or(builder.clone(), |bytes| builder.memory_budget(bytes))
        };
        let (rig, mut model) = (Rig::new(), Model::new());
        let mut driver = builder(2).build(rig.job(true)).unwrap();
        let mut reached = (i64::MIN, i64::MIN);
        for (number, step) in steps.into_iter().enumerate() {
            let name = number as u64;
            match step {
                Step::Probe(key, time) => {
                    rig.probes.push((key, time, name));
                    model.probe((key, time, name));
                }
                Step::Version(key, time, gone) => {
                    let value = (!gone).then_some(name);
                    rig.versions.push((key, time, value));
                    model.versions.insert((key, time), value);
                }
                Step::Advance(of_probes, watermark) => {
                    let side = if of_probes {
                        rig.probes.push((MARK, watermark, 0));
                        &mut reached.0
                    } else {
                        rig.versions.push((MARK, watermark, None));
                        &mut reached.1
                    };
                    *side = watermark.max(*side);
                    model.advance(reached.0.min(reached.1));
                }
                Step::Restore(parallelism) => {
                    let snapshot = driver.checkpoint().unwrap();
                    driver.kill();
                    driver = builder(parallelism).restore(rig.job(true), &snapshot).unwrap();
                    (reached, model.reached) = ((i64::MIN, i64::MIN), i64::MIN);
                }
            }
            driver.run().unwrap();
        }
        driver.finish().unwrap();
        model.advance(i64::MAX);
        let (mut met, mut late) = (rig.met.take(), rig.late.take());
        for key in 0..4 {
            prop_assert!(met.iter().filter(|row| row.0 == key).is_sorted_by_key(|row| row.1), "in the order of time");
        }
        met.sort_unstable();
        model.met.sort_unstable();
        prop_assert_eq!(met, model.met);
        late.sort_unstable();
        model.late.sort_unstable();
        prop_assert_eq!(late, model.late);
    }
}
