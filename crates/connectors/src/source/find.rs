//! Which files a path, a directory or a pattern leads to.
//!
//! A relative path is relative to the directory that was current when it was declared: positions in
//! checkpoints must mean the same wherever the job is started.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::bytes::is_gzip;
use crate::ConnectorError;

/// A path, directory or pattern as it was declared.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The whole path.
    path: PathBuf,
    /// The same as a pattern: what the user has not written stands for itself.
    pattern: PathBuf,
}

impl Target {
    /// What `declared` means from here.
    pub(crate) fn new(declared: &Path) -> Self {
        // Without a current directory, or without a path at all, looking for files says what is wrong.
        let path = std::path::absolute(declared).unwrap_or_else(|_| declared.to_owned());
        let pattern = match std::env::current_dir().ok().and_then(|current| current.into_os_string().into_string().ok())
        {
            Some(current) if declared.is_relative() => Path::new(&glob::Pattern::escape(&current)).join(declared),
            _ => path.clone(),
        };
        Target { path, pattern }
    }

    /// The whole path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// The files that `target` leads to, sorted: itself, or the files in the directory (not in directories
/// below it), or those that match the pattern. Names that start with a dot count only where they are
/// spelled out. With `follow`, there may be none yet.
pub(crate) fn find_files(target: &Target, follow: bool) -> Result<Vec<String>, ConnectorError> {
    let path = target.path();
    let found = match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => files_in(path)?,
        Ok(metadata) if metadata.is_file() => vec![path.to_owned()],
        Ok(_) => {
            return Err(ConnectorError::NotAFile { path: path.to_owned() });
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && is_pattern(path) => files_matching(&target.pattern)?,
        // A file that is followed may not be there yet, or be gone for a moment while it is rotated.
        Err(error) if error.kind() == io::ErrorKind::NotFound && follow => Vec::new(),
        Err(error) => return Err(ConnectorError::io("look at", path, error)),
    };
    if found.is_empty() && !follow {
        return Err(ConnectorError::NoFiles { path: path.to_owned() });
    }
    if follow && let Some(path) = found.iter().find(|path| is_gzip(path)) {
        return Err(ConnectorError::FollowGzip { path: path.clone() });
    }
    let names: BTreeSet<String> = found.into_iter().map(into_text).collect::<Result<_, _>>()?;
    Ok(names.into_iter().collect())
}

fn files_in(directory: &Path) -> Result<Vec<PathBuf>, ConnectorError> {
    let failed = |error| ConnectorError::io("list", directory, error);
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if !hidden && is_file(&entry.path())? {
            found.push(entry.path());
        }
    }
    Ok(found)
}

fn files_matching(pattern: &Path) -> Result<Vec<PathBuf>, ConnectorError> {
    let text = into_text(pattern.to_owned())?;
    let options =
        glob::MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };
    let matches = glob::glob_with(&text, options)
        .map_err(|source| ConnectorError::Pattern { path: pattern.to_owned(), source })?;
    let mut found = Vec::new();
    for entry in matches {
        let path = entry.map_err(|error| {
            let path = error.path().to_owned();
            ConnectorError::io("list", &path, error.into())
        })?;
        if is_file(&path)? {
            found.push(path);
        }
    }
    Ok(found)
}

/// Follows links; one that leads nowhere, or a file removed meanwhile, is no file.
fn is_file(path: &Path) -> Result<bool, ConnectorError> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(metadata.is_file()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(ConnectorError::io("look at", path, error)),
    }
}

fn is_pattern(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().iter().any(|byte| matches!(byte, b'*' | b'?' | b'['))
}

fn into_text(path: PathBuf) -> Result<String, ConnectorError> {
    path.into_os_string().into_string().map_err(|path| ConnectorError::PathEncoding { path: path.into() })
}
