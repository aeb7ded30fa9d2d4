//! The cold store that ships: keyed state beyond memory, in RocksDB on the local disk.
//!
//! Owns one database per attempt, its directory, and every option of it. Does *not* know values, epochs or
//! checkpoints: a database begins empty, is filled through [`millpond_state::ColdStore`], and is deleted with
//! the attempt. What is safe is in the runs of a checkpoint.
//!
//! ```text
//! RocksBackend (process) → RocksStores (attempt: directory, database, caches) → RocksStore (operator subtask: column family)
//! ```
//!
//! **One database for all subtasks.** Write buffers, background threads, open files and the queue of compactions
//! exist once, so that one number bounds them all; a subtask that needs more takes more. A subtask has a column
//! family of its own: it is emptied and given back as a whole, and its files hold nothing of others.
//!
//! Invariants: nothing is written to a log, so nothing survives the process; nothing found in a directory at
//! the start is read; two processes (or attempts) never share a directory; the memory of caches, filters,
//! indexes and write buffers together is what the caller gave.

mod directory;
mod error;
mod key;
mod loader;
mod options;
mod store;
mod stores;

pub use stores::{RocksBackend, RocksStores};
