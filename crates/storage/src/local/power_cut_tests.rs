//! What local storage keeps when the power is cut, or the process killed, at any step.

use std::path::Path;

use proptest::prelude::*;

use super::ObjectFiles;
use super::simulated::{PowerCut, SimulatedDisk};
use crate::error::StorageError;
use crate::name::ObjectName;

const SEEDS: u64 = 24;
const BYTES: &[u8] = b"twelve bytes";

fn cuts() -> impl Iterator<Item = PowerCut> {
    std::iter::once(PowerCut::LosesAll).chain((0..SEEDS).map(|seed| PowerCut::LosesSome { seed }))
}

fn name(text: &str) -> ObjectName {
    ObjectName::new(text).unwrap()
}

fn open(disk: &SimulatedDisk) -> Result<ObjectFiles<SimulatedDisk>, StorageError> {
    ObjectFiles::open(disk.clone(), Path::new("/data/job"))
}

/// The object after the machine is up again.
fn found(disk: &SimulatedDisk, name: &ObjectName) -> Option<Vec<u8>> {
    match open(disk).unwrap().read(name) {
        Ok(bytes) => Some(bytes),
        Err(StorageError::NotFound { .. }) => None,
        Err(error) => panic!("{error:?}"),
    }
}

/// Runs `act` on new disks, stopped after each number of its changes until it is not stopped any
/// more, and hands disk and outcome to `judge`.
fn at_every_step(
    prepare: impl Fn(&SimulatedDisk),
    act: impl Fn(&SimulatedDisk) -> Result<(), StorageError>,
    judge: impl Fn(&SimulatedDisk, &Result<(), StorageError>),
) {
    for cut_index in 0..=SEEDS {
        for step in 0.. {
            let disk = SimulatedDisk::new();
            prepare(&disk);
            disk.stop_after(step);
            let outcome = act(&disk);
            let stopped = disk.is_stopped();
            disk.cut_power(cuts().nth(cut_index as usize).unwrap());
            judge(&disk, &outcome);
            if !stopped {
                assert!(outcome.is_ok());
                break;
            }
        }
    }
}

/// Fails without the sync of the temporary file, of the object's directory, of the parents of new
/// directories, or of the parents of a new root.
#[test]
fn a_created_object_survives_a_power_cut_at_any_later_step() {
    for cut in cuts() {
        let disk = SimulatedDisk::new();
        let storage = open(&disk).unwrap();
        storage.create(&name("a/b/first"), BYTES).unwrap();
        disk.cut_power(cut);
        assert_eq!(found(&disk, &name("a/b/first")).as_deref(), Some(BYTES), "{cut:?}");
    }
    let first = |disk: &SimulatedDisk| open(disk).unwrap().create(&name("a/b/first"), BYTES).unwrap();
    let later = |disk: &SimulatedDisk| {
        let storage = open(disk)?;
        storage.create(&name("a/b/second"), b"2")?;
        storage.create(&name("a/c/third"), b"3")?;
        storage.delete(&name("a/b/second"))
    };
    at_every_step(first, later, |disk, _| {
        assert_eq!(found(disk, &name("a/b/first")).as_deref(), Some(BYTES));
    });
}

/// Fails without the sync of the temporary file.
#[test]
fn a_power_cut_at_every_step_of_a_create_leaves_the_whole_object_or_none() {
    let object = name("a/b/object");
    let create = |disk: &SimulatedDisk| open(disk)?.create(&object, BYTES);
    at_every_step(
        |_| {},
        create,
        |disk, outcome| {
            let found = found(disk, &object);
            assert!(found.is_none() || found.as_deref() == Some(BYTES), "{found:?}");
            match outcome {
                Ok(()) => assert!(found.is_some()),
                Err(StorageError::Uncertain { .. }) => {}
                Err(error) => assert!(found.is_none(), "{error:?} means that it did not happen"),
            }
            assert_eq!(open(disk).unwrap().list("").unwrap().len(), usize::from(found.is_some()));
        },
    );
}

/// Fails without the sync in the answer to a name that is taken.
#[test]
fn a_name_reported_as_taken_survives_a_power_cut_although_its_creator_was_killed() {
    let object = name("a/object");
    for cut in cuts() {
        for step in 0..20 {
            let disk = SimulatedDisk::new();
            let loser = open(&disk).unwrap();
            loser.create(&name("a/other"), b"").unwrap();
            let winner = open(&disk).unwrap();
            disk.stop_after(step);
            let _ = winner.create(&object, BYTES);
            disk.start_again();
            // Ok when the winner had not linked yet.
            let outcome = loser.create(&object, BYTES);
            assert!(matches!(outcome, Ok(()) | Err(StorageError::AlreadyExists { .. })), "{outcome:?}");
            disk.cut_power(cut);
            assert_eq!(found(&disk, &object).as_deref(), Some(BYTES), "{cut:?}, step {step}");
        }
    }
}

/// Fails without the sync of the whole tree in `open`.
#[test]
fn an_object_seen_after_opening_survives_a_power_cut_although_its_creator_was_killed() {
    let object = name("a/b/object");
    for cut in cuts() {
        for step in 0..20 {
            let disk = SimulatedDisk::new();
            let killed = open(&disk).unwrap();
            disk.stop_after(step);
            let _ = killed.create(&object, BYTES);
            disk.start_again();
            let seen = found(&disk, &object);
            disk.cut_power(cut);
            assert_eq!(found(&disk, &object), seen, "{cut:?}, step {step}");
        }
    }
}

/// Fails without the sync of the root's parents when the root is there already.
#[test]
fn an_opened_root_survives_a_power_cut_although_its_maker_was_killed() {
    for cut in cuts() {
        for step in 0..10 {
            let disk = SimulatedDisk::new();
            disk.stop_after(step);
            let _ = open(&disk);
            disk.start_again();
            open(&disk).unwrap().create(&name("object"), BYTES).unwrap();
            disk.cut_power(cut);
            assert_eq!(found(&disk, &name("object")).as_deref(), Some(BYTES), "{cut:?}, step {step}");
        }
    }
}

/// Fails without the sync of the parent of a directory that somebody else made.
#[test]
fn a_directory_made_by_a_killed_process_is_made_durable_before_it_is_used() {
    for cut in cuts() {
        for step in 0..10 {
            let disk = SimulatedDisk::new();
            let (killed, storage) = (open(&disk).unwrap(), open(&disk).unwrap());
            disk.stop_after(step);
            let _ = killed.create(&name("a/b/one"), b"1");
            disk.start_again();
            storage.create(&name("a/b/two"), BYTES).unwrap();
            disk.cut_power(cut);
            assert_eq!(found(&disk, &name("a/b/two")).as_deref(), Some(BYTES), "{cut:?}, step {step}");
        }
    }
}

/// Fails without the sync after a delete.
#[test]
fn a_deleted_object_does_not_come_back_after_a_power_cut() {
    let object = name("a/object");
    let prepare = |disk: &SimulatedDisk| open(disk).unwrap().create(&object, BYTES).unwrap();
    let delete = |disk: &SimulatedDisk| open(disk)?.delete(&object);
    at_every_step(prepare, delete, |disk, outcome| {
        let found = found(disk, &object);
        match outcome {
            Ok(()) => assert_eq!(found, None),
            Err(StorageError::Uncertain { .. }) => {
                assert!(found.is_none() || found.as_deref() == Some(BYTES))
            }
            Err(_) => assert_eq!(found.as_deref(), Some(BYTES)),
        }
    });
}

/// Fails when only a delete that found the object syncs.
#[test]
fn an_object_reported_as_deleted_stays_gone_although_its_deleter_was_killed() {
    let object = name("a/object");
    for cut in cuts() {
        let disk = SimulatedDisk::new();
        let (killed, storage) = (open(&disk).unwrap(), open(&disk).unwrap());
        killed.create(&object, BYTES).unwrap();
        disk.stop_after(1);
        assert!(killed.delete(&object).is_err());
        disk.start_again();
        storage.delete(&object).unwrap();
        disk.cut_power(cut);
        assert_eq!(found(&disk, &object), None, "{cut:?}");
    }
}

/// What must be found of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Present,
    Absent,
    Either,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_history_of_creates_deletes_kills_and_power_cuts_keeps_every_promise(
        lives in prop::collection::vec((prop::collection::vec((any::<bool>(), 0..4usize), 0..6), 0..40u64, any::<Option<u64>>()), 1..6)
    ) {
        let names = ["a/1", "a/b/2", "a/b/3", "4"].map(name);
        let mut expected = [Expected::Absent; 4];
        let disk = SimulatedDisk::new();
        for (calls, steps, cut) in lives {
            disk.stop_after(steps);
            for (create, index) in calls {
                // Opened for each call, or the directories of all names would soon be durable.
                let Ok(storage) = open(&disk) else { break };
                let (target, mark) = (&names[index], &mut expected[index]);
                let result = if create { storage.create(target, BYTES) } else { storage.delete(target) };
                *mark = match result {
                    Ok(()) if create => Expected::Present,
                    Ok(()) => Expected::Absent,
                    Err(StorageError::AlreadyExists { .. }) => {
                        prop_assert_ne!(*mark, Expected::Absent);
                        Expected::Present
                    }
                    Err(StorageError::Uncertain { .. }) => Expected::Either,
                    Err(_) => *mark,
                };
            }
            match cut {
                Some(seed) => disk.cut_power(PowerCut::LosesSome { seed }),
                None => disk.cut_power(PowerCut::LosesAll),
            }
            for (name, mark) in names.iter().zip(&mut expected) {
                let found = found(&disk, name);
                prop_assert!(found.is_none() || found.as_deref() == Some(BYTES));
                let now = if found.is_some() { Expected::Present } else { Expected::Absent };
                prop_assert!(*mark == Expected::Either || *mark == now, "{} is {:?}, not {:?}", name, now, mark);
                *mark = now;
            }
        }
    }
}
