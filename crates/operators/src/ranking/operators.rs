//! Methods of keyed streams that rank rows.

use std::panic::Location;

use millpond_core::{Data, Key};
use millpond_dataflow::{Dataflow, KeyedStream, Stream};

use super::deduplicate::{Deduplicate, FirstRow, LastRow};
use super::emit::{PlainRows, Ranked, RankedRows};
use super::top_n::TopN;
use crate::changelog::{Change, ChangelogError};
use crate::keyed_process::keyed;

/// Rankings of the rows of each key.
pub trait RankingOperators<K: Key, T: Data> {
    /// The first row of each key to arrive, for ever.
    #[track_caller]
    fn deduplicate_first(&self, name: &str) -> Stream<T>;

    /// The first row of each key by `rule`. By event time, it is emitted when the watermark reaches its time, since no
    /// older one is expected then; rows that are later still are dropped like all others.
    #[track_caller]
    fn deduplicate_first_with(&self, name: &str, rule: Deduplicate) -> Stream<T>;

    /// The last row of each key that has arrived: an insertion, then updates.
    #[track_caller]
    fn deduplicate_last(&self, name: &str) -> Stream<Change<T>>;

    /// The last row of each key by `rule`: an insertion, then updates. By event time, older rows that arrive later make
    /// no difference. With a time to live, the row of a key that was forgotten is not deleted: the next one is an
    /// insertion.
    #[track_caller]
    fn deduplicate_last_with(&self, name: &str, rule: Deduplicate) -> Stream<Change<T>>;

    /// The first `rows` rows of each key in the order of `order`, as changes: a row that comes in, and before it the one
    /// that it pushes out. Rows of equal order rank by their arrival. For the largest first, order by
    /// [`Reverse`](std::cmp::Reverse). Only the rows of the ranking are kept. Another number of rows needs another name.
    ///
    /// ```
    /// use std::cmp::Reverse;
    /// use millpond_dataflow::{KeyedStream, Stream};
    /// use millpond_operators::{Change, RankingOperators};
    ///
    /// fn three_dearest(sales: &KeyedStream<String, (String, u64)>) -> Stream<Change<(String, u64)>> {
    ///     sales.top_n("three dearest", 3, |(_, price)| Reverse(*price))
    /// }
    /// ```
    #[track_caller]
    fn top_n<S: Ord + 'static>(&self, name: &str, rows: usize, order: impl Fn(&T) -> S + 'static) -> Stream<Change<T>>;

    /// As [`RankingOperators::top_n`], each row with its rank: also a row that only moves changes.
    #[track_caller]
    fn top_n_ranked<S: Ord + 'static>(
        &self,
        name: &str,
        rows: usize,
        order: impl Fn(&T) -> S + 'static,
    ) -> Stream<Change<Ranked<T>>>;
}

impl<K: Key, T: Data> RankingOperators<K, T> for KeyedStream<K, T> {
    #[track_caller]
    fn deduplicate_first(&self, name: &str) -> Stream<T> {
        self.deduplicate_first_with(name, Deduplicate::by_arrival())
    }

    #[track_caller]
    fn deduplicate_first_with(&self, name: &str, rule: Deduplicate) -> Stream<T> {
        keyed(self, name, "deduplicate_first", FirstRow::new(rule))
    }

    #[track_caller]
    fn deduplicate_last(&self, name: &str) -> Stream<Change<T>> {
        self.deduplicate_last_with(name, Deduplicate::by_arrival())
    }

    #[track_caller]
    fn deduplicate_last_with(&self, name: &str, rule: Deduplicate) -> Stream<Change<T>> {
        keyed(self, name, "deduplicate_last", LastRow::new(rule))
    }

    #[track_caller]
    fn top_n<S: Ord + 'static>(&self, name: &str, rows: usize, order: impl Fn(&T) -> S + 'static) -> Stream<Change<T>> {
        refuse_no_rows(self.dataflow(), name, rows);
        keyed(self, name, "top_n", TopN::<_, _, S, _, PlainRows>::new(rows, order))
    }

    #[track_caller]
    fn top_n_ranked<S: Ord + 'static>(
        &self,
        name: &str,
        rows: usize,
        order: impl Fn(&T) -> S + 'static,
    ) -> Stream<Change<Ranked<T>>> {
        refuse_no_rows(self.dataflow(), name, rows);
        keyed(self, name, "top_n_ranked", TopN::<_, _, S, _, RankedRows>::new(rows, order))
    }
}

/// Refuses a ranking without rows.
#[track_caller]
pub(crate) fn refuse_no_rows(dataflow: &Dataflow, name: &str, rows: usize) {
    if rows == 0 {
        dataflow.refuse(name, Location::caller(), ChangelogError::NoRows);
    }
}
