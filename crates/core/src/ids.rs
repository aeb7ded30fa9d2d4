//! Numbers with a meaning: epochs, attempts, subtask indexes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The n-th cut of the stream. The first epoch is 1; epoch 0 means "before any checkpoint".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// "Before any checkpoint".
    pub const ZERO: Epoch = Epoch(0);
    /// The first epoch of a job that starts from nothing.
    pub const FIRST: Epoch = Epoch(1);

    /// The epoch after this one.
    #[must_use]
    pub const fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {}", self.0)
    }
}

/// Fencing number of an execution of a job. Grows with every start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Attempt(pub u64);

impl Attempt {
    /// The attempt after this one.
    #[must_use]
    pub const fn next(self) -> Attempt {
        Attempt(self.0 + 1)
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempt {}", self.0)
    }
}

/// Index of a parallel instance of an operator, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SubtaskIndex(pub u32);

impl SubtaskIndex {
    /// As an index into a slice.
    #[must_use]
    pub const fn as_usize(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for SubtaskIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "subtask {}", self.0)
    }
}
