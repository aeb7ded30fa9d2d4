//! A checkpoint's files beside those that there are now.
//!
//! Owns what is said about files that appeared, vanished, or are not asked for any more. Decides by path:
//! a file that was being read is the same file if its beginning is the same, which is checked when it is
//! opened.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use millpond_dataflow::{RestoredSplits, Split};

use super::split::{FileSplit, identity_of, join_id, split_id};
use crate::ConnectorError;

/// How many files a line of the log names.
const NAMED: usize = 5;

/// The split with the identity of the file that is there now; `None` when there is none any more.
pub(crate) fn identified(split: FileSplit) -> Result<Option<FileSplit>, ConnectorError> {
    let identity = present_identity(&split.path)?;
    Ok(identity.map(|identity| FileSplit { identity: Some(identity), ..split }))
}

fn present_identity(path: &str) -> Result<Option<String>, ConnectorError> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(identity_of(&metadata))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ConnectorError::io("look at", Path::new(path), error)),
    }
}

/// Present ids of known files, and the files that are new. Paths of older checkpoints may be relative.
pub(crate) fn restored(
    target: &Path,
    found: Result<Vec<FileSplit>, ConnectorError>,
    follow: bool,
    known: &[String],
    ended: &BTreeSet<String>,
) -> Result<RestoredSplits<FileSplit>, ConnectorError> {
    let found = match found {
        Ok(found) => found,
        // Files that were read to their end may go.
        Err(ConnectorError::NotFound { .. } | ConnectorError::NoFiles { .. }) => {
            tracing::warn!(path = %target.display(), "leads to no file any more; only what the checkpoint knows is read");
            Vec::new()
        }
        Err(error) => return Err(error),
    };
    let mut ids = Vec::with_capacity(known.len());
    for id in known {
        // What ended while it was followed was removed: a file that is there now is a new one.
        ids.push(if ended.contains(id) { None } else { Some(present_id(id, follow)?) });
    }
    let kept: BTreeSet<&String> = ids.iter().flatten().collect();
    let new: Vec<FileSplit> = found.into_iter().filter(|split| !kept.contains(&split.id())).collect();
    if !new.is_empty() {
        let files = named(new.iter().map(|split| split.path.as_str()));
        tracing::info!(count = new.len(), files, "reads files that the checkpoint does not know");
    }
    Ok(RestoredSplits { ids, new })
}

fn present_id(id: &str, follow: bool) -> Result<String, ConnectorError> {
    let (path, identity) = split_id(id);
    let path = whole(path);
    let identity = if follow { present_identity(&path)?.or_else(|| identity.map(str::to_owned)) } else { None };
    Ok(join_id(&path, identity.as_deref()))
}

fn whole(path: &str) -> String {
    let whole = std::path::absolute(path).ok().and_then(|whole| whole.into_os_string().into_string().ok());
    whole.unwrap_or_else(|| path.to_owned())
}

/// Checks that the files are there that were not read to their end, and warns of those that the source
/// would not find any more.
pub(crate) fn resumed(
    target: &Path,
    splits: Vec<(FileSplit, String)>,
    found: &BTreeSet<String>,
) -> Result<Vec<FileSplit>, ConnectorError> {
    let splits: Vec<FileSplit> = splits.into_iter().map(|(split, id)| split.with_id(&id)).collect();
    let gone: Vec<PathBuf> = splits
        .iter()
        .map(|split| PathBuf::from(&split.path))
        .filter(|path| !path.try_exists().unwrap_or(true))
        .collect();
    if !gone.is_empty() {
        return Err(ConnectorError::InputGone { paths: gone });
    }
    let others: Vec<&str> =
        splits.iter().filter(|split| !found.contains(&split.id())).map(|split| split.path.as_str()).collect();
    if !others.is_empty() {
        tracing::warn!(
            path = %target.display(),
            count = others.len(),
            files = named(others.iter().copied()),
            "goes on with files of the checkpoint to which this path does not lead"
        );
    }
    Ok(splits)
}

fn named<'a>(paths: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = paths.len().saturating_sub(NAMED);
    let mut text = paths.take(NAMED).collect::<Vec<_>>().join(", ");
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}
