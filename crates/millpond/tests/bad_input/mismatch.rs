//! A job that does not fit its checkpoint.

use millpond::{ErrorKind, JobSettings, StartFrom};

use crate::support::{Shape, Variant, World, assert_says, settings, words};

/// A refused start: the kind, the words, and that nothing was claimed: a job that runs elsewhere goes on.
fn check_refused(world: &World, variant: Variant, settings: JobSettings, claims: bool, parts: &[&str]) {
    let before = world.history().sequences().unwrap();
    let error = world.refused(variant, settings);
    let text = words(&error);
    assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
    assert_says(&text, parts);
    if !claims {
        assert_eq!(world.history().sequences().unwrap(), before, "claimed: {text}");
    }
}

fn dropping() -> JobSettings {
    JobSettings { allow_dropped_state: true, ..settings(2) }
}

#[test]
fn rs_11_state_of_an_operator_that_is_gone_is_refused_unless_it_may_be_dropped() {
    let world = World::stopped(Shape::Number);
    let renamed = || Variant { name: "totals", ..Variant::default() };
    check_refused(&world, renamed(), settings(2), false, &["operator \"counts\"", "which the job does not have"]);
    assert!(world.refused(renamed(), settings(2)).is_unknown_state());
    world.resumes_exactly_once(Shape::Number);

    let other = World::stopped(Shape::Number);
    other.start(renamed(), dropping()).unwrap();
    assert!(other.newest().1.operator("counts").is_none_or(|operator| operator.runs.is_empty()));
}

#[test]
fn rs_11_keyed_state_that_is_not_declared_any_more_is_refused_unless_it_may_be_dropped() {
    let world = World::stopped(Shape::NumberAndMore);
    let parts = ["operator \"counts\"", "state \"more\"", "does not declare"];
    check_refused(&world, Variant::default(), settings(2), true, &parts);
    let unkeyed = Variant { keyed: false, ..Variant::default() };
    let parts = ["operator \"counts\"", "state \"count\"", "does not declare"];
    check_refused(&world, unkeyed, settings(2), true, &parts);
    world.resumes_exactly_once(Shape::NumberAndMore);

    let other = World::stopped(Shape::NumberAndMore);
    other.start(Variant::default(), dropping()).unwrap();
}

#[test]
fn rs_11_operator_state_that_is_not_declared_any_more_is_refused_unless_it_may_be_dropped() {
    let world = World::stopped(Shape::Number);
    for ballast in [None, Some("stones")] {
        let variant = Variant { ballast, ..Variant::default() };
        let parts = ["operator \"passed on\"", "state \"ballast\"", "does not declare"];
        check_refused(&world, variant, settings(2), true, &parts);
    }
    world.resumes_exactly_once(Shape::Number);

    let other = World::stopped(Shape::Number);
    let bytes = |world: &World| world.newest().1.state_bytes();
    let before = bytes(&other);
    other.start(Variant { ballast: None, ..Variant::default() }, dropping()).unwrap();
    assert!(bytes(&other) < before / 10, "{} of {before} bytes are left", bytes(&other));
}

#[test]
fn se_state_of_another_type_is_refused_with_both_types() {
    let world = World::stopped(Shape::Number);
    for (shape, parts) in [
        (Shape::Text, ["operator \"counts\"", "state \"count\"", "cannot be read"]),
        (Shape::List, ["operator \"counts\"", "state \"count\"", "is stored as"]),
        (Shape::Pair, ["operator \"counts\"", "state \"count\"", "cannot be read"]),
    ] {
        check_refused(&world, Variant { shape, ..Variant::default() }, settings(2), true, &parts);
    }
    world.resumes_exactly_once(Shape::Number);

    let world = World::stopped(Shape::Pair);
    let variant = Variant { shape: Shape::OtherPair, ..Variant::default() };
    check_refused(&world, variant, settings(2), true, &["operator \"counts\"", "state \"count\"", "more"]);
    world.resumes_exactly_once(Shape::Pair);
}

#[test]
fn rs_06_rs_07_numbers_of_key_groups_and_workers_that_do_not_fit_are_refused() {
    let world = World::stopped(Shape::Number);
    let other = JobSettings { max_parallelism: Some(32), ..settings(2) };
    check_refused(&world, Variant::default(), other, false, &["max parallelism 16", "asks for 32"]);
    check_refused(&world, Variant::default(), settings(17), false, &["parallelism 17", "16"]);
    check_refused(&world, Variant::default(), settings(0), false, &["parallelism 0", "1..=16"]);
    let none = JobSettings { max_parallelism: Some(0), ..settings(1) };
    check_refused(&world, Variant::default(), none, false, &["max parallelism 0"]);
    let many = JobSettings { max_parallelism: Some(40_000), ..settings(1) };
    check_refused(&world, Variant::default(), many, false, &["max parallelism 40000", "32768"]);
    world.resumes_exactly_once(Shape::Number);
}

#[test]
fn rs_27_a_start_from_what_is_no_checkpoint_is_refused_by_name() {
    let world = World::stopped(Shape::Number);
    let (manifest, content) = world.newest();
    let run = content.operators.iter().find_map(|operator| operator.runs.first()).unwrap().object.clone();
    let from = |from| JobSettings { from, ..settings(2) };
    let object = |name: &str| from(StartFrom::Object(name.to_owned()));
    let refused = |settings, parts: &[&str]| check_refused(&world, Variant::default(), settings, false, parts);
    refused(from(StartFrom::Epoch(99)), &["job \"job\"", "no retained checkpoint of epoch 99"]);
    refused(object(run.as_str()), &[run.as_str(), "is no manifest of job \"job\""]);
    refused(object("other/manifests/00000000000000000001"), &["is no manifest of job \"job\""]);
    refused(object("../x"), &["object name", "is invalid"]);
    let missing = manifest.as_str().replace("0000", "9999");
    refused(object(&missing), &[&missing]);
    world.resumes_exactly_once(Shape::Number);
}

#[test]
fn rs_27_a_manifest_of_an_epoch_that_was_given_up_is_refused() {
    let world = World::stopped(Shape::Number);
    let (first, content) = world.newest();
    let epoch = content.epoch;
    let anew = JobSettings { from: StartFrom::Nothing, ..settings(2) };
    // The same epoch again, of an execution that began anew.
    world.start(Variant { name: "anew", ..Variant::default() }, anew).unwrap();
    assert_eq!(world.newest().1.epoch, epoch);
    let old = JobSettings { from: StartFrom::Object(first.to_string()), ..settings(2) };
    let parts = [first.as_str(), "that was given up"];
    check_refused(&world, Variant::default(), old, false, &parts);
}
