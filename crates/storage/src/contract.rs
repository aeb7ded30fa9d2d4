//! The contract of [`Storage`] as one suite for all implementations.
//!
//! Owns what can be seen through the trait by one process. Does *not* own crashes: what survives
//! them is tested where a crash can be made.
//!
//! ```
//! use millpond_storage::{MemoryStorage, contract};
//!
//! contract::check(MemoryStorage::new);
//! ```

use std::fmt::Debug;
use std::sync::Barrier;

use crate::error::StorageError;
use crate::name::ObjectName;
use crate::storage::Storage;

const RACERS: u8 = 8;
const RACES: u32 = 20;

/// Checks that the storages made by `make`, each empty and independent, keep the contract.
///
/// # Panics
/// When one does not; the message says which sentence of the contract is broken.
pub fn check<S: Storage>(make: impl Fn() -> S) {
    created_objects_are_read_back_whole(&make());
    create_never_replaces(&make());
    absent_objects_are_not_found(&make());
    ranges_are_exact_or_refused(&make());
    lists_are_sorted_and_by_text_prefix(&make());
    deleting_is_idempotent_and_frees_the_name(&make());
    one_of_many_creators_wins(&make());
    objects_appear_whole(&make());
    creators_of_different_names_do_not_disturb_each_other(&make());
}

#[track_caller]
fn name(text: &str) -> ObjectName {
    must(ObjectName::new(text), "a valid name is accepted")
}

#[track_caller]
fn must<T, E: Debug>(result: Result<T, E>, sentence: &str) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("broken: {sentence}: {error:?}"),
    }
}

#[track_caller]
fn must_fail<T: Debug>(result: Result<T, StorageError>, expected: impl Fn(&StorageError) -> bool, sentence: &str) {
    match result {
        Err(error) if expected(&error) => {}
        other => panic!("broken: {sentence}: {other:?}"),
    }
}

fn created_objects_are_read_back_whole(storage: &impl Storage) {
    let large: Vec<u8> = (0..1_000_003u32).map(|i| (i % 251) as u8).collect();
    for (text, bytes) in
        [("empty", &b""[..]), ("one", b"x"), ("deep/er/and deeper/größe", b"\0\xff"), ("large", &large)]
    {
        let name = name(text);
        must(storage.create(&name, bytes), "a free name can be created");
        assert_eq!(must(storage.size(&name), "a created object has a size"), bytes.len() as u64);
        assert!(
            must(storage.read(&name), "a created object can be read") == bytes,
            "broken: {text} is read back whole"
        );
    }
}

fn create_never_replaces(storage: &impl Storage) {
    let name = name("a/b");
    must(storage.create(&name, b"first"), "a free name can be created");
    for bytes in [&b"second"[..], b"first", b""] {
        must_fail(storage.create(&name, bytes), StorageError::is_already_exists, "a taken name is refused");
    }
    assert_eq!(must(storage.read(&name), "the first content stays"), b"first");
    assert_eq!(must(storage.list(""), "a refused create leaves nothing").len(), 1);
}

fn absent_objects_are_not_found(storage: &impl Storage) {
    must(storage.create(&name("a/b/c"), b"x"), "a free name can be created");
    for text in ["z", "a", "a/b", "a/b/d", "a/b/c/d"] {
        let name = name(text);
        must_fail(storage.read(&name), StorageError::is_not_found, "reading an absent object");
        must_fail(storage.read_range(&name, 0, 0), StorageError::is_not_found, "reading a range of an absent object");
        must_fail(storage.size(&name), StorageError::is_not_found, "the size of an absent object");
    }
}

fn ranges_are_exact_or_refused(storage: &impl Storage) {
    let (name, bytes) = (name("range"), b"0123456789");
    must(storage.create(&name, bytes), "a free name can be created");
    for start in 0..=10usize {
        for end in start..=10 {
            let range = storage.read_range(&name, start as u64, (end - start) as u64);
            assert_eq!(must(range, "a range inside is read"), bytes[start..end]);
        }
    }
    for (offset, length) in [(0, 11), (5, 6), (10, 1), (11, 0), (0, u64::MAX), (u64::MAX, 1), (u64::MAX, u64::MAX)] {
        let right = |error: &StorageError| matches!(error, StorageError::OutOfRange { offset: o, length: l, size: 10, .. } if (*o, *l) == (offset, length));
        must_fail(storage.read_range(&name, offset, length), right, "a range beyond the end is refused");
    }
}

fn lists_are_sorted_and_by_text_prefix(storage: &impl Storage) {
    assert!(must(storage.list(""), "an empty storage can be listed").is_empty());
    for text in ["job/10", "job-2", "job/9/b", "job/9/a", "jobs", "other/x"] {
        must(storage.create(&name(text), text.as_bytes()), "a free name can be created");
    }
    let expect = |prefix: &str, names: &[&str]| {
        let listed = must(storage.list(prefix), "any prefix can be listed");
        let listed_names: Vec<&str> = listed.iter().map(|info| info.name.as_str()).collect();
        assert_eq!(listed_names, names, "broken: the list of {prefix:?}");
        assert!(listed.iter().all(|info| info.bytes == info.name.as_str().len() as u64), "broken: sizes in a list");
    };
    expect("", &["job-2", "job/10", "job/9/a", "job/9/b", "jobs", "other/x"]);
    expect("job", &["job-2", "job/10", "job/9/a", "job/9/b", "jobs"]);
    expect("job/", &["job/10", "job/9/a", "job/9/b"]);
    expect("job/9", &["job/9/a", "job/9/b"]);
    expect("job/9/a", &["job/9/a"]);
    for nothing in ["job/9/a/", "jobs/", "x", "job/8", "/", "/job", "job//", "../", "..", ".", "job/../", "job/.", "\0"]
    {
        expect(nothing, &[]);
    }
}

fn deleting_is_idempotent_and_frees_the_name(storage: &impl Storage) {
    let (gone, sibling) = (name("d/a"), name("d/ab"));
    must(storage.delete(&gone), "an absent object can be deleted");
    must(storage.create(&gone, b"1"), "a free name can be created");
    must(storage.create(&sibling, b"2"), "a free name can be created");
    must(storage.delete(&name("d")), "a name above others is an absent object");
    must(storage.delete(&gone), "an object can be deleted");
    must(storage.delete(&gone), "an object can be deleted twice");
    must_fail(storage.read(&gone), StorageError::is_not_found, "a deleted object is gone");
    assert_eq!(must(storage.list(""), "a list without the deleted object").len(), 1);
    assert_eq!(must(storage.read(&sibling), "deleting leaves others"), b"2");
    must(storage.create(&gone, b"3"), "a deleted name is free");
    assert_eq!(must(storage.read(&gone), "the later content is read"), b"3");
}

fn one_of_many_creators_wins(storage: &impl Storage) {
    for race in 0..RACES {
        let name = name(&format!("race/{race}/object"));
        let start = Barrier::new(usize::from(RACERS));
        let compete = |racer: u8| {
            start.wait();
            storage.create(&name, &[racer; 1_000])
        };
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let racers: Vec<_> = (0..RACERS).map(|racer| (racer, scope.spawn(move || compete(racer)))).collect();
            racers.into_iter().map(|(racer, thread)| (racer, thread.join())).collect()
        });
        let mut winners = Vec::new();
        for (racer, outcome) in outcomes {
            match outcome {
                Ok(Ok(())) => winners.push(racer),
                Ok(Err(StorageError::AlreadyExists { .. })) => {}
                other => panic!("broken: a loser is told AlreadyExists: {other:?}"),
            }
        }
        assert_eq!(winners.len(), 1, "broken: exactly one creator wins: {winners:?}");
        assert!(must(storage.read(&name), "the winner's object is there") == [winners[0]; 1_000]);
    }
}

fn objects_appear_whole(storage: &impl Storage) {
    let bytes: Vec<u8> = (0..200_000u32).map(|i| (i % 253) as u8).collect();
    let name = name("appears");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| storage.create(&name, &bytes));
        loop {
            let finished = writer.is_finished();
            match storage.read(&name) {
                Ok(found) => assert!(found == bytes, "broken: a reader sees the whole object or none"),
                Err(StorageError::NotFound { .. }) => {}
                Err(error) => panic!("broken: a reader during a create: {error:?}"),
            }
            for info in must(storage.list(""), "a list during a create") {
                assert_eq!(
                    (&info.name, info.bytes),
                    (&name, bytes.len() as u64),
                    "broken: unfinished writes are hidden"
                );
            }
            if finished {
                break;
            }
        }
        must(
            writer.join().map_err(|_| "the writer panicked").and_then(|result| result.map_err(|_| "failed")),
            "create",
        );
    });
}

fn creators_of_different_names_do_not_disturb_each_other(storage: &impl Storage) {
    std::thread::scope(|scope| {
        for writer in 0..RACERS {
            scope.spawn(move || {
                for object in 0..4 {
                    let name = name(&format!("shared/{object}/{writer}"));
                    must(storage.create(&name, &[writer]), "creators of different names all succeed");
                }
            });
        }
    });
    assert_eq!(must(storage.list("shared/"), "all are listed").len(), usize::from(RACERS) * 4);
}
