//! What can go wrong with state.

use crate::cold::ColdError;
use millpond_core::schema::SchemaMismatch;
use millpond_core::{CodecError, ErrorKind, KeyGroup, KeyGroupRange, NameError, SchemaError};

/// A failed declaration, access, snapshot or restore of state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// Keyed state was used while no key is current.
    #[error("state {state:?} was used while no key is current")]
    NoCurrentKey {
        /// Name of the state.
        state: String,
    },
    /// A handle was used with states that did not declare it.
    #[error("handle {index} of type {asked} does not belong to these states")]
    ForeignHandle {
        /// Index of the handle.
        index: usize,
        /// What the handle is for.
        asked: &'static str,
    },
    /// The name of a state cannot be used.
    #[error("the name of a state is refused")]
    Name(#[from] NameError),
    /// One name was declared twice, with different kinds or types.
    #[error("state {state:?} is already declared as {declared}, now asked for as {asked}")]
    DeclaredDifferently {
        /// Name of the state.
        state: String,
        /// Kind and types of the first declaration.
        declared: String,
        /// Kind and types of this declaration.
        asked: String,
    },
    /// A state that cannot leave memory was declared where a cold store is.
    #[error("state {state:?} stays in memory, and cannot be declared above a cold store")]
    OnlyInMemory {
        /// Name of the state.
        state: String,
    },
    /// The checkpoint holds a state of this name and another kind.
    #[error("state {state:?} is stored as {stored}, now declared as {now}")]
    KindChanged {
        /// Name of the state.
        state: String,
        /// Kind and types in the checkpoint.
        stored: String,
        /// Kind and types of the declaration.
        now: String,
    },
    /// The checkpoint holds values that the type of today cannot read.
    #[error("state {state:?}: the stored {part} cannot be read: {mismatch}")]
    SchemaChanged {
        /// Name of the state.
        state: String,
        /// `key`, `user key` or `value`.
        part: &'static str,
        /// Where and how they differ.
        mismatch: Box<SchemaMismatch>,
    },
    /// A stored value cannot become one of the type of today, although its schema can.
    #[error("state {state:?}: a stored value cannot be migrated")]
    NotMigrated {
        /// Name of the state.
        state: String,
        /// Where and why.
        source: Box<SchemaError>,
    },
    /// A time to live below one millisecond.
    #[error("state {state:?}: a time to live is at least 1 ms")]
    TtlTooShort {
        /// Name of the state.
        state: String,
    },
    /// A state of the checkpoint was declared after its rows had passed.
    #[error("state {state:?} is in the checkpoint and was declared after the restore")]
    DeclaredTooLate {
        /// Name of the state.
        state: String,
    },
    /// There are too many states, or one state has too many entries.
    #[error("{what} is full: the limit is {limit}")]
    Full {
        /// What is full.
        what: String,
        /// How many fit.
        limit: u64,
    },
    /// The key belongs to another subtask.
    #[error("{group} is outside the owned {range}")]
    OutsideRange {
        /// The key's group.
        group: KeyGroup,
        /// What this subtask owns.
        range: KeyGroupRange,
    },
    /// A value could not be encoded or decoded.
    #[error("state {state:?}: a value cannot be encoded or decoded")]
    Codec {
        /// Name of the state.
        state: String,
        /// What failed.
        source: Box<CodecError>,
    },
    /// The cold store failed.
    #[error("state {state:?}: the cold store failed")]
    Cold {
        /// Name of the state.
        state: String,
        /// What failed.
        source: Box<ColdError>,
    },
    /// A stored row makes no sense.
    #[error("state {state:?}, {group}: a stored row is damaged: {reason}")]
    DamagedRow {
        /// Name of the state.
        state: String,
        /// Group of the row.
        group: KeyGroup,
        /// What is wrong with it.
        reason: String,
    },
    /// The stored description of a state cannot be understood.
    #[error("state {state:?}: the stored description is damaged: {reason}")]
    DamagedDescription {
        /// Name of the state.
        state: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A row for a state that nobody declared.
    #[error("a stored row belongs to state {state:?}, which is not declared")]
    NotDeclared {
        /// Name of the state.
        state: String,
    },
    /// A key was set, or a snapshot begun, between the first restored row and the end of the restore.
    #[error("the restore is not finished")]
    RestoreNotFinished,
    /// An epoch was frozen after changes had ceased to be remembered.
    #[error("{epoch} cannot be frozen: changes are not tracked")]
    NotTracked {
        /// The epoch.
        epoch: millpond_core::Epoch,
    },
    /// An epoch was frozen that is not above the one before.
    #[error("epoch {given} was frozen after epoch {newest}")]
    EpochOrder {
        /// The refused epoch.
        given: u64,
        /// The newest frozen one.
        newest: u64,
    },
    /// An operator list is already known with the other redistribution mode.
    #[error("operator list {state:?} is {known}, now asked for as {asked}")]
    ModeChanged {
        /// Name of the list.
        state: String,
        /// `split` or `union`.
        known: &'static str,
        /// `split` or `union`.
        asked: &'static str,
    },
    /// The subtasks of one snapshot disagree about a state.
    #[error("operator state {state:?} differs between subtasks: {reason}")]
    SubtasksDisagree {
        /// Name of the state.
        state: String,
        /// In what.
        reason: String,
    },
    /// The bytes of an operator snapshot are damaged.
    #[error("operator snapshot is damaged at byte {offset} of {length}: {reason}")]
    DamagedSnapshot {
        /// Where.
        offset: usize,
        /// How many bytes there are.
        length: usize,
        /// What is wrong.
        reason: &'static str,
    },
    /// An operator snapshot of a format that this version does not know.
    #[error("operator snapshot has format version {given}, known is {known}")]
    UnsupportedVersion {
        /// Version in the bytes.
        given: u16,
        /// Newest known version.
        known: u16,
    },
    /// The parallelism of a redistribution is refused.
    #[error("new parallelism {given} is not in 1..={max}")]
    Parallelism {
        /// What was asked for.
        given: u32,
        /// The number of key groups.
        max: u32,
    },
}

impl StateError {
    /// What the caller should do next.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            StateError::Codec { source, .. } => source.kind(),
            StateError::NotMigrated { source, .. } => source.kind(),
            StateError::Cold { source, .. } => source.kind(),
            StateError::DamagedRow { .. }
            | StateError::DamagedDescription { .. }
            | StateError::SubtasksDisagree { .. }
            | StateError::DamagedSnapshot { .. } => ErrorKind::Corrupt,
            StateError::OutsideRange { .. }
            | StateError::NotDeclared { .. }
            | StateError::EpochOrder { .. }
            | StateError::NotTracked { .. }
            | StateError::RestoreNotFinished => ErrorKind::Bug,
            _ => ErrorKind::Invalid,
        }
    }

    /// A table has as many entries as it can have.
    #[cold]
    pub(crate) fn full(state: &str) -> StateError {
        StateError::Full { what: format!("state {state:?}"), limit: u64::from(u32::MAX) }
    }

    #[cold]
    pub(crate) fn cold(state: &str, source: ColdError) -> StateError {
        StateError::Cold { state: state.to_owned(), source: Box::new(source) }
    }

    #[cold]
    pub(crate) fn codec(state: &str, source: CodecError) -> StateError {
        StateError::Codec { state: state.to_owned(), source: Box::new(source) }
    }
}
