//! Rankings of the rows of each key: the first or last row, and the first n in an order.
//!
//! Owns which rows are in a ranking and the changes that lead there. Does *not* own what a change is (`changelog`).
//!
//! Invariants: rows of equal order keep the order of their arrival; over a stream that only adds rows, no more than those
//! in the ranking are kept; the changes that come out, applied one after the other, are the ranking.

mod deduplicate;
mod emit;
mod operators;
mod size;
mod sorted;
mod top_n;
mod top_of_changes;

pub use deduplicate::Deduplicate;
pub use emit::Ranked;
pub(crate) use emit::{PlainRows, RankedRows};
pub use operators::RankingOperators;
pub(crate) use operators::refuse_no_rows;
pub(crate) use sorted::SortedRows;
pub(crate) use top_of_changes::TopOfChanges;
