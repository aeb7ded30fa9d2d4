//! The bytes of a manifest: an old file still opens, a damaged one never passes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use millpond_checkpoint::format::{VERSION, decode, encode};
use millpond_checkpoint::{
    Blob, CheckpointError, DataObject, KeyedStateInfo, Manifest, ManifestKind, Names, OperatorManifest, RunRef, Stated,
    Writer, WriterId,
};
use millpond_core::{Attempt, Epoch, ErrorKind, KeyGroupRange, SubtaskIndex};
use millpond_storage::ObjectName;

const GOLDEN: &[u8] = include_bytes!("data/manifest-1");

fn name() -> ObjectName {
    Names::new("flight delays").unwrap().manifest(9)
}

fn example() -> Manifest {
    let names = Names::new("flight delays").unwrap();
    let data = |writer, counter| DataObject {
        operator: "per carrier".to_owned(),
        attempt: Attempt(2),
        writer,
        epoch: Epoch(41),
        counter,
    };
    let run = |writer, groups, level| RunRef {
        object: names.run(&data(writer, 0)).unwrap(),
        bytes: 1_000,
        raw_bytes: 4_000,
        rows: 100,
        tombstones: 3,
        groups,
        checksum: 0xdead_beef,
        epoch: Epoch(41),
        level,
    };
    let subtask = Writer::Subtask(SubtaskIndex(1));
    Manifest {
        millpond_version: "0.1.0".to_owned(),
        sequence: 9,
        retained_from: 5,
        attempt: Attempt(2),
        writer: WriterId(0x1234_5678_9abc_def0),
        kind: ManifestKind::Checkpoint,
        epoch: Epoch(41),
        created_ms: 1_700_000_000_000,
        duration_ms: 250,
        operators: vec![OperatorManifest {
            name: "per carrier".to_owned(),
            parallelism: 2,
            states: vec![KeyedStateInfo { name: "delays".to_owned(), description: "map<str,i64>".to_owned() }],
            runs: vec![
                run(Writer::Compaction(7), KeyGroupRange::new(0, 1_024), 1),
                run(subtask, KeyGroupRange::new(512, 1_024), 0),
            ],
            subtasks: vec![
                Some(Blob::Inline(vec![0, 127, 255])),
                Some(Blob::Object {
                    object: names.blob(&data(subtask, 1)).unwrap(),
                    bytes: 30_000,
                    checksum: 1,
                    hash: None,
                }),
            ],
        }],
        ..Manifest::empty("flight delays", 1_024)
    }
}

#[test]
fn the_golden_file_of_version_1_opens_and_is_what_is_written() {
    assert_eq!(decode(&name(), GOLDEN).unwrap(), example());
    assert_eq!(String::from_utf8_lossy(&encode(&example()).unwrap()), String::from_utf8_lossy(GOLDEN));
}

#[test]
fn every_changed_byte_and_every_cut_is_noticed_and_names_the_object() {
    for position in 0..GOLDEN.len() {
        for change in [1, 0x20, 0x80] {
            let mut bytes = GOLDEN.to_vec();
            bytes[position] ^= change;
            let error = decode(&name(), &bytes).expect_err("a changed byte passed");
            assert!(error.to_string().contains("flight+delays/manifests/00000000000000000009"), "{error}");
        }
        assert_eq!(decode(&name(), &GOLDEN[..position]).unwrap_err().kind(), ErrorKind::Corrupt, "cut at {position}");
    }
    let longer = [GOLDEN, b" "].concat();
    assert!(matches!(decode(&name(), &longer), Err(CheckpointError::Damaged { .. })));
}

#[test]
fn a_newer_version_is_refused_before_anything_else_is_looked_at() {
    let error = decode(&name(), b"millpond-manifest 2 whatever comes\n{").unwrap_err();
    let expected = VERSION + 1;
    assert!(matches!(error, CheckpointError::UnsupportedVersion { found, .. } if found == expected), "{error}");
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[test]
fn an_impossible_manifest_is_not_written() {
    let mut wide = example();
    wide.operators[0].runs[0].groups.end = 2_000;
    let mut doubled = example();
    doubled.operators[0].runs.swap_remove(1);
    let again = doubled.operators[0].runs[0].clone();
    doubled.operators[0].runs.push(again);
    let mut short = example();
    short.operators[0].subtasks.pop();
    for manifest in [wide, doubled, short, Manifest { retained_from: 10, ..example() }] {
        assert_eq!(encode(&manifest).unwrap_err().kind(), ErrorKind::Bug);
    }
}

#[test]
fn sizes_and_objects_are_those_of_runs_and_blobs() {
    assert_eq!(example().state_bytes(), 1_000 + 1_000 + 3 + 30_000);
    assert_eq!(example().objects().count(), 3);
}

#[test]
fn what_a_manifest_states_of_an_object_is_found_wrong_by_length_by_checksum_and_by_hash() {
    let bytes = b"some rows";
    let checksum = millpond_core::codec::checksum(bytes);
    let stated = |bytes, checksum, hash| Stated { bytes, checksum, hash };
    assert_eq!(stated(9, checksum, None).check(bytes), Ok(()));
    let other = stated(9, checksum ^ 1, None).check(bytes).unwrap_err();
    assert!(other.contains("checksum"), "{other}");
    let longer = stated(10, checksum, None).check(bytes).unwrap_err();
    assert!(longer.contains("it has 9 bytes") && longer.contains("the manifest says 10"), "{longer}");
    let hashed = stated(9, checksum, Some(1)).check(bytes).unwrap_err();
    assert!(hashed.contains("hash"), "{hashed}");
}
