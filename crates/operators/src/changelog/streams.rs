//! What can be done with a changelog stream row by row.

use millpond_core::{Data, Key};
use millpond_dataflow::{KeyedStream, Stream};

use super::change::Change;
use crate::stateless::StreamOperators;

/// Methods of streams whose records only come and never go.
pub trait InsertOperators<T: Data> {
    /// Each record as a row that is put in.
    #[track_caller]
    fn as_inserts(&self) -> Stream<Change<T>>;
}

impl<T: Data> InsertOperators<T> for Stream<T> {
    #[track_caller]
    fn as_inserts(&self) -> Stream<Change<T>> {
        self.map(Change::insert)
    }
}

/// Methods of changelog streams without keys. The functions must give the same for equal rows, so that a row which is
/// taken out meets the one that was put in.
pub trait ChangelogOperators<T: Data> {
    /// Turns each row into another.
    #[track_caller]
    fn map_rows<U: Data>(&self, function: impl FnMut(T) -> U + 'static) -> Stream<Change<U>>;

    /// Keeps the changes of rows for which `predicate` holds. Of an update one half may be left: an update-before
    /// without an update-after behind it is a deletion.
    #[track_caller]
    fn filter_rows(&self, predicate: impl FnMut(&T) -> bool + 'static) -> Stream<Change<T>>;

    /// Gives each change the key of its row.
    #[track_caller]
    fn key_by_row<K: Key>(&self, key: impl FnMut(&T) -> K + 'static) -> KeyedStream<K, Change<T>>;
}

impl<T: Data> ChangelogOperators<T> for Stream<Change<T>> {
    #[track_caller]
    fn map_rows<U: Data>(&self, mut function: impl FnMut(T) -> U + 'static) -> Stream<Change<U>> {
        self.map(move |change| change.map(&mut function))
    }

    #[track_caller]
    fn filter_rows(&self, mut predicate: impl FnMut(&T) -> bool + 'static) -> Stream<Change<T>> {
        self.filter(move |change| predicate(&change.row))
    }

    #[track_caller]
    fn key_by_row<K: Key>(&self, mut key: impl FnMut(&T) -> K + 'static) -> KeyedStream<K, Change<T>> {
        self.key_by(move |change| key(&change.row))
    }
}
