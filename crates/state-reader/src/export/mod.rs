//! Entries as files that other programs read: JSON lines, CSV, Parquet (feature `parquet`).
//!
//! CSV and Parquet have typed columns by the stored schema ([`Column`]); JSON lines are the entries as
//! they are. Entries pass one at a time, of Parquet one row group.

mod column;
mod csv;
mod json_lines;
#[cfg(feature = "parquet")]
mod parquet;

use std::io::Write;

use crate::entry::StateEntry;
use crate::error::ReaderError;
use crate::info::StateInfo;

pub use column::{Column, ColumnType};

/// How entries are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One JSON object per line.
    JsonLines,
    /// Comma-separated values with a header line; what has no value is empty.
    Csv,
    /// Apache Parquet; only with the feature `parquet`.
    Parquet,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 3] = [Format::JsonLines, Format::Csv, Format::Parquet];

    /// As written on the command line; also the ending of such files.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Format::JsonLines => "jsonl",
            Format::Csv => "csv",
            Format::Parquet => "parquet",
        }
    }

    /// The format with this word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.word() == word)
    }
}

/// Writes `entries` of the state that `info` describes, and returns how many there were.
///
/// # Errors
/// When an entry is an error or does not fit its columns, `out` fails, or this build has no Parquet.
pub fn export<W: Write + Send>(
    info: &StateInfo,
    entries: impl Iterator<Item = Result<StateEntry, ReaderError>>,
    format: Format,
    out: W,
) -> Result<u64, ReaderError> {
    match format {
        Format::JsonLines => json_lines::write(entries, out),
        Format::Csv => csv::write(info, entries, out),
        #[cfg(feature = "parquet")]
        Format::Parquet => parquet::write(info, entries, out),
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => Err(ReaderError::NoParquet),
    }
}
