//! What happens to records that cannot be decoded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millpond_core::Data;
use millpond_dataflow::{Output, SideTag};
use serde::{Deserialize, Serialize};

use super::decode::Undecodable;
use crate::ConnectorError;

/// What a file source does with a record that it cannot decode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BadRecords {
    /// The attempt ends with an error that names file, line and byte.
    #[default]
    Fail,
    /// The record is skipped and counted, see [`BadRecordCounter`]; the first, second, fourth, eighth…
    /// is logged as a warning.
    SkipAndCount,
    /// The record goes to the side output [`BAD_RECORDS`].
    SideOutput,
}

/// Side output of a file source for what it cannot decode.
pub const BAD_RECORDS: SideTag<BadRecord> = SideTag::new("bad-records");

/// A record that could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadRecord {
    /// Path of the file.
    pub file: String,
    /// Line where it starts, from 1.
    pub line: u64,
    /// Where it starts, in bytes of the decompressed file.
    pub offset: u64,
    /// The record as it stands in the file, without the line ending. Of a record that is too long, the
    /// beginning.
    pub bytes: Vec<u8>,
    /// What is wrong with it.
    pub error: String,
}

/// Counts skipped records. Clones count together, over all workers and attempts in the process; records
/// that are read again after a failure count again.
#[derive(Clone, Debug, Default)]
pub struct BadRecordCounter {
    count: Arc<AtomicU64>,
}

impl BadRecordCounter {
    /// A counter at 0.
    #[must_use]
    pub fn new() -> Self {
        BadRecordCounter::default()
    }

    /// Number of records skipped so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Counts one more, and says how many that makes. For sources.
    pub fn count_one(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Does with a bad record what the setting says.
pub(crate) fn handle_bad_record<R: Data>(
    bad: Undecodable,
    path: &str,
    setting: BadRecords,
    counter: &BadRecordCounter,
    output: &mut Output<R>,
) -> Result<(), ConnectorError> {
    let Undecodable { line, offset, bytes, cause } = bad;
    match setting {
        BadRecords::Fail => Err(ConnectorError::BadRecord { path: path.to_owned(), line, offset, cause }),
        BadRecords::SkipAndCount => {
            let count = counter.count_one();
            if count.is_power_of_two() {
                tracing::warn!(path, line, offset, cause, count, "skipped a bad record");
            }
            Ok(())
        }
        BadRecords::SideOutput => {
            let file = path.to_owned();
            output.emit_side(BAD_RECORDS, BadRecord { file, line, offset, bytes, error: cause });
            Ok(())
        }
    }
}
