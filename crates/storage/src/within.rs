//! A part of a storage as a storage of its own.
//!
//! Owns the translation of names. Everything else is the storage's below.

use crate::error::StorageError;
use crate::name::ObjectName;
use crate::storage::{ObjectInfo, Storage};

/// The objects of a storage whose names lie below one name, called by what follows.
#[derive(Clone, Debug)]
pub struct Within<S> {
    storage: S,
    place: ObjectName,
}

impl<S: Storage> Within<S> {
    /// The objects of `storage` below `place`.
    #[must_use]
    pub fn new(storage: S, place: ObjectName) -> Self {
        Within { storage, place }
    }

    fn outer(&self, name: &ObjectName) -> Result<ObjectName, StorageError> {
        self.place.join(name.as_str())
    }
}

impl<S: Storage> Storage for Within<S> {
    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), StorageError> {
        self.storage.create(&self.outer(name)?, bytes)
    }

    fn read(&self, name: &ObjectName) -> Result<Vec<u8>, StorageError> {
        self.storage.read(&self.outer(name)?)
    }

    fn read_range(&self, name: &ObjectName, offset: u64, length: u64) -> Result<Vec<u8>, StorageError> {
        self.storage.read_range(&self.outer(name)?, offset, length)
    }

    fn size(&self, name: &ObjectName) -> Result<u64, StorageError> {
        self.storage.size(&self.outer(name)?)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, StorageError> {
        let listed = self.storage.list(&format!("{}/{prefix}", self.place))?;
        let inner = |info: ObjectInfo| {
            let below = info.name.as_str().strip_prefix(self.place.as_str())?.strip_prefix('/')?;
            Some(ObjectInfo { name: ObjectName::new(below).ok()?, bytes: info.bytes })
        };
        Ok(listed.into_iter().filter_map(inner).collect())
    }

    fn delete(&self, name: &ObjectName) -> Result<(), StorageError> {
        self.storage.delete(&self.outer(name)?)
    }

    fn location(&self) -> String {
        format!("{}/{}", self.storage.location(), self.place)
    }

    fn ends_calls(&self) -> bool {
        self.storage.ends_calls()
    }
}
