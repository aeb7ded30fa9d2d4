//! From an address to a storage: `s3://bucket/prefix` and `hdfs://host:port/directory`.

use std::sync::Arc;
use std::time::Duration;

use millpond_storage::{OpenStorage, Storage, StorageAddress, StorageError};

/// Opens what this crate was built with.
#[derive(Clone, Copy, Debug, Default)]
pub struct ObjectStoreOpener;

impl OpenStorage for ObjectStoreOpener {
    fn schemes(&self) -> &'static [&'static str] {
        &[
            #[cfg(feature = "s3")]
            "s3",
            #[cfg(feature = "hdfs")]
            "hdfs",
        ]
    }

    fn open(&self, address: &StorageAddress, timeout: Duration) -> Result<Arc<dyn Storage>, StorageError> {
        match address.scheme.as_str() {
            #[cfg(feature = "s3")]
            "s3" => open_s3(address, timeout),
            #[cfg(feature = "hdfs")]
            "hdfs" => open_hdfs(address, timeout),
            other => {
                let _ = timeout;
                Err(address.refused(format!("scheme {other} is not known here")))
            }
        }
    }
}

/// Options cover the environment: `endpoint`, `region`, `path-style`.
#[cfg(feature = "s3")]
fn open_s3(address: &StorageAddress, timeout: Duration) -> Result<Arc<dyn Storage>, StorageError> {
    let mut settings = crate::S3Settings::new(&address.authority, &address.path);
    settings.timeout = timeout;
    for (option, value) in &address.options {
        match (option.as_str(), value.as_str()) {
            ("endpoint", endpoint) => settings.endpoint = Some(endpoint.to_owned()),
            ("region", region) => settings.region = Some(region.to_owned()),
            ("path-style", "true") => settings.virtual_hosted = Some(false),
            ("path-style", "false") => settings.virtual_hosted = Some(true),
            ("path-style", other) => {
                return Err(address.refused(format!("option path-style is true or false, not {other:?}")));
            }
            (unknown, _) => {
                let known = "endpoint, region and path-style";
                return Err(address.refused(format!("s3 has no option {unknown:?}, but {known}")));
            }
        }
    }
    Ok(Arc::new(settings.open()?))
}

#[cfg(feature = "hdfs")]
fn open_hdfs(address: &StorageAddress, timeout: Duration) -> Result<Arc<dyn Storage>, StorageError> {
    if let Some((unknown, _)) = address.options.first() {
        return Err(address.refused(format!("hdfs has no options, such as {unknown:?}")));
    }
    let mut settings = crate::HdfsSettings::new(&address.authority, &address.path);
    settings.timeout = timeout;
    Ok(Arc::new(settings.open()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(text: &str) -> Result<Arc<dyn Storage>, StorageError> {
        let address = StorageAddress::parse(text)?.expect("tests use addresses");
        ObjectStoreOpener.open(&address, Duration::from_secs(1))
    }

    #[test]
    #[cfg(feature = "s3")]
    fn an_s3_address_opens_without_a_server_and_names_bucket_and_prefix() {
        let storage = open("s3://bucket/jobs/a?endpoint=http://127.0.0.1:1&region=eu-west-1&path-style=true").unwrap();
        assert_eq!(storage.location(), "s3://bucket/jobs/a");
        for wrong in ["s3://bucket?path-style=maybe", "s3://bucket?speed=high", "s3://bucket/.tmp", "s3://bucket/a//b"]
        {
            assert!(open(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    #[cfg(feature = "hdfs")]
    fn an_hdfs_address_opens_without_a_server_and_names_host_and_directory() {
        assert_eq!(open("hdfs://127.0.0.1:1/jobs").unwrap().location(), "hdfs://127.0.0.1:1/jobs");
        assert!(open("hdfs://127.0.0.1:1/jobs?replication=1").is_err());
    }
}
