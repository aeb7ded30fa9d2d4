//! How run files are written. Reading needs no settings.

use serde::{Deserialize, Serialize};

use crate::error::RunError;

/// How blocks are compressed. A block that would not become smaller is stored as it is; after four of them in a row only
/// every eighth is tried, until one becomes smaller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// Blocks are stored as they are.
    None,
    /// The LZ4 block format.
    #[default]
    Lz4,
}

/// How run files are written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunSettings {
    /// A file that has reached this size ends where the next key group begins, or when it is a quarter larger.
    /// Default 64 MiB.
    pub target_file_bytes: u64,
    /// A block is finished after the row with which it reaches this size before compression, in
    /// `64..=16777216`. Default 32 KiB.
    pub block_bytes: usize,
    /// How blocks are compressed. Default LZ4.
    pub compression: Compression,
}

impl Default for RunSettings {
    fn default() -> Self {
        RunSettings { target_file_bytes: 64 << 20, block_bytes: 32 << 10, compression: Compression::Lz4 }
    }
}

impl RunSettings {
    /// Checks the bounds.
    pub(crate) fn check(&self) -> Result<(), RunError> {
        let bounds = [
            ("target_file_bytes", self.target_file_bytes, 1, 1 << 40),
            ("block_bytes", self.block_bytes as u64, 64, 16 << 20),
        ];
        for (setting, given, min, max) in bounds {
            if !(min..=max).contains(&given) {
                return Err(RunError::Setting { setting, given, min, max });
            }
        }
        Ok(())
    }
}
