//! What RocksDB says, as errors of a cold store.

use std::path::Path;

use millpond_state::ColdError;
use rocksdb::ErrorKind;

/// What was being done when something went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    Read,
    Write,
}

/// The error of a cold store in `place`. RocksDB's own words name the file, and its cause: damage, a full disk.
#[cold]
pub(crate) fn cold_error(doing: Doing, place: &Path, error: &rocksdb::Error) -> ColdError {
    let (place, reason) = (place.display().to_string(), error.to_string());
    match (error.kind(), doing) {
        (ErrorKind::Corruption, _) => ColdError::Damaged { place, reason },
        (_, Doing::Read) => ColdError::Read { place, reason },
        (_, Doing::Write) => ColdError::Write { place, reason },
    }
}
