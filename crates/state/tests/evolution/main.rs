//! Types that change between two runs of a job, over every kind of state.

#![expect(clippy::unwrap_used, reason = "outside of test functions, but only called by them")]

mod keyed;
mod operator;
mod types;
