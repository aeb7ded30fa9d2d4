//! The storage trait over an object store.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use millpond_storage::{ObjectInfo, ObjectName, Operation, Storage, StorageError, check_range};
use object_store::path::Path;
use object_store::{Error, GetOptions, ObjectStore, ObjectStoreExt};

use crate::failure::{Tried, Verdict, verdict};
use crate::runtime::Calls;
use crate::writes::{WriteFailure, WriteResult, Writes};

/// Where unfinished writes lie, below the root: no object name begins with a dot.
pub(crate) const TEMPORARY: &str = ".tmp";
/// Objects above this size are read in pieces of it, several at a time.
const READ_PIECE: u64 = 8 << 20;
/// Pieces that are read at the same time.
const READS_AT_ONCE: usize = 4;
/// What a transfer of unknown size counts as when its time is bounded. A connection on which nothing moves
/// is given up earlier, by the client.
const UNKNOWN_SIZE: u64 = 128 << 20;
/// What is older than this under [`TEMPORARY`] belongs to a dead process.
const DEAD_AFTER: Duration = Duration::from_secs(24 * 3_600);

/// Checkpoint storage in an object store. Made by [`crate::ObjectStoreOpener`], or by the settings of one
/// kind of store.
pub struct ObjectStoreStorage {
    store: Arc<dyn ObjectStore>,
    writes: Arc<dyn Writes>,
    /// What stands before every name; empty for the root of the store.
    root: String,
    location: String,
    calls: Calls,
}

impl ObjectStoreStorage {
    /// Over `store`, with names below `root`; `location` is what people call it.
    pub(crate) fn new(
        store: Arc<dyn ObjectStore>,
        writes: Arc<dyn Writes>,
        root: String,
        location: String,
        calls: Calls,
    ) -> Self {
        let storage = ObjectStoreStorage { store, writes, root, location, calls };
        storage.clean_temporary();
        storage
    }

    /// Removes, in the background, what processes that died long ago left unfinished.
    fn clean_temporary(&self) {
        let (store, writes, prefix) = (Arc::clone(&self.store), Arc::clone(&self.writes), self.path(TEMPORARY));
        let Ok(prefix) = prefix else { return };
        self.calls.run_apart(async move {
            let mut found = store.list(Some(&prefix));
            while let Some(Ok(object)) = found.next().await {
                let age = std::time::SystemTime::now().duration_since(object.last_modified.into());
                if age.is_ok_and(|age| age > DEAD_AFTER) && writes.delete(object.location.clone()).await.is_err() {
                    tracing::debug!(object = %object.location, "cannot remove what is unfinished");
                }
            }
        });
    }

    fn path(&self, name: &str) -> Result<Path, Error> {
        let full = if self.root.is_empty() { name.to_owned() } else { format!("{}/{name}", self.root) };
        Ok(Path::parse(full)?)
    }

    fn tried<'a>(&'a self, operation: Operation, name: &'a ObjectName) -> Tried<'a> {
        Tried { operation, name: name.as_str(), object: Some(name), store: &self.location }
    }

    /// Runs `call` on the path of the tried object.
    fn run<T, F>(&self, tried: &Tried<'_>, bytes: u64, call: impl FnOnce(Path) -> F) -> Result<T, StorageError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let path = self.path(tried.name).map_err(|error| tried.error(Verdict::Never, error))?;
        match self.calls.run(bytes, call(path)) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(tried.error(verdict(&error), error)),
            Err(lost) => Err(tried.error(Verdict::Unknown, lost)),
        }
    }

    /// As [`ObjectStoreStorage::run`], for what changes the store.
    fn write<F>(&self, tried: &Tried<'_>, bytes: u64, call: impl FnOnce(Path) -> F) -> Result<(), StorageError>
    where
        F: Future<Output = WriteResult> + Send + 'static,
    {
        let path = self.path(tried.name).map_err(|error| tried.error(Verdict::Never, error))?;
        match self.calls.run(bytes, call(path)) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(WriteFailure::Deciding(error))) => Err(tried.error(verdict(&error), error)),
            Ok(Err(WriteFailure::Before(error))) => Err(tried.error(before(verdict(&error)), error)),
            Err(lost) => Err(tried.error(Verdict::Unknown, lost)),
        }
    }
}

/// What an error before the deciding request says about the whole: that it did not happen.
fn before(verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Unknown | Verdict::Absent | Verdict::Taken => Verdict::NotDone,
        known => known,
    }
}

impl Storage for ObjectStoreStorage {
    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), StorageError> {
        let (content, size) = (Bytes::copy_from_slice(bytes), bytes.len() as u64);
        self.write(&self.tried(Operation::Create, name), size, |path| self.writes.create(path, content))
    }

    fn read(&self, name: &ObjectName) -> Result<Vec<u8>, StorageError> {
        let store = Arc::clone(&self.store);
        let tried = self.tried(Operation::Read, name);
        self.run(&tried, UNKNOWN_SIZE, |path| read_all(store, path))
    }

    fn read_range(&self, name: &ObjectName, offset: u64, length: u64) -> Result<Vec<u8>, StorageError> {
        let end = offset.checked_add(length).filter(|_| length > 0);
        let Some(end) = end else {
            // Nothing to fetch, or nothing that can be: only the size decides.
            return check_range(name, offset, length, self.size(name)?).map(|()| Vec::new());
        };
        let store = Arc::clone(&self.store);
        let tried = self.tried(Operation::ReadRange, name);
        let found = self.run(&tried, length.min(1 << 32), move |path| async move {
            let options = GetOptions::new().with_range(Some(offset..end));
            let result = store.get_opts(&path, options).await?;
            let size = result.meta.size;
            Ok((size, if end <= size { result.bytes().await? } else { Bytes::new() }))
        });
        let (size, bytes) = match found {
            Ok(found) => found,
            Err(error @ StorageError::NotFound { .. }) => return Err(error),
            // A server answers with an error when the range begins beyond the end.
            Err(error) => {
                check_range(name, offset, length, self.size(name)?)?;
                return Err(error);
            }
        };
        check_range(name, offset, length, size)?;
        if bytes.len() as u64 == length {
            Ok(bytes.into())
        } else {
            let found = format!("{length} bytes at {offset} were asked for, {} came", bytes.len());
            Err(tried.error(Verdict::NotDone, found))
        }
    }

    fn size(&self, name: &ObjectName) -> Result<u64, StorageError> {
        let store = Arc::clone(&self.store);
        self.run(&self.tried(Operation::Size, name), 0, move |path| async move { Ok(store.head(&path).await?.size) })
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, StorageError> {
        let tried = Tried { operation: Operation::List, name: prefix, object: None, store: &self.location };
        // The store lists whole directories; the rest of the prefix is for us.
        let directory = prefix.rsplit_once('/').map_or("", |(directory, _)| directory);
        if !directory.is_empty() && ObjectName::new(directory).is_err() {
            return Ok(Vec::new());
        }
        let root =
            if directory.is_empty() { Path::parse(&self.root).map_err(Error::from) } else { self.path(directory) };
        let root = root.map_err(|error| tried.error(Verdict::Never, error))?;
        let below = if self.root.is_empty() { String::new() } else { format!("{}/", self.root) };
        let store = Arc::clone(&self.store);
        let found = self.calls.run(UNKNOWN_SIZE, async move {
            let prefix = (!root.as_ref().is_empty()).then_some(&root);
            store.list(prefix).map_ok(|meta| (meta.location, meta.size)).try_collect::<Vec<_>>().await
        });
        let found = match found {
            Ok(Ok(found)) => found,
            Ok(Err(Error::NotFound { source, path })) => {
                let error = Error::NotFound { source, path };
                return match verdict(&error) {
                    Verdict::Absent => Ok(Vec::new()),
                    other => Err(tried.error(other, error)),
                };
            }
            Ok(Err(error)) => return Err(tried.error(verdict(&error), error)),
            Err(lost) => return Err(tried.error(Verdict::NotDone, lost)),
        };
        let named = found.into_iter().filter_map(|(path, bytes)| {
            let name = path.as_ref().strip_prefix(&below)?;
            let name = name.starts_with(prefix).then(|| ObjectName::new(name).ok())??;
            Some(ObjectInfo { name, bytes })
        });
        let mut objects: Vec<ObjectInfo> = named.collect();
        objects.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(objects)
    }

    fn delete(&self, name: &ObjectName) -> Result<(), StorageError> {
        self.write(&self.tried(Operation::Delete, name), 0, |path| self.writes.delete(path))
    }

    fn location(&self) -> String {
        self.location.clone()
    }

    fn ends_calls(&self) -> bool {
        true
    }
}

/// The content of an object; a large one in pieces, several at a time.
async fn read_all(store: Arc<dyn ObjectStore>, path: Path) -> Result<Vec<u8>, Error> {
    let whole = store.get(&path).await?;
    let size = whole.meta.size;
    if size <= READ_PIECE {
        return Ok(whole.bytes().await?.into());
    }
    drop(whole);
    let pieces = (0..size.div_ceil(READ_PIECE)).map(|piece| {
        let (store, path) = (Arc::clone(&store), path.clone());
        let start = piece * READ_PIECE;
        async move { store.get_range(&path, start..(start + READ_PIECE).min(size)).await }
    });
    let mut pieces = stream::iter(pieces).buffered(READS_AT_ONCE);
    let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    while let Some(piece) = pieces.try_next().await? {
        content.extend_from_slice(&piece);
    }
    Ok(content)
}
