//! Keyed state as its users and the runtime see it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;
mod isolation;
mod large;
mod rescale;
mod rules;
mod support;
