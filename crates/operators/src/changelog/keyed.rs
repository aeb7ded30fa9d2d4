//! Methods of keyed changelog streams.

use std::cmp::Reverse;

use millpond_core::{Data, Key};
use millpond_dataflow::{KeyedStream, Stream};
use millpond_state::AggregateFunction;

use super::aggregate::{AggregateInserts, AggregateRows};
use super::change::Change;
use super::extreme::Extreme;
use super::function::{Average, CountRows, RetractableAggregate, Sum};
use super::upsert::{FromUpserts, ToUpserts};
use crate::keyed_process::keyed;
use crate::ranking::{PlainRows, Ranked, RankedRows, TopOfChanges, refuse_no_rows};

/// Methods of keyed changelog streams. Their results are changes as well: of the first row of a key an insertion, of every
/// other that makes a difference an update, of the last that goes a deletion.
pub trait KeyedChangelogOperators<K: Key, T: Data> {
    /// Aggregates the rows of each key.
    #[track_caller]
    fn aggregate_rows<A>(&self, name: &str, aggregate: A) -> Stream<Change<(K, A::Output)>>
    where
        A: RetractableAggregate<Row = T>;

    /// Counts the rows of each key.
    #[track_caller]
    fn count_rows(&self, name: &str) -> Stream<Change<(K, u64)>>;

    /// Sums a whole number of the rows of each key. A sum that does not fit 64 bits ends the attempt.
    #[track_caller]
    fn sum_rows(&self, name: &str, number: impl Fn(&T) -> i64 + 'static) -> Stream<Change<(K, i64)>>;

    /// The mean of a whole number of the rows of each key.
    #[track_caller]
    fn average_rows(&self, name: &str, number: impl Fn(&T) -> i64 + 'static) -> Stream<Change<(K, f64)>>;

    /// The least value of the rows of each key. All values are kept.
    #[track_caller]
    fn min_rows<V: Key + Ord>(&self, name: &str, value: impl Fn(&T) -> V + 'static) -> Stream<Change<(K, V)>>;

    /// The greatest value of the rows of each key. All values are kept.
    #[track_caller]
    fn max_rows<V: Key + Ord>(&self, name: &str, value: impl Fn(&T) -> V + 'static) -> Stream<Change<(K, V)>>;

    /// The first `rows` rows of each key in the order of `order`, rows of equal order in that of their arrival. All rows
    /// are kept, so that others move up when one goes.
    #[track_caller]
    fn top_rows<S: Key + Ord>(&self, name: &str, rows: usize, order: impl Fn(&T) -> S + 'static) -> Stream<Change<T>>
    where
        T: PartialEq;

    /// As [`KeyedChangelogOperators::top_rows`], each row with its rank: also a row that only moves changes.
    #[track_caller]
    fn top_rows_ranked<S: Key + Ord>(
        &self,
        name: &str,
        rows: usize,
        order: impl Fn(&T) -> S + 'static,
    ) -> Stream<Change<Ranked<T>>>
    where
        T: PartialEq;

    /// The row of each key after each change, `None` when it has none: for keys that have one row at a time, as a table
    /// has by its primary key. Of several rows the one that was put in last is the key's.
    #[track_caller]
    fn to_upserts(&self, name: &str) -> Stream<(K, Option<T>)>
    where
        T: PartialEq;
}

impl<K: Key, T: Data> KeyedChangelogOperators<K, T> for KeyedStream<K, Change<T>> {
    #[track_caller]
    fn aggregate_rows<A>(&self, name: &str, aggregate: A) -> Stream<Change<(K, A::Output)>>
    where
        A: RetractableAggregate<Row = T>,
    {
        keyed(self, name, "aggregate_rows", AggregateRows::new(aggregate))
    }

    #[track_caller]
    fn count_rows(&self, name: &str) -> Stream<Change<(K, u64)>> {
        keyed(self, name, "count_rows", AggregateRows::new(CountRows::default()))
    }

    #[track_caller]
    fn sum_rows(&self, name: &str, number: impl Fn(&T) -> i64 + 'static) -> Stream<Change<(K, i64)>> {
        keyed(self, name, "sum_rows", AggregateRows::new(Sum::new(number)))
    }

    #[track_caller]
    fn average_rows(&self, name: &str, number: impl Fn(&T) -> i64 + 'static) -> Stream<Change<(K, f64)>> {
        keyed(self, name, "average_rows", AggregateRows::new(Average::new(number)))
    }

    #[track_caller]
    fn min_rows<V: Key + Ord>(&self, name: &str, value: impl Fn(&T) -> V + 'static) -> Stream<Change<(K, V)>> {
        keyed(self, name, "min_rows", Extreme::new(value, V::clone))
    }

    #[track_caller]
    fn max_rows<V: Key + Ord>(&self, name: &str, value: impl Fn(&T) -> V + 'static) -> Stream<Change<(K, V)>> {
        let order = move |row: &T| Reverse(value(row));
        keyed(self, name, "max_rows", Extreme::new(order, |Reverse(value): &Reverse<V>| value.clone()))
    }

    #[track_caller]
    fn top_rows<S: Key + Ord>(&self, name: &str, rows: usize, order: impl Fn(&T) -> S + 'static) -> Stream<Change<T>>
    where
        T: PartialEq,
    {
        refuse_no_rows(self.dataflow(), name, rows);
        keyed(self, name, "top_rows", TopOfChanges::<_, _, _, _, PlainRows>::new(rows, order))
    }

    #[track_caller]
    fn top_rows_ranked<S: Key + Ord>(
        &self,
        name: &str,
        rows: usize,
        order: impl Fn(&T) -> S + 'static,
    ) -> Stream<Change<Ranked<T>>>
    where
        T: PartialEq,
    {
        refuse_no_rows(self.dataflow(), name, rows);
        keyed(self, name, "top_rows_ranked", TopOfChanges::<_, _, _, _, RankedRows>::new(rows, order))
    }

    #[track_caller]
    fn to_upserts(&self, name: &str) -> Stream<(K, Option<T>)>
    where
        T: PartialEq,
    {
        keyed(self, name, "to_upserts", ToUpserts::default())
    }
}

/// Methods of keyed streams whose records only come and never go.
pub trait KeyedInsertOperators<K: Key, T: Data> {
    /// Aggregates the records of each key: of the first an insertion, of every other that makes a difference an update.
    #[track_caller]
    fn aggregate_to_changes<A>(&self, name: &str, aggregate: A) -> Stream<Change<(K, A::Output)>>
    where
        A: AggregateFunction<Input = T> + 'static,
        A::Output: Data + PartialEq;
}

impl<K: Key, T: Data> KeyedInsertOperators<K, T> for KeyedStream<K, T> {
    #[track_caller]
    fn aggregate_to_changes<A>(&self, name: &str, aggregate: A) -> Stream<Change<(K, A::Output)>>
    where
        A: AggregateFunction<Input = T> + 'static,
        A::Output: Data + PartialEq,
    {
        keyed(self, name, "aggregate_to_changes", AggregateInserts::new(aggregate))
    }
}

/// Methods of keyed streams that set the row of a key, or remove it with `None`: what [`KeyedChangelogOperators::to_upserts`]
/// gives, keyed by its first half.
pub trait KeyedUpsertOperators<K: Key, T: Data> {
    /// The changes that the upserts are. Removing the row of a key that has none is no change.
    #[track_caller]
    fn upserts_to_changes(&self, name: &str) -> Stream<Change<T>>;
}

impl<K: Key, T: Data> KeyedUpsertOperators<K, T> for KeyedStream<K, (K, Option<T>)> {
    #[track_caller]
    fn upserts_to_changes(&self, name: &str) -> Stream<Change<T>> {
        keyed(self, name, "upserts_to_changes", FromUpserts::default())
    }
}
