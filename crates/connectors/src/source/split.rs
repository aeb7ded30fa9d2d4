//! A file as a piece of a source, and the position reached in it.
//!
//! A file that is followed is known by its path and by which file of that path it is, so that one made
//! again under the same name is another split. In checkpoints both stand in one string, as in the split's
//! id; checkpoints from before that hold the path alone.

use std::fs::Metadata;

use millpond_dataflow::Split;
use serde::{Deserialize, Serialize};

/// Stands between a path and the identity of the file; no path holds it.
const SEPARATOR: char = '\0';

/// A file and the position after the last record emitted from it (SR-04).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredSplit", into = "StoredSplit")]
pub struct FileSplit {
    /// Path of the file.
    pub path: String,
    /// Which file of that path, where it matters: a followed file may be made again under its name.
    pub identity: Option<String>,
    /// Where the next record starts, in bytes of the decompressed file.
    pub offset: u64,
    /// Line of the next record, from 1.
    pub line: u64,
    /// CRC-32 of the beginning of the file, as far as it has been read and up to 4 KiB: a file with
    /// another beginning is not this file.
    pub head_checksum: u32,
}

/// A split as checkpoints hold it.
#[derive(Serialize, Deserialize)]
#[serde(rename = "FileSplit")]
struct StoredSplit {
    path: String,
    offset: u64,
    line: u64,
    head_checksum: u32,
}

impl FileSplit {
    /// A file from its beginning.
    #[must_use]
    pub fn new(path: String) -> Self {
        FileSplit { path, identity: None, offset: 0, line: 1, head_checksum: 0 }
    }

    /// The same position in the file that `id` stands for.
    pub(crate) fn with_id(mut self, id: &str) -> Self {
        let (path, identity) = split_id(id);
        self.path = path.to_owned();
        self.identity = identity.map(str::to_owned);
        self
    }
}

impl Split for FileSplit {
    fn id(&self) -> String {
        join_id(&self.path, self.identity.as_deref())
    }
}

/// The id of a file.
pub(crate) fn join_id(path: &str, identity: Option<&str>) -> String {
    match identity {
        Some(identity) => format!("{path}{SEPARATOR}{identity}"),
        None => path.to_owned(),
    }
}

/// Path and identity of the file that `id` stands for.
pub(crate) fn split_id(id: &str) -> (&str, Option<&str>) {
    id.split_once(SEPARATOR).map_or((id, None), |(path, identity)| (path, Some(identity)))
}

/// Tells the files apart that have one path after the other. Numbers of files are used again once a file is
/// removed, times of birth are not.
#[cfg(unix)]
pub(crate) fn identity_of(metadata: &Metadata) -> String {
    use std::os::unix::fs::MetadataExt;
    let born = metadata.created().ok().and_then(|born| born.duration_since(std::time::UNIX_EPOCH).ok());
    format!("{:x}-{:x}", metadata.ino(), born.map_or(0, |born| born.as_nanos()))
}

/// Tells the files apart that have one path after the other.
#[cfg(not(unix))]
pub(crate) fn identity_of(metadata: &Metadata) -> String {
    let born = metadata.created().ok().and_then(|born| born.duration_since(std::time::UNIX_EPOCH).ok());
    format!("{:x}", born.map_or(0, |born| born.as_nanos()))
}

impl From<StoredSplit> for FileSplit {
    fn from(stored: StoredSplit) -> Self {
        let StoredSplit { path, offset, line, head_checksum } = stored;
        FileSplit { path: String::new(), identity: None, offset, line, head_checksum }.with_id(&path)
    }
}

impl From<FileSplit> for StoredSplit {
    fn from(split: FileSplit) -> Self {
        let path = split.id();
        StoredSplit { path, offset: split.offset, line: split.line, head_checksum: split.head_checksum }
    }
}
