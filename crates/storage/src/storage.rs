//! The narrow trait over durable objects, with its contract in words.

use std::sync::Arc;

use crate::error::StorageError;
use crate::name::ObjectName;

/// An object as [`Storage::list`] shows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectInfo {
    /// Its name.
    pub name: ObjectName,
    /// Its size, in bytes.
    pub bytes: u64,
}

/// Immutable objects under names. Calls block; make them from background threads.
///
/// Every method may be called by any number of threads and processes at once. Every method may
/// fail with [`StorageError::Unavailable`], [`StorageError::PermissionDenied`] or
/// [`StorageError::Unsupported`], and then nothing happened. Only `create` and `delete` may fail
/// with [`StorageError::Uncertain`].
///
/// A name and a name below it (`a` and `a/b`) are not both used: file systems cannot hold both,
/// and may refuse the second as [`StorageError::InvalidName`].
pub trait Storage: Send + Sync + 'static {
    /// Writes a new object.
    ///
    /// *Atomic*: others see the whole object or none; of several creators of one name, one wins.
    /// *Durable* on return: after `Ok`, and after [`StorageError::AlreadyExists`], a power cut does
    /// not take the object away. *Not idempotent*: the second call says `AlreadyExists` even for
    /// equal content. *After a crash* inside the call there is the whole object or none.
    ///
    /// Another reader may see the object shortly before it is durable. Who must be sure calls
    /// `create` with the same bytes.
    ///
    /// # Errors
    /// [`StorageError::AlreadyExists`] when the name is taken; [`StorageError::Full`];
    /// [`StorageError::Uncertain`] when the object may or may not be there, durable or not.
    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), StorageError>;

    /// The whole content of an object. Idempotent.
    ///
    /// # Errors
    /// [`StorageError::NotFound`].
    fn read(&self, name: &ObjectName) -> Result<Vec<u8>, StorageError>;

    /// Exactly `length` bytes of an object from `offset` (in bytes) on. Idempotent. The range is
    /// checked against the object's size before memory for it is taken.
    ///
    /// # Errors
    /// [`StorageError::NotFound`]; [`StorageError::OutOfRange`] when the object is shorter, never
    /// fewer bytes.
    fn read_range(&self, name: &ObjectName, offset: u64, length: u64) -> Result<Vec<u8>, StorageError>;

    /// The size of an object, in bytes. Idempotent.
    ///
    /// # Errors
    /// [`StorageError::NotFound`].
    fn size(&self, name: &ObjectName) -> Result<u64, StorageError>;

    /// All objects whose names begin with the text `prefix`, sorted by name. Idempotent.
    ///
    /// The prefix may end inside a component; one that no name can begin with gives an empty list.
    /// Objects created before the call and not deleted are in it, those created or deleted during
    /// the call may be. Unfinished writes never are.
    ///
    /// # Errors
    /// Only those that every method may give; never a part of the list.
    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, StorageError>;

    /// Removes an object. *Idempotent*: an absent one is fine. *Atomic*. *Durable* on return: a
    /// power cut does not bring the object back, so a reference deleted before its referents never
    /// outlives them. *After a crash* inside the call the object is there whole or absent.
    ///
    /// # Errors
    /// [`StorageError::Uncertain`] when the object may be gone, or may come back.
    fn delete(&self, name: &ObjectName) -> Result<(), StorageError>;

    /// What the storage is called in messages to people, such as `s3://bucket/jobs`. Holds no secrets.
    fn location(&self) -> String {
        "the storage".to_owned()
    }

    /// Whether every call ends by itself within bounded time. Others are wrapped into a
    /// [`crate::Deadline`] where a hung call would hold up a job.
    fn ends_calls(&self) -> bool {
        false
    }
}

macro_rules! forward {
    ($pointer:ident) => {
        impl<S: Storage + ?Sized> Storage for $pointer<S> {
            fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), StorageError> {
                (**self).create(name, bytes)
            }

            fn read(&self, name: &ObjectName) -> Result<Vec<u8>, StorageError> {
                (**self).read(name)
            }

            fn read_range(&self, name: &ObjectName, offset: u64, length: u64) -> Result<Vec<u8>, StorageError> {
                (**self).read_range(name, offset, length)
            }

            fn size(&self, name: &ObjectName) -> Result<u64, StorageError> {
                (**self).size(name)
            }

            fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, StorageError> {
                (**self).list(prefix)
            }

            fn delete(&self, name: &ObjectName) -> Result<(), StorageError> {
                (**self).delete(name)
            }

            fn location(&self) -> String {
                (**self).location()
            }

            fn ends_calls(&self) -> bool {
                (**self).ends_calls()
            }
        }
    };
}

forward!(Arc);
forward!(Box);
