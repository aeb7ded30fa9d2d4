//! Checkpoint storage in S3-compatible object stores and in HDFS, through the crate `object_store`.
//!
//! Owns the way from the blocking [`Storage`](millpond_storage::Storage) trait to asynchronous clients:
//! a small runtime of its own, a time limit for every call, and the translation of errors. Does *not* own
//! repetition (that is [`Retry`](millpond_storage::Retry)) nor what the objects mean.
//!
//! ```text
//! create → s3: one conditional PUT, or parts to a temporary object and a conditional copy
//!        → hdfs: temporary file, hsync, close, rename that refuses to replace
//! read, read_range, size, list → object_store
//! ```
//!
//! Invariants:
//! - A name has at most one creator that is told `Ok`: the server decides, by one atomic request.
//! - A request that may have reached the server and has no answer is
//!   [`Uncertain`](millpond_storage::StorageError::Uncertain) where it changes something.
//! - What is unfinished lies under `.tmp`, where no object name can reach.
//!
//! Features: `s3` and `hdfs`; `docs/storage.md` says what each promises.

mod failure;
#[cfg(feature = "hdfs")]
mod hdfs;
mod open;
mod runtime;
#[cfg(feature = "s3")]
mod s3;
mod store;
mod writes;

#[cfg(feature = "hdfs")]
pub use hdfs::HdfsSettings;
pub use open::ObjectStoreOpener;
#[cfg(feature = "s3")]
pub use s3::S3Settings;
pub use store::ObjectStoreStorage;
