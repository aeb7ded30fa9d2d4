use std::sync::Arc;

use super::*;
use crate::error::Operation;
use crate::memory::MemoryStorage;
use crate::meter::{Counters, Meter};

struct Place {
    directory: tempfile::TempDir,
    remote: Arc<MemoryStorage>,
}

impl Place {
    fn new() -> Self {
        Place { directory: tempfile::tempdir().unwrap(), remote: Arc::new(MemoryStorage::new()) }
    }

    /// A process that starts: its layer, and what it reads of the storage beneath.
    fn start(&self) -> (LocalCopies<Meter<Arc<MemoryStorage>>>, Counters) {
        let meter = Meter::new(Arc::clone(&self.remote));
        let counters = meter.counters();
        let copied = |name: &ObjectName| name.as_str().contains("runs/");
        (LocalCopies::new(meter, self.directory.path().join("copies"), copied).unwrap(), counters)
    }

    fn path(&self, object: &str) -> PathBuf {
        self.directory.path().join("copies").join(object)
    }
}

fn name(text: &str) -> ObjectName {
    ObjectName::new(text).unwrap()
}

fn wanted<'a>(object: &'a ObjectName, bytes: &[u8]) -> Wanted<'a> {
    Wanted { object, bytes: bytes.len() as u64, checksum: crc32fast::hash(bytes), hash: None }
}

fn reads(counters: &Counters) -> u64 {
    let counts = counters.snapshot();
    counts.of(Operation::Read).calls + counts.of(Operation::ReadRange).calls + counts.of(Operation::Size).calls
}

const CONTENT: &[u8] = b"rows of a state";

#[test]
fn an_intact_copy_is_read_instead_of_the_storage() {
    let (place, run) = (Place::new(), name("job/runs/count/a1"));
    place.start().0.create(&run, CONTENT).unwrap();
    let (storage, counters) = place.start();
    assert_eq!(storage.keep([wanted(&run, CONTENT)]), Kept { intact: 1, bytes: 15, ..Kept::default() });
    assert_eq!(storage.read(&run).unwrap(), CONTENT);
    assert_eq!(storage.read_range(&run, 8, 7).unwrap(), b"a state");
    assert_eq!(storage.size(&run).unwrap(), 15);
    assert_eq!(reads(&counters), 0);
    let beyond = storage.read_range(&run, 10, 6);
    assert!(matches!(beyond, Err(StorageError::OutOfRange { size: 15, .. })), "{beyond:?}");
}

#[test]
fn copies_that_nobody_has_checked_are_not_read() {
    let (place, run) = (Place::new(), name("job/runs/count/a1"));
    let (storage, counters) = place.start();
    storage.create(&run, CONTENT).unwrap();
    std::fs::write(place.path(run.as_str()), b"something else!").unwrap();
    assert_eq!(storage.read(&run).unwrap(), CONTENT);
    assert_eq!(reads(&counters), 1);
}

#[test]
fn a_damaged_copy_is_removed_and_the_storage_is_read() {
    for damage in [&b"rows of a stale"[..], b"rows", b"", b"rows of a state and more"] {
        let (place, run) = (Place::new(), name("job/runs/count/a1"));
        place.start().0.create(&run, CONTENT).unwrap();
        std::fs::write(place.path(run.as_str()), damage).unwrap();
        let (storage, counters) = place.start();
        assert_eq!(storage.keep([wanted(&run, CONTENT)]), Kept { damaged: 1, ..Kept::default() });
        assert!(!place.path(run.as_str()).exists());
        assert_eq!(storage.read(&run).unwrap(), CONTENT);
        assert_eq!(reads(&counters), 1);
    }
}

#[test]
fn a_copy_that_vanishes_or_shrinks_after_the_check_is_made_up_for_by_the_storage() {
    for vanish in [true, false] {
        let (place, run) = (Place::new(), name("job/runs/count/a1"));
        place.start().0.create(&run, CONTENT).unwrap();
        let (storage, _) = place.start();
        storage.keep([wanted(&run, CONTENT)]);
        if vanish {
            std::fs::remove_file(place.path(run.as_str())).unwrap();
        } else {
            std::fs::write(place.path(run.as_str()), b"rows").unwrap();
        }
        assert_eq!(storage.read_range(&run, 8, 7).unwrap(), b"a state");
        assert_eq!(storage.read(&run).unwrap(), CONTENT);
    }
}

#[test]
fn copies_of_what_the_job_does_not_go_on_from_are_removed_and_so_are_those_of_deleted_objects() {
    let place = Place::new();
    let (old, new, other) = (name("job/runs/count/a1"), name("job/runs/count/a2"), name("job/manifests/1"));
    let (storage, _) = place.start();
    for object in [&old, &new, &other] {
        storage.create(object, CONTENT).unwrap();
    }
    assert!(!place.path(other.as_str()).exists(), "manifests are not copied");
    std::fs::write(place.path("3#unfinished"), b"cut off").unwrap();
    let (storage, _) = place.start();
    let kept = storage.keep([wanted(&new, CONTENT), wanted(&name("job/runs/count/a3"), CONTENT)]);
    assert_eq!(kept, Kept { intact: 1, bytes: 15, absent: 1, removed: 2, damaged: 0 });
    storage.delete(&new).unwrap();
    assert!(!place.path(new.as_str()).exists());
    assert!(matches!(storage.read(&new), Err(StorageError::NotFound { .. })));
}

#[test]
fn an_object_that_the_storage_refused_has_no_copy() {
    let (place, run) = (Place::new(), name("job/runs/count/a1"));
    place.remote.create(&run, b"of somebody else").unwrap();
    let (storage, _) = place.start();
    assert!(matches!(storage.create(&run, CONTENT), Err(StorageError::AlreadyExists { .. })));
    assert!(!place.path(run.as_str()).exists());
}

#[test]
fn a_directory_that_cannot_be_written_costs_the_copies_and_nothing_else() {
    let (place, run) = (Place::new(), name("job/runs/count/a1"));
    let (storage, _) = place.start();
    // A file stands where a directory of copies is needed.
    std::fs::write(place.path("job"), b"").unwrap();
    storage.create(&run, CONTENT).unwrap();
    assert_eq!(storage.read(&run).unwrap(), CONTENT);
    let leftover = std::fs::read_dir(place.directory.path().join("copies")).unwrap().count();
    assert_eq!(leftover, 1, "the unfinished file is gone");
}
