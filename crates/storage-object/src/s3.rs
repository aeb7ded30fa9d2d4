//! S3: settings, and how objects are made there.
//!
//! An object of usual size is one conditional PUT (`If-None-Match: *`): the server lets one creator win. A
//! larger one goes in parts to a temporary object, which is then copied on the server into its name by a
//! conditional complete, and removed. Both need a server that keeps to conditional writes, as Amazon S3
//! has since 2024.
//!
//! Who wins a race for a name matters for manifests alone, and they are small: names of data carry the
//! attempt that writes them. That is why a server whose conditional complete is not atomic, as that of
//! SeaweedFS 4.48, does no harm.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt, TryStreamExt};
use millpond_storage::{ObjectName, Operation, StorageError, cause};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut, S3CopyIfNotExists};
use object_store::client::{HttpError, HttpErrorKind};
use object_store::path::Path;
use object_store::{
    ClientOptions, CopyMode, CopyOptions, Error, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    RetryConfig,
};

use crate::failure::{Verdict, find, says};
use crate::runtime::Calls;
use crate::store::{ObjectStoreStorage, TEMPORARY};
use crate::writes::{WriteFailure, WriteResult, Writes};

/// Time in which a connection must be there.
const CONNECT: Duration = Duration::from_secs(5);

/// Where checkpoints lie in S3, and how the server is reached.
///
/// What is `None` comes from the standard environment variables (`AWS_ACCESS_KEY_ID`,
/// `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT_URL`, …), or from the
/// machine's role.
#[derive(Clone)]
pub struct S3Settings {
    /// The bucket; it must exist.
    pub bucket: String,
    /// What stands before every name, without slashes at its ends; may be empty.
    pub prefix: String,
    /// The server, such as `http://127.0.0.1:8333`; Amazon's for the region otherwise.
    pub endpoint: Option<String>,
    /// The region.
    pub region: Option<String>,
    /// Whether the bucket stands in the host name (`bucket.host`) rather than in the path.
    pub virtual_hosted: Option<bool>,
    /// Key id and secret.
    pub credentials: Option<(String, String)>,
    /// The time that a call has, and more for large objects: see [`millpond_storage::time_for`].
    pub timeout: Duration,
    /// Objects above this size are uploaded in parts, in bytes. Default 128 MiB, at most 5 GB.
    pub single_put_bytes: u64,
    /// Size of a part, in bytes, at least 5 MiB. Default 16 MiB.
    pub part_bytes: u64,
    /// Parts of one object in flight. Default 4.
    pub parts_at_once: usize,
}

/// Without the secret.
impl std::fmt::Debug for S3Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("S3Settings")
            .field("bucket", &self.bucket)
            .field("prefix", &self.prefix)
            .field("endpoint", &self.endpoint)
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

impl S3Settings {
    /// `prefix` in `bucket`, everything else from the environment.
    #[must_use]
    pub fn new(bucket: impl Into<String>, prefix: impl Into<String>) -> Self {
        S3Settings {
            bucket: bucket.into(),
            prefix: prefix.into(),
            endpoint: None,
            region: None,
            virtual_hosted: None,
            credentials: None,
            timeout: Duration::from_secs(60),
            single_put_bytes: 128 << 20,
            part_bytes: 16 << 20,
            parts_at_once: 4,
        }
    }

    /// Makes the client; nothing is sent yet.
    ///
    /// # Errors
    /// [`StorageError::InvalidName`] for a prefix that cannot be one, [`StorageError::Unsupported`] when the
    /// settings make no sense, [`StorageError::Unavailable`] when threads cannot be started.
    pub fn open(&self) -> Result<ObjectStoreStorage, StorageError> {
        if !self.prefix.is_empty() {
            ObjectName::new(&self.prefix)?;
        }
        let location = match self.prefix.as_str() {
            "" => format!("s3://{}", self.bucket),
            prefix => format!("s3://{}/{prefix}", self.bucket),
        };
        let open = Operation::Open;
        let calls = Calls::start(self.timeout, &location)?;
        let client = self.builder().build().map_err(|error| StorageError::Unsupported {
            operation: open,
            name: location.clone(),
            source: cause(error),
        })?;
        let client = Arc::new(client);
        let writes = S3Writes { client: Arc::clone(&client), settings: Arc::new(self.clone()) };
        Ok(ObjectStoreStorage::new(client, Arc::new(writes), self.prefix.clone(), location, calls))
    }

    fn builder(&self) -> AmazonS3Builder {
        let mut builder = AmazonS3Builder::from_env();
        let given = [(AmazonS3ConfigKey::Endpoint, &self.endpoint), (AmazonS3ConfigKey::Region, &self.region)];
        for (key, value) in given {
            if let Some(value) = value {
                builder = builder.with_config(key, value);
            }
        }
        if let Some((id, secret)) = &self.credentials {
            builder = builder.with_access_key_id(id).with_secret_access_key(secret);
        }
        if let Some(virtual_hosted) = self.virtual_hosted {
            builder = builder.with_virtual_hosted_style_request(virtual_hosted);
        }
        // Who names a server without encryption means it.
        let endpoints = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint];
        let endpoint = endpoints.iter().find_map(|key| builder.get_config_value(key));
        let plain = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
        // The whole time of a call is bounded outside; here only that something moves. Repeating is the
        // business of a layer that knows what may have happened.
        let client = ClientOptions::new()
            .with_allow_http(plain)
            .with_connect_timeout(CONNECT.min(self.timeout))
            .with_read_timeout(self.timeout)
            .with_timeout_disabled();
        builder
            .with_bucket_name(&self.bucket)
            .with_client_options(client)
            .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            .with_copy_if_not_exists(S3CopyIfNotExists::Multipart)
            .with_disable_bulk_delete(true)
    }
}

/// How objects come and go in S3.
struct S3Writes {
    client: Arc<AmazonS3>,
    settings: Arc<S3Settings>,
}

impl Writes for S3Writes {
    fn create(&self, path: Path, bytes: Bytes) -> BoxFuture<'static, WriteResult> {
        let (client, settings) = (Arc::clone(&self.client), Arc::clone(&self.settings));
        if bytes.len() as u64 <= settings.single_put_bytes {
            let put = async move {
                let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
                client.put_opts(&path, bytes.into(), options).await.map(drop).map_err(WriteFailure::Deciding)
            };
            return put.boxed();
        }
        create_in_parts(client, settings, path, bytes).boxed()
    }

    fn delete(&self, path: Path) -> BoxFuture<'static, WriteResult> {
        let client = Arc::clone(&self.client);
        async move {
            match client.delete(&path).await {
                Ok(()) => Ok(()),
                // Some servers tell that there was nothing to delete.
                Err(error) if crate::failure::verdict(&error) == Verdict::Absent => Ok(()),
                Err(error) => Err(WriteFailure::Deciding(error)),
            }
        }
        .boxed()
    }
}

/// Uploads to a temporary object, several parts at a time, and copies it into its name unless that is taken.
async fn create_in_parts(client: Arc<AmazonS3>, settings: Arc<S3Settings>, path: Path, bytes: Bytes) -> WriteResult {
    let temporary = temporary(&settings.prefix).map_err(WriteFailure::Before)?;
    let mut upload = client.put_multipart(&temporary).await.map_err(WriteFailure::Before)?;
    if let Err(error) = send_parts(upload.as_mut(), &settings, bytes).await {
        // What stays if this fails too is for the bucket's rule about unfinished uploads.
        let _ = upload.abort().await;
        return Err(WriteFailure::Before(error));
    }
    let options = CopyOptions::new().with_mode(CopyMode::Create);
    let copied = client.copy_opts(&temporary, &path, options).await.map_err(WriteFailure::Deciding);
    // What stays is removed when it is a day old.
    let _ = client.delete(&temporary).await;
    copied
}

async fn send_parts(upload: &mut dyn MultipartUpload, settings: &S3Settings, bytes: Bytes) -> Result<(), Error> {
    let part_bytes = usize::try_from(settings.part_bytes.max(5 << 20)).unwrap_or(usize::MAX);
    let starts = (0..bytes.len()).step_by(part_bytes);
    // Asking for a part sends nothing yet; at most so many are polled together.
    let parts: Vec<_> =
        starts.map(|start| upload.put_part(bytes.slice(start..bytes.len().min(start + part_bytes)).into())).collect();
    stream::iter(parts).buffer_unordered(settings.parts_at_once.max(1)).try_collect::<Vec<()>>().await?;
    upload.complete().await.map(drop)
}

/// A fresh path for something unfinished.
fn temporary(prefix: &str) -> Result<Path, Error> {
    use std::hash::{BuildHasher, Hasher};
    let random = || std::hash::RandomState::new().build_hasher().finish();
    let slash = if prefix.is_empty() { "" } else { "/" };
    Ok(Path::parse(format!("{prefix}{slash}{TEMPORARY}/{:016x}{:016x}", random(), random()))?)
}

/// The status with which the server answered, if the client's error tells. The client sorts some statuses into
/// variants of their own, but not in every operation; the others are only in the text.
fn status(error: &Error) -> Option<u16> {
    let text = error.to_string();
    let (_, behind) = text.split_once("status code: ")?;
    behind.get(..3)?.parse().ok()
}

/// What an error says that the client could not sort.
pub(crate) fn verdict(error: &Error) -> Option<Verdict> {
    if let Some(status) = status(error) {
        return Some(match status {
            401 | 403 => Verdict::Denied,
            404 if says(error, "NoSuchBucket") => Verdict::NoStore,
            // The server says that it did not even begin.
            429 | 503 => Verdict::NotDone,
            507 => Verdict::Full,
            // An expired token is renewed by the next request.
            400 if says(error, "ExpiredToken") => Verdict::NotDone,
            // Amazon's word for 408.
            400 if says(error, "RequestTimeout") => Verdict::Unknown,
            408 => Verdict::Unknown,
            400..=499 => Verdict::Never,
            _ => Verdict::Unknown,
        });
    }
    // So S3 answers a request for a bucket of another region.
    if says(error, "redirect without LOCATION") {
        return Some(Verdict::Never);
    }
    let http = find::<HttpError>(error)?;
    Some(match http.kind() {
        HttpErrorKind::Connect => Verdict::NotDone,
        _ => Verdict::Unknown,
    })
}
