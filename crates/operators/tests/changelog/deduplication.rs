//! First and last rows, one rule each.

use std::time::Duration;

use millpond_dataflow::Stream;
use millpond_operators::{Change, Deduplicate, RankingOperators, StreamOperators};
use millpond_state::Ttl;

use crate::support::{Rig, Row, one};

#[test]
fn the_first_row_of_a_key_passes_and_no_other() {
    let pipeline = |rows: Stream<Row>| rows.key_by(|row| row.0).deduplicate_first("first");
    let mut rig = Rig::start(one(), &pipeline);
    assert_eq!(rig.push((1, 5, 0)), [(1, 5, 0)]);
    assert_eq!(rig.push((2, 6, 1)), [(2, 6, 1)]);
    assert_eq!(rig.push((1, 7, 2)), []);
    rig.restore(3);
    assert_eq!(rig.push((1, 8, 3)), []);
}

#[test]
fn by_event_time_the_first_row_waits_for_the_watermark() {
    let rule = Deduplicate::by_event_time();
    let pipeline = |rows: Stream<Row>| rows.key_by(|row| row.0).deduplicate_first_with("first", rule);
    let mut rig = Rig::start(one(), &pipeline);
    assert_eq!(rig.push_at((1, 0, 0), 20), []);
    assert_eq!(rig.push_at((1, 0, 1), 10), [], "older");
    assert_eq!(rig.push_at((1, 0, 2), 10), [], "as old, and later");
    assert_eq!(rig.advance(9), []);
    rig.restore(2);
    assert_eq!(rig.advance(10), [(1, 0, 1)]);
    assert_eq!(rig.push_at((1, 0, 3), 5), [], "too late");
    assert_eq!(rig.advance(30), []);
    rig.push_at((2, 0, 4), 40);
    assert_eq!(rig.finish(), [(2, 0, 4)], "the end of input is the end of time");
}

#[test]
fn the_last_row_of_a_key_replaces_the_one_before() {
    let pipeline = |rows: Stream<Row>| rows.key_by(|row| row.0).deduplicate_last("last");
    let mut rig = Rig::start(one(), &pipeline);
    assert_eq!(rig.push((1, 5, 0)), [Change::insert((1, 5, 0))]);
    rig.restore(3);
    assert_eq!(rig.push((1, 4, 1)), [Change::update_before((1, 5, 0)), Change::update_after((1, 4, 1))]);
}

#[test]
fn by_event_time_an_older_row_makes_no_difference_and_one_as_old_does() {
    let rule = Deduplicate::by_event_time();
    let pipeline = |rows: Stream<Row>| rows.key_by(|row| row.0).deduplicate_last_with("last", rule);
    let mut rig = Rig::start(one(), &pipeline);
    assert_eq!(rig.push_at((1, 5, 0), 10), [Change::insert((1, 5, 0))]);
    assert_eq!(rig.push_at((1, 4, 1), 9), []);
    assert_eq!(rig.push_at((1, 3, 2), 10), [Change::update_before((1, 5, 0)), Change::update_after((1, 3, 2))]);
}

#[test]
fn a_key_that_was_forgotten_begins_anew() {
    let rule = Deduplicate::by_arrival().expire_after(Ttl::after(Duration::from_millis(100)));
    let first = |rows: Stream<Row>| rows.key_by(|row| row.0).deduplicate_first_with("first", rule);
    let mut rig = Rig::start(one(), &first);
    assert_eq!(rig.push((1, 5, 0)), [(1, 5, 0)]);
    rig.driver.as_mut().unwrap().advance_time(99);
    assert_eq!(rig.push((1, 6, 1)), [], "and is not renewed by it");
    rig.driver.as_mut().unwrap().advance_time(1);
    assert_eq!(rig.push((1, 7, 2)), [(1, 7, 2)]);

    let last = |rows: Stream<Row>| rows.key_by(|row| row.0).deduplicate_last_with("last", rule);
    let mut rig = Rig::start(one(), &last);
    assert_eq!(rig.push((1, 5, 0)), [Change::insert((1, 5, 0))]);
    rig.driver.as_mut().unwrap().advance_time(100);
    assert_eq!(rig.push((1, 7, 2)), [Change::insert((1, 7, 2))]);
}

#[test]
fn what_waits_by_event_time_does_not_expire() {
    let rule = Deduplicate::by_event_time().expire_after(Ttl::after(Duration::from_millis(100)));
    let pipeline = |rows: Stream<Row>| rows.key_by(|row| row.0).deduplicate_first_with("first", rule);
    let mut rig = Rig::start(one(), &pipeline);
    rig.push_at((1, 0, 0), 20);
    rig.driver.as_mut().unwrap().advance_time(1_000);
    assert_eq!(rig.advance(20), [(1, 0, 0)]);
}

#[test]
fn by_event_time_a_row_without_one_is_an_error() {
    let rule = Deduplicate::by_event_time();
    let pipeline = |rows: Stream<Row>| rows.key_by(|row| row.0).deduplicate_first_with("first", rule);
    let mut rig = Rig::start(one(), &pipeline);
    rig.input.push(crate::support::Step::Record((1, 0, 0), i64::MIN));
    let error = millpond_core::error::chain(&rig.driver.as_mut().unwrap().run().unwrap_err());
    assert!(error.contains("without event time"), "{error}");
}
