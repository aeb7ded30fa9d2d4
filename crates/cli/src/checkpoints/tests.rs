use millpond_checkpoint::{ManifestKind, OperatorManifest, RunRef, WriterId, format};
use millpond_core::{Attempt, Epoch, KeyGroupRange};
use millpond_storage::MemoryStorage;

use super::*;

fn run(object: &str, epoch: u64, bytes: u64) -> RunRef {
    RunRef {
        object: ObjectName::new(object).unwrap(),
        bytes,
        raw_bytes: bytes,
        rows: 1,
        tombstones: 0,
        groups: KeyGroupRange::new(0, 8),
        checksum: 0,
        epoch: Epoch(epoch),
        level: 0,
    }
}

fn manifest(sequence: u64, epoch: u64, kind: ManifestKind, runs: Vec<RunRef>) -> Manifest {
    let subtasks = vec![Some(Blob::Inline(vec![0; 5])), None];
    let operator = OperatorManifest { name: "words".to_owned(), parallelism: 2, states: Vec::new(), runs, subtasks };
    Manifest {
        sequence,
        attempt: Attempt(2),
        writer: WriterId(9),
        kind,
        epoch: Epoch(epoch),
        created_ms: 951_782_400_000,
        duration_ms: 230,
        operators: vec![operator],
        ..Manifest::empty("wordcount", 8)
    }
}

/// A start, two checkpoints, and a damaged manifest between them.
fn history() -> History<MemoryStorage> {
    let history = History::new(MemoryStorage::new(), "wordcount").unwrap();
    let first = run("wordcount/runs/words/1", 1, 2_000);
    let second = run("wordcount/runs/words/2", 2, 30);
    let manifests = [
        manifest(1, 0, ManifestKind::Fence, Vec::new()),
        manifest(2, 1, ManifestKind::Checkpoint, vec![first.clone()]),
        manifest(4, 2, ManifestKind::Checkpoint, vec![first, second]),
    ];
    for manifest in manifests {
        let bytes = format::encode(&manifest).unwrap();
        history.storage().create(&history.names().manifest(manifest.sequence), &bytes).unwrap();
    }
    history.storage().create(&history.names().manifest(3), b"rubbish").unwrap();
    for (object, bytes) in [("wordcount/runs/words/1", 2_000), ("wordcount/runs/words/2", 30)] {
        history.storage().create(&ObjectName::new(object).unwrap(), &vec![0; bytes]).unwrap();
    }
    history
}

#[test]
fn the_list_shows_checkpoints_and_damaged_manifests_but_no_starts() {
    let text = to_text("wordcount", &rows(&history()).unwrap());
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "EPOCH  ATTEMPT           TIME (UTC)   TOTAL   ADDED  DURATION  OPERATORS (RUNS)");
    assert_eq!(lines[1], "    1        2  2000-02-29 00:00:00  2.0 kB  2.0 kB    230 ms  words (1)");
    assert!(
        lines[2].starts_with("damaged: manifest \"wordcount/manifests/00000000000000000003\" is damaged"),
        "{text}"
    );
    assert_eq!(lines[3], "    2        2  2000-02-29 00:00:00  2.0 kB    35 B    230 ms  words (2)");
    assert_eq!(lines.len(), 4);
}

#[test]
fn checkpoints_whose_runs_are_missing_or_cut_are_marked() {
    let history = history();
    let second = ObjectName::new("wordcount/runs/words/2").unwrap();
    for _ in 0..2 {
        history.storage().delete(&second).unwrap();
        let text = to_text("wordcount", &rows(&history).unwrap());
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].ends_with("words (1)"), "{text}");
        assert!(lines[3].ends_with("[damaged: 1 objects missing or cut, as wordcount/runs/words/2]"), "{text}");
        history.storage().create(&second, b"cut").unwrap();
    }
}

#[test]
fn without_a_manifest_before_it_a_checkpoint_adds_what_bears_its_epoch() {
    let all = vec![run("wordcount/runs/words/1", 1, 2_000), run("wordcount/runs/words/2", 2, 30)];
    assert_eq!(added_bytes(&manifest(4, 2, ManifestKind::Checkpoint, all), None), 35);
}

#[test]
fn the_json_list_holds_the_same_numbers() {
    let json: serde_json::Value = serde_json::from_str(&to_json(&rows(&history()).unwrap())).unwrap();
    assert_eq!(json[2]["checkpoint"]["epoch"], 2);
    assert_eq!(json[2]["checkpoint"]["total_bytes"], 2_035);
    assert_eq!(json[2]["checkpoint"]["operators"][0]["runs"], 2);
    assert!(json[1]["damaged"].as_str().unwrap().contains("is damaged"));
}

#[test]
fn a_job_without_checkpoints_says_so() {
    let history = History::new(MemoryStorage::new(), "wordcount").unwrap();
    assert_eq!(to_text("wordcount", &rows(&history).unwrap()), "job \"wordcount\" has no checkpoints\n");
}
