//! The rules of windows, one by one.

use millpond_core::UserResult;
use millpond_dataflow::{Dataflow, KeyedContext, KeyedStream, Output, Stream, TimeDomain};
use millpond_operators::{
    EvictWhen, Evictors, InWindow, KeyedStreamOperators, Trigger, TriggerContext, TriggerResult, Triggers, Window,
    WindowProcess, Windowed, Windows,
};
use millpond_sim::TestDriver;

use crate::support::{LATE, MS, Record, Rig, Short, Sum, SumAll, short};

type Results = Stream<Windowed<u64, (u64, u64)>>;
type Keyed = KeyedStream<u64, Record>;
type Way<'a> = &'a dyn Fn(Keyed) -> Results;
type ShortRig = Rig<Windowed<u64, (u64, u64)>>;

fn start(pipeline: &dyn Fn(Keyed) -> Results) -> (ShortRig, TestDriver) {
    let rig = Rig::new();
    let driver = rig.start(TestDriver::builder(), None, pipeline);
    (rig, driver)
}

fn event() -> impl Trigger<Record> {
    Triggers::at_end(TimeDomain::Event)
}

/// Each way to compute tumbling windows of 10 ms with some lateness.
fn every_way(lateness: u64) -> Vec<Box<dyn Fn(Keyed) -> Results>> {
    let of =
        move |keyed: Keyed| keyed.window(Windows::tumbling(MS(10))).allowed_lateness(MS(lateness)).late_output(LATE);
    vec![
        Box::new(move |keyed| of(keyed).aggregate("windows", Sum)),
        Box::new(move |keyed| of(keyed).trigger(event()).aggregate("windows", Sum)),
        Box::new(move |keyed| of(keyed).process("windows", SumAll)),
    ]
}

fn advance(rig: &ShortRig, driver: &mut TestDriver, watermark: i64) -> Vec<Short> {
    short(rig.advance(driver, watermark))
}

#[test]
fn wi_10_a_window_fires_when_the_watermark_reaches_its_last_time() {
    for way in every_way(0) {
        let (rig, mut driver) = start(&*way);
        rig.value(1, 3, 5);
        rig.value(1, 9, 7);
        rig.value(1, 10, 1);
        assert_eq!(advance(&rig, &mut driver, 8), []);
        assert_eq!(advance(&rig, &mut driver, 9), [(1, 0, 10, 12)]);
        assert_eq!(advance(&rig, &mut driver, i64::MAX), [(1, 10, 20, 1)]);
    }
}

#[test]
fn wi_11_results_carry_the_last_time_of_their_window() {
    for way in every_way(20) {
        // A window over the results: each must land in the window of its own time.
        let pipeline = |keyed: Keyed| -> Results {
            let first = way(keyed);
            let again = first.map_value();
            again.window(Windows::tumbling(MS(1))).aggregate("second", Sum)
        };
        let (rig, mut driver) = start(&pipeline);
        rig.value(1, 3, 5);
        rig.value(1, 30, 9);
        assert_eq!(advance(&rig, &mut driver, 9), [(1, 9, 10, 5)]);
        rig.value(1, 4, 1);
        assert_eq!(advance(&rig, &mut driver, 39), [(1, 39, 40, 9)], "the late result is late for the second window");
    }
}

/// Results as records again, with the same key.
trait MapValue {
    fn map_value(&self) -> Keyed;
}

impl MapValue for Results {
    fn map_value(&self) -> Keyed {
        use millpond_operators::StreamOperators;
        self.map(|result| Record::Untimed(result.key, result.value.0)).key_by(|record| match record {
            Record::Untimed(key, _) => *key,
            _ => 0,
        })
    }
}

#[test]
fn wi_12_windows_of_a_key_fire_in_order_of_their_end() {
    for way in every_way(0) {
        let (rig, mut driver) = start(&*way);
        for time in [35, 5, 25, 15] {
            rig.value(1, time, 1);
        }
        let fired = advance(&rig, &mut driver, 100);
        assert_eq!(fired.iter().map(|result| result.1).collect::<Vec<_>>(), [0, 10, 20, 30]);
    }
}

#[test]
fn wi_13_a_record_older_than_the_watermark_is_taken_while_its_window_is_there() {
    for way in every_way(0) {
        let (rig, mut driver) = start(&*way);
        rig.value(1, 3, 5);
        assert_eq!(advance(&rig, &mut driver, 8), []);
        rig.value(1, 1, 2);
        assert_eq!(advance(&rig, &mut driver, 9), [(1, 0, 10, 7)]);
        assert_eq!(rig.late.take(), []);
    }
}

#[test]
fn wi_14_a_record_is_late_when_its_window_is_gone() {
    for way in every_way(5) {
        let (rig, mut driver) = start(&*way);
        rig.value(1, 3, 5);
        assert_eq!(advance(&rig, &mut driver, 13), [(1, 0, 10, 5)]);
        rig.value(1, 3, 6);
        assert_eq!(short(rig.run(&mut driver)), [(1, 0, 10, 11)], "the last moment");
        assert_eq!(advance(&rig, &mut driver, 14), []);
        rig.value(1, 3, 7);
        assert_eq!(short(rig.run(&mut driver)), []);
        assert_eq!(rig.late.take(), [Record::Value(1, 3, 7)]);
    }
}

#[test]
fn wi_15_a_late_record_fires_at_once_with_all_content_and_wi_16_may_be_the_first() {
    for way in every_way(100) {
        let (rig, mut driver) = start(&*way);
        rig.value(1, 3, 5);
        assert_eq!(advance(&rig, &mut driver, 50), [(1, 0, 10, 5)]);
        rig.value(1, 4, 1);
        rig.value(1, 5, 1);
        rig.value(2, 21, 3);
        assert_eq!(short(rig.run(&mut driver)), [(1, 0, 10, 6), (1, 0, 10, 7), (2, 20, 30, 3)]);
        assert_eq!(advance(&rig, &mut driver, 60), []);
    }
}

#[test]
fn wi_17_a_record_late_for_one_sliding_window_goes_into_the_others() {
    let ways: [Way<'_>; 2] = [
        &|keyed| keyed.window(Windows::sliding(MS(10), MS(5))).late_output(LATE).aggregate("windows", Sum),
        &|keyed| keyed.window(Windows::sliding(MS(10), MS(5))).late_output(LATE).process("windows", SumAll),
    ];
    for way in ways {
        let (rig, mut driver) = start(way);
        rig.value(1, 7, 1);
        assert_eq!(advance(&rig, &mut driver, 9), [(1, 0, 10, 1)]);
        rig.value(1, 8, 2);
        assert_eq!(advance(&rig, &mut driver, 14), [(1, 5, 15, 3)]);
        assert_eq!(rig.late.take(), []);
    }
}

#[test]
fn wi_18_a_record_in_a_gap_is_late_only_if_its_time_is_past() {
    let ways: [Way<'_>; 2] = [
        &|keyed| keyed.window(Windows::sliding(MS(2), MS(10))).late_output(LATE).aggregate("windows", Sum),
        &|keyed| keyed.window(Windows::sliding(MS(2), MS(10))).late_output(LATE).process("windows", SumAll),
    ];
    for way in ways {
        let (rig, mut driver) = start(way);
        advance(&rig, &mut driver, 5);
        rig.value(1, 5, 1);
        rig.value(1, 6, 2);
        assert_eq!(advance(&rig, &mut driver, 100), []);
        assert_eq!(rig.late.take(), [Record::Value(1, 5, 1)]);
    }
}

#[test]
fn wi_07_a_record_without_a_time_is_an_error_that_says_so() {
    for way in every_way(0) {
        let (rig, mut driver) = start(&*way);
        rig.push(Record::Untimed(1, 1));
        let error = millpond_core::error::chain(&driver.run().unwrap_err());
        assert!(error.contains("windows") && error.contains("without event time"), "{error}");
    }
}

#[test]
fn wi_08_lengths_that_cannot_be_are_refused_when_the_job_is_built() {
    let refused = |pipeline: &dyn Fn(Keyed) -> Results| {
        let rig = ShortRig::new();
        let error = TestDriver::build(rig.job(pipeline)).err().expect("refused");
        millpond_core::error::chain(&error)
    };
    let zero = refused(&|keyed| keyed.window(Windows::tumbling(MS(0))).aggregate("zero", Sum));
    assert!(zero.contains("\"zero\"") && zero.contains("the size of a window must be"), "{zero}");
    let gap = refused(&|keyed| keyed.window(Windows::session(MS(0))).process("gap", SumAll));
    assert!(gap.contains("the gap of a window"), "{gap}");
    let count = refused(&|keyed| keyed.count_window(0).aggregate("count", Sum));
    assert!(count.contains("number of records"), "{count}");
    let offset = refused(&|keyed| keyed.window(Windows::tumbling(MS(5)).offset_ms(5)).aggregate("offset", Sum));
    assert!(offset.contains("offset"), "{offset}");
    let custom = |_: &Record, _| Vec::new();
    let offset = refused(&|keyed| keyed.window(Windows::custom(custom).offset_ms(5)).aggregate("offset", Sum));
    assert!(offset.contains("custom windows cannot be shifted by an offset, here 5 ms"), "{offset}");
    let many = refused(&|keyed| keyed.window(Windows::sliding(MS(100_001), MS(1))).aggregate("many", Sum));
    assert!(many.contains("\"many\"") && many.contains("into 100001 windows: more than 100000"), "{many}");
    let by_clock = || Windows::tumbling(MS(5)).processing_time();
    let late = refused(&|keyed| keyed.window(by_clock()).allowed_lateness(MS(1)).aggregate("late", Sum));
    assert!(late.contains("allowed lateness"), "{late}");
}

#[test]
fn wi_08_triggers_that_cannot_be_are_refused_when_the_job_is_built() {
    fn refused(trigger: fn(millpond_operators::WindowedStream<u64, Record>) -> Results) -> String {
        let pipeline = |keyed: Keyed| trigger(keyed.window(Windows::tumbling(MS(5))));
        let error = TestDriver::build(ShortRig::new().job(&pipeline)).err().expect("refused");
        millpond_core::error::chain(&error)
    }
    let interval = refused(|windowed| windowed.trigger(Triggers::continuous(MS(0))).aggregate("windows", Sum));
    assert!(interval.contains("the trigger interval of a window must be from 1 ms"), "{interval}");
    let count = refused(|windowed| windowed.trigger(Triggers::purging(Triggers::count(0))).aggregate("windows", Sum));
    assert!(count.contains("number of records"), "{count}");
}

#[test]
fn wi_09_windows_by_the_wall_clock_take_every_record_and_fire_by_it() {
    let (rig, mut driver) = start(&|keyed| {
        keyed.window(Windows::tumbling(MS(1_000)).processing_time()).late_output(LATE).aggregate("windows", Sum)
    });
    driver.set_time(10_100);
    rig.push(Record::Untimed(1, 4));
    rig.value(1, 3, 5);
    assert_eq!(advance(&rig, &mut driver, 1_000_000), []);
    rig.value(1, -77, 1);
    driver.run().unwrap();
    driver.set_time(10_998);
    assert_eq!(short(rig.run(&mut driver)), []);
    driver.set_time(10_999);
    assert_eq!(short(rig.run(&mut driver)), [(1, 10_000, 11_000, 10)]);
    assert_eq!(rig.late.take(), []);
}

fn sessions(keyed: Keyed) -> Results {
    keyed.window(Windows::session(MS(10))).late_output(LATE).aggregate("windows", Sum)
}

#[test]
fn wi_20_sessions_that_touch_merge_and_wi_22_a_bridge_joins_two() {
    let (rig, mut driver) = start(&sessions);
    for (time, value) in [(0, 1), (10, 2), (21, 4), (100, 8), (115, 16), (108, 32)] {
        rig.value(1, time, value);
    }
    rig.value(2, 5, 64);
    let mut fired = advance(&rig, &mut driver, 1_000);
    fired.sort_unstable();
    assert_eq!(fired, [(1, 0, 20, 3), (1, 21, 31, 4), (1, 100, 125, 56), (2, 5, 15, 64)]);
}

#[test]
fn wi_23_an_old_record_that_touches_a_live_session_is_taken_and_alone_it_is_late() {
    let (rig, mut driver) = start(&sessions);
    rig.value(1, 20, 1);
    assert_eq!(advance(&rig, &mut driver, 25), []);
    rig.value(1, 12, 2);
    rig.value(1, 5, 4);
    rig.value(2, 12, 8);
    assert_eq!(advance(&rig, &mut driver, 29), [(1, 5, 30, 7)]);
    assert_eq!(rig.late.take(), [Record::Value(2, 12, 8)]);
    // The session is gone: a record inside of its old span begins a new one.
    rig.value(1, 22, 16);
    assert_eq!(advance(&rig, &mut driver, 31), [(1, 22, 32, 16)]);
}

#[test]
fn wi_24_a_record_that_joins_a_fired_session_fires_again_at_the_new_end_or_at_once() {
    let (rig, mut driver) =
        start(&|keyed| keyed.window(Windows::session(MS(10))).allowed_lateness(MS(100)).aggregate("windows", Sum));
    rig.value(1, 0, 1);
    assert_eq!(advance(&rig, &mut driver, 9), [(1, 0, 10, 1)]);
    rig.value(1, 5, 2);
    assert_eq!(short(rig.run(&mut driver)), []);
    assert_eq!(advance(&rig, &mut driver, 14), [(1, 0, 15, 3)]);
    rig.value(1, 3, 4);
    assert_eq!(short(rig.run(&mut driver)), [(1, 0, 15, 7)]);
}

#[test]
fn wi_25_each_record_may_bring_its_own_gap() {
    let (rig, mut driver) = start(&|keyed| {
        let gap = |record: &Record| MS(record.value());
        keyed.window(Windows::dynamic_session(gap)).aggregate("windows", Sum)
    });
    for (time, gap) in [(0, 5), (4, 20), (25, 1)] {
        rig.value(1, time, gap);
    }
    assert_eq!(advance(&rig, &mut driver, 100), [(1, 0, 24, 25), (1, 25, 26, 1)]);
}

#[test]
fn wi_27_reduce_keeps_the_running_value_and_takes_the_first_record_as_it_is() {
    let rig = Rig::new();
    let pipeline = |keyed: Keyed| {
        let larger = |a: Record, b: Record| if a.value() >= b.value() { a } else { b };
        keyed.window(Windows::tumbling(MS(10))).reduce("largest", larger)
    };
    let mut driver = rig.start(TestDriver::builder(), None, &pipeline);
    rig.value(1, 3, 5);
    rig.value(1, 4, 9);
    rig.value(1, 12, 1);
    let fired: Vec<Record> = rig.advance(&mut driver, 100).into_iter().map(|result| result.value).collect();
    assert_eq!(fired, [Record::Value(1, 4, 9), Record::Value(1, 12, 1)]);
}

#[test]
fn wi_29_sessions_refuse_a_trigger_that_cannot_merge() {
    let pipeline = |keyed: Keyed| -> Results {
        let delta = Triggers::delta(1.0, |_: &Record, _: &Record| 0.0);
        keyed.window(Windows::session(MS(5))).trigger(delta).aggregate("windows", Sum)
    };
    let error = TestDriver::build(ShortRig::new().job(&pipeline)).err().expect("refused");
    assert!(millpond_core::error::chain(&error).contains("cannot"));
}

#[test]
fn wi_30_a_count_trigger_fires_at_each_nth_record_and_wi_31_purging_drops_the_content() {
    let (rig, mut driver) =
        start(&|keyed| keyed.window(Windows::tumbling(MS(100))).trigger(Triggers::count(2)).aggregate("windows", Sum));
    for value in [1, 2, 4, 8, 16] {
        rig.value(1, 5, value);
    }
    assert_eq!(short(rig.run(&mut driver)), [(1, 0, 100, 3), (1, 0, 100, 15)]);
    assert_eq!(advance(&rig, &mut driver, 1_000), []);

    let (rig, mut driver) = start(&|keyed| {
        let trigger = Triggers::purging(Triggers::count(2));
        keyed.window(Windows::tumbling(MS(100))).trigger(trigger).aggregate("windows", Sum)
    });
    for value in [1, 2, 4, 8, 16] {
        rig.value(1, 5, value);
    }
    assert_eq!(short(rig.run(&mut driver)), [(1, 0, 100, 3), (1, 0, 100, 12)]);
}

#[test]
fn wi_32_the_global_window_never_fires_by_itself_and_with_an_end_trigger_once_at_the_end() {
    let (rig, mut driver) = start(&|keyed| keyed.window(Windows::global()).aggregate("windows", Sum));
    rig.value(1, 5, 1);
    driver.finish().unwrap();
    assert_eq!(rig.output.take(), []);

    let (rig, mut driver) = start(&|keyed| keyed.window(Windows::global()).trigger(event()).aggregate("windows", Sum));
    rig.value(1, 5, 1);
    rig.value(1, 7, 2);
    assert_eq!(advance(&rig, &mut driver, 1_000), []);
    driver.finish().unwrap();
    assert_eq!(short(rig.output.take()), [(1, i64::MIN, i64::MAX, 3)]);
}

#[test]
fn a_delta_trigger_fires_when_a_record_differs_by_more_than_the_threshold() {
    let (rig, mut driver) = start(&|keyed| {
        let delta = Triggers::delta(10.0, |last: &Record, now: &Record| now.value() as f64 - last.value() as f64);
        keyed.window(Windows::global()).trigger(Triggers::purging(delta)).aggregate("windows", Sum)
    });
    for value in [100, 105, 111, 115, 130] {
        rig.value(1, 5, value);
    }
    let sums: Vec<u64> = short(rig.run(&mut driver)).iter().map(|result| result.3).collect();
    assert_eq!(sums, [316, 245]);
}

/// A trigger of the user's own: fires a second (wall clock) after the first record, then purges.
struct AfterASecond;

impl Trigger<Record> for AfterASecond {
    fn on_record(
        &mut self,
        _: &Record,
        _: i64,
        _: Window,
        context: &mut TriggerContext<'_, Record>,
    ) -> UserResult<TriggerResult> {
        if context.state.time_ms.is_none() {
            let due = context.processing_time() + 1_000;
            context.state.time_ms = Some(due);
            context.set_timer(TimeDomain::Processing, due);
        }
        Ok(TriggerResult::Continue)
    }

    fn on_time(
        &mut self,
        domain: TimeDomain,
        _: i64,
        _: Window,
        context: &mut TriggerContext<'_, Record>,
    ) -> UserResult<TriggerResult> {
        if domain == TimeDomain::Event {
            return Ok(TriggerResult::Continue);
        }
        context.state.time_ms = None;
        Ok(TriggerResult::FireAndPurge)
    }
}

#[test]
fn wi_46_a_custom_trigger_may_use_timers_of_both_domains_beside_the_end_of_the_window() {
    let (rig, mut driver) =
        start(&|keyed| keyed.window(Windows::tumbling(MS(10))).trigger(AfterASecond).aggregate("windows", Sum));
    driver.set_time(5_000);
    rig.value(1, 5, 1);
    rig.value(1, 6, 2);
    driver.run().unwrap();
    driver.set_time(6_000);
    assert_eq!(short(rig.run(&mut driver)), [(1, 0, 10, 3)]);
    rig.value(1, 7, 4);
    assert_eq!(advance(&rig, &mut driver, 9), [], "the window goes, and its timer with it (WI-41)");
    driver.set_time(9_000);
    assert_eq!(short(rig.run(&mut driver)), []);
}

#[test]
fn wi_35_a_count_evictor_and_wi_36_a_time_evictor_limit_what_is_seen_and_what_stays() {
    let ways: [(Way<'_>, [u64; 2]); 3] = [
        (&|keyed| count_evicted(keyed, EvictWhen::Before), [6, 12]),
        (&|keyed| count_evicted(keyed, EvictWhen::After), [7, 22]),
        (
            &|keyed| {
                let windowed = keyed.window(Windows::global()).trigger(Triggers::count(3));
                windowed.evictor(Evictors::time(MS(2), EvictWhen::Before)).aggregate("windows", Sum)
            },
            [6, 16],
        ),
    ];
    for (way, expected) in ways {
        let (rig, mut driver) = start(way);
        // The sixth record comes two after the one before.
        for (time, value) in [(1, 1), (2, 2), (3, 4), (4, 0), (5, 8)] {
            rig.value(1, time, value);
        }
        let first = short(rig.run(&mut driver));
        rig.value(
            1,
            7,
            if expected[1] == 12 {
                4
            } else if expected[1] == 22 {
                8
            } else {
                16
            },
        );
        let second = short(rig.run(&mut driver));
        assert_eq!([first[0].3, second[0].3], expected);
    }
}

fn count_evicted(keyed: Keyed, when: EvictWhen) -> Results {
    let windowed = keyed.window(Windows::global()).trigger(Triggers::count(3));
    windowed.evictor(Evictors::count(2, when)).process("windows", SumAll)
}

#[test]
fn wi_37_a_function_is_called_even_if_nothing_is_left() {
    let (rig, mut driver) = start(&|keyed| {
        let windowed = keyed.window(Windows::tumbling(MS(10)));
        windowed.evictor(Evictors::count(0, EvictWhen::Before)).process("windows", SumAll)
    });
    rig.value(1, 5, 1);
    let fired = rig.advance(&mut driver, 9);
    assert_eq!(fired.iter().map(|result| result.value).collect::<Vec<_>>(), [(0, 0)]);
}

#[test]
fn wi_34_a_window_that_an_evictor_has_emptied_emits_nothing_until_a_record_comes() {
    let (rig, mut driver) = start(&|keyed| {
        let windowed = keyed.window(Windows::tumbling(MS(100))).trigger(Triggers::continuous(MS(10)));
        windowed.evictor(Evictors::count(0, EvictWhen::After)).process("windows", SumAll)
    });
    rig.value(1, 1, 5);
    assert_eq!(advance(&rig, &mut driver, 10), [(1, 0, 100, 5)]);
    assert_eq!(advance(&rig, &mut driver, 20), []);
    rig.value(1, 25, 7);
    assert_eq!(advance(&rig, &mut driver, 30), [(1, 0, 100, 7)]);
    assert_eq!(advance(&rig, &mut driver, 99), []);
}

#[test]
fn wi_40_count_windows_tumble_and_slide() {
    let (rig, mut driver) = start(&|keyed| keyed.count_window(3).aggregate("windows", Sum));
    for value in 1..=7 {
        rig.push(Record::Untimed(1, value));
    }
    let sums = |results: Vec<Short>| results.into_iter().map(|result| result.3).collect::<Vec<u64>>();
    assert_eq!(sums(short(rig.run(&mut driver))), [6, 15]);

    let (rig, mut driver) = start(&|keyed| keyed.sliding_count_window(3, 2).aggregate("windows", Sum));
    for value in 1..=7 {
        rig.push(Record::Untimed(1, value));
    }
    assert_eq!(sums(short(rig.run(&mut driver))), [3, 9, 15]);
}

/// Counts how often each window has fired, in state of its own, and clears it with the window.
#[derive(Default)]
struct Firings(Option<millpond_state::MapState<Window, u64>>);

impl WindowProcess for Firings {
    type Key = u64;
    type Input = Record;
    type Output = Windowed<u64, (u64, u64)>;

    fn open(&mut self, states: &mut millpond_state::StateDeclarer<'_, u64>) -> UserResult {
        self.0 = Some(states.map("firings")?);
        Ok(())
    }

    fn process(
        &mut self,
        window: Window,
        records: &[InWindow<Record>],
        context: &mut KeyedContext<'_, u64>,
        output: &mut Output<Self::Output>,
    ) -> UserResult {
        let firings = self.0.expect("declared in open");
        let before = firings.get(context, &window)?.copied().unwrap_or(0);
        firings.put(context, window, before + 1)?;
        output.emit(Windowed { key: *context.key()?, window, value: (before + 1, records.len() as u64) });
        Ok(())
    }

    fn clear(&mut self, window: Window, context: &mut KeyedContext<'_, u64>) -> UserResult {
        self.0.expect("declared in open").remove(context, &window)?;
        Ok(())
    }
}

#[test]
fn wi_38_state_of_a_window_survives_its_firings_and_goes_with_it() {
    let (rig, mut driver) = start(&|keyed| {
        keyed.window(Windows::tumbling(MS(10))).allowed_lateness(MS(10)).process("windows", Firings::default())
    });
    rig.value(1, 5, 1);
    assert_eq!(advance(&rig, &mut driver, 9), [(1, 0, 10, 1)]);
    rig.value(1, 6, 1);
    assert_eq!(short(rig.run(&mut driver)), [(1, 0, 10, 2)]);
    assert_eq!(driver.keyed_map::<u64, Window, u64>("windows", "firings", &1).unwrap().len(), 1);
    advance(&rig, &mut driver, 19);
    assert_eq!(driver.keyed_map::<u64, Window, u64>("windows", "firings", &1).unwrap(), []);
}

#[test]
fn custom_windows_are_what_the_function_says() {
    let (rig, mut driver) = start(&|keyed| {
        let windows = Windows::custom(|record: &Record, time: i64| {
            vec![Window::new(time, time + record.value() as i64), Window::new(0, 0)]
        });
        keyed.window(windows).aggregate("windows", Sum)
    });
    rig.value(1, 10, 5);
    rig.value(1, 10, 7);
    rig.value(1, 10, 5);
    assert_eq!(advance(&rig, &mut driver, 100), [(1, 10, 15, 10), (1, 10, 17, 7)]);
}

#[test]
fn windows_at_the_ends_of_time_fire_at_the_end() {
    for way in every_way(0) {
        let (rig, mut driver) = start(&*way);
        rig.value(1, i64::MAX, 1);
        rig.value(2, i64::MIN + 1, 2);
        assert_eq!(advance(&rig, &mut driver, 0).len(), 1);
        driver.finish().unwrap();
        let fired = short(rig.output.take());
        assert_eq!(fired.iter().map(|result| (result.0, result.2, result.3)).collect::<Vec<_>>(), [(1, i64::MAX, 1)]);
    }
}

#[test]
fn a_job_with_windows_says_what_it_is_in_the_plan() {
    let rig = ShortRig::new();
    let graph = Dataflow::build(|flow| rig.job(&sessions)(flow)).unwrap();
    assert!(graph.operators.iter().any(|operator| operator.name == "windows" && operator.kind == "window"));
}

#[test]
fn slices_that_were_kept_for_a_longer_lateness_go_at_the_restore() {
    let way = |lateness: u64| {
        move |keyed: Keyed| -> Results {
            keyed.window(Windows::tumbling(MS(10))).allowed_lateness(MS(lateness)).aggregate("windows", Sum)
        }
    };
    let (rig, mut driver) = start(&way(100));
    rig.value(1, 3, 5);
    assert_eq!(advance(&rig, &mut driver, 9), [(1, 0, 10, 5)]);
    let snapshot = driver.checkpoint().unwrap();
    driver.kill();
    let mut driver = rig.start(TestDriver::builder(), Some(&snapshot), &way(0));
    assert_eq!(driver.live_entries("windows").unwrap(), 1);
    rig.value(1, 13, 1);
    assert_eq!(advance(&rig, &mut driver, 19), [(1, 10, 20, 1)]);
    assert_eq!(driver.live_entries("windows").unwrap(), 0);
}

/// Far apart, out of order, with bridges: a key with hundreds of open sessions keeps them apart as one with few does.
#[test]
fn wi_20_wi_22_a_key_with_many_open_sessions_merges_and_fires_them_right() {
    let (rig, mut driver) = start(&sessions);
    // 300 sessions [i * 100, i * 100 + 10), in an order that jumps about.
    for i in 0..300u64 {
        let at = i * 7 % 300;
        rig.value(1, at as i64 * 100, 1);
    }
    assert_eq!(rig.run(&mut driver), vec![]);
    // Each third is extended, and joined with what is behind it by a chain of bridges.
    for i in (0..300i64).step_by(3) {
        (1..10).for_each(|step| rig.value(1, i * 100 + step * 10, 1));
    }
    let results = short(rig.advance(&mut driver, i64::MAX));
    let expected: Vec<Short> = (0..300i64)
        .filter(|i| i % 3 != 1)
        .map(|i| if i % 3 == 0 { (1, i * 100, i * 100 + 110, 11) } else { (1, i * 100, i * 100 + 10, 1) })
        .collect();
    assert_eq!(results, expected);
}
