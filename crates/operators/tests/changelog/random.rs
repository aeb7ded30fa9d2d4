//! Changes and rankings against models that keep everything and compute anew.

use std::collections::BTreeMap;

use millpond_dataflow::Stream;
use millpond_operators::{
    Change, ChangelogOperators, CountRows, Deduplicate, KeyedChangelogOperators, MaterializedView, Ranked,
    RankingOperators, StreamOperators, Sum,
};
use proptest::prelude::*;

use crate::support::{Rig, Row, builders};

/// One step of a random run.
#[derive(Clone, Debug)]
enum Step {
    /// A row comes.
    Add(Row),
    /// One of the rows goes, if there is any.
    Remove(prop::sample::Index),
    /// A checkpoint, and a restore with so many subtasks.
    Restore(u32),
}

fn rows() -> impl Strategy<Value = Row> {
    (0u64..3, 0u64..6, 0u64..2)
}

fn steps(removals: u32) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => rows().prop_map(Step::Add),
        removals => any::<prop::sample::Index>().prop_map(Step::Remove),
        1 => (1u32..4).prop_map(Step::Restore),
    ];
    prop::collection::vec(step, 1..140)
}

/// All rows that are there, in the order of their arrival.
#[derive(Default)]
struct Table(Vec<Row>);

impl Table {
    /// Adds or removes; the change that it is.
    fn apply(&mut self, step: &Step) -> Option<Change<Row>> {
        match step {
            Step::Add(row) => {
                self.0.push(*row);
                Some(Change::insert(*row))
            }
            Step::Remove(index) if !self.0.is_empty() => {
                let row = *index.get(&self.0);
                let at = self.0.iter().rposition(|other| *other == row).unwrap();
                self.0.remove(at);
                Some(Change::delete(row))
            }
            _ => None,
        }
    }

    fn by_key(&self) -> BTreeMap<u64, Vec<Row>> {
        let mut keys = BTreeMap::<u64, Vec<Row>>::new();
        self.0.iter().for_each(|row| keys.entry(row.0).or_default().push(*row));
        keys
    }

    fn ranking(&self, size: usize) -> Vec<(u64, Row)> {
        let mut ranking = Vec::new();
        for (_, mut rows) in self.by_key() {
            rows.sort_by_key(|row| row.1);
            ranking.extend(rows.into_iter().take(size).zip(1..).map(|(row, rank)| (rank, row)));
        }
        ranking
    }
}

fn sorted<T: Ord>(mut rows: Vec<T>) -> Vec<T> {
    rows.sort();
    rows
}

/// One of the rows of a key, each with its time.
type Pick<'p> = &'p dyn Fn(&[(i64, Row)]) -> Row;

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn aggregates_over_changes_agree_with_recomputation_after_every_step_over_restores(
        steps in steps(8),
        memory in builders(),
    ) {
        let pipeline = |rows: Stream<Change<Row>>| {
            let rows = rows.key_by_row(|row| row.0);
            let named = |name: &'static str, rows: Stream<Change<(u64, u64)>>| {
                rows.map_rows(move |(key, value)| (name.to_owned(), key, value as i64))
            };
            let together = (CountRows::default(), Sum::new(|row: &Row| row.1 as i64));
            let together = rows.aggregate_rows("together", together);
            let count = together.map_rows(|(key, (count, _))| ("count".to_owned(), key, count as i64));
            let sum = together.map_rows(|(key, (_, sum))| ("sum".to_owned(), key, sum));
            let min = named("min", rows.min_rows("min", |row| row.1));
            let max = named("max", rows.max_rows("max", |row| row.1));
            count.union(&sum).union(&min).union(&max)
        };
        let mut rig = Rig::start(memory.get(), &pipeline);
        let (mut table, mut view) = (Table::default(), MaterializedView::new());
        for step in &steps {
            if let Step::Restore(parallelism) = step {
                rig.restore(*parallelism);
            }
            let Some(change) = table.apply(step) else { continue };
            // The branches of the job come out in any order; each of them is in order.
            let mut changes = rig.push(change);
            changes.sort_by(|one, other| one.row.0.cmp(&other.row.0));
            view.apply_all(changes).unwrap();
            let expected = table.by_key().into_iter().flat_map(|(key, rows)| {
                let values = || rows.iter().map(|row| row.1 as i64);
                [
                    ("count".to_owned(), key, rows.len() as i64),
                    ("max".to_owned(), key, values().max().unwrap()),
                    ("min".to_owned(), key, values().min().unwrap()),
                    ("sum".to_owned(), key, values().sum()),
                ]
            });
            prop_assert_eq!(view.rows().cloned().collect::<Vec<_>>(), sorted(expected.collect()));
        }
    }

    #[test]
    fn a_ranking_over_changes_agrees_with_sorting_all_rows_after_every_step_over_restores(
        steps in steps(9),
        size in 1usize..4,
        memory in builders(),
    ) {
        let pipeline = |rows: Stream<Change<Row>>| {
            let rows = rows.key_by_row(|row| row.0);
            let ranked = rows.top_rows_ranked("ranked", size, |row| row.1);
            let plain = rows.top_rows("plain", size, |row| row.1);
            ranked.union(&plain.map_rows(|row| Ranked { rank: 0, row }))
        };
        let mut rig = Rig::start(memory.get(), &pipeline);
        let (mut table, mut view) = (Table::default(), MaterializedView::new());
        for step in &steps {
            if let Step::Restore(parallelism) = step {
                rig.restore(*parallelism);
            }
            let Some(change) = table.apply(step) else { continue };
            view.apply_all(rig.push(change)).unwrap();
            let ranking = table.ranking(size);
            let expected = ranking.iter().flat_map(|(rank, row)| [(0, *row), (*rank, *row)]);
            let found: Vec<(u64, Row)> = view.rows().map(|ranked| (ranked.rank, ranked.row)).collect();
            prop_assert_eq!(found, sorted(expected.collect()));
        }
    }

    #[test]
    fn a_ranking_over_inserts_agrees_with_sorting_all_rows_after_every_step_over_restores(
        steps in steps(0),
        size in 1usize..5,
        memory in builders(),
    ) {
        let pipeline = |rows: Stream<Row>| {
            let rows = rows.key_by(|row| row.0);
            let ranked = rows.top_n_ranked("ranked", size, |row| row.1);
            let plain = rows.top_n("plain", size, |row| row.1);
            ranked.union(&plain.map_rows(|row| Ranked { rank: 0, row }))
        };
        let mut rig = Rig::start(memory.get(), &pipeline);
        let (mut table, mut view) = (Table::default(), MaterializedView::new());
        for step in &steps {
            if let Step::Restore(parallelism) = step {
                rig.restore(*parallelism);
            }
            let Some(change) = table.apply(step) else { continue };
            view.apply_all(rig.push(change.row)).unwrap();
            let ranking = table.ranking(size);
            let expected = ranking.iter().flat_map(|(rank, row)| [(0, *row), (*rank, *row)]);
            let found: Vec<(u64, Row)> = view.rows().map(|ranked| (ranked.rank, ranked.row)).collect();
            prop_assert_eq!(found, sorted(expected.collect()));
        }
    }

    #[test]
    fn first_and_last_rows_agree_with_a_look_at_all_rows_over_restores(
        steps in prop::collection::vec((0u64..4, -20i64..20, 0u32..8), 1..80),
        memory in builders(),
    ) {
        let pipeline = |rows: Stream<Row>| {
            let rows = rows.key_by(|row| row.0);
            let timed = Deduplicate::by_event_time();
            let named = |name: &'static str, rows: Stream<Row>| rows.map(move |row| (name.to_owned(), Change::insert(row)));
            let changes = |name: &'static str, rows: Stream<Change<Row>>| rows.map(move |row| (name.to_owned(), row));
            let first = named("first", rows.deduplicate_first("first"));
            let oldest = named("oldest", rows.deduplicate_first_with("oldest", timed));
            let last = changes("last", rows.deduplicate_last("last"));
            let newest = changes("newest", rows.deduplicate_last_with("newest", timed));
            first.union(&oldest).union(&last).union(&newest)
        };
        let mut rig = Rig::start(memory.get(), &pipeline);
        let mut rows = BTreeMap::<u64, Vec<(i64, Row)>>::new();
        let mut out = Vec::new();
        for (index, (key, time_ms, restore)) in steps.iter().copied().enumerate() {
            if (1..4).contains(&restore) {
                rig.restore(restore);
            }
            let row = (key, 0, index as u64);
            rows.entry(key).or_default().push((time_ms, row));
            out.extend(rig.push_at(row, time_ms));
        }
        out.extend(rig.finish());
        let mut views = BTreeMap::<String, MaterializedView<Row>>::new();
        for (name, change) in out {
            views.entry(name).or_default().apply(change).unwrap();
        }
        let of_each = |pick: Pick<'_>| rows.values().map(|rows| pick(rows)).collect::<Vec<Row>>();
        let by_time = |rows: &[(i64, Row)]| {
            let mut rows = rows.to_vec();
            rows.sort_by_key(|(time_ms, _)| *time_ms);
            rows
        };
        let expected = [
            ("first", of_each(&|rows| rows[0].1)),
            ("last", of_each(&|rows| rows[rows.len() - 1].1)),
            ("newest", of_each(&|rows| by_time(rows).last().unwrap().1)),
            ("oldest", of_each(&|rows| by_time(rows)[0].1)),
        ];
        let views: Vec<(String, Vec<Row>)> =
            views.into_iter().map(|(name, view)| (name, view.into_rows())).collect();
        prop_assert_eq!(views, expected.map(|(name, rows)| (name.to_owned(), rows)).to_vec());
    }
}
