//! A layer through which nothing can be changed.

use crate::error::{Operation, StorageError, cause};
use crate::name::ObjectName;
use crate::storage::{ObjectInfo, Storage};

/// A storage that can only be looked at: `create` and `delete` are refused as
/// [`StorageError::PermissionDenied`], whatever the storage below allows.
#[derive(Clone, Debug)]
pub struct ReadOnly<S> {
    inner: S,
}

impl<S> ReadOnly<S> {
    /// What `inner` holds, to be looked at.
    pub fn new(inner: S) -> Self {
        ReadOnly { inner }
    }
}

fn refuse(operation: Operation, name: &ObjectName) -> StorageError {
    let source = cause("the storage was opened only to be read");
    StorageError::PermissionDenied { operation, name: name.to_string(), source }
}

impl<S: Storage> Storage for ReadOnly<S> {
    fn create(&self, name: &ObjectName, _: &[u8]) -> Result<(), StorageError> {
        Err(refuse(Operation::Create, name))
    }

    fn read(&self, name: &ObjectName) -> Result<Vec<u8>, StorageError> {
        self.inner.read(name)
    }

    fn read_range(&self, name: &ObjectName, offset: u64, length: u64) -> Result<Vec<u8>, StorageError> {
        self.inner.read_range(name, offset, length)
    }

    fn size(&self, name: &ObjectName) -> Result<u64, StorageError> {
        self.inner.size(name)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, StorageError> {
        self.inner.list(prefix)
    }

    fn delete(&self, name: &ObjectName) -> Result<(), StorageError> {
        Err(refuse(Operation::Delete, name))
    }

    fn location(&self) -> String {
        self.inner.location()
    }

    fn ends_calls(&self) -> bool {
        self.inner.ends_calls()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStorage;

    #[test]
    fn everything_can_be_read_and_nothing_changed() {
        let memory = MemoryStorage::new();
        let [there, new] = ["a/b", "a/c"].map(|name| ObjectName::new(name).unwrap());
        memory.create(&there, b"bytes").unwrap();
        let storage = ReadOnly::new(memory.clone());
        assert!(matches!(storage.create(&new, b""), Err(StorageError::PermissionDenied { .. })));
        assert!(matches!(storage.delete(&there), Err(StorageError::PermissionDenied { .. })));
        assert_eq!(storage.read(&there).unwrap(), b"bytes");
        assert_eq!(storage.read_range(&there, 1, 2).unwrap(), b"yt");
        assert_eq!(storage.size(&there).unwrap(), 5);
        assert_eq!(storage.list("").unwrap(), memory.list("").unwrap());
    }
}
