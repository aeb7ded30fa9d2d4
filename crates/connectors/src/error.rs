//! What can go wrong between Millpond and files, and what to do next.

use std::io;
use std::path::{Path, PathBuf};

use millpond_core::error::Classified;
use millpond_core::{CodecError, ErrorKind, UserError, UserResult};

/// A source or sink that cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ConnectorError {
    /// There is nothing at this path.
    #[error("{} does not exist", path.display())]
    NotFound {
        /// The path.
        path: PathBuf,
    },
    /// The operating system refuses.
    #[error("cannot {operation} {}: permission denied", path.display())]
    PermissionDenied {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The disk or the quota is full.
    #[error("cannot {operation} {}: the disk is full", path.display())]
    DiskFull {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Any other failure of the file system.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A directory or pattern that leads to no file.
    #[error("{} leads to no file", path.display())]
    NoFiles {
        /// The directory or pattern.
        path: PathBuf,
    },
    /// Neither a regular file nor a directory.
    #[error("{} is neither a regular file nor a directory", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// A pattern that cannot be understood.
    #[error("{} is not a pattern of file names", path.display())]
    Pattern {
        /// The pattern.
        path: PathBuf,
        /// What is wrong with it.
        source: glob::PatternError,
    },
    /// Paths are kept in checkpoints as text.
    #[error("the path {} is not valid utf-8", path.display())]
    PathEncoding {
        /// The path.
        path: PathBuf,
    },
    /// Files of the checkpoint that were not read to their end are not there any more.
    #[error("input that was not read to its end is gone: {}", listed(paths))]
    InputGone {
        /// Their paths.
        paths: Vec<PathBuf>,
    },
    /// A file or directory of a sink was removed while it wrote there.
    #[error("cannot {operation} {}: it was removed, or its directory was", path.display())]
    OutputRemoved {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
    },
    /// A compressed file cannot be followed: it has no end to wait at.
    #[error("{} is compressed and cannot be followed while it grows", path.display())]
    FollowGzip {
        /// The file.
        path: PathBuf,
    },
    /// A compressed file is damaged or cut off.
    #[error("{} is not a whole gzip file: it breaks off after {position} decompressed bytes", path.display())]
    DamagedGzip {
        /// The file.
        path: PathBuf,
        /// How many decompressed bytes could be read.
        position: u64,
        /// What the decoder said.
        source: io::Error,
    },
    /// A file is shorter than what has been read of it.
    #[error("{} has shrunk to {size} bytes, it was read up to byte {position} before", path.display())]
    Shrunk {
        /// The file.
        path: PathBuf,
        /// Its size now, in (decompressed) bytes.
        size: u64,
        /// The position in the checkpoint, in (decompressed) bytes.
        position: u64,
    },
    /// Another file stands where the one read before stood.
    #[error("{} has been replaced: it is not the file that was read up to byte {position} before", path.display())]
    Replaced {
        /// The file.
        path: PathBuf,
        /// The position reached in the former file, in (decompressed) bytes.
        position: u64,
    },
    /// A record that cannot be decoded.
    #[error("bad record in {path} at line {line}, byte {offset}: {cause}")]
    BadRecord {
        /// The file.
        path: String,
        /// Line where it starts, from 1.
        line: u64,
        /// Where it starts, in (decompressed) bytes.
        offset: u64,
        /// What is wrong with it.
        cause: String,
    },
    /// The first record of a file should hold the column names and does not.
    #[error("{path} has no usable header: {cause}")]
    BadHeader {
        /// The file.
        path: String,
        /// What is wrong with it.
        cause: String,
    },
    /// A sink writes into a directory, and this is none.
    #[error("{} is not a directory", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// A setting that cannot be used.
    #[error("setting {setting} is invalid: {reason}")]
    Setting {
        /// Which one.
        setting: &'static str,
        /// Which rule it breaks.
        reason: String,
    },
    /// A record that cannot be written in the sink's format.
    #[error("cannot write a record as {format}")]
    Format {
        /// The format.
        format: &'static str,
        /// What the encoder said.
        source: UserError,
    },
    /// Output that a checkpoint promised is gone: neither the prepared nor the final file exists.
    #[error("output is lost: neither {} nor {} exists", prepared.display(), committed.display())]
    OutputLost {
        /// The prepared file.
        prepared: PathBuf,
        /// The file that it should become or have become.
        committed: PathBuf,
    },
    /// A foreign file has the name that prepared output should get. Nothing was changed.
    #[error("{} exists already, {} cannot take its name", committed.display(), prepared.display())]
    OutputExists {
        /// The prepared file.
        prepared: PathBuf,
        /// The file in its way.
        committed: PathBuf,
    },
    /// The sink failed before in this attempt and takes no more records.
    #[error("the sink in {} failed before in this attempt", path.display())]
    Broken {
        /// Its directory.
        path: PathBuf,
    },
    /// The sink is used before it was opened.
    #[error("the sink {sink} is not open")]
    NotOpen {
        /// Which sink.
        sink: &'static str,
    },
    /// Collected records cannot be encoded or decoded.
    #[error("collected records of {subtask} cannot be kept")]
    Collect {
        /// The subtask that collected them.
        subtask: millpond_core::SubtaskIndex,
        /// What the codec said.
        source: CodecError,
    },
    /// Standard output (or what stands for it) does not take a line.
    #[error("cannot print")]
    Print {
        /// What the system said.
        source: io::Error,
    },
}

impl ConnectorError {
    /// What to do next.
    ///
    /// A full disk and most failures of the file system are unavailable: they may pass. A file that
    /// changed under its position, a damaged one and lost output are corrupt. The rest is invalid: the
    /// input, the settings or the surroundings (such as a pipe that nobody reads any more) must change
    /// before another attempt makes sense.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            ConnectorError::Print { source } if source.kind() == io::ErrorKind::BrokenPipe => ErrorKind::Invalid,
            ConnectorError::DiskFull { .. } | ConnectorError::Io { .. } | ConnectorError::Print { .. } => {
                ErrorKind::Unavailable
            }
            // Another attempt makes the directory again, and writes the file again.
            ConnectorError::Broken { .. } | ConnectorError::OutputRemoved { .. } => ErrorKind::Unavailable,
            ConnectorError::DamagedGzip { .. }
            | ConnectorError::Shrunk { .. }
            | ConnectorError::Replaced { .. }
            | ConnectorError::OutputLost { .. } => ErrorKind::Corrupt,
            ConnectorError::Collect { source, .. } => source.kind(),
            ConnectorError::NotOpen { .. } => ErrorKind::Bug,
            ConnectorError::NotFound { .. }
            | ConnectorError::PermissionDenied { .. }
            | ConnectorError::NoFiles { .. }
            | ConnectorError::InputGone { .. }
            | ConnectorError::NotAFile { .. }
            | ConnectorError::Pattern { .. }
            | ConnectorError::PathEncoding { .. }
            | ConnectorError::FollowGzip { .. }
            | ConnectorError::BadRecord { .. }
            | ConnectorError::BadHeader { .. }
            | ConnectorError::NotADirectory { .. }
            | ConnectorError::Setting { .. }
            | ConnectorError::Format { .. }
            | ConnectorError::OutputExists { .. } => ErrorKind::Invalid,
        }
    }

    /// The error of a file system call, by what it means to the caller.
    pub(crate) fn io(operation: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => ConnectorError::NotFound { path },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                ConnectorError::PermissionDenied { operation, path, source }
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                ConnectorError::DiskFull { operation, path, source }
            }
            io::ErrorKind::NotADirectory => ConnectorError::NotADirectory { path },
            _ => ConnectorError::Io { operation, path, source },
        }
    }
}

impl ConnectorError {
    /// The error of a file system call in a sink's directory, which was there when the sink opened.
    pub(crate) fn output(operation: &'static str, path: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound => ConnectorError::OutputRemoved { operation, path: path.to_owned() },
            _ => ConnectorError::io(operation, path, source),
        }
    }
}

fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// What connectors return to whoever runs them: an error that says whether another attempt makes sense.
pub(crate) trait Classify<T> {
    /// Boxes the error together with its class.
    fn classify(self) -> UserResult<T>;
}

impl<T> Classify<T> for Result<T, ConnectorError> {
    fn classify(self) -> UserResult<T> {
        self.map_err(|error| Classified::new(error.kind(), error).into())
    }
}

/// The connector's error in what it returned.
#[cfg(test)]
pub(crate) fn connector_error(error: UserError) -> ConnectorError {
    let classified = error.downcast::<Classified>().expect("connectors classify their errors");
    let kind = classified.kind();
    let error = classified.into_inner().downcast::<ConnectorError>().expect("connectors return connector errors");
    assert_eq!(error.kind(), kind);
    *error
}
