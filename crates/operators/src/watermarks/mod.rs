//! Watermark strategies: how the event time of records, and the progress of event time, are found.
//!
//! Owns the time of one stream of records ([`SplitClock`]: a split of a source, or what reaches
//! `assign_timestamps`), and when marks are sent ([`Pacer`]). Does *not* own merging over subtasks (see the
//! runtime) or the meaning of a watermark.
//!
//! Everything is computed per batch: a record costs one call of the function that finds its time, inlined.

mod assign;
mod bounded;
mod pacer;
mod split;
mod strategy;

pub(crate) use assign::AssignTimestamps;
pub(crate) use pacer::Pacer;
pub(crate) use split::{SplitClock, Standing};
pub use strategy::{WatermarkGenerator, WatermarkStrategy};

#[cfg(test)]
mod tests;
