//! Changelog streams and rankings: one behaviour each, and against naive models over restores.

#![expect(clippy::unwrap_used, reason = "outside of test functions, but only called by them")]

mod aggregates;
mod deduplication;
mod random;
mod rankings;
mod support;
