use std::time::Duration;

use millpond_dataflow::Outputs;
use millpond_dataflow::batch::{Batch, NO_TIME};
use millpond_dataflow::time::{Element, TimeMark};

use super::*;

const MIN: i64 = i64::MIN;

fn seen(strategy: &WatermarkStrategy<i64>, times: &[i64]) -> Vec<i64> {
    let mut clock = SplitClock::new(strategy);
    let one_by_one = times.iter().map(|time| {
        clock.observe(0, &mut Batch { records: vec![*time], times: vec![*time] }, 0).unwrap();
        match clock.standing() {
            Standing::Active(watermark) => watermark,
            Standing::Idle => unreachable!("a record has just come"),
        }
    });
    one_by_one.collect()
}

fn marks(outputs: &mut Outputs) -> Vec<TimeMark> {
    let marks = outputs.drain().filter_map(|(_, element)| match element {
        Element::Mark(mark) => Some(mark),
        Element::Batch(_) => None,
    });
    marks.collect()
}

#[test]
fn wm_10_bounded_out_of_orderness_is_the_newest_time_less_the_bound_less_one() {
    let bounded = WatermarkStrategy::bounded_out_of_orderness(Duration::from_millis(10));
    assert_eq!(seen(&bounded, &[100, 90, 105, -5]), [89, 89, 94, 94]);
    assert_eq!(seen(&WatermarkStrategy::monotonous(), &[7, 7, 9]), [6, 6, 8]);
}

#[test]
fn wm_10_watermarks_stay_within_the_range_of_times() {
    let huge = WatermarkStrategy::bounded_out_of_orderness(Duration::MAX);
    assert_eq!(seen(&huge, &[MIN + 1, 0]), [MIN, -i64::MAX - 1]);
    let all = WatermarkStrategy::monotonous().max_jump(None);
    assert_eq!(seen(&all, &[NO_TIME, MIN + 1, i64::MAX]), [MIN, MIN, i64::MAX - 1]);
}

#[test]
fn wm_19_records_without_a_time_do_not_move_event_time() {
    assert_eq!(seen(&WatermarkStrategy::monotonous(), &[5, NO_TIME, 6]), [4, 4, 5]);
}

#[test]
fn a_record_far_ahead_of_all_others_does_not_move_event_time() {
    let strategy = WatermarkStrategy::monotonous().max_jump(Some(Duration::from_millis(100)));
    assert_eq!(seen(&strategy, &[10, 111, 12, 112, 5_000, 113]), [9, 9, 11, 111, 111, 112]);
    let by_default = WatermarkStrategy::monotonous();
    assert_eq!(seen(&by_default, &[10, i64::MAX, 11, 253_402_300_799_000]), [9, 9, 10, 10]);
}

#[test]
fn many_records_in_a_row_that_are_far_ahead_are_believed() {
    let strategy = WatermarkStrategy::monotonous().max_jump(Some(Duration::from_millis(100)));
    let mut times = vec![10];
    times.extend((0..32).map(|i| 1_031 - i));
    let watermarks = seen(&strategy, &times);
    assert!(watermarks[..32].iter().all(|watermark| *watermark == 9), "{watermarks:?}");
    assert_eq!(watermarks[32], 999, "the least of them is believed");
    // One in between that is not ahead begins the count anew.
    times.insert(20, 11);
    assert_eq!(seen(&strategy, &times).last(), Some(&10));
}

#[test]
fn the_first_record_of_a_split_is_compared_with_other_splits_and_the_wall_clock() {
    let strategy = || WatermarkStrategy::monotonous().max_jump(Some(Duration::from_millis(100)));
    // Nothing came before: the next record has to agree.
    assert_eq!(seen(&strategy(), &[i64::MAX, 5, 6]), [MIN, 4, 5]);
    assert_eq!(seen(&strategy(), &[i64::MAX, 5_000, 5_050]), [MIN, MIN, 4_999]);
    assert_eq!(seen(&strategy(), &[9_000, 9_001]), [MIN, 8_999], "times of another unit than the wall clock's");
    // A later split is compared with the first.
    let strategy = strategy();
    assert_eq!(seen(&strategy, &[9_000, 9_001]), [MIN, 8_999]);
    assert_eq!(seen(&strategy, &[9_050]), [9_049]);
    assert_eq!(seen(&strategy, &[i64::MAX, i64::MAX - 1, 9_060]), [MIN, MIN, 9_059]);
    let mut clock = SplitClock::new(&strategy);
    clock.observe(0, &mut Batch { records: vec![50_000], times: vec![50_000] }, 49_990).unwrap();
    assert_eq!(clock.standing(), Standing::Active(49_999), "it is that late by the wall clock");
}

#[test]
fn a_batch_gives_the_same_watermark_as_its_records_one_by_one() {
    let strategy = WatermarkStrategy::bounded_out_of_orderness(Duration::from_millis(3))
        .max_jump(Some(Duration::from_millis(100)))
        .timestamps(|time: &i64| *time);
    let times: Vec<i64> = (0..200).map(|i| if i % 17 == 0 { 100_000 + i } else { i * 2 - i % 5 }).collect();
    let mut clock = SplitClock::new(&strategy);
    let mut batch = Batch { records: times.clone(), times: Vec::new() };
    clock.observe(50, &mut batch, 0).unwrap();
    assert_eq!(batch.times[..50], [NO_TIME; 50], "those before came without a time");
    assert_eq!(batch.times[50..], times[50..]);
    let Standing::Active(whole) = clock.standing() else { panic!("active") };
    assert_eq!(Some(&whole), seen(&strategy, &times[50..]).last());
}

#[test]
fn wm_11_a_punctuated_watermark_is_what_records_announce_and_may_repeat() {
    let strategy = WatermarkStrategy::punctuated(|record: &i64, _| (record % 10 == 0).then_some(record - 1));
    assert!(strategy.is_immediate());
    assert_eq!(seen(&strategy, &[5, 20, 7, 20, 10, 30]), [MIN, 19, 19, 19, 19, 29]);
}

#[test]
fn wm_12_a_split_is_idle_only_when_quiet_for_longer_than_the_timeout() {
    let strategy = WatermarkStrategy::monotonous().idle_after(Duration::from_millis(100));
    let mut clock = SplitClock::new(&strategy);
    clock.observe(0, &mut Batch { records: vec![5], times: vec![5] }, 0).unwrap();
    clock.quiet(1_000);
    clock.quiet(1_100);
    assert_eq!((clock.standing(), clock.idle_at()), (Standing::Active(4), Some(1_101)));
    clock.quiet(1_101);
    assert_eq!(clock.standing(), Standing::Idle);
    clock.observe(0, &mut Batch { records: vec![6], times: vec![6] }, 0).unwrap();
    assert_eq!(clock.standing(), Standing::Active(5));
}

#[test]
fn wm_13_splits_stand_together_at_the_least_of_those_that_take_part() {
    use Standing::{Active, Idle};
    assert_eq!(Standing::of_all([Active(5), Idle, Active(-2)].into_iter()), Some(Active(-2)));
    assert_eq!(Standing::of_all([Idle, Idle].into_iter()), Some(Idle));
    assert_eq!(Standing::of_all([].into_iter()), None, "without splits there is nothing to say");
}

#[test]
fn wm_16_marks_wait_for_the_interval_or_for_many_records_or_for_a_lull() {
    let (mut pacer, mut outputs) = (Pacer::new(200, false), Outputs::default());
    pacer.offer(10, 100, 1_000, &mut outputs);
    pacer.offer(10, 101, 1_199, &mut outputs);
    assert!(marks(&mut outputs).is_empty());
    assert_eq!(pacer.due_at(), Some(1_200));
    pacer.offer(10, 102, 1_200, &mut outputs);
    assert_eq!(marks(&mut outputs), [TimeMark::Watermark(102)]);
    pacer.offer(16 * 1_024, 103, 1_201, &mut outputs);
    assert_eq!(marks(&mut outputs), [TimeMark::Watermark(103)]);
    pacer.offer(1, 104, 1_201, &mut outputs);
    pacer.send(1_201, &mut outputs);
    pacer.send(1_201, &mut outputs);
    assert_eq!(marks(&mut outputs), [TimeMark::Watermark(104)], "once");
    pacer.rest(1_202, &mut outputs);
    pacer.rest(1_203, &mut outputs);
    pacer.offer(0, 90, 9_999, &mut outputs);
    pacer.wake(&mut outputs);
    assert_eq!(marks(&mut outputs), [TimeMark::Idle, TimeMark::Active]);
}
