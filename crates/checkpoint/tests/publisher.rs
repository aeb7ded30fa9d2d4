//! The edge against real storage: fencing, lost answers, damaged manifests.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;

use millpond_checkpoint::history::load_object;
use millpond_checkpoint::{
    CheckpointError, Coordinator, DataObject, Facts, Manifest, ManifestKind, Names, PublishOutcome, PublishRight,
    Publisher, RestoreFrom, Settings, Started, Writer, WriterId,
};
use millpond_core::{Attempt, Epoch, ErrorKind, SubtaskIndex};
use millpond_storage::{Effect, FaultPlan, FaultRule, Faults, MemoryStorage, ObjectName, Operation, Storage};

fn publisher<S: Storage>(storage: S, writer: u64) -> Publisher<S> {
    Publisher::new(storage, "job", WriterId(writer)).unwrap()
}

fn fence<S: Storage>(publisher: &Publisher<S>) -> Started {
    publisher.fence(RestoreFrom::Latest, 16, 1_000).unwrap()
}

fn after(base: &Manifest, epoch: u64) -> Manifest {
    let kind = ManifestKind::Checkpoint;
    Manifest { sequence: base.sequence + 1, kind, epoch: Epoch(epoch), duration_ms: 5, ..base.clone() }
}

fn publish_all<S: Storage>(publisher: &Publisher<S>, right: &PublishRight, base: &Manifest, epochs: u64) -> Manifest {
    let mut newest = base.clone();
    for epoch in 1..=epochs {
        newest = after(&newest, epoch);
        publisher.publish(right, &newest).unwrap();
    }
    newest
}

fn lost_answer(operation: Operation, effect: Effect) -> FaultRule {
    FaultRule::new(effect).on(operation).under("job/manifests/").times(1)
}

#[test]
fn a_job_starts_from_nothing_publishes_and_starts_again_from_the_newest_epoch() {
    let storage = MemoryStorage::new();
    let first = publisher(storage.clone(), 1);
    assert!(first.history().latest().unwrap().is_none());
    let started = fence(&first);
    assert_eq!(
        (started.right.attempt(), started.base().epoch, started.base().max_parallelism),
        (Attempt(1), Epoch(0), 16)
    );
    assert!(first.history().latest().unwrap().is_none(), "a fence of nothing is no checkpoint");
    publish_all(&first, &started.right, started.base(), 2);

    let started = publisher(storage, 2).fence(RestoreFrom::Latest, 99, 2_000).unwrap();
    let base = started.base();
    assert_eq!((base.attempt, base.epoch, base.sequence), (Attempt(2), Epoch(2), 4));
    assert_eq!((base.kind, base.max_parallelism), (ManifestKind::Fence, 16), "the stored number of groups counts");
    assert_eq!(started.log.len(), 4);
}

#[test]
fn a_publication_after_a_newer_start_is_fenced_and_names_both() {
    let storage = MemoryStorage::new();
    let old = publisher(storage.clone(), 1);
    let started = fence(&old);
    let newest = publish_all(&old, &started.right, started.base(), 1);
    let theirs = fence(&publisher(storage.clone(), 2));
    let error = old.publish(&started.right, &after(&newest, 2)).unwrap_err();
    assert_eq!(error.to_string(), "attempt 1 is fenced by attempt 2 at manifest 3");
    assert_eq!(error.kind(), ErrorKind::Fenced);
    assert_eq!(old.history().read(3).unwrap().as_ref(), Some(theirs.base()));
}

#[test]
fn a_sleeper_whose_slot_was_collected_is_fenced_and_what_it_wrote_is_not_seen() {
    let storage = MemoryStorage::new();
    let old = publisher(storage.clone(), 1);
    let started = fence(&old);
    let new = publisher(storage.clone(), 2);
    let theirs = fence(&new);
    let newest = publish_all(&new, &theirs.right, theirs.base(), 2);
    let newest = Manifest { retained_from: newest.sequence + 1, ..after(&newest, 3) };
    new.publish(&theirs.right, &newest).unwrap();
    let collected: Vec<ObjectName> = (1..newest.sequence).map(|slot| new.history().names().manifest(slot)).collect();
    new.delete(&collected).unwrap();

    let error = old.publish(&started.right, &after(started.base(), 1)).unwrap_err();
    assert!(matches!(error, CheckpointError::Fenced { theirs: Some(Attempt(2)), .. }), "{error}");
    assert_eq!(storage.list("job/manifests/").unwrap().len(), 2, "the sleeper did create its slot again");
    let entries = new.history().entries().unwrap();
    assert_eq!(entries.iter().map(|entry| entry.sequence).collect::<Vec<_>>(), [newest.sequence]);
    assert!(matches!(new.history().load(Epoch(1)), Err(CheckpointError::NoSuchEpoch { .. })));
    // The owner finds it by listing.
    let facts = Facts { subtasks: BTreeSet::new(), log: vec![newest], unreadable: BTreeSet::new() };
    let mut coordinator = Coordinator::new(Settings::default(), facts).unwrap();
    let existing = new.objects().unwrap();
    assert_eq!(coordinator.on(0, millpond_checkpoint::Event::Found { existing }).len(), 1);
}

#[test]
fn a_lost_answer_is_resolved_by_looking_whether_it_happened_or_not() {
    for effect in [Effect::FailAfter, Effect::LoseRequest] {
        let plan = FaultPlan::new(1);
        let publisher = publisher(Faults::new(MemoryStorage::new(), plan.clone()), 1);
        plan.add(lost_answer(Operation::Create, effect));
        let started = fence(&publisher);
        assert_eq!(started.base().sequence, 1);
        plan.add(lost_answer(Operation::Create, effect));
        let manifest = after(started.base(), 1);
        publisher.publish(&started.right, &manifest).unwrap();
        assert_eq!(publisher.history().latest().unwrap(), Some(manifest.clone()));
        publisher.publish(&started.right, &manifest).expect("publishing again is harmless");
        assert_eq!(plan.injected(), 2);
    }
}

#[test]
fn what_cannot_be_resolved_is_uncertain_and_what_did_not_happen_is_unavailable() {
    let plan = FaultPlan::new(1);
    let publisher = publisher(Faults::new(MemoryStorage::new(), plan.clone()), 1);
    let started = fence(&publisher);
    let manifest = after(started.base(), 1);
    plan.add(lost_answer(Operation::Create, Effect::FailBefore));
    let error = publisher.publish(&started.right, &manifest);
    assert!(matches!(PublishOutcome::of(&error), PublishOutcome::Failed(_)));
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Unavailable);

    plan.add(lost_answer(Operation::Create, Effect::FailAfter));
    plan.add(lost_answer(Operation::Read, Effect::FailBefore));
    let error = publisher.publish(&started.right, &manifest);
    assert!(matches!(PublishOutcome::of(&error), PublishOutcome::Uncertain(_)));

    // Whether somebody newer exists is not known without a list either.
    plan.add(lost_answer(Operation::List, Effect::FailBefore));
    assert_eq!(publisher.publish(&started.right, &manifest).unwrap_err().kind(), ErrorKind::Uncertain);
    publisher.publish(&started.right, &manifest).unwrap();
}

#[test]
fn of_starts_that_race_each_owns_another_attempt_or_is_told_that_it_lost() {
    let storage = Arc::new(MemoryStorage::new());
    let racers: Vec<_> = (0..8)
        .map(|writer| {
            let storage = storage.clone();
            thread::spawn(move || publisher(storage, writer).fence(RestoreFrom::Latest, 16, 0))
        })
        .collect();
    let mut owners = BTreeSet::new();
    for racer in racers {
        match racer.join().unwrap() {
            Ok(started) => assert!(owners.insert(started.right.attempt()), "two own one attempt"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Fenced, "{error}"),
        }
    }
    let newest = publisher(storage, 99);
    let entries = newest.history().entries().unwrap();
    assert_eq!(entries.len(), 8);
    for (entry, expected) in entries.iter().zip(1..) {
        assert_eq!((entry.sequence, entry.manifest.as_ref().unwrap().attempt), (expected, Attempt(expected)));
    }
    assert!(owners.contains(&Attempt(8)), "the last one to start owns the job");
}

#[test]
fn a_damaged_newest_manifest_is_named_and_an_older_epoch_is_taken_only_when_asked_for() {
    let storage = MemoryStorage::new();
    let first = publisher(storage.clone(), 1);
    let started = fence(&first);
    publish_all(&first, &started.right, started.base(), 3);
    let damaged = first.history().names().manifest(4);
    storage.overwrite(&damaged, b"millpond-manifest 1 0 0\n");

    let second = publisher(storage, 2);
    for error in [second.history().latest().unwrap_err(), second.fence(RestoreFrom::Latest, 16, 0).unwrap_err()] {
        let named = matches!(&error, CheckpointError::NewestDamaged { object, older: Some(Epoch(2)), .. } if *object == damaged);
        assert!(named, "{error}");
    }
    let entries = second.history().entries().unwrap();
    assert_eq!(entries.len(), 4);
    assert_eq!(entries.iter().filter_map(|entry| entry.checkpoint()).count(), 2, "older good ones are listed");
    assert!(entries[3].manifest.is_err());

    let started = second.fence(RestoreFrom::Epoch(Epoch(2)), 16, 0).unwrap();
    assert_eq!((started.base().epoch, started.base().sequence, started.unreadable.clone()), (Epoch(2), 5, vec![4]));
    assert!(started.right.attempt() > Attempt(1));
    let newest = after(started.base(), 3);
    second.publish(&started.right, &newest).unwrap();
    assert_eq!(second.history().latest().unwrap(), Some(newest));
}

#[test]
fn a_damaged_older_manifest_blocks_nobody() {
    let storage = MemoryStorage::new();
    let first = publisher(storage.clone(), 1);
    let started = fence(&first);
    let newest = publish_all(&first, &started.right, started.base(), 3);
    storage.overwrite(&first.history().names().manifest(3), b"");
    assert_eq!(first.history().latest().unwrap(), Some(newest));
    assert_eq!(first.history().load(Epoch(1)).unwrap().epoch, Epoch(1));
    let started = fence(&publisher(storage, 2));
    assert_eq!((started.base().epoch, started.log.len(), started.unreadable), (Epoch(3), 4, vec![3]));
}

#[test]
fn an_older_epoch_can_be_started_from_and_its_record_is_preferred_over_a_fence() {
    let storage = MemoryStorage::new();
    let first = publisher(storage.clone(), 1);
    let started = fence(&first);
    publish_all(&first, &started.right, started.base(), 3);
    let second = publisher(storage, 2);
    let started = second.fence(RestoreFrom::Epoch(Epoch(2)), 16, 0).unwrap();
    assert_eq!((started.base().epoch, started.right.attempt()), (Epoch(2), Attempt(2)));
    assert_eq!(second.history().load(Epoch(2)).unwrap().kind, ManifestKind::Checkpoint);
    let error = second.fence(RestoreFrom::Epoch(Epoch(9)), 16, 0).unwrap_err();
    assert!(matches!(error, CheckpointError::NoSuchEpoch { epoch: Epoch(9), .. }), "{error}");
}

#[test]
fn rs_27_a_place_without_a_manifest_or_with_something_else_is_refused_clearly() {
    let storage = MemoryStorage::new();
    let object = ObjectName::new("job/manifests/x").unwrap();
    let error = load_object(&storage, &object).unwrap_err();
    assert_eq!(error.to_string(), "there is no manifest at \"job/manifests/x\"");
    storage.create(&object, b"hello\n").unwrap();
    assert!(matches!(load_object(&storage, &object), Err(CheckpointError::Damaged { .. })));
}

#[test]
fn a_manifest_of_another_slot_or_right_is_not_accepted() {
    let storage = MemoryStorage::new();
    let first = publisher(storage.clone(), 1);
    let started = fence(&first);
    let moved = storage.read(&first.history().names().manifest(1)).unwrap();
    storage.create(&first.history().names().manifest(2), &moved).unwrap();
    assert!(matches!(first.history().read(2), Err(CheckpointError::Damaged { .. })));
    let foreign = Manifest { attempt: Attempt(9), ..after(started.base(), 1) };
    assert_eq!(first.publish(&started.right, &foreign).unwrap_err().kind(), ErrorKind::Bug);
}

/// A start from the newest manifest went silently back to an older one, or to nothing, when the manifests of later
/// executions had been taken away; what these had committed would have been written again.
#[test]
fn a_log_whose_end_is_gone_is_noticed_by_the_data_that_is_left() {
    let storage = MemoryStorage::new();
    let run = |attempt: u64, writer: Writer| {
        let (operator, attempt, epoch) = ("op".to_owned(), Attempt(attempt), Epoch(1));
        Names::new("job").unwrap().run(&DataObject { operator, attempt, writer, epoch, counter: 0 }).unwrap()
    };
    let imported = Writer::Import { writer: WriterId(3), set: 0 };
    // A copy that a start made before its fence is no sign of a manifest.
    storage.create(&run(1, imported), b"x").unwrap();
    let first = publisher(storage.clone(), 1);
    first.check_log_end().unwrap();
    fence(&first);
    storage.create(&run(1, Writer::Subtask(SubtaskIndex(0))), b"x").unwrap();
    first.check_log_end().unwrap();
    let second = publisher(storage.clone(), 2);
    let started = fence(&second);
    let later = run(2, Writer::Compaction(1));
    storage.create(&later, b"x").unwrap();
    second.check_log_end().unwrap();
    let names = second.history().names();
    storage.delete(&names.manifest(2)).unwrap();
    for left in [1, 0] {
        let error = second.check_log_end().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{left} manifests left");
        assert!(matches!(&error, CheckpointError::LogCut { object, .. } if left == 0 || *object == later), "{error}");
        // A restart in the same process knows without looking at data.
        let error = second.fence(RestoreFrom::After(started.right.attempt()), 16, 0).unwrap_err();
        assert!(error.to_string().contains("has written one"), "{error}");
        storage.delete(&names.manifest(1)).unwrap();
    }
}
