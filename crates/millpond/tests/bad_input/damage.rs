//! Damaged checkpoints: every object, flipped, cut off and missing.

use std::sync::Arc;

use millpond::checkpoint::Blob;
use millpond::prelude::*;
use millpond::storage::{MemoryStorage, ObjectName, Storage};
use millpond::{ErrorKind, JobSettings, StartFrom};

use crate::support::{Shape, Variant, World, assert_says, settings, words};

/// Positions spread over an object, its first and last bytes among them.
fn positions(length: usize) -> Vec<usize> {
    let mut positions: Vec<usize> = (0..16).map(|step| step * length / 16).collect();
    positions.extend([1, 2, 3, length - 1, length - 2, length - 5, length - 9, length - 17]);
    positions.sort_unstable();
    positions.dedup();
    positions
}

fn flipped(bytes: &[u8], position: usize, bit: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[position] ^= 1 << (bit % 8);
    bytes
}

/// A start on damaged bytes: refused as corrupt, naming the object.
fn check_refused(world: &World, object: &ObjectName, how: &str) {
    let error = world.refused(Variant::default(), settings(1));
    let text = words(&error);
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{how}: {text}");
    assert!(error.is_about_a_checkpoint(), "{how}: {text}");
    assert_says(&text, &[object.as_str()]);
}

/// Damages `object` in every way, restores it at the end.
fn damage(world: &World, object: &ObjectName) {
    let good = world.read(object);
    for (bit, position) in positions(good.len()).into_iter().enumerate() {
        world.storage.overwrite(object, &flipped(&good, position, bit));
        check_refused(world, object, &format!("byte {position} of {} flipped", good.len()));
    }
    for length in [0, 1, good.len() / 2, good.len() - 1] {
        world.storage.overwrite(object, &good[..length]);
        check_refused(world, object, &format!("cut off after {length} of {} bytes", good.len()));
    }
    world.storage.overwrite(object, &good);
}

#[test]
fn ck_damaged_runs_are_refused_by_name_and_nothing_is_lost() {
    let world = World::stopped(Shape::Number);
    let runs: Vec<_> = world.newest().1.operators.into_iter().flat_map(|operator| operator.runs).collect();
    assert!(!runs.is_empty());
    for run in &runs {
        damage(&world, &run.object);
        let good = world.read(&run.object);
        world.storage.delete(&run.object).unwrap();
        check_refused(&world, &run.object, "missing");
        world.storage.overwrite(&run.object, &good);
    }
    world.resumes_exactly_once(Shape::Number);
}

#[test]
fn ck_damaged_operator_state_is_refused_by_name_and_nothing_is_lost() {
    let world = World::stopped(Shape::Number);
    let (_, manifest) = world.newest();
    let blobs = manifest.operators.iter().flat_map(|operator| operator.subtasks.iter().flatten());
    let blobs: Vec<_> = blobs.filter_map(Blob::object).collect();
    assert!(!blobs.is_empty());
    for object in blobs {
        damage(&world, object);
        let good = world.read(object);
        world.storage.delete(object).unwrap();
        check_refused(&world, object, "missing");
        world.storage.overwrite(object, &good);
    }
    world.resumes_exactly_once(Shape::Number);
}

#[test]
fn ck_a_damaged_newest_manifest_is_refused_and_an_older_one_is_taken_on_demand_only() {
    let world = World::stopped(Shape::Number);
    let only = world.newest().0;
    let good = world.read(&only);
    world.storage.overwrite(&only, b"rubbish");
    let text = words(&world.refused(Variant::default(), settings(1)));
    assert_says(&text, &["newest manifest", "it has no header line", "no older one can be read"]);
    world.storage.overwrite(&only, &good);

    world.go_on_and_stop(Shape::Number);
    let (object, manifest) = world.newest();
    let manifests = world.history().sequences().unwrap();
    damage(&world, &object);
    assert_eq!(world.history().sequences().unwrap(), manifests, "a refused start claims nothing");

    let older = Epoch(manifest.epoch.0 - 1);
    let good = world.read(&object);
    let before = world.storage.snapshot();
    world.storage.overwrite(&object, &flipped(&good, good.len() / 2, 1));
    let text = words(&world.refused(Variant::default(), settings(1)));
    assert_says(&text, &[&format!("{older} is the newest that can be read")]);
    let on_demand = JobSettings { from: StartFrom::Epoch(older.0), ..settings(1) };
    let other =
        World { storage: Arc::new(MemoryStorage::from_snapshot(world.storage.snapshot())), out: Collector::new() };
    other.start(Variant::default(), on_demand).unwrap();
    world.storage.restore(before);
    world.resumes_exactly_once(Shape::Number);
}
