//! Making directories and making them durable.
//!
//! Owns what has to be synced so that the root, and all that is seen below it, stays.

use std::io;
use std::path::Path;

use super::disk::{Disk, EntryKind};
use crate::name::ObjectName;

pub(super) fn make_directory<D: Disk>(disk: &D, directory: &Path) -> io::Result<()> {
    match disk.create_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

/// Makes `root` and its parents, and syncs the entries of them all: those that are there may have
/// been made by a process that died before syncing. Parents of directories that were there and
/// that this process may not open are left to their owner.
pub(super) fn make_root<D: Disk>(disk: &D, root: &Path) -> io::Result<()> {
    let Some(parent) = root.parent() else {
        return Ok(());
    };
    make_root(disk, parent)?;
    let made = match disk.create_dir(root) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
        // Whatever forbids making it does not matter if it is there.
        Err(error) if disk.read_dir(root).is_err() => return Err(error),
        Err(_) => false,
    };
    match disk.sync_dir(parent) {
        Err(error) if !made && error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        result => result,
    }
}

/// Syncs `directory` and all directories below it, except that of unfinished writes.
pub(super) fn sync_tree<D: Disk>(disk: &D, directory: &Path) -> io::Result<()> {
    disk.sync_dir(directory)?;
    for entry in disk.read_dir(directory)? {
        if entry.kind == EntryKind::Directory && ObjectName::new(&entry.name).is_ok() {
            match sync_tree(disk, &directory.join(&entry.name)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                result => result?,
            }
        }
    }
    Ok(())
}
