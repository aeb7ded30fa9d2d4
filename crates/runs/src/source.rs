//! Where a reader gets its bytes from.

use std::error::Error;
use std::sync::Arc;

use millpond_core::ErrorKind;
use millpond_storage::{ObjectName, Storage, StorageError};

/// Why bytes could not be read.
#[derive(Debug, thiserror::Error)]
#[error("{kind}")]
pub struct ReadError {
    kind: ErrorKind,
    source: Box<dyn Error + Send + Sync>,
}

impl ReadError {
    /// Wraps the error of whatever holds the bytes; `kind` tells what to do about it.
    pub fn new(kind: ErrorKind, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        ReadError { kind, source: source.into() }
    }

    /// What to do next.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

/// One immutable file that can be read in pieces. Calls may block.
pub trait ReadRange {
    /// The file's name, for messages.
    fn name(&self) -> &str;

    /// The file's length in bytes.
    ///
    /// # Errors
    /// When the file is missing or cannot be reached.
    fn size(&self) -> Result<u64, ReadError>;

    /// Exactly `length` bytes from `offset` on.
    ///
    /// # Errors
    /// When the file is missing, cannot be reached or is too short.
    fn read_range(&self, offset: u64, length: u64) -> Result<Vec<u8>, ReadError>;

    /// These ranges (offset and length) will be read next, in this order, unless something fails. A file may
    /// begin to read them; by default it does not.
    fn expect_reads(&self, ranges: &[(u64, u64)]) {
        let _ = ranges;
    }
}

macro_rules! forward {
    ($($pointer:ty),*) => {$(
        impl<T: ReadRange + ?Sized> ReadRange for $pointer {
            fn name(&self) -> &str {
                (**self).name()
            }
            fn size(&self) -> Result<u64, ReadError> {
                (**self).size()
            }
            fn read_range(&self, offset: u64, length: u64) -> Result<Vec<u8>, ReadError> {
                (**self).read_range(offset, length)
            }
            fn expect_reads(&self, ranges: &[(u64, u64)]) {
                (**self).expect_reads(ranges);
            }
        }
    )*};
}
forward!(&T, Box<T>, Arc<T>);

impl From<StorageError> for ReadError {
    fn from(error: StorageError) -> Self {
        ReadError::new(error.kind(), error)
    }
}

/// A run file that is an object of a storage.
#[derive(Clone, Debug)]
pub struct StoredRun<S> {
    storage: S,
    name: ObjectName,
}

impl<S: Storage> StoredRun<S> {
    /// The object called `name`; nothing is read yet.
    pub fn new(storage: S, name: ObjectName) -> Self {
        StoredRun { storage, name }
    }
}

impl<S: Storage> ReadRange for StoredRun<S> {
    fn name(&self) -> &str {
        self.name.as_str()
    }

    fn size(&self) -> Result<u64, ReadError> {
        Ok(self.storage.size(&self.name)?)
    }

    fn read_range(&self, offset: u64, length: u64) -> Result<Vec<u8>, ReadError> {
        Ok(self.storage.read_range(&self.name, offset, length)?)
    }
}

/// A run file that is wholly in memory.
#[derive(Clone, Debug)]
pub struct MemoryRun {
    name: String,
    bytes: Arc<[u8]>,
}

impl MemoryRun {
    /// A file of these bytes, called `name` in messages.
    pub fn new(name: impl Into<String>, bytes: impl Into<Arc<[u8]>>) -> Self {
        MemoryRun { name: name.into(), bytes: bytes.into() }
    }
}

impl ReadRange for MemoryRun {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> Result<u64, ReadError> {
        Ok(self.bytes.len() as u64)
    }

    fn read_range(&self, offset: u64, length: u64) -> Result<Vec<u8>, ReadError> {
        let end = offset.checked_add(length).and_then(|end| usize::try_from(end).ok());
        let start = usize::try_from(offset).ok();
        match start.zip(end).and_then(|(start, end)| self.bytes.get(start..end)) {
            Some(piece) => Ok(piece.to_vec()),
            None => Err(ReadError::new(
                ErrorKind::Corrupt,
                format!("{length} bytes at {offset} are outside of {} bytes", self.bytes.len()),
            )),
        }
    }
}
