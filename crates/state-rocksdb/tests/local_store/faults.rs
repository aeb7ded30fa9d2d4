//! Damaged, deleted and full: a right value or a typed error, never a wrong value, never a hang.

use std::path::Path;
use std::process::Command;

use millpond_core::ErrorKind;
use millpond_state::{ColdBackend, ColdError};
use millpond_state_rocksdb::RocksBackend;

use super::{check, tables, write};

const ROWS: u64 = 40_000;
const BYTES: usize = 1_000;
/// So little that most rows are read from the disk.
const MEMORY: u64 = 8 << 20;

#[test]
fn rows_that_were_damaged_on_disk_are_an_error_and_never_a_value() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("cold");
    let stores = RocksBackend.start(Some(&directory), MEMORY).unwrap();
    let store = stores.open("operator", 0).unwrap();
    write(&store, 0..ROWS, 1, BYTES).unwrap();
    check(&store, 0..ROWS, &[1], BYTES).unwrap();
    let mut damaged = 0;
    for file in tables(&directory) {
        // A compaction may have replaced it.
        let Ok(mut bytes) = std::fs::read(&file) else { continue };
        for position in (1_000..bytes.len()).step_by(20_000) {
            bytes[position] ^= 0x55;
        }
        // In place: files that are open see it too.
        let Ok(mut open) = std::fs::OpenOptions::new().write(true).open(&file) else { continue };
        std::io::Write::write_all(&mut open, &bytes).unwrap();
        damaged += 1;
    }
    assert!(damaged > 0, "rows went to disk");
    let mut errors = 0;
    for start in (0..ROWS).step_by(200) {
        match check(&store, start..start + 200, &[1], BYTES) {
            Ok(()) => {}
            Err(error @ ColdError::Damaged { .. }) => {
                errors += 1;
                assert_eq!(error.kind(), ErrorKind::Unavailable, "the next attempt has a new store");
                assert!(error.to_string().contains(".sst"), "the file is named: {error}");
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(errors > 0, "damage is found");
    // The next attempt begins with nothing, in the same directory.
    drop((store, stores));
    let stores = RocksBackend.start(Some(&directory), MEMORY).unwrap();
    let store = stores.open("operator", 0).unwrap();
    write(&store, 0..1_000, 2, BYTES).unwrap();
    check(&store, 0..1_000, &[2], BYTES).unwrap();
}

#[test]
fn a_directory_that_is_deleted_under_a_running_store_ends_in_an_error_and_the_next_attempt_works() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("cold");
    let stores = RocksBackend.start(Some(&directory), MEMORY).unwrap();
    let store = stores.open("operator", 0).unwrap();
    write(&store, 0..ROWS, 1, BYTES).unwrap();
    // Background threads may make a file while the directory is emptied.
    while directory.exists() {
        let _ = std::fs::remove_dir_all(&directory);
    }
    // What was open can still be read; what cannot is an error.
    let mut failed = None;
    for version in 2..20 {
        let written = write(&store, 0..ROWS, version, BYTES);
        let versions: Vec<u64> = (1..=version).collect();
        failed = written.and_then(|()| check(&store, 0..ROWS, &versions, BYTES)).err();
        if failed.is_some() {
            break;
        }
    }
    let error = failed.expect("a store without a directory fails");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("cold"), "the place is named: {error}");
    drop((store, stores));
    let stores = RocksBackend.start(Some(&directory), MEMORY).unwrap();
    let store = stores.open("operator", 0).unwrap();
    write(&store, 0..1_000, 2, BYTES).unwrap();
    check(&store, 0..1_000, &[2], BYTES).unwrap();
}

/// A small file system in memory, unmounted when dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(megabytes: u32) -> Option<SmallDisk> {
        let directory = tempfile::tempdir().unwrap();
        let size = format!("size={megabytes}m");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(directory.path()).status();
        mount.is_ok_and(|status| status.success()).then_some(SmallDisk(directory))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}

#[test]
fn a_full_disk_is_an_error_and_never_a_wrong_value() {
    let Some(disk) = SmallDisk::mount(24) else {
        eprintln!("SKIPPED: a full disk needs the right to mount a small file system");
        return;
    };
    let directory = disk.path().join("cold");
    let stores = RocksBackend.start(Some(&directory), MEMORY).unwrap();
    let store = stores.open("operator", 0).unwrap();
    let mut written = 0;
    let error = loop {
        match write(&store, written..written + 1_000, 1, BYTES) {
            Ok(()) => written += 1_000,
            Err(error) => break error,
        }
        assert!(written < 200_000, "24 MB do not hold 200 MB");
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().to_lowercase().contains("no space"), "the cause is named: {error}");
    // Everything that was taken is still read rightly, or not at all.
    if let Err(error) = check(&store, 0..written, &[1], BYTES) {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    // The next attempt has the whole disk again.
    drop((store, stores));
    let stores = RocksBackend.start(Some(&directory), MEMORY).unwrap();
    let store = stores.open("operator", 0).unwrap();
    write(&store, 0..5_000, 2, BYTES).unwrap();
    check(&store, 0..5_000, &[2], BYTES).unwrap();
    drop((store, stores));
}

#[test]
fn a_full_disk_while_loading_is_an_error() {
    let Some(disk) = SmallDisk::mount(16) else {
        eprintln!("SKIPPED: a full disk needs the right to mount a small file system");
        return;
    };
    let stores = RocksBackend.start(Some(&disk.path().join("cold")), MEMORY).unwrap();
    let store = stores.open("operator", 0).unwrap();
    let mut loader = store.load().unwrap();
    let mut failed = None;
    for number in 0..40_000u64 {
        let key = [&[8], &number.to_be_bytes()[..]].concat();
        let put = loader.put(super::STATE, super::group(0), &key, &super::value(number, 1, BYTES));
        if put.is_err() {
            failed = put.err();
            break;
        }
    }
    let error = failed.expect("16 MB do not hold 40 MB");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    drop(loader);
    assert_eq!(std::fs::read_dir(disk.path().join("cold/loading")).unwrap().count(), 0, "nothing is left over");
}

#[test]
fn a_directory_in_use_is_refused_and_named() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("cold");
    let first = RocksBackend.start(Some(&directory), MEMORY).unwrap();
    let error = RocksBackend.start(Some(&directory), MEMORY).err().unwrap();
    assert!(error.to_string().contains(directory.to_str().unwrap()), "{error}");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    drop(first);
    RocksBackend.start(Some(&directory), MEMORY).unwrap();
}
