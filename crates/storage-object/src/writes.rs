//! What differs between stores: how an object is made and removed.

use bytes::Bytes;
use futures::future::BoxFuture;
use object_store::path::Path;

/// An error of a write, with what is known about its effect.
#[derive(Debug)]
pub(crate) enum WriteFailure {
    /// The request that decides was never made: nothing has happened.
    Before(object_store::Error),
    /// The request that decides failed; whether it happened is for its error to tell.
    Deciding(object_store::Error),
}

pub(crate) type WriteResult = Result<(), WriteFailure>;

/// How objects come and go in one kind of store. The futures own what they need, so that they can run on
/// another thread.
pub(crate) trait Writes: Send + Sync + 'static {
    /// Makes the object whole and durable, unless there is one: then `AlreadyExists`.
    fn create(&self, path: Path, bytes: Bytes) -> BoxFuture<'static, WriteResult>;

    /// Removes the object; an absent one is fine.
    fn delete(&self, path: Path) -> BoxFuture<'static, WriteResult>;
}
