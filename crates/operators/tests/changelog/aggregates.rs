//! Aggregates over changes, conversions, and what is refused.

use millpond_dataflow::Stream;
use millpond_operators::{
    Average, Change, ChangelogOperators, CountRows, InsertOperators, KeyedChangelogOperators, KeyedUpsertOperators,
    StreamOperators, Sum,
};

use crate::support::{Rig, Row, one};

fn change(adds: bool, row: Row) -> Change<Row> {
    if adds { Change::insert(row) } else { Change::delete(row) }
}

#[test]
fn a_count_is_inserted_updated_and_deleted_with_the_rows_of_its_key() {
    let pipeline = |rows: Stream<Change<Row>>| rows.key_by_row(|row| row.0).count_rows("count");
    let mut rig = Rig::start(one(), &pipeline);
    assert_eq!(rig.push(change(true, (1, 5, 0))), [Change::insert((1, 1))]);
    assert_eq!(rig.push(change(true, (1, 6, 0))), [Change::update_before((1, 1)), Change::update_after((1, 2))]);
    assert_eq!(rig.push(change(false, (1, 5, 0))), [Change::update_before((1, 2)), Change::update_after((1, 1))]);
    assert_eq!(rig.push(change(false, (1, 6, 0))), [Change::delete((1, 1))]);
    assert_eq!(rig.driver.unwrap().live_entries("count").unwrap(), 0);
}

#[test]
fn both_halves_of_an_update_count_once_and_a_result_that_stays_is_not_emitted() {
    let pipeline = |rows: Stream<Change<Row>>| rows.key_by_row(|row| row.0).max_rows("max", |row| row.1);
    let mut rig = Rig::start(one(), &pipeline);
    assert_eq!(rig.push(change(true, (1, 9, 0))), [Change::insert((1, 9))]);
    assert_eq!(rig.push(change(true, (1, 5, 0))), []);
    assert_eq!(rig.push(Change::update_before((1, 5, 0))), []);
    assert_eq!(rig.push(Change::update_after((1, 7, 0))), []);
    assert_eq!(
        rig.push(Change::update_before((1, 9, 0))),
        [Change::update_before((1, 9)), Change::update_after((1, 7))]
    );
    assert_eq!(rig.push(Change::update_after((1, 3, 0))), []);
}

#[test]
fn several_aggregates_over_the_same_rows_are_one() {
    let pipeline = |rows: Stream<Change<Row>>| {
        let value = |row: &Row| row.1 as i64;
        let together = (CountRows::default(), Sum::new(value), Average::new(value));
        rows.key_by_row(|row| row.0).aggregate_rows("all", together)
    };
    let mut rig = Rig::start(one(), &pipeline);
    assert_eq!(rig.push(change(true, (1, 5, 0))), [Change::insert((1, (1, 5, 5.0)))]);
    let update = [Change::update_before((1, (1, 5, 5.0))), Change::update_after((1, (2, 11, 5.5)))];
    assert_eq!(rig.push(change(true, (1, 6, 0))), update);
}

#[test]
fn a_row_that_is_not_there_cannot_be_taken_out() {
    let count = |rows: Stream<Change<Row>>| rows.key_by_row(|row| row.0).count_rows("count").map(|_| 0u64);
    let min = |rows: Stream<Change<Row>>| rows.key_by_row(|row| row.0).min_rows("min", |row| row.1).map(|_| 0u64);
    let top = |rows: Stream<Change<Row>>| rows.key_by_row(|row| row.0).top_rows("top", 2, |row| row.1).map(|_| 0u64);
    let upserts = |rows: Stream<Change<Row>>| rows.key_by_row(|row| row.0).to_upserts("upserts").map(|_| 0u64);
    for pipeline in [&count as &dyn Fn(Stream<Change<Row>>) -> Stream<u64>, &min, &top, &upserts] {
        let error = Rig::start(one(), pipeline).refused(change(false, (1, 5, 0)));
        assert!(error.contains("a change -D takes out a row that is not there"), "{error}");
    }
    // Another value, or an equal one under another key.
    for pipeline in [&min as &dyn Fn(Stream<Change<Row>>) -> Stream<u64>, &top, &upserts] {
        let mut rig = Rig::start(one(), pipeline);
        rig.push(change(true, (1, 5, 0)));
        let error = rig.refused(Change::update_before((1, 6, 0)));
        assert!(error.contains("a change -U takes out a row that is not there"), "{error}");
    }
}

#[test]
fn a_sum_beyond_64_bits_is_an_error_and_one_that_comes_back_is_not() {
    let pipeline = |rows: Stream<Change<i64>>| rows.key_by_row(|_| 0u64).sum_rows("sum", |row| *row);
    let mut rig = Rig::start(one(), &pipeline);
    rig.push(Change::insert(i64::MAX));
    let error = rig.refused(Change::insert(1));
    assert!(error.contains("9223372036854775808 of 2 rows does not fit 64 bits"), "{error}");
    let mut rig = Rig::start(one(), &pipeline);
    rig.push(Change::insert(i64::MIN));
    assert_eq!(rig.push(Change::insert(i64::MAX))[1], Change::update_after((0, -1)));
}

#[test]
fn upserts_become_changes_and_changes_upserts() {
    let pipeline = |rows: Stream<(u64, Option<u64>)>| rows.key_by(|(key, _)| *key).upserts_to_changes("changes");
    let mut rig = Rig::start(one(), &pipeline);
    assert_eq!(rig.push((1, None)), []);
    assert_eq!(rig.push((1, Some(5))), [Change::insert(5)]);
    assert_eq!(rig.push((1, Some(6))), [Change::update_before(5), Change::update_after(6)]);
    assert_eq!(rig.push((1, None)), [Change::delete(6)]);

    let pipeline = |rows: Stream<Change<Row>>| rows.key_by_row(|row| row.0).to_upserts("upserts");
    let mut rig = Rig::start(one(), &pipeline);
    assert_eq!(rig.push(Change::insert((1, 5, 0))), [(1, Some((1, 5, 0)))]);
    // The new row overtakes the end of the old one.
    assert_eq!(rig.push(Change::update_after((1, 6, 0))), [(1, Some((1, 6, 0)))]);
    assert_eq!(rig.push(Change::update_before((1, 5, 0))), []);
    assert_eq!(rig.push(Change::delete((1, 6, 0))), [(1, None)]);
    assert_eq!(rig.driver.unwrap().live_entries("upserts").unwrap(), 0);
}

#[test]
fn rows_are_mapped_and_filtered_within_their_changes() {
    let pipeline = |rows: Stream<u64>| {
        rows.as_inserts().map_rows(|row| row * 2).filter_rows(|row| row % 3 == 0).map(|change| change.to_string())
    };
    let mut rig = Rig::start(one(), &pipeline);
    assert_eq!(rig.push(3), ["+I 6"]);
    assert_eq!(rig.push(4), [""; 0]);
}
