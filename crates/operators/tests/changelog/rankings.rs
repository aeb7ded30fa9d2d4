//! Rankings, one rule each.

use std::cmp::Reverse;

use millpond_dataflow::Stream;
use millpond_operators::{
    Change, ChangelogOperators, KeyedChangelogOperators, Ranked, RankingOperators, StreamOperators,
};
use millpond_sim::TestDriver;

use crate::support::{Rig, Row, one};

fn ranked(rank: u64, row: Row) -> Ranked<Row> {
    Ranked { rank, row }
}

#[test]
fn a_row_that_comes_in_pushes_out_the_last_and_ties_rank_by_arrival() {
    let pipeline = |rows: Stream<Row>| rows.key_by(|row| row.0).top_n("top", 2, |row| Reverse(row.1));
    let mut rig = Rig::start(one(), &pipeline);
    assert_eq!(rig.push((1, 5, 0)), [Change::insert((1, 5, 0))]);
    assert_eq!(rig.push((1, 5, 1)), [Change::insert((1, 5, 1))]);
    assert_eq!(rig.push((1, 5, 2)), [], "equal to the last, and later");
    assert_eq!(rig.push((1, 4, 3)), []);
    assert_eq!(rig.push((1, 7, 4)), [Change::delete((1, 5, 1)), Change::insert((1, 7, 4))]);
    assert_eq!(rig.push((2, 0, 5)), [Change::insert((2, 0, 5))]);
    let mut driver = rig.driver.unwrap();
    let kept: Option<Vec<Row>> = driver.keyed_state("top", "rows", &1u64).unwrap();
    assert_eq!(kept.unwrap(), [(1, 7, 4), (1, 5, 0)], "no more than the ranking is kept");
}

#[test]
fn with_ranks_every_row_that_moves_is_updated() {
    let pipeline = |rows: Stream<Row>| rows.key_by(|row| row.0).top_n_ranked("top", 2, |row| row.1);
    let mut rig = Rig::start(one(), &pipeline);
    let (a, b, c) = ((1, 5, 0), (1, 3, 1), (1, 4, 2));
    assert_eq!(rig.push(a), [Change::insert(ranked(1, a))]);
    let moved = [Change::update_before(ranked(1, a)), Change::update_after(ranked(1, b)), Change::insert(ranked(2, a))];
    assert_eq!(rig.push(b), moved);
    assert_eq!(rig.push(c), [Change::update_before(ranked(2, a)), Change::update_after(ranked(2, c))]);
}

#[test]
fn over_changes_the_next_row_moves_up_when_one_goes() {
    let pipeline = |rows: Stream<Change<Row>>| rows.key_by_row(|row| row.0).top_rows("top", 2, |row| row.1);
    let mut rig = Rig::start(one(), &pipeline);
    let rows: Vec<Row> = (0..100).map(|value| (1, value, 0)).collect();
    for row in rows.iter().rev() {
        rig.push(Change::insert(*row));
    }
    for (at, row) in rows.iter().enumerate() {
        let mut expected = vec![Change::delete(*row)];
        expected.extend(rows.get(at + 2).map(|row| Change::insert(*row)));
        assert_eq!(rig.push(Change::delete(*row)), expected);
    }
    assert_eq!(rig.driver.unwrap().live_entries("top").unwrap(), 0);
}

#[test]
fn over_changes_ranks_close_up() {
    let pipeline = |rows: Stream<Change<Row>>| rows.key_by_row(|row| row.0).top_rows_ranked("top", 2, |row| row.1);
    let mut rig = Rig::start(one(), &pipeline);
    let (a, b, c) = ((1, 3, 0), (1, 4, 1), (1, 5, 2));
    [a, b, c].into_iter().for_each(|row| drop(rig.push(Change::insert(row))));
    let closed = [
        Change::update_before(ranked(1, a)),
        Change::update_after(ranked(1, b)),
        Change::update_before(ranked(2, b)),
        Change::update_after(ranked(2, c)),
    ];
    assert_eq!(rig.push(Change::delete(a)), closed);
    assert_eq!(rig.push(Change::delete(c)), [Change::delete(ranked(2, c))]);
}

#[test]
fn a_ranking_of_no_rows_and_another_number_of_rows_after_a_restore_are_refused() {
    let none = |rows: Stream<Row>| rows.key_by(|row| row.0).top_n("top", 0, |row| row.1);
    let input = millpond_sim::TestInput::<Row>::new();
    let error = TestDriver::build(|flow: &mut millpond_dataflow::Dataflow| {
        use millpond_sim::TestFlow;
        none(flow.test_input("in", &input));
        Ok(())
    });
    let error = millpond_core::error::chain(&error.err().unwrap());
    assert!(error.contains("at least 1 row, not 0"), "{error}");

    let two = |rows: Stream<Row>| rows.key_by(|row| row.0).top_n("top", 2, |row| row.1);
    let three = |rows: Stream<Row>| rows.key_by(|row| row.0).top_n("top", 3, |row| row.1);
    let mut rig = Rig::start(one(), &two);
    rig.push((1, 5, 0));
    let snapshot = rig.driver.as_mut().unwrap().checkpoint().unwrap();
    let other = Rig::start(one(), &three);
    let error = one().restore(other.job(), &snapshot).err().unwrap();
    let error = millpond_core::error::chain(&error);
    assert!(error.contains("ranking top kept 2 rows in its checkpoint and is to keep 3"), "{error}");
}
