//! The program `millpond` as users meet it: processes of its own, over checkpoints that no job is needed for.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::SystemTime;

use millpond_checkpoint::{DataObject, Manifest, Names, Writer};
use millpond_core::{Attempt, Epoch, MaxParallelism, SubtaskIndex};
use millpond_state_reader::StateWriter;
use millpond_storage::{LocalStorage, Storage};
use serde_json::{Value, json};

const JOB: &str = "flight delays";

/// A checkpoint of `JOB` in `directory/checkpoints`: three counts, and a list that does not fit the manifest.
fn checkpoint(directory: &Path, counts: [(&str, u64); 3]) -> Manifest {
    let storage: Arc<dyn Storage> = Arc::new(LocalStorage::open(directory.join("checkpoints")).unwrap());
    let mut writer = StateWriter::create(storage, JOB, MaxParallelism::new(8).unwrap()).unwrap();
    writer.values("counts", "count", counts.map(|(key, count)| Ok((key.to_owned(), count)))).unwrap();
    writer
        .operator_state("source", |states| {
            let positions = states.list::<u64>("positions")?;
            positions.add_all(states, 0..10_000)
        })
        .unwrap();
    writer.finish(0).unwrap()
}

fn standard(directory: &Path) -> Manifest {
    checkpoint(directory, [("be", 2), ("not", 1), ("to", 2)])
}

fn millpond(directory: &Path, arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millpond"));
    command.args(arguments.split_whitespace()).current_dir(directory).env_remove("MILLPOND_CONFIG");
    command.output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Standard output of a command that succeeds.
fn says(directory: &Path, arguments: &str) -> String {
    let output = millpond(directory, arguments);
    assert!(output.status.success(), "{arguments}: {}", stderr(&output));
    stdout(&output)
}

/// Exit code, standard output and standard error of a command that fails.
fn fails(directory: &Path, arguments: &str) -> (i32, String, String) {
    let output = millpond(directory, arguments);
    assert!(!output.status.success(), "{arguments}: {}", stdout(&output));
    (output.status.code().unwrap(), stdout(&output), stderr(&output))
}

fn objects(directory: &Path, manifest: &Manifest) -> Vec<PathBuf> {
    manifest.objects().map(|object| directory.join("checkpoints").join(object.as_str())).collect()
}

/// All files and directories below, with their contents and times of change.
fn tree(directory: &Path) -> BTreeMap<PathBuf, (SystemTime, Option<Vec<u8>>)> {
    let mut tree = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    while let Some(path) = open.pop() {
        let data = fs::metadata(&path).unwrap();
        let content = data.is_file().then(|| fs::read(&path).unwrap());
        if data.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        tree.insert(path, (data.modified().unwrap(), content));
    }
    tree
}

#[test]
fn checkpoints_are_listed_verified_and_checked_without_naming_the_only_job() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    standard(at);
    for command in ["checkpoints --json", "checkpoints list --json"] {
        let listed: Value =
            serde_json::from_str(&says(at, &format!("{command} --checkpoint-dir checkpoints"))).unwrap();
        assert_eq!(listed[0]["checkpoint"]["epoch"], 1, "{command}: {listed}");
        assert_eq!(listed[0]["checkpoint"]["missing"].as_array().unwrap().len(), 0, "{command}: {listed}");
    }
    let verified = says(at, "checkpoints verify --checkpoint-dir checkpoints");
    assert!(verified.starts_with("1 manifests: all is well (2 objects"), "{verified}");
    let verified = says(at, "--checkpoint-dir checkpoints checkpoints verify --epoch 1");
    assert!(verified.starts_with("epoch 1: all is well"), "{verified}");
    let checked = says(at, "checkpoints fsck --checkpoint-dir checkpoints");
    assert_eq!(checked, "1 manifests, 0 faults, 0 orphans (0 B)\n");
    for (command, objects) in [("verify", 2), ("verify --epoch 1", 2), ("fsck", 0)] {
        let said = says(at, &format!("checkpoints {command} --json --checkpoint-dir checkpoints"));
        let said: Value = serde_json::from_str(&said).unwrap();
        assert_eq!((&said["manifests"], &said["objects"]), (&1.into(), &objects.into()), "{command}: {said}");
        assert_eq!((&said["faults"], &said["orphans"]), (&json!([]), &json!([])), "{command}: {said}");
    }
    let (code, _, complaint) = fails(at, "checkpoints verify --epoch 7 --checkpoint-dir checkpoints");
    assert_eq!(code, 2, "{complaint}");
    let (code, _, complaint) = fails(at, "checkpoints --checkpoint-dir nowhere");
    assert!(code == 2 && complaint.contains("checkpoint directory nowhere does not exist"), "{complaint}");
}

#[test]
fn damage_is_named_and_ends_with_exit_code_4() {
    for cut in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let manifest = standard(at);
        for file in objects(at, &manifest) {
            let whole = fs::read(&file).unwrap();
            let mut damaged = whole.clone();
            match cut {
                true => damaged.truncate(whole.len() / 2),
                false => damaged[whole.len() / 2] ^= 0x40,
            }
            fs::write(&file, damaged).unwrap();
            let name = file.strip_prefix(at.join("checkpoints")).unwrap().to_str().unwrap().to_owned();
            let (code, found, _) = fails(at, "checkpoints verify --checkpoint-dir checkpoints");
            assert!(code == 4 && found.contains(&name), "{found}");
            let (code, found, _) = fails(at, "checkpoints verify --json --checkpoint-dir checkpoints");
            let found: Value = serde_json::from_str(&found).unwrap();
            assert!(code == 4 && found["faults"][0]["object"] == name.as_str(), "{found}");
            if cut {
                let (code, found, _) = fails(at, "checkpoints fsck --checkpoint-dir checkpoints");
                assert!(code == 4 && found.contains(&name), "{found}");
            }
            fs::write(&file, whole).unwrap();
        }
        says(at, "checkpoints verify --checkpoint-dir checkpoints");
    }
}

#[test]
fn orphans_are_found_and_deleted_only_when_asked() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let manifest = standard(at);
    let orphan = DataObject {
        operator: "counts".to_owned(),
        attempt: Attempt(0),
        writer: Writer::Subtask(SubtaskIndex(0)),
        epoch: Epoch(0),
        counter: 0,
    };
    let orphan = Names::new(JOB).unwrap().run(&orphan).unwrap();
    LocalStorage::open(at.join("checkpoints")).unwrap().create(&orphan, b"left").unwrap();
    let file = at.join("checkpoints").join(orphan.as_str());
    let found = says(at, "checkpoints fsck --checkpoint-dir checkpoints");
    assert!(found.contains(&format!("orphan: {orphan}")) && file.exists(), "{found}");
    let found: Value = serde_json::from_str(&says(at, "checkpoints fsck --json --checkpoint-dir checkpoints")).unwrap();
    assert_eq!(found["orphans"], json!([{"object": orphan.as_str(), "bytes": 4}]), "{found}");
    assert_eq!(found["deleted"], false);
    let found = says(at, "checkpoints fsck --delete-orphans --checkpoint-dir checkpoints");
    assert!(found.contains("deleted") && !file.exists(), "{found}");
    assert!(objects(at, &manifest).iter().all(|file| file.exists()));
    says(at, "checkpoints verify --checkpoint-dir checkpoints");
}

#[test]
fn savepoints_are_made_listed_verified_and_disposed_of() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    standard(at);
    let made = says(at, "savepoint create --to shelf/one --checkpoint-dir checkpoints");
    assert!(made.starts_with("savepoint of epoch 1 in "), "{made}");
    // A savepoint can be copied like a checkpoint.
    says(at, "savepoint create --from shelf/one --to shelf/two");
    let listed: Value = serde_json::from_str(&says(at, "savepoint list shelf --json")).unwrap();
    let paths: Vec<&str> = listed.as_array().unwrap().iter().map(|row| row["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["shelf/one", "shelf/two"]);
    assert_eq!(listed[0]["savepoint"]["job"], JOB);
    assert!(says(at, "savepoint verify shelf/two").starts_with("savepoint of epoch 1: all is well"));
    says(at, "savepoint dispose shelf/one");
    assert!(!at.join("shelf/one").exists() && at.join("shelf/two").exists());
    let (code, _, complaint) = fails(at, "savepoint dispose shelf/one");
    assert!(code == 2 && !at.join("shelf/one").exists(), "{complaint}");
    let (code, _, complaint) = fails(at, "savepoint dispose checkpoints");
    assert!(code == 2 && at.join("checkpoints").exists(), "{complaint}");
}

#[test]
fn state_is_read_from_whatever_holds_it() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    standard(at);
    says(at, "savepoint create --to saved --checkpoint-dir checkpoints");
    let manifest = format!("{}/00000000000000000001", "checkpoints/flight+delays/manifests");
    let from = ["saved", "saved/savepoint", "checkpoints", &manifest];
    let shown: Vec<String> =
        from.iter().map(|from| says(at, &format!("state scan counts count --from {from}"))).collect();
    assert_eq!(shown[0].lines().count(), 3, "{}", shown[0]);
    assert!(shown.iter().all(|other| *other == shown[0]), "{shown:?}");
    assert_eq!(says(at, "state scan counts count --checkpoint-dir checkpoints"), shown[0]);
    let found: Value = serde_json::from_str(&says(at, "state get counts count be --from saved")).unwrap();
    assert_eq!(found["value"], 2);
    let positions = says(at, "state count source positions --from saved");
    assert!(positions.contains("\"entries\":10000"), "{positions}");
    for (from, words) in [("shelf", "cannot find checkpoint shelf"), ("saved/runs", "names no checkpoint")] {
        let (code, _, complaint) = fails(at, &format!("state ls --from {from}"));
        assert!(code == 2 && complaint.contains(words), "{complaint}");
    }
}

#[test]
fn a_savepoint_is_compared_with_a_checkpoint_of_another_directory() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    standard(at);
    says(at, "savepoint create --to saved --checkpoint-dir checkpoints");
    checkpoint(&at.join("other"), [("be", 2), ("not", 3), ("or", 1)]);
    let lines = says(at, "state diff saved other/checkpoints counts");
    let changes: Vec<(String, String)> = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|line| (line["change"].as_str().unwrap().to_owned(), line["key"].as_str().unwrap().to_owned()))
        .collect();
    let mut sorted = changes.clone();
    sorted.sort();
    let expected = [("added", "or"), ("changed", "not"), ("removed", "to")];
    assert_eq!(sorted, expected.map(|(change, key)| (change.to_owned(), key.to_owned())));
    assert_eq!(says(at, "state diff saved checkpoints"), "");
}

#[test]
fn looking_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    standard(at);
    says(at, "savepoint create --to saved --checkpoint-dir checkpoints");
    // What a dead writer has left is for the job to remove.
    fs::create_dir_all(at.join("checkpoints/.tmp")).unwrap();
    fs::write(at.join("checkpoints/.tmp/left"), "half").unwrap();
    let before = tree(at);
    for command in [
        "checkpoints",
        "checkpoints verify",
        "checkpoints fsck",
        "savepoint list .",
        "savepoint verify saved",
        "state ls",
        "state scan counts count --from saved",
        "state diff saved latest",
        "state top",
    ] {
        says(at, &format!("{command} --checkpoint-dir checkpoints"));
    }
    assert!(tree(at) == before);
}
