//! What can go wrong with storage, and what to do next.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use millpond_core::ErrorKind;

use crate::name::ObjectName;

/// The underlying reason of an error; shared, so that errors can be cloned for several waiters.
pub type Cause = Arc<dyn Error + Send + Sync + 'static>;

/// Makes a [`Cause`] of an error, or of a text.
pub fn cause(reason: impl Into<Box<dyn Error + Send + Sync + 'static>>) -> Cause {
    Arc::from(reason.into())
}

/// What was being done to the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// [`crate::Storage::create`].
    Create,
    /// [`crate::Storage::read`].
    Read,
    /// [`crate::Storage::read_range`].
    ReadRange,
    /// [`crate::Storage::size`].
    Size,
    /// [`crate::Storage::list`].
    List,
    /// [`crate::Storage::delete`].
    Delete,
    /// Opening the storage itself.
    Open,
    /// Removing what dead writers left.
    CleanTemporary,
}

impl Operation {
    /// The operations of [`crate::Storage`], in the order of its methods.
    pub const OF_STORAGE: [Operation; 6] =
        [Operation::Create, Operation::Read, Operation::ReadRange, Operation::Size, Operation::List, Operation::Delete];
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Create => "create",
            Operation::Read => "read",
            Operation::ReadRange => "read range of",
            Operation::Size => "size of",
            Operation::List => "list",
            Operation::Delete => "delete",
            Operation::Open => "open",
            Operation::CleanTemporary => "clean temporary files of",
        })
    }
}

/// An operation on storage that did not succeed.
///
/// `name` is the object's name; where it is a `String` it may also be a prefix (list) or a
/// directory (open).
#[derive(Clone, Debug, thiserror::Error)]
pub enum StorageError {
    /// There is no such object. Who only asks whether an object exists matches on this variant.
    #[error("object {name:?} does not exist")]
    NotFound {
        /// The object.
        name: ObjectName,
    },
    /// The name is taken, durably, by an object of whatever content. Nothing was changed.
    #[error("object {name:?} exists already")]
    AlreadyExists {
        /// The object.
        name: ObjectName,
    },
    /// The object ends before the range asked for does.
    #[error("object {name:?} has {size} bytes, {length} bytes at offset {offset} were asked for")]
    OutOfRange {
        /// The object.
        name: ObjectName,
        /// Start of the range, in bytes.
        offset: u64,
        /// Length of the range, in bytes.
        length: u64,
        /// Size of the object, in bytes.
        size: u64,
    },
    /// The name cannot be used.
    #[error("object name {name:?} is invalid: {reason}")]
    InvalidName {
        /// The refused name.
        name: String,
        /// Which rule it breaks.
        reason: &'static str,
    },
    /// It did not happen and may work later.
    #[error("cannot {operation} {name:?}: storage is unavailable")]
    Unavailable {
        /// What was tried.
        operation: Operation,
        /// On what.
        name: String,
        /// Why.
        source: Cause,
    },
    /// It may have happened. Look before trying again.
    #[error("cannot tell whether {operation} {name:?} happened")]
    Uncertain {
        /// What was tried.
        operation: Operation,
        /// On what.
        name: String,
        /// Why.
        source: Cause,
    },
    /// It did not happen: the storage refuses it to this process.
    #[error("cannot {operation} {name:?}: permission denied")]
    PermissionDenied {
        /// What was tried.
        operation: Operation,
        /// On what.
        name: String,
        /// Why.
        source: Cause,
    },
    /// It did not happen: the disk or the quota is full.
    #[error("cannot {operation} {name:?}: storage is full")]
    Full {
        /// What was tried.
        operation: Operation,
        /// On what.
        name: String,
        /// Why.
        source: Cause,
    },
    /// It did not happen: the place itself is not there, such as a bucket that nobody has made.
    #[error("cannot {operation} {name:?}: {store} does not exist")]
    NoSuchStore {
        /// What was tried.
        operation: Operation,
        /// On what.
        name: String,
        /// The place.
        store: String,
        /// Why.
        source: Cause,
    },
    /// It did not happen: this place can never do it, such as a file system without hard links.
    #[error("cannot {operation} {name:?}: not supported there")]
    Unsupported {
        /// What was tried.
        operation: Operation,
        /// On what.
        name: String,
        /// Why.
        source: Cause,
    },
}

impl StorageError {
    /// What to do next.
    ///
    /// `NotFound` and `OutOfRange` are corrupt: a caller that passes them on had reason to expect
    /// the bytes. `AlreadyExists` is invalid: names are chosen to be unique, and a caller for whom
    /// losing is normal matches on the variant. `Full` is unavailable: space can come back.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            StorageError::NotFound { .. } | StorageError::OutOfRange { .. } => ErrorKind::Corrupt,
            StorageError::AlreadyExists { .. }
            | StorageError::InvalidName { .. }
            | StorageError::PermissionDenied { .. }
            | StorageError::NoSuchStore { .. }
            | StorageError::Unsupported { .. } => ErrorKind::Invalid,
            StorageError::Unavailable { .. } | StorageError::Full { .. } => ErrorKind::Unavailable,
            StorageError::Uncertain { .. } => ErrorKind::Uncertain,
        }
    }

    /// The same error with another underlying reason; one that has none stays as it is.
    #[must_use]
    pub(crate) fn because(mut self, reason: impl FnOnce(Cause) -> Cause) -> Self {
        match &mut self {
            StorageError::Unavailable { source, .. }
            | StorageError::Uncertain { source, .. }
            | StorageError::PermissionDenied { source, .. }
            | StorageError::Full { source, .. }
            | StorageError::NoSuchStore { source, .. }
            | StorageError::Unsupported { source, .. } => *source = reason(Arc::clone(source)),
            StorageError::NotFound { .. }
            | StorageError::AlreadyExists { .. }
            | StorageError::OutOfRange { .. }
            | StorageError::InvalidName { .. } => {}
        }
        self
    }

    /// Whether the object asked for does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, StorageError::NotFound { .. })
    }

    /// Whether the name was taken.
    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        matches!(self, StorageError::AlreadyExists { .. })
    }
}

/// Checks that `length` bytes at `offset` lie within `size` bytes; an empty range at the end does.
///
/// # Errors
/// [`StorageError::OutOfRange`] when they do not.
pub fn check_range(name: &ObjectName, offset: u64, length: u64, size: u64) -> Result<(), StorageError> {
    match offset.checked_add(length) {
        Some(end) if end <= size => Ok(()),
        _ => Err(StorageError::OutOfRange { name: name.clone(), offset, length, size }),
    }
}
