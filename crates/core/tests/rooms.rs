//! The map of rooms: which crate may use which. A new edge is a decision, not an accident.

#![expect(clippy::unwrap_used, reason = "outside of test functions, but only called by them")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Who may use whom in code that ships. Development dependencies are free.
const ALLOWED: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("derive", &[]),
    ("storage", &["core"]),
    ("storage-object", &["core", "storage"]),
    ("runs", &["core", "storage"]),
    ("state", &["core", "runs"]),
    ("state-rocksdb", &["core", "runs", "state"]),
    ("checkpoint", &["core", "storage"]),
    ("state-reader", &["core", "storage", "runs", "state", "checkpoint"]),
    ("dataflow", &["core", "runs", "state"]),
    ("operators", &["core", "state", "dataflow"]),
    ("connectors", &["core", "dataflow", "operators"]),
    ("connectors-kafka", &["core", "dataflow", "operators", "connectors"]),
    ("connectors-postgres", &["core", "dataflow", "operators"]),
    ("runtime", &["core", "storage", "runs", "state", "checkpoint", "dataflow"]),
    ("socket", &["core"]),
    ("cluster", &["core", "socket"]),
    ("engine", &["core", "storage", "checkpoint", "dataflow", "runtime", "socket"]),
    ("jobmanager", &["core", "storage", "runs", "state", "checkpoint", "dataflow", "runtime", "cluster", "engine"]),
    ("cli", &["core", "storage", "checkpoint", "state-reader", "dataflow", "runtime", "jobmanager"]),
    ("tool", &["cli", "storage-object"]),
    ("sim", &["core", "storage", "runs", "state", "checkpoint", "dataflow", "operators", "runtime"]),
];

/// Crates that put rooms together and may use all of them.
const ASSEMBLIES: &[&str] = &["millpond", "nexmark", "bench", "fuzz"];

fn crates() -> BTreeMap<String, BTreeSet<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folders = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    let manifests = folders.filter(|folder| folder.join("Cargo.toml").exists());
    manifests
        .map(|folder| {
            let name = folder.file_name().unwrap().to_string_lossy().into_owned();
            (name, uses(&std::fs::read_to_string(folder.join("Cargo.toml")).unwrap()))
        })
        .collect()
}

/// The Millpond crates in the `[dependencies]` section.
fn uses(manifest: &str) -> BTreeSet<String> {
    let mut inside = false;
    let mut used = BTreeSet::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line.trim() == "[dependencies]";
        } else if inside && let Some(rest) = line.strip_prefix("millpond-") {
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '-').collect();
            used.insert(name);
        }
    }
    used
}

#[test]
fn every_room_uses_only_the_rooms_it_may() {
    for (name, used) in crates() {
        if ASSEMBLIES.contains(&name.as_str()) {
            continue;
        }
        let allowed = ALLOWED.iter().find(|(room, _)| *room == name);
        let (_, allowed) = allowed.unwrap_or_else(|| panic!("room {name} is not on the map"));
        for other in used {
            assert!(allowed.contains(&other.as_str()), "{name} must not use {other}");
        }
    }
}

/// Crates with heavy dependencies: members that are built only when asked for.
const HEAVY: &[&str] = &["connectors-kafka", "connectors-postgres", "state-rocksdb", "storage-object"];

#[test]
fn every_crate_is_built_by_default_or_known_to_be_heavy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let workspace = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let test = std::fs::read_to_string(root.join("scripts/test")).unwrap();
    for (name, _) in crates() {
        let default = workspace.contains(&format!("    \"crates/{name}\",\n"));
        let heavy = HEAVY.contains(&name.as_str());
        assert!(default != heavy, "{name} belongs among default-members or among the heavy crates");
        assert!(!heavy || test.contains(&format!("millpond-{name}")), "scripts/test does not know {name}");
    }
}

#[test]
fn only_the_engine_knows_timely() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (name, _) in crates() {
        let manifest = std::fs::read_to_string(root.join(&name).join("Cargo.toml")).unwrap();
        let knows = manifest.lines().any(|line| line.starts_with("timely"));
        assert!(!knows || name == "engine" || name == "bench", "{name} must not know timely");
    }
}
