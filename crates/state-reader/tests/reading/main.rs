//! Reading checkpoints that a backend has written, against a model of what it holds.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod damage;
mod export;
mod model;
mod operator_state;
mod processor;
mod support;
mod time_to_live;
