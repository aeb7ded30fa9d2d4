//! What can go wrong when state is read, and what to do next.

use std::io;

use millpond_checkpoint::CheckpointError;
use millpond_core::{CodecError, ErrorKind, KeyGroup};
use millpond_runs::RunError;
use millpond_state::StateError;
use millpond_storage::StorageError;

/// State that could not be read, compared or written out.
#[derive(Debug, thiserror::Error)]
pub enum ReaderError {
    /// Manifests cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The job has not completed a checkpoint.
    #[error("job {job:?} has no completed checkpoint")]
    NoCheckpoint {
        /// The job.
        job: String,
    },
    /// The checkpoint has no operator of this name.
    #[error("the checkpoint has no operator {operator:?}, only {}", listed(.known))]
    NoSuchOperator {
        /// What was asked for.
        operator: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The operator has no state of this name.
    #[error("operator {operator:?} has no state {state:?}, only {}", listed(.known))]
    NoSuchState {
        /// The operator.
        operator: String,
        /// What was asked for.
        state: String,
        /// What there is.
        known: Vec<String>,
    },
    /// Several states of the operator have this name.
    #[error("operator {operator:?} has several states {state:?}: {}", .kinds.join(", "))]
    SeveralStates {
        /// The operator.
        operator: String,
        /// Their name.
        state: String,
        /// Their kinds.
        kinds: Vec<String>,
    },
    /// What was asked for does not exist for this kind of state.
    #[error("state {state:?} of operator {operator:?} is {kind} state and has no {what}")]
    WrongKind {
        /// The operator.
        operator: String,
        /// The state.
        state: String,
        /// Its kind.
        kind: &'static str,
        /// What it does not have.
        what: &'static str,
    },
    /// The rows of a keyed state cannot be read.
    #[error("cannot read state of operator {operator:?} from {object}")]
    Run {
        /// The operator.
        operator: String,
        /// The run file.
        object: String,
        /// What is wrong.
        source: RunError,
    },
    /// A stored description or operator state cannot be decoded.
    #[error("state of operator {operator:?} cannot be read")]
    State {
        /// The operator.
        operator: String,
        /// What is wrong.
        source: StateError,
    },
    /// An object of the checkpoint cannot be read.
    #[error("cannot read state of operator {operator:?} from {object}")]
    Storage {
        /// The operator.
        operator: String,
        /// The object.
        object: String,
        /// What storage said.
        source: StorageError,
    },
    /// An object of the checkpoint has other bytes than the manifest says.
    #[error("{object} of operator {operator:?} is damaged: {reason}")]
    OtherObject {
        /// The operator.
        operator: String,
        /// The object.
        object: String,
        /// In which way it differs.
        reason: String,
    },
    /// Bytes of an entry do not have the shape that the stored schema says.
    #[error("the {part} of an entry of state {state:?} of operator {operator:?} is damaged{}: {reason}", in_group(*.group))]
    Damaged {
        /// The operator.
        operator: String,
        /// The state.
        state: String,
        /// `key`, `user key` or `value`.
        part: &'static str,
        /// The key group, of a keyed state.
        group: Option<KeyGroup>,
        /// What is wrong.
        reason: String,
    },
    /// A key from outside does not have the shape of the state's keys.
    #[error("{given} is no {part} of state {state:?} of operator {operator:?}: {reason}")]
    WrongKey {
        /// The operator.
        operator: String,
        /// The state.
        state: String,
        /// `key` or `user key`.
        part: &'static str,
        /// What was given.
        given: String,
        /// What is wrong.
        reason: String,
    },
    /// A type of the program does not fit the stored one.
    #[error("the {part} of state {state:?} of operator {operator:?} is stored as {stored}, now {now}")]
    WrongType {
        /// The operator.
        operator: String,
        /// The state.
        state: String,
        /// `key` or `user key`.
        part: &'static str,
        /// As stored.
        stored: String,
        /// As asked for.
        now: String,
    },
    /// The job has a checkpoint already.
    #[error("job {job:?} has a checkpoint already")]
    JobExists {
        /// The job.
        job: String,
    },
    /// A state is written twice into one checkpoint.
    #[error("operator {operator:?} of the new checkpoint has state {state:?} already")]
    StateExists {
        /// The operator.
        operator: String,
        /// The state.
        state: String,
    },
    /// A key has two lists.
    #[error("a key of list state {state:?} of operator {operator:?} comes twice")]
    KeyTwice {
        /// The operator.
        operator: String,
        /// The state.
        state: String,
    },
    /// A key or value cannot be encoded.
    #[error("cannot encode state {state:?} of operator {operator:?}")]
    Encode {
        /// The operator.
        operator: String,
        /// The state.
        state: String,
        /// What is wrong.
        source: CodecError,
    },
    /// Two checkpoints cannot be compared, or the one not copied into the other as it is.
    #[error("{left} key groups and {right} key groups do not go together")]
    OtherKeyGroups {
        /// Key groups of the one.
        left: u32,
        /// Key groups of the other.
        right: u32,
    },
    /// This program was built without Parquet.
    #[error("this program was built without parquet; the feature parquet and the program `millpond` have it")]
    NoParquet,
    /// The result cannot be written.
    #[error("cannot write the result")]
    Output(#[from] io::Error),
}

impl ReaderError {
    /// What to do next.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            ReaderError::Checkpoint(error) => error.kind(),
            ReaderError::Run { source, .. } => source.kind(),
            ReaderError::State { source, .. } => source.kind(),
            ReaderError::Encode { source, .. } => source.kind(),
            ReaderError::Storage { source: StorageError::NotFound { .. }, .. }
            | ReaderError::OtherObject { .. }
            | ReaderError::Damaged { .. } => ErrorKind::Corrupt,
            ReaderError::Storage { source, .. } => source.kind(),
            ReaderError::NoCheckpoint { .. }
            | ReaderError::NoSuchOperator { .. }
            | ReaderError::NoSuchState { .. }
            | ReaderError::SeveralStates { .. }
            | ReaderError::WrongKind { .. }
            | ReaderError::WrongKey { .. }
            | ReaderError::WrongType { .. }
            | ReaderError::StateExists { .. }
            | ReaderError::JobExists { .. }
            | ReaderError::KeyTwice { .. }
            | ReaderError::NoParquet
            | ReaderError::OtherKeyGroups { .. } => ErrorKind::Invalid,
            ReaderError::Output(_) => ErrorKind::Unavailable,
        }
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

fn in_group(group: Option<KeyGroup>) -> String {
    group.map_or_else(String::new, |group| format!(" in {group}"))
}
