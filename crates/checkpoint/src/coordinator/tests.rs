//! One rule per test; ids are those of the semantics list.

use std::collections::BTreeSet;

use millpond_core::{Attempt, Epoch, KeyGroupRange, SubtaskIndex};

use super::Coordinator;
use super::protocol::*;
use crate::compaction::CompactionPolicy;
use crate::log::WriterId;
use crate::manifest::{Blob, KeyedStateInfo, Manifest, OperatorManifest, OperatorPiece, RunRef, Whole};
use crate::names::{DataObject, Names, Writer};

const QUIET: CompactionPolicy = CompactionPolicy {
    fan_in: 4,
    excess_percent: 50,
    min_bytes: u64::MAX,
    max_depth: 32,
    max_running: 0,
    min_piece_bytes: 1 << 20,
};

fn settings() -> Settings {
    Settings { tolerable_failures: 2, compaction: QUIET, ..Settings::default() }
}

fn id(index: u32) -> SubtaskId {
    SubtaskId { chain: 0, index }
}

fn fence() -> Manifest {
    Manifest { sequence: 1, attempt: Attempt(1), writer: WriterId(7), ..Manifest::empty("job", 4) }
}

fn coordinator_from(settings: Settings, fence: Manifest) -> Coordinator {
    let subtasks = BTreeSet::from([id(0), id(1)]);
    Coordinator::new(settings, Facts { subtasks, log: vec![fence], unreadable: BTreeSet::new() }).unwrap()
}

fn coordinator(settings: Settings) -> Coordinator {
    coordinator_from(settings, fence())
}

fn data(index: u32, epoch: u64) -> DataObject {
    let writer = Writer::Subtask(SubtaskIndex(index));
    DataObject { operator: "op".to_owned(), attempt: Attempt(1), writer, epoch: Epoch(epoch), counter: 0 }
}

fn run(index: u32, epoch: u64) -> RunRef {
    RunRef {
        object: Names::new("job").unwrap().run(&data(index, epoch)).unwrap(),
        bytes: 100,
        raw_bytes: 100,
        rows: 10,
        tombstones: 0,
        groups: KeyGroupRange::new(2 * index, 2 * index + 2),
        checksum: 0,
        epoch: Epoch(epoch),
        level: 0,
    }
}

fn blob(index: u32, epoch: u64) -> Blob {
    let object = Names::new("job").unwrap().blob(&data(index, epoch)).unwrap();
    Blob::Object { object, bytes: 5, checksum: 0, hash: None }
}

/// An acknowledgement of `epoch` that carries the runs of `runs`.
fn ack(index: u32, epoch: u64, runs: &[u64]) -> Event {
    let states = vec![KeyedStateInfo { name: "count".to_owned(), description: "u64".to_owned() }];
    let runs = runs.iter().map(|of| run(index, *of)).collect();
    let piece = OperatorPiece { operator: "op".to_owned(), states, runs, blob: Some(blob(index, epoch)), whole: None };
    Event::Acknowledged { subtask: id(index), epoch: Epoch(epoch), pieces: vec![piece] }
}

fn declined(index: u32, epoch: u64) -> Event {
    let reason = DeclineReason::Failed("disk full".to_owned());
    Event::Declined { subtask: id(index), epoch: Epoch(epoch), reason }
}

fn outcome(epoch: u64, outcome: PublishOutcome) -> Event {
    Event::PublishFinished { epoch: Epoch(epoch), outcome }
}

fn failed() -> PublishOutcome {
    PublishOutcome::Failed("storage is down".to_owned())
}

fn manual(coordinator: &mut Coordinator, now_ms: i64) -> Vec<Action> {
    coordinator.on(now_ms, Event::TriggerNow(Reason::Manual))
}

/// Triggers, acknowledges and publishes the next epoch; the manifest and what follows its success.
fn complete(coordinator: &mut Coordinator, runs: &[u64]) -> (Manifest, Vec<Action>) {
    let epoch = coordinator.next_epoch().0;
    manual(coordinator, 0);
    coordinator.on(0, ack(0, epoch, runs));
    let manifest = published(&coordinator.on(0, ack(1, epoch, runs)));
    (manifest, coordinator.on(0, outcome(epoch, PublishOutcome::Ok)))
}

fn published(actions: &[Action]) -> Manifest {
    match actions {
        [Action::Publish { manifest }, ..] => Manifest::clone(manifest),
        other => panic!("no publication in {other:?}"),
    }
}

fn triggered(actions: &[Action]) -> Vec<(u64, TriggerKind)> {
    let trigger = |action: &Action| match action {
        Action::Trigger { epoch, kind } => Some((epoch.0, *kind)),
        _ => None,
    };
    actions.iter().filter_map(trigger).collect()
}

fn deleted(actions: &[Action]) -> Vec<String> {
    let objects = |action: &Action| match action {
        Action::Delete { objects } => objects.iter().map(ToString::to_string).collect(),
        _ => Vec::new(),
    };
    actions.iter().flat_map(objects).collect()
}

fn runs_of(manifest: &Manifest) -> Vec<String> {
    manifest.operators[0].runs.iter().map(|run| run.object.to_string()).collect()
}

fn failure(actions: &[Action]) -> Option<&FailReason> {
    actions.iter().find_map(|action| match action {
        Action::Fail { reason } => Some(reason),
        _ => None,
    })
}

#[test]
fn ct_01_no_more_epochs_than_allowed_are_in_flight() {
    let mut coordinator = coordinator(Settings { max_concurrent: 2, ..settings() });
    assert_eq!(triggered(&manual(&mut coordinator, 0)), [(1, TriggerKind::Manual)]);
    assert_eq!(triggered(&manual(&mut coordinator, 0)), [(2, TriggerKind::Manual)]);
    assert_eq!(triggered(&manual(&mut coordinator, 0)), []);
    coordinator.on(0, ack(0, 1, &[1]));
    coordinator.on(0, ack(1, 1, &[1]));
    assert_eq!(coordinator.in_flight(), [Epoch(1), Epoch(2)], "what is being published is in flight");
    assert_eq!(triggered(&coordinator.on(0, outcome(1, PublishOutcome::Ok))), [(3, TriggerKind::Manual)]);
}

#[test]
fn ct_02_the_weightier_request_goes_first() {
    let mut coordinator = coordinator(settings());
    manual(&mut coordinator, 0);
    coordinator.on(0, Event::TriggerNow(Reason::Stop));
    coordinator.on(0, Event::TriggerNow(Reason::Manual));
    assert_eq!(triggered(&coordinator.on(0, declined(0, 1))), [(2, TriggerKind::Stop)]);
}

#[test]
fn ct_03_the_pause_holds_back_periodic_triggers_only() {
    let mut coordinator = coordinator(Settings { interval_ms: Some(10), min_pause_ms: 100, ..settings() });
    assert_eq!(triggered(&coordinator.on(0, Event::Tick)), [], "the interval begins with the attempt");
    assert_eq!(triggered(&coordinator.on(10, Event::Tick)), [(1, TriggerKind::Periodic)]);
    coordinator.on(20, ack(0, 1, &[1]));
    coordinator.on(20, ack(1, 1, &[1]));
    coordinator.on(20, outcome(1, PublishOutcome::Ok));
    assert_eq!(triggered(&coordinator.on(119, Event::Tick)), []);
    assert_eq!(triggered(&coordinator.on(120, Event::Tick)), [(2, TriggerKind::Periodic)]);
    coordinator.on(120, ack(0, 2, &[2]));
    coordinator.on(120, ack(1, 2, &[2]));
    coordinator.on(120, outcome(2, PublishOutcome::Ok));
    assert_eq!(triggered(&manual(&mut coordinator, 121)), [(3, TriggerKind::Manual)]);
}

#[test]
fn ct_07_epochs_are_consecutive_failed_ones_included_and_go_on_after_a_restore() {
    let mut coordinator = coordinator_from(settings(), Manifest { epoch: Epoch(41), ..fence() });
    assert_eq!(triggered(&manual(&mut coordinator, 0)), [(42, TriggerKind::Manual)]);
    coordinator.on(0, declined(0, 42));
    assert_eq!(triggered(&manual(&mut coordinator, 0)), [(43, TriggerKind::Manual)]);
}

#[test]
fn ct_08_doubled_unknown_and_late_acknowledgements_are_harmless() {
    let mut coordinator = coordinator(settings());
    manual(&mut coordinator, 0);
    assert_eq!(coordinator.on(0, ack(0, 1, &[1])), []);
    assert_eq!(coordinator.on(0, ack(0, 1, &[1])), []);
    assert_eq!(coordinator.on(0, ack(5, 1, &[1])), []);
    assert_eq!(coordinator.on(0, ack(1, 9, &[9])), []);
    let manifest = published(&coordinator.on(0, ack(1, 1, &[1])));
    assert_eq!(runs_of(&manifest), [run(0, 1).object.to_string(), run(1, 1).object.to_string()]);
    coordinator.on(0, outcome(1, PublishOutcome::Ok));
    assert_eq!(coordinator.on(0, ack(1, 1, &[1])), [], "a late one of a completed epoch");
    let (_, actions) = complete(&mut coordinator, &[2]);
    assert!(deleted(&actions).iter().all(|name| !name.contains("s00001-e0000000001")), "{actions:?}");
}

#[test]
fn ct_09_an_epoch_that_takes_too_long_is_aborted_and_late_parts_are_discarded() {
    let mut coordinator = coordinator(Settings { timeout_ms: 100, ..settings() });
    manual(&mut coordinator, 0);
    coordinator.on(50, ack(0, 1, &[1]));
    assert_eq!(coordinator.on(99, Event::Tick), []);
    let reason = AbortReason::Expired { timeout_ms: 100, missing: 1 };
    assert_eq!(coordinator.on(100, Event::Tick), [Action::NotifyAborted { epoch: Epoch(1), reason }]);
    assert_eq!(coordinator.on(101, ack(1, 1, &[1])), []);
    // The blobs of the aborted epoch go once a newer manifest is durable; its runs live on.
    coordinator.on(101, Event::TriggerNow(Reason::Manual));
    coordinator.on(101, ack(0, 2, &[1, 2]));
    let manifest = published(&coordinator.on(101, ack(1, 2, &[1, 2])));
    assert_eq!(runs_of(&manifest).len(), 4);
    let gone = deleted(&coordinator.on(101, outcome(2, PublishOutcome::Ok)));
    let blobs: Vec<String> = (0..2).map(|i| blob(i, 1).object().unwrap().to_string()).collect();
    assert_eq!(gone, blobs);
}

#[test]
fn ct_11_a_completed_epoch_is_stored_then_subsumes_older_ones_then_is_notified() {
    let mut coordinator = coordinator(Settings { max_concurrent: 2, ..settings() });
    manual(&mut coordinator, 0);
    manual(&mut coordinator, 0);
    coordinator.on(0, ack(0, 1, &[1]));
    coordinator.on(0, ack(0, 2, &[1, 2]));
    let manifest = published(&coordinator.on(0, ack(1, 2, &[1, 2])));
    assert_eq!(runs_of(&manifest).len(), 4, "the acknowledgement of 2 carries the runs of 1");
    let actions = coordinator.on(0, outcome(2, PublishOutcome::Ok));
    let reason = AbortReason::Subsumed(Epoch(2));
    assert_eq!(actions[0], Action::NotifyAborted { epoch: Epoch(1), reason });
    assert_eq!(actions[1], Action::NotifyCompleted { epoch: Epoch(2) });
}

#[test]
fn ct_14_a_certain_failure_aborts_and_an_unknown_one_is_asked_again() {
    let mut coordinator = coordinator(Settings { publish_retry_ms: 10, timeout_ms: 1_000, ..settings() });
    manual(&mut coordinator, 0);
    coordinator.on(0, ack(0, 1, &[1]));
    coordinator.on(0, ack(1, 1, &[1]));
    let actions = coordinator.on(0, outcome(1, failed()));
    assert!(matches!(actions[..], [Action::NotifyAborted { epoch: Epoch(1), .. }]), "{actions:?}");

    manual(&mut coordinator, 0);
    coordinator.on(0, ack(0, 2, &[1, 2]));
    let first = published(&coordinator.on(0, ack(1, 2, &[1, 2])));
    assert_eq!(coordinator.on(0, outcome(2, PublishOutcome::Uncertain("timed out".to_owned()))), []);
    assert_eq!(coordinator.on(9, Event::Tick), []);
    assert_eq!(published(&coordinator.on(10, Event::Tick)), first, "the very same manifest");
    assert_eq!(coordinator.on(11, outcome(2, failed())), [], "a doubt stays a doubt");
    assert_eq!(published(&coordinator.on(21, Event::Tick)), first);
    let unresolved = FailReason::PublishUnresolved { epoch: Epoch(2), waited_ms: 1_000 };
    assert_eq!(failure(&coordinator.on(1_000, Event::Tick)), Some(&unresolved));
}

#[test]
fn ct_15_one_decline_aborts_the_epoch_and_further_ones_are_ignored() {
    let mut coordinator = coordinator(settings());
    manual(&mut coordinator, 0);
    coordinator.on(0, ack(0, 1, &[1]));
    assert_eq!(coordinator.on(0, declined(1, 1)).len(), 1);
    assert_eq!(coordinator.on(0, declined(0, 1)), []);
    assert_eq!(coordinator.on(0, ack(1, 1, &[1])), []);
}

#[test]
fn ct_17_shutdown_aborts_all_pending_and_decides_nothing_more() {
    let mut coordinator = coordinator(Settings { max_concurrent: 2, ..settings() });
    manual(&mut coordinator, 0);
    manual(&mut coordinator, 0);
    assert_eq!(coordinator.on(0, Event::Shutdown).len(), 2);
    assert_eq!(manual(&mut coordinator, 0), []);
}

#[test]
fn cf_01_more_consecutive_failures_than_tolerated_fail_the_job_and_a_success_resets_them() {
    let mut coordinator = coordinator(settings());
    for epoch in [1, 2] {
        manual(&mut coordinator, 0);
        assert_eq!(failure(&coordinator.on(0, declined(0, epoch))), None);
    }
    complete(&mut coordinator, &[1, 2, 3]);
    for epoch in [4, 5] {
        manual(&mut coordinator, 0);
        assert_eq!(failure(&coordinator.on(0, declined(0, epoch))), None);
    }
    manual(&mut coordinator, 0);
    let actions = coordinator.on(0, declined(0, 6));
    assert!(matches!(failure(&actions), Some(FailReason::TooManyFailures { failures: 3, .. })), "{actions:?}");
    assert!(coordinator.is_ended());
}

#[test]
fn cf_02_refusals_without_a_failure_are_not_counted() {
    let mut coordinator = coordinator(Settings { tolerable_failures: 0, ..settings() });
    for epoch in [1, 2] {
        manual(&mut coordinator, 0);
        let reason = DeclineReason::NotReady;
        let actions = coordinator.on(0, Event::Declined { subtask: id(0), epoch: Epoch(epoch), reason });
        assert_eq!(failure(&actions), None);
    }
}

#[test]
fn cf_04_a_stop_whose_epoch_fails_fails_the_job_at_once() {
    let mut coordinator = coordinator(Settings { tolerable_failures: 9, ..settings() });
    assert_eq!(triggered(&coordinator.on(0, Event::TriggerNow(Reason::Stop))), [(1, TriggerKind::Stop)]);
    let actions = coordinator.on(0, declined(0, 1));
    assert!(matches!(failure(&actions), Some(FailReason::StopFailed { .. })), "{actions:?}");
}

#[test]
fn cr_01_the_newest_n_are_kept_and_what_only_older_ones_name_is_deleted() {
    let mut coordinator = coordinator(Settings { retained: 2, ..settings() });
    let (first, actions) = complete(&mut coordinator, &[1]);
    assert_eq!((first.sequence, first.retained_from, deleted(&actions).len()), (2, 1, 0));
    let (second, actions) = complete(&mut coordinator, &[2]);
    assert_eq!(second.retained_from, 2);
    assert_eq!(deleted(&actions), ["job/manifests/00000000000000000001"]);
    let (third, actions) = complete(&mut coordinator, &[3]);
    assert_eq!((third.retained_from, runs_of(&third).len()), (3, 6));
    let blobs = (0..2).map(|i| blob(i, 1).object().unwrap().to_string());
    let expected: Vec<String> = ["job/manifests/00000000000000000002".to_owned()].into_iter().chain(blobs).collect();
    assert_eq!(deleted(&actions), expected);
}

#[test]
fn cr_06_no_periodic_trigger_while_too_much_is_being_deleted() {
    let periodic = Settings { interval_ms: Some(10), max_cleanups: 0, retained: 1, ..settings() };
    let mut coordinator = coordinator(periodic);
    complete(&mut coordinator, &[1]);
    assert_eq!(triggered(&coordinator.on(50, Event::Tick)), []);
    assert_eq!(triggered(&coordinator.on(50, Event::CleanupFinished)), [(2, TriggerKind::Periodic)]);
}

#[test]
fn tp_10_exhausted_sources_bring_the_final_epoch_which_is_tried_again_when_it_fails() {
    let mut coordinator = coordinator(settings());
    manual(&mut coordinator, 0);
    assert_eq!(triggered(&coordinator.on(0, Event::SourcesExhausted)), [], "one is in flight");
    coordinator.on(0, ack(0, 1, &[1]));
    coordinator.on(0, ack(1, 1, &[1]));
    assert_eq!(triggered(&coordinator.on(0, outcome(1, PublishOutcome::Ok))), [(2, TriggerKind::Final)]);
    assert_eq!(triggered(&coordinator.on(0, declined(0, 2))), []);
    assert_eq!(triggered(&coordinator.on(1, Event::Tick)), [(3, TriggerKind::Final)]);
    coordinator.on(1, ack(0, 3, &[2, 3]));
    assert!(published(&coordinator.on(1, ack(1, 3, &[2, 3]))).finished);
    let actions = coordinator.on(1, outcome(3, PublishOutcome::Ok));
    assert_eq!(actions.last(), Some(&Action::Finished { epoch: Epoch(3), at_end: true }));
    assert!(coordinator.is_ended());
}

#[test]
fn a_stop_is_not_the_end_of_the_job() {
    let mut coordinator = coordinator(settings());
    coordinator.on(0, Event::TriggerNow(Reason::Stop));
    coordinator.on(0, ack(0, 1, &[1]));
    assert!(!published(&coordinator.on(0, ack(1, 1, &[1]))).finished);
    let actions = coordinator.on(0, outcome(1, PublishOutcome::Ok));
    assert_eq!(actions.last(), Some(&Action::Finished { epoch: Epoch(1), at_end: false }));
}

#[test]
fn a_fenced_publication_ends_the_attempt() {
    let mut coordinator = coordinator(settings());
    manual(&mut coordinator, 0);
    coordinator.on(0, ack(0, 1, &[1]));
    coordinator.on(0, ack(1, 1, &[1]));
    let theirs = Some(Attempt(2));
    let actions = coordinator.on(0, outcome(1, PublishOutcome::Fenced { theirs }));
    assert_eq!(actions, [Action::Fail { reason: FailReason::Fenced { ours: Attempt(1), theirs } }]);
}

#[test]
fn a_run_that_a_completed_epoch_lacked_is_refused() {
    let mut coordinator = coordinator(settings());
    complete(&mut coordinator, &[]);
    manual(&mut coordinator, 0);
    coordinator.on(0, ack(0, 2, &[1, 2]));
    let actions = coordinator.on(0, ack(1, 2, &[2]));
    assert!(matches!(failure(&actions), Some(FailReason::StrayRun { .. })), "{actions:?}");
}

#[test]
fn a_finished_compaction_replaces_its_inputs_in_the_next_manifest_even_when_they_are_acknowledged_again() {
    let compaction = CompactionPolicy { min_bytes: 0, excess_percent: 20, max_running: 1, ..QUIET };
    let mut coordinator = coordinator(Settings { compaction, ..settings() });
    complete(&mut coordinator, &[1]);
    let (_, actions) = complete(&mut coordinator, &[1, 2]);
    let Some(Action::Compact { plan }) = actions.last() else {
        panic!("no compaction in {actions:?}");
    };
    assert_eq!((plan.inputs.len(), plan.drop_tombstones, plan.epoch), (2, true, Epoch(2)));
    let count = KeyedStateInfo { name: "count".to_owned(), description: "u64".to_owned() };
    assert_eq!(plan.declared, [count], "rows are judged by what this attempt has declared");
    let object = Names::new("job").unwrap().run(&plan.output(Attempt(1), 0)).unwrap();
    let output = RunRef { object: object.clone(), level: plan.level, ..run(0, 2) };
    let event = Event::Compacted { plan: plan.id, outcome: Ok(vec![output]) };
    assert!(matches!(coordinator.on(0, event)[..], [Action::Compact { .. }]), "the other subtask's runs are next");
    let existing = vec![object.clone(), run(0, 1).object];
    assert_eq!(coordinator.on(0, Event::Found { existing }), [], "a result that waits for its manifest is no orphan");
    let (manifest, _) = complete(&mut coordinator, &[1, 2, 3]);
    let expected = [object, run(1, 1).object, run(1, 2).object, run(0, 3).object, run(1, 3).object];
    assert_eq!(runs_of(&manifest), expected.map(|object| object.to_string()));
}

/// As [`ack`], of a subtask whose runs since `whole` hold all it has.
fn whole_ack(index: u32, epoch: u64, runs: &[u64], whole: u64) -> Event {
    let Event::Acknowledged { subtask, epoch, mut pieces } = ack(index, epoch, runs) else {
        panic!("an acknowledgement")
    };
    pieces[0].whole = Some(Whole { since: Epoch(whole), groups: run(index, 1).groups });
    Event::Acknowledged { subtask, epoch, pieces }
}

#[test]
fn what_a_run_supersedes_that_holds_everything_is_not_named_again_and_goes() {
    let mut coordinator = coordinator(Settings { retained: 1, ..settings() });
    complete(&mut coordinator, &[1]);
    complete(&mut coordinator, &[1, 2]);
    // Epoch 3 is whole on subtask 0 and fails on subtask 1; its run goes with epoch 4.
    manual(&mut coordinator, 0);
    coordinator.on(0, whole_ack(0, 3, &[2, 3], 3));
    coordinator.on(0, declined(1, 3));
    manual(&mut coordinator, 0);
    coordinator.on(0, whole_ack(0, 4, &[2, 3, 4], 3));
    let manifest = published(&coordinator.on(0, ack(1, 4, &[3, 4])));
    let expected = [run(1, 1), run(1, 2), run(0, 3), run(1, 3), run(0, 4), run(1, 4)];
    assert_eq!(runs_of(&manifest), expected.map(|run| run.object.to_string()));
    let deleted = deleted(&coordinator.on(0, outcome(4, PublishOutcome::Ok)));
    let gone = |run: RunRef| deleted.contains(&run.object.to_string());
    assert!(gone(run(0, 1)) && gone(run(0, 2)) && !gone(run(0, 3)) && !gone(run(1, 1)), "{deleted:?}");
    // Two whole epochs in flight: the run of the first was never named, and goes as well.
    manual(&mut coordinator, 0);
    coordinator.on(0, whole_ack(0, 5, &[5], 5));
    coordinator.on(0, declined(1, 5));
    manual(&mut coordinator, 0);
    coordinator.on(0, whole_ack(0, 6, &[5, 6], 6));
    let manifest = published(&coordinator.on(0, whole_ack(1, 6, &[5, 6], 6)));
    assert_eq!(runs_of(&manifest), [run(0, 6), run(1, 6)].map(|run| run.object.to_string()));
    let actions = coordinator.on(0, outcome(6, PublishOutcome::Ok));
    let deleted = self::deleted(&actions);
    assert!(
        deleted.contains(&run(0, 5).object.to_string()) && deleted.contains(&run(1, 5).object.to_string()),
        "{actions:?}"
    );
}

#[test]
fn a_run_that_lies_over_one_that_stays_stays_as_well_even_if_nothing_in_it_is_live() {
    // A merge of both subtasks' runs lies beneath: it stays, for only one of them has written everything; and so must the
    // deletions that lie over it.
    let mut fence = fence();
    let wide = RunRef { groups: KeyGroupRange::new(0, 4), level: 1, ..run(7, 1) };
    let operator = OperatorManifest {
        name: "op".to_owned(),
        parallelism: 2,
        states: Vec::new(),
        runs: vec![wide.clone(), run(0, 2), run(1, 2)],
        subtasks: vec![None, None],
    };
    fence.operators = vec![operator];
    fence.epoch = Epoch(2);
    let mut coordinator = coordinator_from(settings(), fence);
    manual(&mut coordinator, 0);
    coordinator.on(0, whole_ack(0, 3, &[3], 3));
    let manifest = published(&coordinator.on(0, ack(1, 3, &[3])));
    let expected = [wide, run(0, 2), run(1, 2), run(0, 3), run(1, 3)];
    assert_eq!(runs_of(&manifest), expected.map(|run| run.object.to_string()));
    coordinator.on(0, outcome(3, PublishOutcome::Ok));
    manual(&mut coordinator, 0);
    coordinator.on(0, whole_ack(0, 4, &[4], 4));
    let manifest = published(&coordinator.on(0, whole_ack(1, 4, &[4], 4)));
    assert_eq!(runs_of(&manifest), [run(0, 4), run(1, 4)].map(|run| run.object.to_string()));
}

#[test]
fn a_merge_whose_inputs_are_superseded_meanwhile_is_given_up() {
    let compaction = CompactionPolicy { min_bytes: 0, excess_percent: 20, max_running: 1, ..QUIET };
    let mut coordinator = coordinator(Settings { compaction, ..settings() });
    complete(&mut coordinator, &[1]);
    let (_, actions) = complete(&mut coordinator, &[1, 2]);
    let Some(Action::Compact { plan }) = actions.last().cloned() else { panic!("no compaction in {actions:?}") };
    manual(&mut coordinator, 0);
    coordinator.on(0, whole_ack(0, 3, &[3], 3));
    let publishing = published(&coordinator.on(0, whole_ack(1, 3, &[3], 3)));
    let object = Names::new("job").unwrap().run(&plan.output(Attempt(1), 0)).unwrap();
    let output = RunRef { object: object.clone(), level: plan.level, ..plan.inputs[1].clone() };
    coordinator.on(0, Event::Compacted { plan: plan.id, outcome: Ok(vec![output]) });
    let actions = coordinator.on(0, outcome(3, PublishOutcome::Ok));
    assert!(deleted(&actions).contains(&object.to_string()), "{actions:?}");
    assert_eq!(runs_of(&publishing), [run(0, 3), run(1, 3)].map(|run| run.object.to_string()));
    let (next, _) = complete(&mut coordinator, &[4]);
    assert_eq!(runs_of(&next).len(), 4);
}

/// A coordinator of periodic epochs that merges one thing at a time; `live` bytes were restored, another 100 MiB are added.
fn growing(excess_limit_percent: u32, live: u64) -> (Coordinator, Vec<Action>) {
    let compaction = CompactionPolicy { min_bytes: 0, max_running: 1, ..QUIET };
    let settings = Settings { compaction, interval_ms: Some(1_000), excess_limit_percent, ..settings() };
    let mut base = complete(&mut coordinator(self::settings()), &[1]).0;
    base.operators[0].runs.iter_mut().for_each(|run| run.bytes = live / 2);
    let fence = Manifest { epoch: Epoch(1), operators: base.operators, ..fence() };
    let mut coordinator = coordinator_from(settings, fence);
    manual(&mut coordinator, 0);
    for index in 0..2 {
        let Event::Acknowledged { subtask, epoch, mut pieces } = ack(index, 2, &[2]) else {
            panic!("an acknowledgement")
        };
        pieces[0].runs[0].bytes = 50 << 20;
        coordinator.on(0, Event::Acknowledged { subtask, epoch, pieces });
    }
    let actions = coordinator.on(0, outcome(2, PublishOutcome::Ok));
    (coordinator, actions)
}

fn planned(actions: &[Action]) -> u64 {
    let plan = |action: &Action| match action {
        Action::Compact { plan } => Some(plan.id),
        _ => None,
    };
    actions.iter().find_map(plan).unwrap()
}

#[test]
fn a_periodic_epoch_waits_for_merges_that_are_far_behind_and_goes_when_they_have_caught_up() {
    let (mut held, actions) = growing(200, 20 << 20);
    assert!(!held.is_held_back(), "it is not due yet");
    assert_eq!(triggered(&held.on(1_500, Event::Tick)), []);
    assert!(held.is_held_back());
    let mut free = held.clone();
    let merged = |index: u32| RunRef { bytes: 50 << 20, epoch: Epoch(2), ..run(index, 9) };
    let actions = held.on(1_600, Event::Compacted { plan: planned(&actions), outcome: Ok(vec![merged(0)]) });
    assert_eq!(triggered(&actions), [(3, TriggerKind::Periodic)], "half of it is enough");
    assert!(!held.is_held_back());
    // A person does not wait, and nobody waits for ever.
    assert_eq!(triggered(&manual(&mut free.clone(), 1_600)), [(3, TriggerKind::Manual)]);
    assert_eq!(triggered(&free.on(9_999, Event::Tick)), []);
    assert_eq!(triggered(&free.on(10_000, Event::Tick)), [(3, TriggerKind::Periodic)]);
}

#[test]
fn a_periodic_epoch_does_not_wait_for_merges_that_fail_or_when_it_shall_not() {
    let (mut failing, actions) = growing(200, 20 << 20);
    failing.on(1_500, Event::Tick);
    let actions = failing.on(1_600, Event::Compacted { plan: planned(&actions), outcome: Err("disk full".to_owned()) });
    assert_eq!(triggered(&actions), [(3, TriggerKind::Periodic)]);
    for (limit, live) in [(0, 20 << 20), (200, 60 << 20), (600, 20 << 20)] {
        let (mut free, _) = growing(limit, live);
        assert_eq!(triggered(&free.on(1_500, Event::Tick)), [(3, TriggerKind::Periodic)], "{limit} {live}");
    }
}

#[test]
fn operators_that_are_gone_are_not_carried_over_and_undeclared_states_are() {
    let mut base = fence();
    complete(&mut coordinator(settings()), &[1]);
    let state = |name: &str| KeyedStateInfo { name: name.to_owned(), description: "old".to_owned() };
    let mut operator = complete(&mut coordinator(settings()), &[1]).0.operators.remove(0);
    operator.states = vec![state("count"), state("zone")];
    let gone = crate::manifest::OperatorManifest { name: "gone".to_owned(), ..operator.clone() };
    (base.epoch, base.operators) = (Epoch(1), vec![gone, operator]);
    let mut coordinator = coordinator_from(settings(), base);
    let (manifest, _) = complete(&mut coordinator, &[2]);
    assert_eq!(manifest.operators.len(), 1);
    let states: Vec<&str> = manifest.operators[0].states.iter().map(|state| state.description.as_str()).collect();
    assert_eq!(states, ["u64", "old"]);
    assert_eq!(runs_of(&manifest).len(), 4);
}

#[test]
fn nothing_is_deleted_while_an_unreadable_manifest_is_retained() {
    let subtasks = BTreeSet::from([id(0), id(1)]);
    let log = vec![Manifest { sequence: 2, ..fence() }];
    let facts = Facts { subtasks, log, unreadable: BTreeSet::from([1]) };
    let mut coordinator = Coordinator::new(Settings { retained: 1, ..settings() }, facts).unwrap();
    let orphan = Names::new("job").unwrap().run(&DataObject { attempt: Attempt(0), ..data(0, 9) }).unwrap();
    assert_eq!(coordinator.on(0, Event::Found { existing: vec![orphan.clone()] }), []);
    complete(&mut coordinator, &[1]);
    let actions = coordinator.on(0, Event::Found { existing: vec![orphan.clone()] });
    assert_eq!(deleted(&actions), [orphan.to_string()]);
}

#[test]
fn ct_13_what_is_pinned_stays_until_every_copy_of_it_has_ended() {
    let mut coordinator = coordinator(Settings { retained: 1, ..settings() });
    complete(&mut coordinator, &[1]);
    let sequence = coordinator.pin();
    assert_eq!(coordinator.pin(), sequence);
    let old_blobs = [blob(0, 1), blob(1, 1)].map(|blob| blob.object().unwrap().to_string());
    let (_, actions) = complete(&mut coordinator, &[1, 2]);
    assert!(old_blobs.iter().all(|blob| !deleted(&actions).contains(blob)), "{actions:?}");
    let (_, actions) = complete(&mut coordinator, &[2, 3]);
    assert!(old_blobs.iter().all(|blob| !deleted(&actions).contains(blob)), "{actions:?}");
    assert_eq!(deleted(&coordinator.on(0, Event::Unpin { sequence })), [""; 0]);
    assert_eq!(deleted(&coordinator.on(0, Event::Unpin { sequence })), old_blobs);
    assert_eq!(deleted(&coordinator.on(0, Event::Unpin { sequence })), [""; 0]);
}

#[test]
fn rs_25_a_stop_that_drains_is_the_last_epoch_and_does_not_finish_the_job() {
    let mut coordinator = coordinator(settings());
    assert_eq!(triggered(&coordinator.on(0, Event::TriggerNow(Reason::Drain))), [(1, TriggerKind::Drain)]);
    assert_eq!(triggered(&manual(&mut coordinator, 0)), []);
    coordinator.on(0, ack(0, 1, &[1]));
    let manifest = published(&coordinator.on(0, ack(1, 1, &[1])));
    assert!(!manifest.finished, "input is left");
    let actions = coordinator.on(0, outcome(1, PublishOutcome::Ok));
    assert!(actions.contains(&Action::Finished { epoch: Epoch(1), at_end: false }), "{actions:?}");
}

#[test]
fn rs_26_a_drain_that_fails_fails_the_attempt() {
    let mut coordinator = coordinator(settings());
    coordinator.on(0, Event::TriggerNow(Reason::Drain));
    let actions = coordinator.on(0, declined(0, 1));
    assert!(matches!(failure(&actions), Some(FailReason::StopFailed { .. })), "{actions:?}");
}

/// A coordinator that starts from a checkpoint of an older attempt with a state that `ack` does not declare.
fn with_undeclared(drop_undeclared: bool) -> Coordinator {
    let mut old = run(0, 1);
    old.object = Names::new("job").unwrap().run(&DataObject { attempt: Attempt(0), ..data(0, 1) }).unwrap();
    old.groups = KeyGroupRange::new(0, 4);
    let state = |name: &str| KeyedStateInfo { name: name.to_owned(), description: "u64".to_owned() };
    let operator = crate::manifest::OperatorManifest {
        name: "op".to_owned(),
        parallelism: 2,
        states: vec![state("count"), state("gone")],
        runs: vec![old],
        subtasks: vec![None; 2],
    };
    let fence = Manifest { epoch: Epoch(1), operators: vec![operator], ..fence() };
    let compaction = CompactionPolicy { max_running: 1, ..QUIET };
    coordinator_from(Settings { drop_undeclared, compaction, ..settings() }, fence)
}

fn states_of(manifest: &Manifest) -> Vec<&str> {
    manifest.operators[0].states.iter().map(|state| state.name.as_str()).collect()
}

#[test]
fn undeclared_state_that_may_be_dropped_is_forgotten_once_no_run_can_hold_it() {
    let mut coordinator = with_undeclared(true);
    let (manifest, actions) = complete(&mut coordinator, &[2]);
    assert_eq!(states_of(&manifest), ["count", "gone"], "old runs still hold it");
    let plan = actions.iter().find_map(|action| match action {
        Action::Compact { plan } => Some(plan.clone()),
        _ => None,
    });
    let plan = plan.unwrap();
    assert!(plan.drop_tombstones && plan.dropped_states.contains("gone") && plan.dropped_states.len() == 1);
    assert_eq!(plan.declared.iter().map(|state| state.name.as_str()).collect::<Vec<_>>(), ["count"]);
    let output = RunRef {
        object: Names::new("job").unwrap().run(&plan.output(Attempt(1), 0)).unwrap(),
        groups: KeyGroupRange::new(0, 4),
        level: plan.level,
        ..run(0, 2)
    };
    coordinator.on(0, Event::Compacted { plan: plan.id, outcome: Ok(vec![output]) });
    let (manifest, _) = complete(&mut coordinator, &[3]);
    assert_eq!(states_of(&manifest), ["count"]);
}

#[test]
fn undeclared_state_stays_as_long_as_it_may_not_be_dropped() {
    let mut coordinator = with_undeclared(false);
    for epoch in 2..4 {
        let (manifest, actions) = complete(&mut coordinator, &[epoch]);
        assert_eq!(states_of(&manifest), ["count", "gone"]);
        assert!(!actions.iter().any(|action| matches!(action, Action::Compact { .. })), "{actions:?}");
    }
}
