//! Windows: each rule on its own, and every kind against a naive model.

#![expect(clippy::unwrap_used, reason = "outside of test functions, but only called by them")]

mod all;
mod continuous;
mod joins;
mod model;
mod random;
mod rules;
mod support;
