//! Objects in memory: the first implementation, for tests, the simulator and the `memory` profile.
//!
//! Owns nothing beyond the process: "durable" here means for as long as a clone lives.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::error::{StorageError, check_range};
use crate::name::ObjectName;
use crate::storage::{ObjectInfo, Storage};

type Objects = BTreeMap<ObjectName, Arc<[u8]>>;

/// Objects in memory. Clones share their content.
#[derive(Clone, Debug, Default)]
pub struct MemoryStorage {
    objects: Arc<RwLock<Objects>>,
}

/// The content of a [`MemoryStorage`] at one moment. Cheap to take and to clone: bytes are shared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemorySnapshot {
    objects: Objects,
}

impl MemorySnapshot {
    /// Names and contents, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&ObjectName, &[u8])> {
        self.objects.iter().map(|(name, bytes)| (name, &**bytes))
    }

    /// The content of one object.
    #[must_use]
    pub fn get(&self, name: &ObjectName) -> Option<&[u8]> {
        self.objects.get(name).map(|bytes| &**bytes)
    }
}

impl MemoryStorage {
    /// An empty storage.
    #[must_use]
    pub fn new() -> Self {
        MemoryStorage::default()
    }

    /// A storage of its own with the content of `snapshot`.
    #[must_use]
    pub fn from_snapshot(snapshot: MemorySnapshot) -> Self {
        MemoryStorage { objects: Arc::new(RwLock::new(snapshot.objects)) }
    }

    /// The content now.
    #[must_use]
    pub fn snapshot(&self) -> MemorySnapshot {
        MemorySnapshot { objects: self.objects().clone() }
    }

    /// Sets the content, for all clones, to that of `snapshot`.
    pub fn restore(&self, snapshot: MemorySnapshot) {
        *self.objects_mut() = snapshot.objects;
    }

    /// Replaces or adds an object against the contract, for tests of damaged bytes.
    pub fn overwrite(&self, name: &ObjectName, bytes: &[u8]) {
        self.objects_mut().insert(name.clone(), Arc::from(bytes));
    }

    // A panic cannot leave the map half changed: every change is one call of the map.
    fn objects(&self) -> RwLockReadGuard<'_, Objects> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn objects_mut(&self) -> RwLockWriteGuard<'_, Objects> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn content(&self, name: &ObjectName) -> Result<Arc<[u8]>, StorageError> {
        self.objects().get(name).cloned().ok_or_else(|| StorageError::NotFound { name: name.clone() })
    }
}

impl Storage for MemoryStorage {
    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), StorageError> {
        let content = Arc::from(bytes);
        let mut objects = self.objects_mut();
        if objects.contains_key(name) {
            return Err(StorageError::AlreadyExists { name: name.clone() });
        }
        objects.insert(name.clone(), content);
        Ok(())
    }

    fn read(&self, name: &ObjectName) -> Result<Vec<u8>, StorageError> {
        Ok(self.content(name)?.to_vec())
    }

    fn read_range(&self, name: &ObjectName, offset: u64, length: u64) -> Result<Vec<u8>, StorageError> {
        let content = self.content(name)?;
        check_range(name, offset, length, content.len() as u64)?;
        // In range of a slice, so both fit in usize.
        let start = offset as usize;
        Ok(content[start..start + length as usize].to_vec())
    }

    fn size(&self, name: &ObjectName) -> Result<u64, StorageError> {
        Ok(self.content(name)?.len() as u64)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, StorageError> {
        let objects = self.objects();
        let from_prefix = objects.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        let matching = from_prefix.take_while(|(name, _)| name.as_str().starts_with(prefix));
        Ok(matching.map(|(name, bytes)| ObjectInfo { name: name.clone(), bytes: bytes.len() as u64 }).collect())
    }

    fn delete(&self, name: &ObjectName) -> Result<(), StorageError> {
        self.objects_mut().remove(name);
        Ok(())
    }

    fn location(&self) -> String {
        "memory".to_owned()
    }

    fn ends_calls(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_keeps_its_moment_and_can_be_restored() {
        let storage = MemoryStorage::new();
        let name = ObjectName::new("a").unwrap();
        storage.create(&name, b"one").unwrap();
        let snapshot = storage.snapshot();
        let clone = storage.clone();
        storage.overwrite(&name, b"two");
        assert_eq!(snapshot.get(&name), Some(&b"one"[..]));
        assert_eq!(clone.read(&name).unwrap(), b"two");
        clone.restore(snapshot.clone());
        assert_eq!(storage.read(&name).unwrap(), b"one");
        let apart = MemoryStorage::from_snapshot(snapshot);
        apart.delete(&name).unwrap();
        assert_eq!(storage.read(&name).unwrap(), b"one");
        assert_eq!(storage.snapshot().iter().count(), 1);
    }
}
