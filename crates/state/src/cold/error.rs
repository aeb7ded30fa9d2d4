//! What can go wrong with a cold store.

use millpond_core::{ErrorKind, KeyGroup};

/// A failed use of a cold store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ColdError {
    /// The store could not be opened.
    #[error("the cold store of operator {operator:?}, subtask {subtask}, cannot be opened in {place}: {reason}")]
    Open {
        /// The operator.
        operator: String,
        /// The subtask.
        subtask: u32,
        /// Where: a directory, say.
        place: String,
        /// What the store says.
        reason: String,
    },
    /// The directory of all stores cannot be had.
    #[error("no cold store can be kept in {place}: {reason}")]
    Directory {
        /// The directory.
        place: String,
        /// What the system says.
        reason: String,
    },
    /// The store could not be read.
    #[error("the cold store {place} cannot be read: {reason}")]
    Read {
        /// Where: a directory, say.
        place: String,
        /// What the store says.
        reason: String,
    },
    /// The store could not be written.
    #[error("the cold store {place} cannot be written: {reason}")]
    Write {
        /// Where: a directory, say.
        place: String,
        /// What the store says.
        reason: String,
    },
    /// The store found its own bytes damaged.
    #[error("the cold store {place} is damaged: {reason}")]
    Damaged {
        /// Where: a directory, say.
        place: String,
        /// What the store says.
        reason: String,
    },
    /// Rows were loaded out of order.
    #[error("a row of state {state} in {group} was loaded out of order")]
    LoadOrder {
        /// Index of the state.
        state: u16,
        /// Group of the row.
        group: KeyGroup,
    },
}

impl ColdError {
    /// What the caller should do next. A store that is damaged is of the attempt alone: the next one begins
    /// with a new store, so the kind is that of a store that is unavailable.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            ColdError::Open { .. }
            | ColdError::Directory { .. }
            | ColdError::Read { .. }
            | ColdError::Write { .. }
            | ColdError::Damaged { .. } => ErrorKind::Unavailable,
            ColdError::LoadOrder { .. } => ErrorKind::Bug,
        }
    }
}
