//! Savepoints: an old file still opens, copies are whole or nothing, and nothing they need is deleted.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Once;

use millpond_checkpoint::savepoint::{self, MANIFEST_NAME, Savepoint, manifest_name};
use millpond_checkpoint::{
    Blob, CheckpointError, DataObject, KeyedStateInfo, Manifest, ManifestKind, Names, OperatorManifest, Publisher,
    RestoreFrom, RunRef, Writer, WriterId,
};
use millpond_core::codec::checksum;
use millpond_core::{Attempt, Epoch, ErrorKind, KeyGroupRange, SubtaskIndex};
use millpond_storage::{Effect, FaultPlan, FaultRule, Faults, MemoryStorage, ObjectName, Operation, Storage, Within};

const GOLDEN: &[u8] = include_bytes!("data/savepoint-1");
const JOB: &str = "flight delays";

fn run_bytes(number: u8) -> Vec<u8> {
    vec![number; 100 + usize::from(number)]
}

/// Puts a run into storage, as the `file`-th of one sorted run.
fn run<S: Storage>(storage: &S, number: u8, file: u32) -> RunRef {
    let data = DataObject {
        operator: "per carrier".to_owned(),
        attempt: Attempt(2),
        writer: Writer::Subtask(SubtaskIndex(u32::from(number / 2))),
        epoch: Epoch(41),
        counter: file,
    };
    let object = Names::new(JOB).unwrap().run(&data).unwrap();
    let bytes = run_bytes(number);
    storage.create(&object, &bytes).unwrap();
    RunRef {
        object,
        bytes: bytes.len() as u64,
        raw_bytes: 4_000,
        rows: 10,
        tombstones: 1,
        groups: KeyGroupRange::new(0, 8),
        checksum: checksum(&bytes),
        epoch: Epoch(41),
        level: 0,
    }
}

/// A checkpoint with four runs of two sorted runs, and a blob, in `storage`.
fn checkpoint<S: Storage>(storage: &S) -> Manifest {
    let runs: Vec<RunRef> = (0..4).map(|number| run(storage, number, u32::from(number % 2))).collect();
    let blob = DataObject {
        operator: "per carrier".to_owned(),
        attempt: Attempt(2),
        writer: Writer::Subtask(SubtaskIndex(0)),
        epoch: Epoch(41),
        counter: 7,
    };
    let object = Names::new(JOB).unwrap().blob(&blob).unwrap();
    storage.create(&object, b"blob").unwrap();
    Manifest {
        millpond_version: "0.1.0".to_owned(),
        sequence: 9,
        retained_from: 5,
        attempt: Attempt(2),
        writer: WriterId(7),
        kind: ManifestKind::Checkpoint,
        epoch: Epoch(41),
        created_ms: 1_700_000_000_000,
        duration_ms: 250,
        operators: vec![OperatorManifest {
            name: "per carrier".to_owned(),
            parallelism: 2,
            states: vec![KeyedStateInfo { name: "delays".to_owned(), description: "map<str,i64>".to_owned() }],
            runs,
            subtasks: vec![
                Some(Blob::Inline(vec![0, 127, 255])),
                Some(Blob::Object { object, bytes: 4, checksum: checksum(b"blob"), hash: None }),
            ],
        }],
        ..Manifest::empty(JOB, 8)
    }
}

fn contents<S: Storage>(storage: &S) -> BTreeMap<String, Vec<u8>> {
    let listed = storage.list("").unwrap();
    listed.into_iter().map(|info| (info.name.to_string(), storage.read(&info.name).unwrap())).collect()
}

#[test]
fn the_golden_file_of_version_1_opens_and_is_what_is_written() {
    let manifest = checkpoint(&MemoryStorage::new());
    let mut savepoint = Savepoint::of(&manifest, "flight+delays/", 1_700_000_001_000).unwrap();
    savepoint.millpond_version = "0.1.0".to_owned();
    assert_eq!(String::from_utf8_lossy(&savepoint.encode().unwrap()), String::from_utf8_lossy(GOLDEN));
    assert_eq!(Savepoint::decode(GOLDEN).unwrap(), savepoint);
}

#[test]
fn every_changed_byte_and_every_cut_is_noticed() {
    for position in 0..GOLDEN.len() {
        let mut bytes = GOLDEN.to_vec();
        bytes[position] ^= 0x20;
        assert!(Savepoint::decode(&bytes).is_err(), "byte {position}");
        assert!(Savepoint::decode(&GOLDEN[..position]).is_err(), "cut at {position}");
    }
    let newer = String::from_utf8_lossy(GOLDEN).replacen("savepoint 1 ", "savepoint 2 ", 1);
    let error = Savepoint::decode(newer.as_bytes()).unwrap_err();
    assert!(matches!(error, CheckpointError::UnsupportedVersion { found: 2, .. }), "{error}");
}

#[test]
fn rs_24_a_savepoint_refers_to_nothing_outside_and_may_be_moved() {
    let source = MemoryStorage::new();
    let manifest = checkpoint(&source);
    let all = MemoryStorage::new();
    let target = Within::new(all.clone(), ObjectName::new("shelf/a").unwrap());
    let report = savepoint::write(&source, &manifest, "flight+delays/", &target, 5).unwrap();
    assert_eq!((report.epoch, report.objects, report.bytes), (Epoch(41), 5, 4 * 100 + 6 + 4));
    // Moved: every object under another prefix of another storage.
    let moved = MemoryStorage::new();
    for (name, bytes) in contents(&all) {
        moved.create(&ObjectName::new(name.replacen("shelf/a", "elsewhere", 1)).unwrap(), &bytes).unwrap();
    }
    drop((source, all));
    let moved = Within::new(moved, ObjectName::new("elsewhere").unwrap());
    let savepoint = Savepoint::read(&moved).unwrap();
    for (object, bytes) in savepoint.to_manifest().sizes() {
        assert_eq!(moved.size(object).unwrap(), bytes);
    }
}

#[test]
fn a_place_that_holds_something_is_refused_and_left_alone() {
    let source = MemoryStorage::new();
    let manifest = checkpoint(&source);
    let write = |target: &MemoryStorage| savepoint::write(&source, &manifest, "flight+delays/", target, 5);
    let target = MemoryStorage::new();
    write(&target).unwrap();
    let before = contents(&target);
    assert!(matches!(write(&target), Err(CheckpointError::SavepointExists)));
    assert_eq!(contents(&target), before);
    let foreign = MemoryStorage::new();
    foreign.create(&ObjectName::new("letters/mine").unwrap(), b"dear").unwrap();
    assert!(matches!(write(&foreign), Err(CheckpointError::NotEmpty { .. })));
    assert!(matches!(savepoint::dispose(&foreign), Err(CheckpointError::NotEmpty { .. })));
    assert_eq!(contents(&foreign).len(), 1);
}

#[test]
fn damage_and_loss_in_the_source_are_noticed_and_leave_nothing() {
    let pristine = MemoryStorage::new();
    let manifest = checkpoint(&pristine);
    for (object, _) in manifest.sizes() {
        for content in [None, Some(b"rubbish".to_vec())] {
            let source = MemoryStorage::from_snapshot(pristine.snapshot());
            source.delete(object).unwrap();
            let is_gone = content.is_none();
            if let Some(content) = content {
                source.create(object, &content).unwrap();
            }
            let target = MemoryStorage::new();
            let error = savepoint::write(&source, &manifest, "flight+delays/", &target, 5).unwrap_err();
            assert_eq!(matches!(error, CheckpointError::Gone { .. }), is_gone, "{error}");
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(error.to_string().contains(object.as_str()), "{error}");
            assert!(contents(&target).is_empty());
        }
    }
}

/// Fails the `call`-th call of `operation` by `effect`.
fn failing(storage: MemoryStorage, operation: Operation, effect: Effect, call: u64) -> Faults<MemoryStorage> {
    let plan = FaultPlan::new(1);
    plan.add(FaultRule::new(effect).on(operation).after(call).times(1));
    Faults::new(storage, plan)
}

#[test]
fn ct_20_stopped_at_any_write_a_savepoint_is_whole_or_is_none() {
    let source = MemoryStorage::new();
    let manifest = checkpoint(&source);
    let whole = MemoryStorage::new();
    savepoint::write(&source, &manifest, "flight+delays/", &whole, 5).unwrap();
    for effect in [Effect::FailBefore, Effect::FailAfter, Effect::LoseRequest] {
        for call in 0..7 {
            let memory = MemoryStorage::new();
            let target = failing(memory.clone(), Operation::Create, effect, call);
            let outcome = savepoint::write(&source, &manifest, "flight+delays/", &target, 5);
            match Savepoint::read(&memory) {
                Ok(_) => assert_eq!(contents(&memory), contents(&whole), "{effect:?} at {call}"),
                Err(error) => {
                    assert!(matches!(error, CheckpointError::NoSavepoint), "{error}");
                    assert!(outcome.is_err(), "{effect:?} at {call}: a savepoint that is none");
                    // Whatever was left, it can be tried again, and disposed of.
                    let again = savepoint::write(&source, &manifest, "flight+delays/", &memory, 5);
                    assert!(again.is_ok(), "{effect:?} at {call}: {again:?}");
                }
            }
            savepoint::dispose(&memory).unwrap();
            assert!(contents(&memory).is_empty());
        }
    }
}

#[test]
fn a_savepoint_that_is_being_disposed_of_never_lacks_something() {
    let whole = MemoryStorage::new();
    let source = MemoryStorage::new();
    let manifest = checkpoint(&source);
    savepoint::write(&source, &manifest, "flight+delays/", &whole, 5).unwrap();
    for call in 0..6 {
        let memory = MemoryStorage::from_snapshot(whole.snapshot());
        let failing = failing(memory.clone(), Operation::Delete, Effect::FailBefore, call);
        savepoint::dispose(&failing).unwrap_err();
        if Savepoint::read(&memory).is_ok() {
            assert_eq!(contents(&memory), contents(&whole), "call {call}");
        }
        savepoint::dispose(&memory).unwrap();
        assert!(matches!(savepoint::dispose(&memory), Err(CheckpointError::NoSavepoint)));
    }
}

#[test]
fn savepoints_are_found_below_a_place_damaged_ones_included() {
    let source = MemoryStorage::new();
    let manifest = checkpoint(&source);
    let shelf = MemoryStorage::new();
    for place in ["a", "deep/er"] {
        let target = Within::new(shelf.clone(), ObjectName::new(place).unwrap());
        savepoint::write(&source, &manifest, "flight+delays/", &target, 5).unwrap();
    }
    shelf.create(&ObjectName::new("b/savepoint").unwrap(), b"rubbish").unwrap();
    let found = savepoint::list(&shelf).unwrap();
    let places: Vec<(&str, bool)> = found.iter().map(|one| (one.place.as_str(), one.savepoint.is_ok())).collect();
    assert_eq!(places, [("a", true), ("b", false), ("deep/er", true)]);
    let inside = Within::new(shelf, ObjectName::new("a").unwrap());
    assert_eq!(savepoint::list(&inside).unwrap()[0].place, "");
    assert_eq!(manifest_name().as_str(), MANIFEST_NAME);
}

fn publisher<S: Storage>(storage: S, job: &str, writer: u64) -> Publisher<S> {
    Publisher::new(storage, job, WriterId(writer)).unwrap()
}

#[test]
fn rs_21_a_job_that_starts_from_a_savepoint_needs_nothing_of_it_any_more() {
    let (source, shelf, own) = (MemoryStorage::new(), MemoryStorage::new(), MemoryStorage::new());
    let manifest = checkpoint(&source);
    savepoint::write(&source, &manifest, "flight+delays/", &shelf, 5).unwrap();
    let before = contents(&shelf);
    let foreign = Savepoint::read(&shelf).unwrap().to_manifest();
    let publisher = publisher(own.clone(), "another job", 5);
    let started = publisher.fence_imported(&shelf, &foreign, 1).unwrap();
    assert_eq!(contents(&shelf), before, "the savepoint was touched");
    drop(shelf);
    let base = started.base();
    assert_eq!((base.job.as_str(), base.epoch, base.max_parallelism), ("another job", Epoch(41), 8));
    assert_eq!(base.operators[0].states, manifest.operators[0].states);
    for (object, bytes) in base.sizes() {
        assert_eq!(own.size(object).unwrap(), bytes);
        assert!(publisher.history().names().parse(object).is_some(), "{object}");
    }
    // Files of one sorted run are one afterwards, and only those.
    let places = |manifest: &Manifest| -> Vec<(String, Option<u32>)> {
        let runs = manifest.operators[0].runs.iter();
        let places = runs.map(|run| millpond_checkpoint::names::place_in_sorted_run(&run.object));
        places.map(|(shared, number)| (shared.to_owned(), number)).collect()
    };
    let (old, new) = (places(&foreign), places(base));
    for one in 0..4 {
        assert_eq!(old[one].1, new[one].1);
        for other in 0..4 {
            assert_eq!(old[one].0 == old[other].0, new[one].0 == new[other].0);
        }
    }
    assert_eq!(publisher.history().latest().unwrap().unwrap().operators, base.operators);
}

#[test]
fn an_import_that_fails_or_is_overtaken_owns_nothing_and_is_collected() {
    let (source, own) = (MemoryStorage::new(), MemoryStorage::new());
    let manifest = checkpoint(&source);
    for call in 0..6 {
        let own = MemoryStorage::new();
        let failing = failing(own.clone(), Operation::Create, Effect::Full, call);
        let outcome = publisher(failing, "job", 1).fence_imported(&source, &manifest, 1);
        // The last call is the fence itself, which is tried again.
        assert_eq!(outcome.is_err(), call < 5, "call {call}");
        assert_eq!(publisher(own, "job", 2).history().latest().unwrap().is_none(), call < 5);
    }
    // Somebody else starts between the copies and the fence: seen by the attempt number.
    let other = publisher(own.clone(), "job", 2);
    let (plan, once, inside) = (FaultPlan::new(1), Once::new(), own.clone());
    plan.before_each_call(move |operation, _| {
        if operation == Operation::Create {
            once.call_once(|| drop(publisher(inside.clone(), "job", 9).fence(RestoreFrom::Latest, 8, 1).unwrap()));
        }
    });
    let error = publisher(Faults::new(own.clone(), plan), "job", 1).fence_imported(&source, &manifest, 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    let theirs = other.history().latest().unwrap();
    assert!(theirs.is_none());
    let started = other.fence(RestoreFrom::Latest, 8, 2).unwrap();
    let found = other.objects().unwrap();
    let garbage = millpond_checkpoint::garbage::collectable(
        other.history().names(),
        &found,
        &started.log,
        started.right.attempt(),
        &millpond_checkpoint::garbage::Pending::default(),
    );
    assert_eq!(garbage.len(), 5, "{garbage:?}");
}
