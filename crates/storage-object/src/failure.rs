//! From a client's errors to what the storage contract knows. Pure.
//!
//! The question that matters is whether a change may have happened: only errors that the server gave
//! as an answer, or that arose before anything was sent, say that it has not.

use std::error::Error as StdError;

use millpond_storage::{ObjectName, Operation, StorageError, cause};
use object_store::Error;

/// An error with the place where it arose.
#[derive(Debug, thiserror::Error)]
#[error("{store}")]
struct At {
    store: String,
    source: Box<dyn StdError + Send + Sync>,
}

/// What a client's error says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// There is no such object.
    Absent,
    /// The name is taken.
    Taken,
    /// The bucket does not exist.
    NoStore,
    /// Refused to these credentials.
    Denied,
    /// No space, or a quota is used up.
    Full,
    /// Did not happen, may work later.
    NotDone,
    /// May have happened.
    Unknown,
    /// Will never work.
    Never,
}

/// What was tried, on what, where.
#[derive(Clone, Debug)]
pub(crate) struct Tried<'a> {
    pub(crate) operation: Operation,
    pub(crate) name: &'a str,
    pub(crate) object: Option<&'a ObjectName>,
    pub(crate) store: &'a str,
}

impl Tried<'_> {
    /// The error to give to the caller.
    pub(crate) fn error(&self, verdict: Verdict, source: impl Into<Box<dyn StdError + Send + Sync>>) -> StorageError {
        let (operation, name, store) = (self.operation, self.name.to_owned(), self.store.to_owned());
        let source = cause(At { store: store.clone(), source: source.into() });
        let changes = matches!(operation, Operation::Create | Operation::Delete);
        match (verdict, self.object) {
            (Verdict::Absent, Some(object)) => StorageError::NotFound { name: object.clone() },
            (Verdict::Taken, Some(object)) => StorageError::AlreadyExists { name: object.clone() },
            (Verdict::NoStore, _) => StorageError::NoSuchStore { operation, name, store, source },
            (Verdict::Denied, _) => StorageError::PermissionDenied { operation, name, source },
            (Verdict::Full, _) => StorageError::Full { operation, name, source },
            (Verdict::Never, _) => StorageError::Unsupported { operation, name, source },
            (Verdict::Unknown, _) if changes => StorageError::Uncertain { operation, name, source },
            _ => StorageError::Unavailable { operation, name, source },
        }
    }
}

/// What `error` says.
pub(crate) fn verdict(error: &Error) -> Verdict {
    match error {
        Error::NotFound { .. } if says(error, "NoSuchBucket") => Verdict::NoStore,
        Error::NotFound { .. } => Verdict::Absent,
        Error::AlreadyExists { source, .. } if is_conflict(source.as_ref()) => Verdict::NotDone,
        Error::AlreadyExists { .. } => Verdict::Taken,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Verdict::Denied,
        Error::InvalidPath { .. }
        | Error::NotSupported { .. }
        | Error::NotImplemented { .. }
        | Error::UnknownConfigurationKey { .. } => Verdict::Never,
        Error::Precondition { .. } | Error::NotModified { .. } => Verdict::NotDone,
        other => by_source(other),
    }
}

/// What the error of the client inside says.
fn by_source(error: &Error) -> Verdict {
    #[cfg(feature = "s3")]
    if let Some(verdict) = crate::s3::verdict(error) {
        return verdict;
    }
    #[cfg(feature = "hdfs")]
    if let Some(verdict) = crate::hdfs::verdict(error) {
        return verdict;
    }
    let _ = error;
    Verdict::Unknown
}

/// Whether "exists already" is the answer 409 of an S3 server, which says that another request for the name was
/// under way and ours was not carried out. That the name is taken is answer 412, which comes as a failed
/// precondition inside; HDFS says it with an error of its own.
fn is_conflict(source: &(dyn StdError + 'static)) -> bool {
    #[cfg(feature = "hdfs")]
    if source.is::<hdfs_native::HdfsError>() {
        return false;
    }
    !matches!(source.downcast_ref::<Error>(), Some(Error::Precondition { .. } | Error::NotModified { .. }))
}

/// Whether the text of the error, or of one below it, has `word` in it.
pub(crate) fn says(error: &Error, word: &str) -> bool {
    error.to_string().contains(word)
}

/// The first error of type `T` in the chain that begins with `error`.
#[cfg(any(feature = "s3", feature = "hdfs"))]
pub(crate) fn find<'a, T: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(found);
        }
        next = error.source();
    }
    None
}
