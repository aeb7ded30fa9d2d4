//! Why a question to a running job has no answer.

use std::time::Duration;

use millpond_core::ErrorKind;
use millpond_state::StateError;

/// A question about live state that was not answered.
#[derive(Clone, Debug, thiserror::Error)]
pub enum QueryError {
    /// The job does not run now, or the subtask that was asked has ended.
    #[error("operator {operator:?} does not run now")]
    NotRunning {
        /// The operator.
        operator: String,
    },
    /// The job has no operator of this name with keyed state.
    #[error("the job has no operator {operator:?} with keyed state, only {}", .known.join(", "))]
    NoSuchOperator {
        /// What was asked for.
        operator: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The operator has no keyed state of this name.
    #[error("operator {operator:?} has no keyed state {state:?}, only {}", .known.join(", "))]
    NoSuchState {
        /// The operator.
        operator: String,
        /// What was asked for.
        state: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The operator is keyed by another type.
    #[error("operator {operator:?} is not keyed by {asked}")]
    WrongKey {
        /// The operator.
        operator: String,
        /// The Rust type that was asked for.
        asked: &'static str,
    },
    /// Too many questions wait at the subtask already.
    #[error("{waiting} questions wait at a subtask of operator {operator:?} already")]
    Busy {
        /// The operator.
        operator: String,
        /// How many.
        waiting: usize,
    },
    /// The subtask did not answer in time.
    #[error("operator {operator:?} has not answered within {patience:?}")]
    TimedOut {
        /// The operator.
        operator: String,
        /// How long was waited.
        patience: Duration,
    },
    /// The state cannot be read as was asked.
    #[error(transparent)]
    State(#[from] StateError),
}

impl QueryError {
    /// What to do next.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            QueryError::NotRunning { .. } | QueryError::Busy { .. } | QueryError::TimedOut { .. } => {
                ErrorKind::Unavailable
            }
            QueryError::NoSuchOperator { .. } | QueryError::NoSuchState { .. } | QueryError::WrongKey { .. } => {
                ErrorKind::Invalid
            }
            QueryError::State(error) => error.kind(),
        }
    }
}
