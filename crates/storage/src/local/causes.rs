//! From the causes a file system gives to what the caller should do next.

use std::io;

use crate::error::{Operation, StorageError, cause};

/// Errors that say there is no object of that name.
pub(super) fn absent(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
    matches!(kind, NotFound | NotADirectory | IsADirectory)
}

/// Errors with which a file system refuses a change that it has not made.
pub(super) fn refused(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{
        CrossesDevices, InvalidFilename, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull,
        TooManyLinks, Unsupported,
    };
    let by_policy = matches!(kind, PermissionDenied | ReadOnlyFilesystem | StorageFull | QuotaExceeded);
    absent(kind) || by_policy || matches!(kind, CrossesDevices | InvalidFilename | TooManyLinks | Unsupported)
}

/// The error for something that did not happen.
pub(super) fn classify(operation: Operation, name: &str, error: io::Error) -> StorageError {
    use io::ErrorKind as Kind;
    let kind = error.kind();
    let (name, source) = (name.to_owned(), cause(error));
    match kind {
        Kind::PermissionDenied | Kind::ReadOnlyFilesystem => StorageError::PermissionDenied { operation, name, source },
        Kind::StorageFull | Kind::QuotaExceeded => StorageError::Full { operation, name, source },
        Kind::CrossesDevices | Kind::Unsupported => StorageError::Unsupported { operation, name, source },
        Kind::NotADirectory => {
            StorageError::InvalidName { name, reason: "a file is where a directory would have to be" }
        }
        Kind::IsADirectory => {
            StorageError::InvalidName { name, reason: "a directory is where the object would have to be" }
        }
        Kind::InvalidFilename => StorageError::InvalidName { name, reason: "the file system does not hold such names" },
        _ => StorageError::Unavailable { operation, name, source },
    }
}
