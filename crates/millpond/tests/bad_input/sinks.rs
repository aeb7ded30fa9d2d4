//! Small real disks under the file sink and under checkpoint storage.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::processes::{check_counts, ended};

/// A small file system in memory.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one of this size at `path`; `None` where that is not allowed.
    fn mount(path: &Path, kib: u32) -> Option<SmallDisk> {
        fs::create_dir_all(path).unwrap();
        let options = format!("size={kib}k");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(path).output();
        let mounted = mounted.is_ok_and(|output| output.status.success());
        println!("{}: {}", path.display(), if mounted { "a real tmpfs" } else { "no tmpfs here, not tested" });
        mounted.then(|| SmallDisk(path.to_owned()))
    }

    fn grow(&self, kib: u32) {
        let options = format!("remount,size={kib}k");
        assert!(Command::new("mount").args(["-o", &options]).arg(&self.0).status().unwrap().success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

const RUN: &str =
    "-w 2 --state-dir s --checkpoint-interval 10ms --storage-patience 100ms --restart fixed:3:1ms -- many - out";

// Where no small disk can be mounted, `connectors` tests the same on a simulated one.
#[test]
fn tp_a_full_disk_under_a_sink_ends_the_job_and_space_lets_it_go_on_exactly_once() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let Some(disk) = SmallDisk::mount(&out, 128) else { return };
    let full = ended("misbehave", directory.path(), RUN);
    full.refused(1, &["after 3 restarts", "operator \"out\"", "out", "the disk is full"]);
    disk.grow(8_192);
    ended("misbehave", directory.path(), RUN).succeeded();
    assert_eq!(check_counts(&out), 40_000);
    let hidden = fs::read_dir(&out)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with('.'));
    assert_eq!(hidden.count(), 0, "nothing unfinished stays");
}

#[test]
fn cf_a_full_disk_under_checkpoint_storage_ends_the_job_and_space_lets_it_go_on_exactly_once() {
    let directory = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(&directory.path().join("s"), 12) else { return };
    let full = ended("misbehave", directory.path(), RUN);
    full.refused(1, &["storage is full"]);
    disk.grow(8_192);
    ended("misbehave", directory.path(), RUN).succeeded();
    assert_eq!(check_counts(&directory.path().join("out")), 40_000);
}
