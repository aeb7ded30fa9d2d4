//! The whole system on one thread, in virtual time, from one seed; and the driver for users' tests.
//!
//! Owns: stepping subtasks without threads ([`execution`]), a world in which everything may fail and
//! the rules that must hold in it all the same ([`cluster`]), jobs to run in it ([`jobs`]), and
//! [`TestDriver`]. Does *not* own any behaviour of the system itself: subtasks, coordinator, publisher,
//! uploads and compaction are the real ones, only threads, sockets and clocks are replaced.
//!
//! How a seed passes through: [`cluster::run_seed`] makes a world, lets the seed choose every next step
//! (which subtask runs, which channel delivers, what storage answers, who crashes), then lets the world
//! calm down and demands that the job finishes with the output of a sequential run.
//!
//! Invariants: nothing here depends on time, threads or hash order; the same seed gives the same trace.

mod bell;
pub mod cluster;
pub mod driver;
mod error;
mod execution;
pub mod jobs;
pub mod logged;
mod network;
pub mod outside;
pub mod source;

pub use driver::{Snapshot, TestDriver, TestDriverBuilder, TestFlow, TestInput, TestOutput, TestStream};
pub use error::SimError;
