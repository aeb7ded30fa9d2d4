//! Timers of keyed operators, one rule each.

#![expect(clippy::unwrap_used, reason = "outside of test functions, but only called by them")]

use std::time::Duration;

use millpond_core::UserResult;
use millpond_dataflow::{Dataflow, KeyedContext, OpenContext, Output, Stream, TimeDomain, Timer};
use millpond_operators::{KeyedProcess, KeyedStreamOperators, StreamOperators, WatermarkStrategy};
use millpond_sim::{TestDriver, TestFlow, TestInput, TestOutput, TestStream};
use millpond_state::StateDeclarer;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

/// What a record asks for.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Ask {
    Event(i64),
    DropEvent(i64),
    Processing(i64),
    DropProcessing(i64),
    Nothing,
}

type Command = (u64, Ask);

/// Key, time of the timer, whether it is of event time, the watermark and the time seen in the callback.
type Fired = (u64, i64, bool, i64, Option<i64>);

/// Does what records ask for. A timer at a multiple of 100 sets another one of its kind `then` later.
#[derive(Default)]
struct Obey {
    then: Option<i64>,
    /// A timer at a multiple of 1,000 deletes the event timer that is so much later.
    deletes: Option<i64>,
}

impl KeyedProcess for Obey {
    type Key = u64;
    type Input = Command;
    type Output = Fired;

    fn open(&mut self, _: &mut StateDeclarer<'_, u64>, _: &mut OpenContext<'_>) -> UserResult {
        Ok(())
    }

    fn process(&mut self, (_, ask): Command, context: &mut KeyedContext<'_, u64>, _: &mut Output<Fired>) -> UserResult {
        match ask {
            Ask::Event(time) => context.set_event_timer(time)?,
            Ask::DropEvent(time) => context.delete_event_timer(time)?,
            Ask::Processing(time) => context.set_processing_timer(time)?,
            Ask::DropProcessing(time) => context.delete_processing_timer(time)?,
            Ask::Nothing => {}
        }
        Ok(())
    }

    fn on_timer(
        &mut self,
        timer: Timer,
        context: &mut KeyedContext<'_, u64>,
        output: &mut Output<Fired>,
    ) -> UserResult {
        let (key, event) = (*context.key()?, timer.domain == TimeDomain::Event);
        output.emit((key, timer.time_ms, event, context.watermark(), context.timestamp()));
        if let Some(then) = self.then.filter(|_| timer.time_ms % 100 == 0) {
            match timer.domain {
                TimeDomain::Event => context.set_event_timer(timer.time_ms + then)?,
                TimeDomain::Processing => context.set_processing_timer(timer.time_ms + then)?,
            }
        }
        if let Some(later) = self.deletes.filter(|_| timer.time_ms % 1_000 == 0) {
            context.delete_event_timer(timer.time_ms + later)?;
        }
        Ok(())
    }
}

struct Rig {
    input: TestInput<Command>,
    output: TestOutput<Fired>,
    then: Option<i64>,
    deletes: Option<i64>,
}

impl Rig {
    fn new() -> Self {
        Rig { input: TestInput::new(), output: TestOutput::new(), then: None, deletes: None }
    }

    fn job(&self) -> impl Fn(&mut Dataflow) -> UserResult + '_ {
        |flow| {
            let strategy = WatermarkStrategy::bounded_out_of_orderness(Duration::ZERO);
            let commands: Stream<Command> = flow.timed_test_input("in", &self.input, strategy);
            let obey = Obey { then: self.then, deletes: self.deletes };
            commands.key_by(|(key, _)| *key).process("obey", obey).test_output("out", &self.output);
            Ok(())
        }
    }

    fn start(&self) -> TestDriver {
        TestDriver::build(self.job()).unwrap()
    }

    fn ask(&self, key: u64, ask: Ask) {
        self.input.push((key, ask));
    }

    /// Lets event time come to `watermark`.
    fn advance(&self, driver: &mut TestDriver, watermark: i64) -> Vec<(u64, i64)> {
        self.input.push_at((0, Ask::Nothing), watermark + 1);
        driver.run().unwrap();
        self.output.take().into_iter().map(|(key, time, ..)| (key, time)).collect()
    }
}

#[test]
fn tm_01_an_event_timer_fires_when_the_watermark_reaches_it() {
    let rig = Rig::new();
    let mut driver = rig.start();
    rig.ask(1, Ask::Event(10));
    assert_eq!(rig.advance(&mut driver, 9), []);
    assert_eq!(rig.advance(&mut driver, 10), [(1, 10)]);
    assert_eq!(rig.advance(&mut driver, 11), []);
}

#[test]
fn tm_02_timers_fire_in_order_of_time_and_tm_03_once_each() {
    let rig = Rig::new();
    let mut driver = rig.start();
    for time in [30, 10, 20, 10, 30, -5] {
        rig.ask(1, Ask::Event(time));
    }
    rig.ask(2, Ask::Event(20));
    let mut fired = rig.advance(&mut driver, 100);
    assert!(fired.iter().map(|(_, time)| *time).is_sorted());
    fired.sort_unstable();
    assert_eq!(fired, [(1, -5), (1, 10), (1, 20), (1, 30), (2, 20)]);
}

#[test]
fn tm_04_event_and_processing_timers_are_separate_and_tm_30_tm_32_what_they_see() {
    let rig = Rig::new();
    let mut driver = rig.start();
    rig.ask(1, Ask::Event(10));
    rig.ask(1, Ask::Processing(10));
    driver.run().unwrap();
    driver.set_time(10);
    driver.run().unwrap();
    assert_eq!(rig.output.take(), [(1, 10, false, i64::MIN, Some(10))]);
    rig.input.push_at((0, Ask::Nothing), 11);
    driver.run().unwrap();
    assert_eq!(rig.output.take(), [(1, 10, true, 10, Some(10))]);
}

#[test]
fn tm_05_deleting_needs_the_exact_timer_and_an_unknown_one_is_no_error() {
    let rig = Rig::new();
    let mut driver = rig.start();
    rig.ask(1, Ask::Event(10));
    rig.ask(1, Ask::Event(20));
    rig.ask(1, Ask::DropEvent(20));
    rig.ask(1, Ask::DropEvent(15));
    rig.ask(2, Ask::DropEvent(10));
    rig.ask(1, Ask::DropProcessing(10));
    assert_eq!(rig.advance(&mut driver, 100), [(1, 10)]);
}

#[test]
fn tm_06_a_timer_in_the_past_fires_with_the_next_watermark_and_tm_26_may_be_negative() {
    let rig = Rig::new();
    let mut driver = rig.start();
    rig.advance(&mut driver, 50);
    rig.ask(1, Ask::Event(40));
    rig.ask(1, Ask::Event(i64::MIN));
    driver.run().unwrap();
    assert_eq!(rig.output.take(), [], "not inside of the call");
    assert_eq!(rig.advance(&mut driver, 51), [(1, i64::MIN), (1, 40)]);
}

#[test]
fn tm_09_a_callback_may_set_timers_that_fire_in_the_same_advance() {
    let rig = Rig { then: Some(7), ..Rig::new() };
    let mut driver = rig.start();
    rig.ask(1, Ask::Event(100));
    rig.ask(1, Ask::Event(105));
    assert_eq!(rig.advance(&mut driver, 107), [(1, 100), (1, 105), (1, 107)]);
    rig.ask(1, Ask::Event(200));
    assert_eq!(rig.advance(&mut driver, 206), [(1, 200)]);
    assert_eq!(rig.advance(&mut driver, 207), [(1, 207)]);
}

#[test]
fn tm_10_a_callback_may_delete_a_later_timer() {
    let rig = Rig { deletes: Some(5), ..Rig::new() };
    let mut driver = rig.start();
    for time in [1_000, 1_005, 1_006] {
        rig.ask(1, Ask::Event(time));
    }
    assert_eq!(rig.advance(&mut driver, 2_000), [(1, 1_000), (1, 1_006)]);
}

#[test]
fn tm_12_an_earlier_processing_timer_wakes_earlier_and_tm_14_a_late_wake_up_fires_all_in_order() {
    let rig = Rig { then: Some(3), ..Rig::new() };
    let mut driver = rig.start();
    rig.ask(1, Ask::Processing(300));
    rig.ask(2, Ask::Processing(50));
    driver.run().unwrap();
    driver.set_time(49);
    driver.run().unwrap();
    assert_eq!(rig.output.take(), []);
    driver.set_time(50);
    driver.run().unwrap();
    assert_eq!(rig.output.take().len(), 1);
    rig.ask(3, Ask::Processing(250));
    driver.run().unwrap();
    driver.set_time(1_000);
    driver.run().unwrap();
    let times: Vec<i64> = rig.output.take().into_iter().map(|fired| fired.1).collect();
    assert_eq!(times, [250, 300, 303], "tm_13: also what a callback sets");
}

#[test]
fn tm_15_the_end_fires_all_event_timers_and_drops_processing_timers() {
    let rig = Rig::new();
    let mut driver = rig.start();
    for time in [i64::MAX, 10] {
        rig.ask(1, Ask::Event(time));
    }
    rig.ask(1, Ask::Processing(5_000));
    driver.finish().unwrap();
    let fired: Vec<(i64, bool)> = rig.output.take().into_iter().map(|(_, time, event, ..)| (time, event)).collect();
    assert_eq!(fired, [(10, true), (i64::MAX, true)]);
}

#[test]
fn tm_16_a_fired_timer_may_be_set_again() {
    let rig = Rig::new();
    let mut driver = rig.start();
    rig.ask(1, Ask::Event(10));
    rig.ask(1, Ask::DropEvent(10));
    rig.ask(1, Ask::Event(10));
    assert_eq!(rig.advance(&mut driver, 10), [(1, 10)]);
    rig.ask(1, Ask::Event(10));
    assert_eq!(rig.advance(&mut driver, 11), [(1, 10)]);
}

#[test]
fn tm_20_timers_are_in_checkpoints_tm_21_wait_for_their_time_again_and_tm_22_go_with_their_keys() {
    for (before, after) in [(1, 3), (3, 1), (2, 2)] {
        let rig = Rig::new();
        let mut driver = TestDriver::builder().parallelism(before).build(rig.job()).unwrap();
        for key in 0..200 {
            rig.ask(key, Ask::Event(1_000 + key as i64));
            rig.ask(key, Ask::Processing(100));
            rig.ask(key, Ask::Event(500));
            rig.ask(key, Ask::DropEvent(500));
        }
        driver.run().unwrap();
        driver.checkpoint().unwrap();
        rig.advance(&mut driver, 1_049);
        let snapshot = driver.checkpoint().unwrap();
        driver.kill();
        let mut driver = TestDriver::builder().parallelism(after).time(100).restore(rig.job(), &snapshot).unwrap();
        driver.run().unwrap();
        let overdue = rig.output.take();
        assert_eq!(overdue.len(), 200, "overdue processing timers fire at once");
        assert!(overdue.iter().all(|fired| !fired.2 && fired.3 == i64::MIN));
        assert_eq!(rig.advance(&mut driver, 1_049), [], "they have fired before the checkpoint");
        let mut fired = rig.advance(&mut driver, 9_999);
        fired.sort_unstable();
        assert_eq!(fired, (50..200).map(|key| (key, 1_000 + key as i64)).collect::<Vec<_>>());
    }
}

#[test]
fn timers_beyond_memory_fire_as_well() {
    let rig = Rig::new();
    let mut driver = TestDriver::builder().parallelism(2).memory_budget(0).build(rig.job()).unwrap();
    for key in 0..500 {
        rig.ask(key, Ask::Event(1_000 + key as i64 % 7));
        rig.ask(key, Ask::Event(2_000));
    }
    driver.run().unwrap();
    let snapshot = driver.checkpoint().unwrap();
    assert_eq!(rig.advance(&mut driver, 1_500).len(), 500);
    driver.kill();
    let mut driver = TestDriver::builder().memory_budget(0).restore(rig.job(), &snapshot).unwrap();
    driver.run().unwrap();
    assert_eq!(rig.advance(&mut driver, 5_000).len(), 1_000);
}

/// What happens to a job with timers.
#[derive(Clone, Debug)]
enum Happens {
    Set(u64, i64),
    Drop(u64, i64),
    Advance(i64),
    Checkpoint,
    /// A checkpoint, from which the job goes on with so many subtasks.
    Restore(u32),
}

fn happens() -> impl Strategy<Value = Happens> {
    let timer = || (0..40u64, 0..2_000i64);
    prop_oneof![
        300 => timer().prop_map(|(key, time)| Happens::Set(key, time)),
        60 => timer().prop_map(|(key, time)| Happens::Drop(key, time)),
        4 => (0..2_500i64).prop_map(Happens::Advance),
        2 => Just(Happens::Checkpoint),
        1 => (1..4u32).prop_map(Happens::Restore),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn tm_20_timers_agree_with_a_set_through_snapshots_and_rescales_with_hardly_any_memory(
        steps in prop::collection::vec(happens(), 0..2_500),
        memory in prop_oneof![2 => Just(Some(0usize)), 1 => Just(Some(40 << 10)), 1 => Just(None)],
    ) {
        let build = |builder: millpond_sim::TestDriverBuilder| match memory {
            Some(bytes) => builder.memory_budget(bytes),
            None => builder,
        };
        let rig = Rig::new();
        let mut driver = build(TestDriver::builder()).build(rig.job()).unwrap();
        let (mut set, mut watermark) = (std::collections::BTreeSet::new(), i64::MIN);
        for step in steps.into_iter().chain([Happens::Advance(1_000_000)]) {
            match step {
                Happens::Set(key, time) => {
                    rig.ask(key, Ask::Event(time));
                    set.insert((time, key));
                }
                Happens::Drop(key, time) => {
                    rig.ask(key, Ask::DropEvent(time));
                    set.remove(&(time, key));
                }
                Happens::Advance(to) => {
                    // What is due already fires with the next watermark (TM-06).
                    watermark = to.max(watermark.saturating_add(1));
                    let fired = rig.advance(&mut driver, watermark);
                    let rest = set.split_off(&(watermark.saturating_add(1), 0));
                    let due = std::mem::replace(&mut set, rest);
                    let mut fired: Vec<_> = fired.into_iter().map(|(key, time)| (time, key)).collect();
                    fired.sort_unstable();
                    prop_assert_eq!(fired, due.into_iter().collect::<Vec<_>>());
                }
                Happens::Checkpoint => {
                    driver.run().unwrap();
                    driver.checkpoint().unwrap();
                }
                Happens::Restore(parallelism) => {
                    driver.run().unwrap();
                    let snapshot = driver.checkpoint().unwrap();
                    driver.kill();
                    driver = build(TestDriver::builder().parallelism(parallelism)).restore(rig.job(), &snapshot).unwrap();
                    watermark = i64::MIN;
                }
            }
        }
    }
}

#[test]
fn tm_25_many_timers_of_one_watermark_yield_to_downstream() {
    let rig = Rig::new();
    let mut driver = TestDriver::builder().channel_records(1_024).build(rig.job()).unwrap();
    for key in 0..40_000 {
        rig.ask(key, Ask::Event(5));
    }
    driver.run().unwrap();
    assert_eq!(rig.advance(&mut driver, 5).len(), 40_000);
}

#[test]
fn many_deleted_timers_do_not_stay_in_memory_for_ever() {
    let rig = Rig::new();
    let mut driver = rig.start();
    for time in 0..20_000 {
        rig.ask(1, Ask::Event(100_000 + time));
        rig.ask(1, Ask::DropEvent(100_000 + time));
    }
    rig.ask(1, Ask::Event(50));
    rig.ask(1, Ask::Event(200_000));
    assert_eq!(rig.advance(&mut driver, 50), [(1, 50)]);
    assert_eq!(rig.advance(&mut driver, 300_000), [(1, 200_000)]);
}
