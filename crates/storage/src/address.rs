//! Addresses of storages that are no local directory: `s3://bucket/prefix`, `hdfs://host:port/directory`.
//!
//! Owns their spelling, and the trait by which somebody else opens them. Does *not* own any scheme: a
//! crate that knows one brings an [`OpenStorage`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Operation, StorageError, cause};
use crate::storage::Storage;

/// An address: `scheme://authority/path?option=value&option=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageAddress {
    /// What kind of storage, in lower case.
    pub scheme: String,
    /// Which one: a bucket, or a host with its port.
    pub authority: String,
    /// Where in it, without slashes at its ends; may be empty.
    pub path: String,
    /// Options in their order.
    pub options: Vec<(String, String)>,
}

impl StorageAddress {
    /// Whether `text` has a scheme, and so is no path of a directory.
    #[must_use]
    pub fn is_address(text: &str) -> bool {
        scheme_of(text).is_some()
    }

    /// Reads an address; `None` when `text` has no scheme.
    ///
    /// # Errors
    /// [`StorageError::InvalidName`] when it has a scheme and is wrong behind it.
    pub fn parse(text: &str) -> Result<Option<StorageAddress>, StorageError> {
        let Some((scheme, rest)) = scheme_of(text) else { return Ok(None) };
        let wrong = |reason| StorageError::InvalidName { name: text.to_owned(), reason };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = place.split_once('/').unwrap_or((place, ""));
        if authority.is_empty() {
            return Err(wrong("nothing stands between :// and the path"));
        }
        if authority.contains('@') {
            return Err(wrong("credentials do not belong into an address"));
        }
        let mut options = Vec::new();
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').ok_or_else(|| wrong("an option has no value"))?;
            options.push((name.to_owned(), value.to_owned()));
        }
        let path = path.trim_matches('/').to_owned();
        Ok(Some(StorageAddress { scheme, authority: authority.to_owned(), path, options }))
    }

    /// The error of an address that its scheme refuses, for `reason`.
    #[must_use]
    pub fn refused(&self, reason: String) -> StorageError {
        StorageError::Unsupported { operation: Operation::Open, name: self.to_string(), source: cause(reason) }
    }
}

/// A letter, then letters, digits and `+-.`, before `://`.
fn scheme_of(text: &str) -> Option<(String, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    let first = scheme.starts_with(|first: char| first.is_ascii_alphabetic());
    let all = scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    (first && all).then(|| (scheme.to_ascii_lowercase(), rest))
}

/// Without the options.
impl fmt::Display for StorageAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.authority)?;
        if self.path.is_empty() { Ok(()) } else { write!(f, "/{}", self.path) }
    }
}

/// Opens the storages of some schemes.
pub trait OpenStorage: Send + Sync {
    /// The schemes that it knows, in lower case.
    fn schemes(&self) -> &'static [&'static str];

    /// Opens the storage at `address`, whose scheme is one of [`OpenStorage::schemes`]. Nothing need be sent
    /// yet. Every later call has `timeout`, and more for large objects: see [`crate::time_for`].
    ///
    /// # Errors
    /// [`StorageError::Unsupported`] or [`StorageError::InvalidName`] for an address that makes no sense;
    /// whatever opening meets.
    fn open(&self, address: &StorageAddress, timeout: Duration) -> Result<Arc<dyn Storage>, StorageError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_scheme_a_place_a_path_and_options() {
        let address = StorageAddress::parse("S3://bucket/a/b/?endpoint=http://h:1&region=x").unwrap().unwrap();
        assert_eq!(
            (address.scheme.as_str(), address.authority.as_str(), address.path.as_str()),
            ("s3", "bucket", "a/b")
        );
        assert_eq!(address.options[0], ("endpoint".to_owned(), "http://h:1".to_owned()));
        assert_eq!(address.to_string(), "s3://bucket/a/b");
        let bare = StorageAddress::parse("hdfs://host:8020").unwrap().unwrap();
        assert_eq!((bare.authority.as_str(), bare.path.as_str()), ("host:8020", ""));
    }

    #[test]
    fn paths_of_directories_are_no_addresses() {
        for path in ["checkpoints", "/var/lib/x", "./s3:/x", "c:/x", "://x", "a b://x"] {
            assert_eq!(StorageAddress::parse(path).unwrap(), None, "{path}");
            assert!(!StorageAddress::is_address(path));
        }
    }

    #[test]
    fn addresses_without_a_place_or_with_secrets_are_refused() {
        for address in ["s3://", "s3:///x", "s3://key:secret@bucket/x", "s3://bucket?region"] {
            assert!(matches!(StorageAddress::parse(address), Err(StorageError::InvalidName { .. })), "{address}");
        }
    }
}
