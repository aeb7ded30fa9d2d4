//! The changes of a ranking when a row comes into it or goes out of it.

use millpond_core::Data;
use millpond_dataflow::Output;
use serde::{Deserialize, Serialize};

use crate::changelog::Change;

/// A row and its place in a ranking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ranked<T> {
    /// The place, from 1.
    pub rank: u64,
    /// The row.
    pub row: T,
}

/// How the rows of a ranking are emitted.
pub(crate) trait EmitRows<T: Data>: 'static {
    /// A row of the output.
    type Row: Data;

    /// A row has come to the place `at` (from 0, below `size`); `row` reads the rows that are there now, with the one that
    /// was pushed out of the ranking behind them.
    fn inserted<'r>(
        at: usize,
        size: usize,
        row: impl Fn(usize) -> Option<&'r T>,
        output: &mut Output<Change<Self::Row>>,
    ) where
        T: 'r;

    /// `removed` has gone from the place `at` (from 0, below `size`); `row` reads the rows that are there now.
    fn removed<'r>(
        at: usize,
        size: usize,
        removed: &T,
        row: impl Fn(usize) -> Option<&'r T>,
        output: &mut Output<Change<Self::Row>>,
    ) where
        T: 'r;
}

/// Rows alone: what comes in and what goes out.
pub(crate) struct PlainRows;

impl<T: Data> EmitRows<T> for PlainRows {
    type Row = T;

    fn inserted<'r>(at: usize, size: usize, row: impl Fn(usize) -> Option<&'r T>, output: &mut Output<Change<T>>)
    where
        T: 'r,
    {
        if let Some(pushed_out) = row(size) {
            output.emit(Change::delete(pushed_out.clone()));
        }
        if let Some(row) = row(at) {
            output.emit(Change::insert(row.clone()));
        }
    }

    fn removed<'r>(
        _at: usize,
        size: usize,
        removed: &T,
        row: impl Fn(usize) -> Option<&'r T>,
        output: &mut Output<Change<T>>,
    ) where
        T: 'r,
    {
        output.emit(Change::delete(removed.clone()));
        if let Some(moved_up) = row(size - 1) {
            output.emit(Change::insert(moved_up.clone()));
        }
    }
}

/// Rows with their ranks: from the place on, every rank has another row.
pub(crate) struct RankedRows;

/// The row of a place counted from 0.
fn ranked<T: Data>(at: usize, row: &T) -> Ranked<T> {
    Ranked { rank: at as u64 + 1, row: row.clone() }
}

impl<T: Data> EmitRows<T> for RankedRows {
    type Row = Ranked<T>;

    fn inserted<'r>(
        at: usize,
        size: usize,
        row: impl Fn(usize) -> Option<&'r T>,
        output: &mut Output<Change<Ranked<T>>>,
    ) where
        T: 'r,
    {
        for at in at..size {
            let Some(after) = row(at) else { return };
            let Some(before) = row(at + 1) else {
                output.emit(Change::insert(ranked(at, after)));
                return;
            };
            output.emit(Change::update_before(ranked(at, before)));
            output.emit(Change::update_after(ranked(at, after)));
        }
    }

    fn removed<'r>(
        at: usize,
        size: usize,
        removed: &T,
        row: impl Fn(usize) -> Option<&'r T>,
        output: &mut Output<Change<Ranked<T>>>,
    ) where
        T: 'r,
    {
        let mut before = removed;
        for at in at..size {
            let Some(after) = row(at) else {
                output.emit(Change::delete(ranked(at, before)));
                return;
            };
            output.emit(Change::update_before(ranked(at, before)));
            output.emit(Change::update_after(ranked(at, after)));
            before = after;
        }
    }
}
