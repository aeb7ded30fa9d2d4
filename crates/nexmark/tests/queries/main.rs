//! Every query beside a plain program over the same events, with two kills and restores at another parallelism on the way.

#![expect(clippy::unwrap_used, reason = "outside of test functions, but only called by them")]

mod changing;
mod grouped;
mod joined;
mod simple;
mod source;
mod support;
