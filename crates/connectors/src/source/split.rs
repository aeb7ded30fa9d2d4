//! A file as a piece of a source, and the position reached in it.

use millpond_dataflow::Split;
use serde::{Deserialize, Serialize};

/// A file and the position after the last record emitted from it (SR-04).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSplit {
    /// Path of the file.
    pub path: String,
    /// Where the next record starts, in bytes of the decompressed file.
    pub offset: u64,
    /// Line of the next record, from 1.
    pub line: u64,
    /// CRC-32 of the beginning of the file, as far as it has been read and up to 4 KiB: a file with
    /// another beginning is not this file.
    pub head_checksum: u32,
}

impl FileSplit {
    /// A file from its beginning.
    #[must_use]
    pub fn new(path: String) -> Self {
        FileSplit { path, offset: 0, line: 1, head_checksum: 0 }
    }
}

impl Split for FileSplit {
    fn id(&self) -> String {
        self.path.clone()
    }
}
