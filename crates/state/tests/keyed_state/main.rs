//! Keyed state as its users and the runtime see it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod isolation;
mod rescale;
mod rules;
mod support;
