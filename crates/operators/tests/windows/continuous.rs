//! Continuous triggers, firing by firing.

use millpond_dataflow::{KeyedStream, Stream};
use millpond_operators::{KeyedStreamOperators, Triggers, Windowed, Windows};
use millpond_sim::TestDriver;

use crate::support::{MS, Record, Rig, Short, Sum, short};

type Results = Stream<Windowed<u64, (u64, u64)>>;
type Keyed = KeyedStream<u64, Record>;
type ShortRig = Rig<Windowed<u64, (u64, u64)>>;

fn start(pipeline: &dyn Fn(Keyed) -> Results) -> (ShortRig, TestDriver) {
    let rig = Rig::new();
    let driver = rig.start(TestDriver::builder(), None, pipeline);
    (rig, driver)
}

fn advance(rig: &ShortRig, driver: &mut TestDriver, watermark: i64) -> Vec<Short> {
    short(rig.advance(driver, watermark))
}

/// What comes out when the wall clock comes to `now_ms`.
fn at(rig: &ShortRig, driver: &mut TestDriver, now_ms: i64) -> Vec<Short> {
    driver.set_time(now_ms);
    short(rig.run(driver))
}

#[test]
fn wi_33_a_continuous_trigger_fires_at_multiples_of_its_interval_and_at_the_end() {
    let (rig, mut driver) = start(&|keyed| {
        keyed.window(Windows::tumbling(MS(10))).trigger(Triggers::continuous(MS(3))).aggregate("windows", Sum)
    });
    rig.value(1, 1, 1);
    assert_eq!(advance(&rig, &mut driver, 2), []);
    assert_eq!(advance(&rig, &mut driver, 3), [(1, 0, 10, 1)]);
    rig.value(1, 4, 2);
    assert_eq!(advance(&rig, &mut driver, 5), []);
    assert_eq!(advance(&rig, &mut driver, 7), [(1, 0, 10, 3)]);
    rig.value(1, 8, 4);
    assert_eq!(advance(&rig, &mut driver, 8), []);
    assert_eq!(advance(&rig, &mut driver, 9), [(1, 0, 10, 7)], "the end is a multiple as well: one firing");
    assert_eq!(advance(&rig, &mut driver, 200), []);
}

#[test]
fn wi_33_multiples_that_event_time_passes_at_once_are_one_firing_beside_the_end() {
    let (rig, mut driver) = start(&|keyed| {
        keyed.window(Windows::tumbling(MS(10))).trigger(Triggers::continuous(MS(4))).aggregate("windows", Sum)
    });
    rig.value(1, 1, 1);
    assert_eq!(advance(&rig, &mut driver, 100), [(1, 0, 10, 1), (1, 0, 10, 1)], "at 4 and at the end");
    assert_eq!(advance(&rig, &mut driver, 200), []);
}

#[test]
fn wi_33_after_its_end_a_window_fires_only_at_late_records_however_long_it_is_kept() {
    for lateness in [50, u64::MAX] {
        let (rig, mut driver) = start(&|keyed| {
            let windowed = keyed.window(Windows::tumbling(MS(10))).allowed_lateness(MS(lateness));
            windowed.trigger(Triggers::continuous(MS(4))).aggregate("windows", Sum)
        });
        rig.value(1, 7, 1);
        assert_eq!(advance(&rig, &mut driver, 8), [(1, 0, 10, 1)]);
        assert_eq!(advance(&rig, &mut driver, 9), [(1, 0, 10, 1)]);
        assert_eq!(advance(&rig, &mut driver, 15), [], "12 is after the end");
        rig.value(1, 8, 2);
        assert_eq!(short(rig.run(&mut driver)), [(1, 0, 10, 3)]);
        assert_eq!(advance(&rig, &mut driver, 40), []);
        driver.finish().unwrap();
        assert_eq!(rig.output.take(), []);
    }
}

#[test]
fn wi_33_a_continuous_trigger_on_the_global_window_comes_to_an_end_with_the_input() {
    let (rig, mut driver) =
        start(&|keyed| keyed.window(Windows::global()).trigger(Triggers::continuous(MS(10))).aggregate("windows", Sum));
    rig.value(1, 1, 1);
    let fired = (1, i64::MIN, i64::MAX, 1);
    assert_eq!(advance(&rig, &mut driver, 9), []);
    assert_eq!(advance(&rig, &mut driver, 10), [fired]);
    assert_eq!(advance(&rig, &mut driver, 25), [fired]);
    assert_eq!(advance(&rig, &mut driver, 29), []);
    driver.finish().unwrap();
    assert_eq!(short(rig.output.take()), [fired, fired], "at 30 and at the end");
}

#[test]
fn wi_33_a_record_without_a_time_in_the_global_window_does_not_fire_from_the_beginning_of_time_on() {
    let (rig, mut driver) =
        start(&|keyed| keyed.window(Windows::global()).trigger(Triggers::continuous(MS(10))).aggregate("windows", Sum));
    advance(&rig, &mut driver, 25);
    rig.push(Record::Untimed(1, 1));
    assert_eq!(advance(&rig, &mut driver, 29), []);
    assert_eq!(advance(&rig, &mut driver, 30), [(1, i64::MIN, i64::MAX, 1)]);
    rig.push(Record::Untimed(2, 2));
    driver.finish().unwrap();
    assert_eq!(rig.output.take().len(), 4, "each key at 40 and at the end");

    let (rig, mut driver) =
        start(&|keyed| keyed.window(Windows::global()).trigger(Triggers::continuous(MS(10))).aggregate("windows", Sum));
    rig.push(Record::Untimed(1, 1));
    assert_eq!(advance(&rig, &mut driver, 5).len(), 1, "event time has only begun");
    assert_eq!(advance(&rig, &mut driver, 9), []);
    assert_eq!(advance(&rig, &mut driver, 10).len(), 1);
}

#[test]
fn wi_33_a_session_fires_at_multiples_until_the_end_that_it_has_after_merging() {
    let (rig, mut driver) = start(&|keyed| {
        keyed.window(Windows::session(MS(10))).trigger(Triggers::continuous(MS(100))).aggregate("windows", Sum)
    });
    rig.value(1, 91, 1);
    rig.value(1, 97, 2);
    assert_eq!(advance(&rig, &mut driver, 99), []);
    assert_eq!(advance(&rig, &mut driver, 100), [(1, 91, 107, 3)]);
    rig.value(1, 104, 4);
    assert_eq!(advance(&rig, &mut driver, 112), []);
    assert_eq!(advance(&rig, &mut driver, 113), [(1, 91, 114, 7)]);
    assert_eq!(advance(&rig, &mut driver, 1_000), []);
}

#[test]
fn wi_33_by_the_wall_clock_it_fires_at_multiples_and_at_the_end_of_the_window() {
    let (rig, mut driver) = start(&|keyed| {
        let windows = Windows::tumbling(MS(1_000)).processing_time();
        keyed.window(windows).trigger(Triggers::continuous_processing(MS(300))).aggregate("windows", Sum)
    });
    driver.set_time(10_000);
    rig.push(Record::Untimed(1, 1));
    driver.run().unwrap();
    assert_eq!(at(&rig, &mut driver, 10_199), []);
    assert_eq!(at(&rig, &mut driver, 10_200), [(1, 10_000, 11_000, 1)]);
    assert_eq!(at(&rig, &mut driver, 10_800), [(1, 10_000, 11_000, 1)], "10,500 and 10,800 in one");
    rig.push(Record::Untimed(1, 2));
    assert_eq!(at(&rig, &mut driver, 10_998), []);
    assert_eq!(at(&rig, &mut driver, 10_999), [(1, 10_000, 11_000, 3)], "the tail");
    assert_eq!(at(&rig, &mut driver, 20_000), []);
}

#[test]
fn wi_33_windows_in_event_time_fire_by_the_wall_clock_and_at_their_own_end() {
    let (rig, mut driver) = start(&|keyed| {
        let windowed = keyed.window(Windows::tumbling(MS(10))).allowed_lateness(MS(20));
        windowed.trigger(Triggers::continuous_processing(MS(300))).aggregate("windows", Sum)
    });
    driver.set_time(10_000);
    rig.value(1, 5, 1);
    driver.run().unwrap();
    assert_eq!(at(&rig, &mut driver, 10_200), [(1, 0, 10, 1)]);
    assert_eq!(at(&rig, &mut driver, 10_500), [(1, 0, 10, 1)]);
    rig.value(1, 6, 2);
    assert_eq!(advance(&rig, &mut driver, 9), [(1, 0, 10, 3)]);
    assert_eq!(at(&rig, &mut driver, 11_000), [], "after the end only late records fire");
    rig.value(1, 7, 4);
    assert_eq!(short(rig.run(&mut driver)), [(1, 0, 10, 7)]);
}
