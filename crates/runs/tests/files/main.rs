//! Run files as their users see them: written, read, merged, damaged, and old.

#![expect(clippy::unwrap_used, reason = "a test that fails panics")]

mod damage;
mod fixture;
mod golden;
mod model;
mod together;
