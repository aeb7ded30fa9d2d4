//! Errors, temporaries and other files of local storage.

use std::io;
use std::path::Path;

use millpond_core::ErrorKind;

use super::simulated::{Change, SimulatedDisk};
use super::{LocalStorage, ObjectFiles};
use crate::error::StorageError;
use crate::name::ObjectName;
use crate::storage::Storage;

fn name(text: &str) -> ObjectName {
    ObjectName::new(text).unwrap()
}

fn simulated() -> (SimulatedDisk, ObjectFiles<SimulatedDisk>) {
    let disk = SimulatedDisk::new();
    let storage = ObjectFiles::open(disk.clone(), Path::new("/data")).unwrap();
    (disk, storage)
}

fn temporary_files(directory: &Path) -> usize {
    let entries = std::fs::read_dir(directory.join(".tmp")).unwrap();
    entries.filter(|entry| !entry.as_ref().unwrap().file_name().to_str().unwrap().ends_with(".lock")).count()
}

#[test]
fn a_full_disk_is_reported_as_full_and_leaves_nothing() {
    let (disk, storage) = simulated();
    disk.set_free_bytes(15);
    let error = storage.create(&name("a/large"), &[7; 20]).unwrap_err();
    assert!(matches!(error, StorageError::Full { .. }), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(storage.list("").unwrap().is_empty());
    assert_eq!(storage.clean_temporary().unwrap(), 0);
    disk.set_free_bytes(100);
    storage.create(&name("a/large"), &[7; 20]).unwrap();
}

#[test]
fn every_refusal_before_the_link_says_that_nothing_happened() {
    for (kind, expected) in [
        (io::ErrorKind::PermissionDenied, ErrorKind::Invalid),
        (io::ErrorKind::ReadOnlyFilesystem, ErrorKind::Invalid),
        (io::ErrorKind::StorageFull, ErrorKind::Unavailable),
        (io::ErrorKind::QuotaExceeded, ErrorKind::Unavailable),
        (io::ErrorKind::Other, ErrorKind::Unavailable),
    ] {
        for change in [Change::CreateDir, Change::CreateNew, Change::Write, Change::SyncFile] {
            let (disk, storage) = simulated();
            disk.fail_next(change, kind);
            let error = storage.create(&name("a/b"), b"x").unwrap_err();
            assert_eq!(error.kind(), expected, "{change:?} {error:?}");
            assert!(storage.list("").unwrap().is_empty());
            storage.create(&name("a/b"), b"x").unwrap();
        }
    }
}

#[test]
fn a_link_that_fails_without_a_reason_is_uncertain_and_one_that_is_refused_is_not() {
    for (kind, expected) in [
        (io::ErrorKind::Other, ErrorKind::Uncertain),
        (io::ErrorKind::TimedOut, ErrorKind::Uncertain),
        (io::ErrorKind::PermissionDenied, ErrorKind::Invalid),
        (io::ErrorKind::StorageFull, ErrorKind::Unavailable),
        (io::ErrorKind::Unsupported, ErrorKind::Invalid),
    ] {
        let (disk, storage) = simulated();
        disk.fail_next(Change::Link, kind);
        assert_eq!(storage.create(&name("a"), b"x").unwrap_err().kind(), expected, "{kind:?}");
    }
}

#[test]
fn a_directory_that_cannot_be_synced_after_the_change_is_uncertain() {
    let (disk, storage) = simulated();
    disk.fail_next(Change::SyncDir, io::ErrorKind::Other);
    assert_eq!(storage.create(&name("a"), b"x").unwrap_err().kind(), ErrorKind::Uncertain);
    assert!(storage.create(&name("a"), b"x").unwrap_err().is_already_exists());
    disk.fail_next(Change::SyncDir, io::ErrorKind::Other);
    assert_eq!(storage.delete(&name("a")).unwrap_err().kind(), ErrorKind::Uncertain);
    storage.delete(&name("a")).unwrap();
}

#[test]
fn a_name_is_not_reported_as_taken_before_that_is_durable() {
    let (disk, storage) = simulated();
    storage.create(&name("a"), b"x").unwrap();
    disk.fail_next(Change::SyncDir, io::ErrorKind::Other);
    assert_eq!(storage.create(&name("a"), b"x").unwrap_err().kind(), ErrorKind::Unavailable);
}

#[test]
fn a_directory_without_leave_to_write_is_permission_denied() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let storage = LocalStorage::open(directory.path()).unwrap();
    storage.create(&name("open/object"), b"x").unwrap();
    let closed = directory.path().join("open");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o500)).unwrap();
    let root_user = std::fs::write(closed.join("probe"), b"").is_ok();
    if !root_user {
        let error = storage.create(&name("open/other"), b"x").unwrap_err();
        assert!(matches!(error, StorageError::PermissionDenied { .. }), "{error:?}");
        assert_eq!(storage.read(&name("open/object")).unwrap(), b"x");
    }
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_file_where_a_directory_is_needed_is_an_invalid_name() {
    let directory = tempfile::tempdir().unwrap();
    let storage = LocalStorage::open(directory.path()).unwrap();
    storage.create(&name("a"), b"x").unwrap();
    for below in ["a/b", "a/b/c"] {
        let error = storage.create(&name(below), b"y").unwrap_err();
        assert!(matches!(error, StorageError::InvalidName { .. }), "{error:?}");
    }
    storage.create(&name("d/e"), b"x").unwrap();
    let error = storage.create(&name("d"), b"y").unwrap_err();
    assert!(matches!(error, StorageError::InvalidName { .. }), "{error:?}");
    let error = LocalStorage::open(directory.path().join("a")).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let error = LocalStorage::open(directory.path().join("a/below")).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(temporary_files(directory.path()), 0);
}

#[test]
fn a_truncated_file_gives_out_of_range_never_fewer_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let storage = LocalStorage::open(directory.path()).unwrap();
    storage.create(&name("a"), &[1; 100]).unwrap();
    let file = std::fs::File::options().write(true).open(directory.path().join("a")).unwrap();
    file.set_len(60).unwrap();
    let error = storage.read_range(&name("a"), 50, 20).unwrap_err();
    assert!(matches!(error, StorageError::OutOfRange { offset: 50, length: 20, size: 60, .. }), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_eq!(storage.read_range(&name("a"), 40, 20).unwrap(), [1; 20]);
}

#[test]
fn another_opening_sees_the_objects_and_not_the_unfinished_writes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("made/with/parents");
    let storage = LocalStorage::open(&path).unwrap();
    assert!(!path.join(".tmp").exists(), "opening writes nothing");
    storage.create(&name("a/b"), b"x").unwrap();
    std::fs::write(path.join(".tmp/0-77"), b"half").unwrap();
    std::fs::write(path.join("a/.hidden"), b"foreign").unwrap();
    std::os::unix::fs::symlink("/", path.join("a/link")).unwrap();
    let other = LocalStorage::open(&path).unwrap();
    let listed = other.list("").unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].name.as_str(), listed[0].bytes), ("a/b", 1));
    assert_eq!(other.read(&name("a/b")).unwrap(), b"x");
    assert_eq!(other.directory(), path);
}

#[test]
fn cleaning_removes_what_dead_writers_left_and_spares_the_living() {
    let directory = tempfile::tempdir().unwrap();
    let temporary = directory.path().join(".tmp");
    let fresh = LocalStorage::open(directory.path()).unwrap();
    assert_eq!(fresh.clean_temporary().unwrap(), 0);
    let (dead, alive) = (LocalStorage::open(directory.path()).unwrap(), LocalStorage::open(directory.path()).unwrap());
    dead.create(&name("a"), b"x").unwrap();
    alive.create(&name("b"), b"x").unwrap();
    std::fs::write(temporary.join("0-8"), b"of the dead").unwrap();
    std::fs::write(temporary.join("1-8"), b"of the living").unwrap();
    std::fs::write(temporary.join("5-0"), b"of one whose lock file is gone").unwrap();
    assert_eq!(fresh.clean_temporary().unwrap(), 1);
    drop(dead);
    assert_eq!(fresh.clean_temporary().unwrap(), 1);
    assert!(temporary.join("1-8").exists());
    drop(alive);
    // A later owner of the lane does not fall over what the earlier one left.
    let heir = LocalStorage::open(directory.path()).unwrap();
    let lane_zero = LocalStorage::open(directory.path()).unwrap();
    lane_zero.create(&name("c"), b"x").unwrap();
    heir.create(&name("d"), b"x").unwrap();
    assert_eq!(heir.clean_temporary().unwrap(), 1);
    assert_eq!(temporary_files(directory.path()), 0);
    assert_eq!(fresh.list("").unwrap().len(), 4);
}

#[test]
fn directories_removed_by_somebody_else_are_made_again() {
    let directory = tempfile::tempdir().unwrap();
    let storage = LocalStorage::open(directory.path()).unwrap();
    storage.create(&name("a/b/c"), b"x").unwrap();
    std::fs::remove_dir_all(directory.path().join("a")).unwrap();
    storage.create(&name("a/b/c"), b"y").unwrap();
    assert_eq!(storage.read(&name("a/b/c")).unwrap(), b"y");
}

#[test]
fn opening_to_read_changes_nothing_and_syncs_nothing() {
    let (disk, storage) = simulated();
    storage.create(&name("a/b"), b"bytes").unwrap();
    // The disk refuses every change, syncs included.
    disk.stop_after(0);
    let reader = ObjectFiles::open_to_read(disk.clone(), Path::new("/data")).unwrap();
    assert_eq!(reader.read(&name("a/b")).unwrap(), b"bytes");
    assert_eq!(reader.list("").unwrap().len(), 1);
    assert!(ObjectFiles::open(disk.clone(), Path::new("/data")).is_err());
    disk.start_again();
    let missing = ObjectFiles::open_to_read(disk, Path::new("/elsewhere")).err().unwrap();
    assert!(missing.to_string().contains("/elsewhere"), "{missing}");
}
