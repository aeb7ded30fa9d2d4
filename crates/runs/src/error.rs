//! What can go wrong with a run, and what the caller should do about it.

use millpond_core::{ErrorKind, KeyGroup};

use crate::source::ReadError;

/// A run that could not be written, read or merged.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A setting is outside its bounds.
    #[error("{setting} is {given}, not in {min}..={max}")]
    Setting {
        /// Which one.
        setting: &'static str,
        /// What it was.
        given: u64,
        /// Smallest allowed.
        min: u64,
        /// Largest allowed.
        max: u64,
    },
    /// A row names a state that the table of sections does not have.
    #[error("row of state {state}, but there are only {sections} sections")]
    UnknownState {
        /// The row's state index.
        state: u16,
        /// Length of the table.
        sections: usize,
    },
    /// Two sections have the same name.
    #[error("section {name:?} is declared twice")]
    DuplicateSection {
        /// The name.
        name: String,
    },
    /// A key with its value is larger than a row may be.
    #[error("a row of state {state} in {group} has {bytes} bytes, more than {limit}")]
    RowTooLarge {
        /// The row's state index.
        state: u16,
        /// The row's key group.
        group: KeyGroup,
        /// Bytes of key and value.
        bytes: u64,
        /// Largest allowed.
        limit: u64,
    },
    /// The file's size could not be found out.
    #[error("cannot tell the size of run {file}")]
    Size {
        /// Name of the file.
        file: String,
        /// Why not.
        source: ReadError,
    },
    /// The bytes could not be read.
    #[error("cannot read {length} bytes at offset {offset} of run {file}")]
    Read {
        /// Name of the file.
        file: String,
        /// Where reading began.
        offset: u64,
        /// How much was wanted.
        length: u64,
        /// Why not.
        source: ReadError,
    },
    /// The source gave another number of bytes than it was asked for.
    #[error("run {file} gave {found} bytes at offset {offset} instead of {expected}")]
    ShortRead {
        /// Name of the file.
        file: String,
        /// Where reading began.
        offset: u64,
        /// How much was wanted.
        expected: u64,
        /// How much came.
        found: u64,
    },
    /// The file does not carry the mark of a run file.
    #[error("{file} is not a run file, or is cut off: no magic number at offset {offset}")]
    NotARun {
        /// Name of the file.
        file: String,
        /// Where the mark should be.
        offset: u64,
    },
    /// The file was written in a format that this program does not know.
    #[error("run {file} has format version {version}; this program reads version {supported}")]
    UnsupportedVersion {
        /// Name of the file.
        file: String,
        /// What it says.
        version: u32,
        /// What this program reads.
        supported: u32,
    },
    /// A part of the file does not have the checksum that was stored for it.
    #[error("{length} bytes at offset {offset} of run {file} have checksum {found:08x}, not {expected:08x}")]
    Checksum {
        /// Name of the file.
        file: String,
        /// Where the part begins.
        offset: u64,
        /// Its length.
        length: u64,
        /// The stored checksum.
        expected: u32,
        /// The checksum of the bytes read.
        found: u32,
    },
    /// A part of the file breaks the rules of the format.
    #[error("run {file} is malformed at offset {offset}: {reason}")]
    Malformed {
        /// Name of the file.
        file: String,
        /// Where the malformed part (a block, the footer, the trailer) begins.
        offset: u64,
        /// Which rule.
        reason: &'static str,
    },
    /// The file is sound, but not the one that was described.
    #[error("run {file} has {what} {found}, not {expected}")]
    Mismatch {
        /// Name of the file.
        file: String,
        /// Which property.
        what: &'static str,
        /// As described.
        expected: String,
        /// As found.
        found: String,
    },
}

impl RunError {
    /// What to do next: as the source says for [`RunError::Size`] and [`RunError::Read`]; fix the call for bad settings,
    /// sections and rows; use a newer program for an unsupported version (invalid); give up on the
    /// file for everything else (corrupt).
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            RunError::Setting { .. }
            | RunError::UnknownState { .. }
            | RunError::DuplicateSection { .. }
            | RunError::RowTooLarge { .. }
            | RunError::UnsupportedVersion { .. } => ErrorKind::Invalid,
            RunError::Size { source, .. } | RunError::Read { source, .. } => source.kind(),
            RunError::ShortRead { .. }
            | RunError::NotARun { .. }
            | RunError::Checksum { .. }
            | RunError::Malformed { .. }
            | RunError::Mismatch { .. } => ErrorKind::Corrupt,
        }
    }

    /// The file that it is about, where it is about one.
    #[must_use]
    pub fn file(&self) -> Option<&str> {
        match self {
            RunError::Setting { .. }
            | RunError::UnknownState { .. }
            | RunError::DuplicateSection { .. }
            | RunError::RowTooLarge { .. } => None,
            RunError::Size { file, .. }
            | RunError::Read { file, .. }
            | RunError::ShortRead { file, .. }
            | RunError::NotARun { file, .. }
            | RunError::UnsupportedVersion { file, .. }
            | RunError::Checksum { file, .. }
            | RunError::Malformed { file, .. }
            | RunError::Mismatch { file, .. } => Some(file),
        }
    }
}
