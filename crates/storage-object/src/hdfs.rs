//! HDFS: settings, and how objects are made there.
//!
//! `hdfs-native-object-store` reads, lists and knows paths. Its own conditional put does not sync, so
//! objects are made with the client beneath it: a temporary file, `hsync` (every DataNode of the
//! pipeline has its bytes on disk), `close`, and a rename that refuses to replace. The NameNode decides
//! who wins, and journals it before it answers.

use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use hdfs_native::{Client, ClientBuilder, HdfsError, WriteOptions};
use hdfs_native_object_store::HdfsObjectStore;
use millpond_storage::{ObjectName, Operation, StorageError, cause};
use object_store::Error;
use object_store::path::Path;

use crate::failure::{Verdict, find};
use crate::runtime::Calls;
use crate::store::{ObjectStoreStorage, TEMPORARY};
use crate::writes::{WriteFailure, WriteResult, Writes};

/// Rights of directories that are made.
const DIRECTORY_MODE: u32 = 0o755;

/// Where checkpoints lie in HDFS.
///
/// Name services, Kerberos and the like come from the Hadoop configuration at `HADOOP_CONF_DIR`; the user
/// is `HADOOP_USER_NAME`, else the one of the process.
#[derive(Clone, Debug)]
pub struct HdfsSettings {
    /// `host:port` of the NameNode, or a name service.
    pub name_node: String,
    /// The directory, without slashes at its ends; it is made if it is missing.
    pub directory: String,
    /// The time that a call has, and more for large objects: see [`millpond_storage::time_for`].
    pub timeout: Duration,
}

impl HdfsSettings {
    /// `directory` at `name_node`.
    #[must_use]
    pub fn new(name_node: impl Into<String>, directory: impl Into<String>) -> Self {
        let timeout = Duration::from_secs(60);
        HdfsSettings { name_node: name_node.into(), directory: directory.into(), timeout }
    }

    /// Makes the client; nothing is sent yet.
    ///
    /// # Errors
    /// [`StorageError::InvalidName`] for a directory that cannot be one, [`StorageError::Unsupported`] for an
    /// address that cannot be one, [`StorageError::Unavailable`] when threads cannot be started.
    pub fn open(&self) -> Result<ObjectStoreStorage, StorageError> {
        if !self.directory.is_empty() {
            ObjectName::new(&self.directory)?;
        }
        let location = format!("hdfs://{}/{}", self.name_node, self.directory);
        let open = Operation::Open;
        let calls = Calls::start(self.timeout, &location)?;
        let mut builder = ClientBuilder::new()
            .with_url(format!("hdfs://{}", self.name_node))
            .with_config([("dfs.client.socket-timeout", self.timeout.as_millis().to_string())]);
        if let Some(handle) = calls.handle() {
            builder = builder.with_io_runtime(handle);
        }
        let client = builder.build().map_err(|error| StorageError::Unsupported {
            operation: open,
            name: location.clone(),
            source: cause(error),
        })?;
        let writes = HdfsWrites { client: client.clone(), root: self.directory.clone() };
        let store = Arc::new(HdfsObjectStore::new(client));
        Ok(ObjectStoreStorage::new(store, Arc::new(writes), self.directory.clone(), location, calls))
    }
}

/// How objects come and go in HDFS.
struct HdfsWrites {
    client: Client,
    root: String,
}

impl Writes for HdfsWrites {
    fn create(&self, path: Path, bytes: Bytes) -> BoxFuture<'static, WriteResult> {
        let client = self.client.clone();
        let temporary = absolute(&temporary(&self.root));
        async move {
            let path = absolute(path.as_ref());
            if let Err(error) = write_durably(&client, &temporary, bytes).await {
                remove(&client, &temporary).await;
                return Err(WriteFailure::Before(sorted(error)));
            }
            let renamed = rename(&client, &temporary, &path).await;
            if let Err(error) = &renamed
                && matches!(verdict_of(error), Verdict::Taken | Verdict::Denied | Verdict::Full | Verdict::Never)
            {
                remove(&client, &temporary).await;
            }
            renamed.map_err(|error| WriteFailure::Deciding(sorted(error)))
        }
        .boxed()
    }

    fn delete(&self, path: Path) -> BoxFuture<'static, WriteResult> {
        let client = self.client.clone();
        async move {
            let path = absolute(path.as_ref());
            // A directory is no object; without this look an empty one would go.
            match client.get_file_info(&path).await {
                Ok(found) if found.isdir => return Ok(()),
                Ok(_) => {}
                Err(error) if verdict_of(&error) == Verdict::Absent => return Ok(()),
                Err(error) => return Err(WriteFailure::Before(sorted(error))),
            }
            match client.delete(&path, false).await {
                Ok(_) => Ok(()),
                Err(error) if verdict_of(&error) == Verdict::Absent => Ok(()),
                Err(error) => Err(WriteFailure::Deciding(sorted(error))),
            }
        }
        .boxed()
    }
}

/// Writes a file and returns when every DataNode has it on disk.
async fn write_durably(client: &Client, path: &str, bytes: Bytes) -> Result<(), HdfsError> {
    let mut file = client.create(path, WriteOptions::default().overwrite(true)).await?;
    if !bytes.is_empty() {
        file.write_bytes(bytes).await?;
        file.hsync().await?;
    }
    file.close().await
}

/// Moves a file to a name that must be free; makes the directories above it when they are missing.
async fn rename(client: &Client, from: &str, to: &str) -> Result<(), HdfsError> {
    match client.rename(from, to, false).await {
        Err(error) if verdict_of(&error) == Verdict::Absent => {
            let parent = FilePath::new(to).parent().and_then(FilePath::to_str).unwrap_or("/");
            client.mkdirs(parent, DIRECTORY_MODE, true).await?;
            client.rename(from, to, false).await
        }
        result => result,
    }
}

/// Best effort: what stays is removed when it is a day old.
async fn remove(client: &Client, path: &str) {
    let _ = client.delete(path, false).await;
}

fn absolute(path: &str) -> String {
    format!("/{path}")
}

/// A fresh path for something unfinished.
fn temporary(root: &str) -> String {
    use std::hash::{BuildHasher, Hasher};
    let random = || std::hash::RandomState::new().build_hasher().finish();
    let slash = if root.is_empty() { "" } else { "/" };
    format!("{root}{slash}{TEMPORARY}/{:016x}{:016x}", random(), random())
}

/// The client's error in the words of the object store.
fn sorted(error: HdfsError) -> Error {
    let (path, source) = (String::new(), Box::new(error));
    match verdict_of(&source) {
        Verdict::Absent => Error::NotFound { path, source },
        Verdict::Taken => Error::AlreadyExists { path, source },
        Verdict::Denied => Error::PermissionDenied { path, source },
        _ => Error::Generic { store: "HDFS", source },
    }
}

/// What an error says that the object store did not sort.
pub(crate) fn verdict(error: &Error) -> Option<Verdict> {
    Some(verdict_of(find::<HdfsError>(error)?))
}

fn verdict_of(error: &HdfsError) -> Verdict {
    match error {
        HdfsError::FileNotFound(_) | HdfsError::IsADirectoryError(_) => Verdict::Absent,
        HdfsError::AlreadyExists(_) => Verdict::Taken,
        HdfsError::SASLError(_) => Verdict::Denied,
        HdfsError::InvalidPath(_)
        | HdfsError::InvalidArgument(_)
        | HdfsError::UrlParseError(_)
        | HdfsError::UnsupportedFeature(_)
        | HdfsError::UnsupportedErasureCodingPolicy(_) => Verdict::Never,
        HdfsError::RPCError(class, message) | HdfsError::FatalRPCError(class, message) => by_class(class, message),
        HdfsError::IOError(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Verdict::NotDone,
        _ => Verdict::Unknown,
    }
}

/// What the exception of the NameNode says; it came as an answer.
fn by_class(class: &str, message: &str) -> Verdict {
    match class.rsplit(['.', '$']).next().unwrap_or(class) {
        "FileNotFoundException" | "ParentNotDirectoryException" | "PathIsNotDirectoryException" => Verdict::Absent,
        // What lies below a file is said to be forbidden.
        "AccessControlException" if message.contains("not a directory") => Verdict::Absent,
        "AccessControlException" | "AuthorizationException" | "InvalidToken" => Verdict::Denied,
        "FileAlreadyExistsException" => Verdict::Taken,
        "DSQuotaExceededException" | "NSQuotaExceededException" | "QuotaExceededException" => Verdict::Full,
        "InvalidPathException" | "UnsupportedOperationException" => Verdict::Never,
        "SafeModeException" | "StandbyException" | "RetriableException" | "LeaseExpiredException" => Verdict::NotDone,
        _ => Verdict::Unknown,
    }
}
