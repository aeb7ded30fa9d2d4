//! Keyed state as its users and the runtime see it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod backends;
mod cluster;
mod expiring;
mod expiring_rows;
mod expiring_rules;
mod isolation;
mod large;
mod rescale;
mod rules;
mod sizes;
mod slices;
mod support;
