//! From the setting `checkpoint-dir` to an opened storage.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use millpond_storage::{LocalStorage, ReadOnly, Storage, StorageAddress, StorageError};

use crate::error::CliError;
use crate::extensions::Extensions;
use crate::settings::{Place, Settings};

/// Schemes that a feature of the facade brings, and its name.
const FEATURES: [(&str, &str); 2] = [("s3", "s3"), ("hdfs", "hdfs")];

/// Checkpoint storage that is open.
pub(crate) struct Opened {
    /// The storage.
    pub(crate) storage: Arc<dyn Storage>,
    /// Its directory, if it is local.
    pub(crate) directory: Option<PathBuf>,
}

/// How storage is opened.
#[derive(Clone, Copy)]
pub(crate) struct Opening<'a> {
    /// Who opens addresses.
    pub(crate) extensions: &'a Extensions,
    /// The time that a call has, in milliseconds.
    pub(crate) timeout_ms: u64,
}

impl<'a> Opening<'a> {
    /// As the settings say.
    pub(crate) fn new(settings: &Settings, extensions: &'a Extensions) -> Self {
        Opening { extensions, timeout_ms: settings.job.storage.timeout_ms }
    }

    /// Opens a place for a job; makes a directory that is missing, and removes what dead processes left
    /// half-written in it.
    ///
    /// # Errors
    /// When it cannot be opened, or nobody knows the scheme.
    pub(crate) fn for_writing(&self, place: &Place) -> Result<Opened, CliError> {
        match place {
            Place::Directory(directory) => opened(directory, || {
                let storage = LocalStorage::open(directory)?;
                storage.clean_temporary()?;
                Ok(storage)
            }),
            Place::Address(address) => self.open_address(address),
        }
    }

    /// Opens a place that is there, to delete from it.
    ///
    /// # Errors
    /// As [`Opening::for_writing`]; also when a directory is missing.
    pub(crate) fn for_deleting(&self, place: &Place) -> Result<Opened, CliError> {
        match place {
            Place::Directory(directory) => opened(present(directory)?, || LocalStorage::open(directory)),
            Place::Address(address) => self.open_address(address),
        }
    }

    /// Opens a place to look at: nothing is written there, and nothing can be.
    ///
    /// # Errors
    /// As [`Opening::for_deleting`].
    pub(crate) fn for_reading(&self, place: &Place) -> Result<Opened, CliError> {
        match place {
            Place::Directory(directory) => opened(present(directory)?, || LocalStorage::open_to_read(directory)),
            Place::Address(address) => {
                let Opened { storage, directory } = self.open_address(address)?;
                Ok(Opened { storage: Arc::new(ReadOnly::new(storage)), directory })
            }
        }
    }

    fn open_address(&self, address: &StorageAddress) -> Result<Opened, CliError> {
        let scheme = address.scheme.as_str();
        let openers = &self.extensions.storages;
        let Some(opener) = openers.iter().find(|opener| opener.schemes().contains(&scheme)) else {
            let feature = FEATURES.iter().find(|(known, _)| *known == scheme).map(|(_, feature)| *feature);
            return Err(CliError::NoSuchScheme { address: address.to_string(), scheme: scheme.to_owned(), feature });
        };
        let storage = opener.open(address, Duration::from_millis(self.timeout_ms));
        let storage = storage.map_err(|source| CliError::Storage { place: address.to_string(), source })?;
        Ok(Opened { storage, directory: None })
    }
}

fn present(directory: &Path) -> Result<&Path, CliError> {
    match directory.is_dir() {
        true => Ok(directory),
        false => Err(CliError::NoSuchDirectory { directory: directory.to_owned() }),
    }
}

fn opened<S: Storage>(directory: &Path, open: impl FnOnce() -> Result<S, StorageError>) -> Result<Opened, CliError> {
    let failed = |source| CliError::Storage { place: directory.display().to_string(), source };
    let storage = Arc::new(open().map_err(failed)?);
    let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    Ok(Opened { storage, directory: Some(directory) })
}

#[cfg(test)]
mod tests {
    use millpond_core::ErrorKind;
    use millpond_storage::{MemoryStorage, OpenStorage};

    use super::*;

    struct Shelf;

    impl OpenStorage for Shelf {
        fn schemes(&self) -> &'static [&'static str] {
            &["shelf"]
        }

        fn open(&self, _: &StorageAddress, timeout: Duration) -> Result<Arc<dyn Storage>, StorageError> {
            assert_eq!(timeout, Duration::from_secs(7));
            Ok(Arc::new(MemoryStorage::new()))
        }
    }

    fn open(address: &str) -> Result<Opened, CliError> {
        let extensions = Extensions { storages: vec![Arc::new(Shelf)], ..Extensions::default() };
        let address = StorageAddress::parse(address).unwrap().unwrap();
        Opening { extensions: &extensions, timeout_ms: 7_000 }.for_writing(&Place::Address(address))
    }

    #[test]
    fn an_address_is_opened_by_who_knows_its_scheme() {
        assert_eq!(open("shelf://a/b").unwrap().storage.location(), "memory");
    }

    #[test]
    fn a_scheme_that_needs_a_feature_is_refused_with_its_name() {
        let error = open("s3://bucket/jobs").err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let text = error.to_string();
        assert_eq!(
            text,
            "cannot open checkpoint storage s3://bucket/jobs: this program was built without the feature \"s3\" of \
             millpond"
        );
        assert!(open("ftp://host/x").err().unwrap().to_string().ends_with("no storage is called \"ftp\""));
    }
}
