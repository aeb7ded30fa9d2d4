//! What cannot work ends in one typed error that names the thing, and loses nothing.
//!
//! Each test asserts the error, and then that a correct run from the same checkpoint gives every result
//! exactly once. Nothing may panic or hang: every run has a watchdog.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "tests tell what they ran against and what people would read")]

mod absent;
mod code;
mod damage;
#[path = "../examples/mod.rs"]
mod examples;
mod files;
mod mismatch;
mod owners;
mod processes;
mod records;
mod sinks;
mod space;
mod support;
