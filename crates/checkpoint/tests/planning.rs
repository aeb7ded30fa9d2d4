//! Compaction and garbage against simple models.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use millpond_checkpoint::compaction::{CompactionPlan, CompactionPolicy, Planner, apply};
use millpond_checkpoint::garbage::{Pending, collectable};
use millpond_checkpoint::{DataObject, Manifest, ManifestKind, Names, OperatorManifest, RunRef, Writer};
use millpond_core::{Attempt, Epoch, KeyGroupRange, SubtaskIndex};
use millpond_storage::ObjectName;
use proptest::prelude::*;

/// Rows of a run: (key group, key) to a value or a tombstone.
type Rows = BTreeMap<(u32, u8), Option<u32>>;

/// (key group, key, value or tombstone).
type Changes = Vec<(u32, u8, Option<u32>)>;

const GROUPS: u32 = 8;
const ROW_BYTES: u64 = 100;

#[derive(Default)]
struct Model {
    runs: Vec<RunRef>,
    content: BTreeMap<ObjectName, Rows>,
    /// Which files were written together.
    sorted: BTreeMap<ObjectName, usize>,
    writes: usize,
    state: BTreeMap<(u32, u8), u32>,
    written_rows: usize,
    most_inputs: usize,
    changed_rows: usize,
}

fn names() -> Names {
    Names::new("job").unwrap()
}

fn data(writer: Writer, epoch: Epoch, counter: u32) -> DataObject {
    DataObject { operator: "op".to_owned(), attempt: Attempt(1), writer, epoch, counter }
}

impl Model {
    fn add(&mut self, object: &DataObject, groups: KeyGroupRange, level: u8, rows: Rows) -> RunRef {
        let object_name = names().run(object).unwrap();
        let bytes = rows.len() as u64 * ROW_BYTES;
        let tombstones = rows.values().filter(|value| value.is_none()).count() as u64;
        let run = RunRef {
            object: object_name.clone(),
            bytes,
            raw_bytes: bytes,
            rows: rows.len() as u64,
            tombstones,
            groups,
            checksum: 0,
            epoch: object.epoch,
            level,
        };
        self.sorted.insert(object_name.clone(), self.writes);
        self.content.insert(object_name, rows);
        run
    }

    /// One epoch of one subtask of `parallelism`.
    fn freeze(&mut self, epoch: Epoch, index: u32, parallelism: u32, changes: &[(u32, u8, Option<u32>)]) {
        self.freeze_part(epoch, 0, index, parallelism, changes);
    }

    /// The `part`-th part of one epoch of one subtask of `parallelism`.
    fn freeze_part(
        &mut self,
        epoch: Epoch,
        part: u32,
        index: u32,
        parallelism: u32,
        changes: &[(u32, u8, Option<u32>)],
    ) {
        let groups = millpond_core::MaxParallelism::new(GROUPS).unwrap().range_of(index, parallelism);
        let inside = changes.iter().filter(|(group, ..)| groups.start <= *group && *group < groups.end);
        let rows: Rows = inside.map(|(group, key, value)| ((*group, *key), *value)).collect();
        if rows.is_empty() {
            return;
        }
        for (at, value) in &rows {
            match value {
                Some(value) => self.state.insert(*at, *value),
                None => self.state.remove(at),
            };
        }
        self.changed_rows += rows.len();
        self.writes += 1;
        // A number is left out between two parts.
        let object = data(Writer::Subtask(SubtaskIndex(index)), epoch, part * 2);
        let run = self.add(&object, groups, 0, rows);
        self.runs.push(run);
    }

    /// What a compactor does: newest wins, output cut where the plan says and once more.
    fn merge(&mut self, plan: &CompactionPlan) {
        let mut rows = Rows::new();
        for input in &plan.inputs {
            rows.extend(self.content[&input.object].clone());
        }
        if plan.drop_tombstones {
            rows.retain(|_, value| value.is_some());
        }
        self.written_rows += rows.len();
        self.most_inputs = self.most_inputs.max(plan.inputs.len());
        self.writes += 1;
        let mut parts: Vec<Rows> = Vec::new();
        for cut in plan.cuts.iter().rev() {
            parts.push(rows.split_off(&(*cut, 0)));
        }
        let middle = rows.keys().nth(rows.len() / 2).copied();
        parts.push(middle.map(|middle| rows.split_off(&middle)).unwrap_or_default());
        parts.push(rows);
        parts.reverse();
        let mut outputs = Vec::new();
        for (counter, part) in parts.into_iter().filter(|part| !part.is_empty()).enumerate() {
            let first = part.keys().next().expect("not empty").0;
            let last = part.keys().next_back().expect("not empty").0;
            let groups = KeyGroupRange::new(first, last + 1);
            outputs.push(self.add(&plan.output(Attempt(1), counter as u32), groups, plan.level, part));
        }
        assert!(apply(&mut self.runs, plan, &outputs));
    }

    fn plan(&self, id: u64, busy: &BTreeSet<ObjectName>, policy: &CompactionPolicy) -> Option<CompactionPlan> {
        Planner { operator: "op", max_parallelism: GROUPS, runs: &self.runs, busy, policy }.next(id)
    }

    fn view(&self) -> BTreeMap<(u32, u8), u32> {
        let mut rows = Rows::new();
        for run in &self.runs {
            rows.extend(self.content[&run.object].clone());
        }
        rows.into_iter().filter_map(|(at, value)| Some((at, value?))).collect()
    }

    fn depth(&self) -> usize {
        let sorted = |group: u32| {
            let over = self.runs.iter().filter(|run| run.groups.start <= group && group < run.groups.end);
            over.map(|run| self.sorted[&run.object]).collect::<BTreeSet<_>>().len()
        };
        (0..GROUPS).map(sorted).max().unwrap_or(0)
    }
}

fn changes() -> impl Strategy<Value = Changes> {
    proptest::collection::vec((0..GROUPS, 0u8..12, proptest::option::weighted(0.7, any::<u32>())), 0..40)
}

/// Epochs at changing parallelism; compactions are carried out when planned, or some epochs later.
fn run_model(epochs: &[(u32, Changes, bool)], policy: &CompactionPolicy) -> Model {
    let mut model = Model::default();
    let mut waiting: Vec<CompactionPlan> = Vec::new();
    let mut next = 0;
    for (number, (parallelism, changes, late)) in epochs.iter().enumerate() {
        for index in 0..*parallelism {
            model.freeze(Epoch(number as u64 + 1), index, *parallelism, changes);
        }
        assert_eq!(model.view(), model.state);
        loop {
            let busy = waiting.iter().flat_map(|plan| plan.inputs.iter().map(|run| run.object.clone())).collect();
            match model.plan(next, &busy, policy) {
                Some(plan) => waiting.push(plan),
                None if *late || waiting.is_empty() => break,
                None => {
                    // They finish in any order.
                    let plan = waiting.swap_remove(next as usize % waiting.len());
                    model.merge(&plan);
                    assert_eq!(model.view(), model.state);
                }
            }
            next += 1;
            assert!(next < 10_000, "planning never ends");
        }
    }
    model
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn merging_never_changes_what_is_read(
        epochs in proptest::collection::vec((1u32..5, changes(), any::<bool>()), 1..20),
        fan_in in 2u32..5, min_bytes in prop_oneof![Just(0), Just(2_000), Just(u64::MAX)],
        min_piece_bytes in prop_oneof![Just(0), Just(1_000), Just(u64::MAX)],
    ) {
        run_model(&epochs, &CompactionPolicy { fan_in, min_bytes, max_depth: 6, min_piece_bytes, ..CompactionPolicy::default() });
    }

    #[test]
    fn runs_and_size_are_bounded(epochs in proptest::collection::vec(changes(), 1..60), min_piece_bytes in prop_oneof![Just(100), Just(1_000), Just(u64::MAX)]) {
        let policy = CompactionPolicy { min_bytes: 0, min_piece_bytes, ..CompactionPolicy::default() };
        let epochs: Vec<_> = epochs.into_iter().map(|changes| (1, changes, false)).collect();
        let model = run_model(&epochs, &policy);
        let stored: u64 = model.runs.iter().map(|run| run.bytes).sum();
        prop_assert!(stored * 10 <= model.state.len() as u64 * ROW_BYTES * 12, "{stored} for {}", model.state.len());
        prop_assert!(model.depth() <= 4 * 5, "{} runs", model.depth());
        let levels = 4;
        prop_assert!(model.written_rows <= model.changed_rows * (6 + levels), "{} for {}", model.written_rows, model.changed_rows);
    }

    #[test]
    fn cr_04_garbage_is_never_named_by_a_retained_manifest_and_never_ours_to_publish(
        named in proptest::collection::vec(any::<proptest::sample::Index>(), 0..10),
        waiting in proptest::collection::vec(any::<proptest::sample::Index>(), 0..5),
        running in 0u64..3, floor in 1u64..6,
    ) {
        let names = names();
        let mut existing = Vec::new();
        for attempt in 1..5u64 {
            for epoch in 1..5u64 {
                for writer in [Writer::Subtask(SubtaskIndex(0)), Writer::Compaction(epoch % 3)] {
                    let object = DataObject { attempt: Attempt(attempt), ..data(writer, Epoch(epoch), 0) };
                    existing.push(names.run(&object).unwrap());
                    existing.push(names.blob(&object).unwrap());
                }
            }
        }
        let pick = |indexes: &[proptest::sample::Index]| -> Vec<ObjectName> { indexes.iter().map(|i| i.get(&existing).clone()).collect() };
        let named = pick(&named);
        let pending = Pending { objects: pick(&waiting).into_iter().collect(), plans: BTreeSet::from([running]) };
        let mut model = Model::default();
        let template = model.add(&data(Writer::Compaction(0), Epoch(1), 0), KeyGroupRange::new(0, 1), 0, Rows::new());
        let runs = named.iter().map(|object| RunRef { object: object.clone(), ..template.clone() }).collect();
        let operator = OperatorManifest { name: "op".to_owned(), parallelism: 0, states: vec![], runs, subtasks: vec![] };
        let older = Manifest { sequence: 6, operators: vec![operator], ..Manifest::empty("job", 8) };
        let newest = Manifest { sequence: 7, retained_from: floor, epoch: Epoch(2), kind: ManifestKind::Checkpoint, ..Manifest::empty("job", 8) };
        existing.extend((1..8).map(|sequence| names.manifest(sequence)));
        existing.push(ObjectName::new("job/notes/a").unwrap());
        existing.push(ObjectName::new("other/manifests/00000000000000000001").unwrap());

        let garbage: BTreeSet<ObjectName> = collectable(&names, &existing, &[older, newest], Attempt(3), &pending).into_iter().collect();
        for object in &existing {
            let text = object.as_str();
            let ours = text.contains("a0000000003");
            let is_data = text.starts_with("job/runs/") || text.starts_with("job/blobs/");
            let expected = if let Some(sequence) = text.strip_prefix("job/manifests/") {
                sequence.parse::<u64>().unwrap() < floor
            } else if named.contains(object) || pending.objects.contains(object) || text.contains("a0000000004") || !is_data {
                false
            } else if ours && text.contains("-c") {
                !text.contains(&format!("-c{running:010}"))
            } else {
                !ours || text.contains("e0000000001") || text.contains("e0000000002")
            };
            prop_assert_eq!(garbage.contains(object), expected, "{}", object);
        }
    }
}

/// Merges until nothing is planned.
fn settle(model: &mut Model, next: &mut u64, policy: &CompactionPolicy) {
    while let Some(plan) = model.plan(*next, &BTreeSet::new(), policy) {
        *next += 1;
        assert!(*next < 10_000, "planning never ends");
        model.merge(&plan);
        assert_eq!(model.view(), model.state);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn runs_are_bounded_when_epochs_are_stored_in_many_parts(
        epochs in proptest::collection::vec(proptest::collection::vec(changes(), 1..40), 1..8),
        one_group in any::<bool>(),
    ) {
        let (mut model, mut next) = (Model::default(), 0);
        let policy = CompactionPolicy { min_bytes: u64::MAX, ..CompactionPolicy::default() };
        for (number, parts) in epochs.iter().enumerate() {
            for (part, changes) in parts.iter().enumerate() {
                let changes: Changes =
                    changes.iter().map(|(group, key, value)| (if one_group { 3 } else { *group }, *key, *value)).collect();
                model.freeze_part(Epoch(number as u64 + 1), part as u32, 0, 1, &changes);
            }
            settle(&mut model, &mut next, &policy);
            // At most 280 parts: the oldest, fewer than four of the lowest level, fewer than eight of two others.
            prop_assert!(model.depth() <= 1 + 3 + 7 * 2, "{} runs", model.depth());
            prop_assert!(model.runs.len() <= 2 * (1 + 3 + 7 * 2) * GROUPS as usize, "{} files", model.runs.len());
        }
        prop_assert!(model.written_rows <= model.changed_rows * 5, "{} for {}", model.written_rows, model.changed_rows);
    }
}

#[test]
fn an_epoch_of_a_thousand_parts_is_merged_some_at_a_time() {
    let (mut model, mut next) = (Model::default(), 0);
    for part in 0..1_000 {
        let change = (part % GROUPS, part as u8 % 12, (part % 5 > 0).then_some(part));
        model.freeze_part(Epoch(1), part, 0, 1, &[change, (0, 0, Some(part))]);
    }
    let policy = CompactionPolicy { min_bytes: u64::MAX, ..CompactionPolicy::default() };
    settle(&mut model, &mut next, &policy);
    assert!(model.depth() <= 1 + 3 + 7 + 1, "{} runs", model.depth());
    assert!(model.most_inputs <= 2 * 64, "{} inputs", model.most_inputs);
    assert!(model.written_rows <= model.changed_rows * 2, "{} for {}", model.written_rows, model.changed_rows);
}

#[test]
fn files_of_one_part_count_as_one_run_and_parts_of_one_epoch_as_several() {
    let mut model = Model::default();
    let add = |model: &mut Model, counter: u32| {
        let object = data(Writer::Subtask(SubtaskIndex(0)), Epoch(1), counter);
        let run = model.add(&object, KeyGroupRange::new(3, 4), 0, Rows::from([((3, counter as u8), Some(1))]));
        model.runs.push(run);
    };
    let policy = CompactionPolicy { min_bytes: u64::MAX, ..CompactionPolicy::default() };
    let planned = |model: &Model| model.plan(1, &BTreeSet::new(), &policy).map(|plan| plan.inputs.len());
    add(&mut model, 0);
    (2..22).for_each(|counter| add(&mut model, counter));
    assert_eq!(planned(&model), None, "the oldest part, and one part in twenty files");
    (0..2).for_each(|part| add(&mut model, 23 + 2 * part));
    assert_eq!(planned(&model), None, "three parts");
    add(&mut model, 27);
    assert_eq!(planned(&model), Some(23), "four parts above the oldest");
}

#[test]
fn a_plan_that_lost_an_input_or_whose_output_reaches_out_changes_nothing() {
    let mut model = Model::default();
    for epoch in 1..6 {
        model.freeze(Epoch(epoch), 0, 2, &[(0, 0, Some(1))]);
        model.freeze(Epoch(epoch), 1, 2, &[(5, 0, Some(1))]);
    }
    let plan = model.plan(1, &BTreeSet::new(), &CompactionPolicy::default()).unwrap();
    assert!(plan.inputs.iter().all(|run| run.groups == KeyGroupRange::new(0, 4)), "only what overlaps is merged");
    let before = model.runs.clone();
    let wide = RunRef { groups: KeyGroupRange::new(0, 8), ..before[0].clone() };
    assert!(!apply(&mut model.runs, &plan, &[wide]));
    assert_eq!(model.runs, before);
    let first = model.runs.iter().position(|run| run.object == plan.inputs[0].object).unwrap();
    model.runs.remove(first);
    assert!(!apply(&mut model.runs, &plan, &[]));
    assert_eq!(model.runs.len(), before.len() - 1);
}

/// A hundred keys of each group, of which every epoch changes some, all groups alike.
fn spread(epoch: u64, part: u8) -> Changes {
    let keys = |group: u32| {
        (0..part).map(move |i| (group, (epoch as u8).wrapping_mul(part).wrapping_add(i) % 100, Some(epoch as u32)))
    };
    (0..GROUPS).flat_map(keys).collect()
}

#[test]
fn a_large_state_is_merged_piece_by_piece_and_never_much_at_a_time() {
    let (mut model, mut next) = (Model::default(), 0);
    let policy = CompactionPolicy { min_bytes: 0, min_piece_bytes: 100, ..CompactionPolicy::default() };
    model.freeze(Epoch(1), 0, 1, &spread(0, 100));
    settle(&mut model, &mut next, &policy);
    let live = model.state.len() as u64 * ROW_BYTES;
    let (mut first, mut most, mut written) = (0, 0, 0);
    for epoch in 2..300 {
        model.freeze(Epoch(epoch), 0, 1, &spread(epoch, 2));
        let before = model.written_rows;
        while let Some(plan) = model.plan(next, &BTreeSet::new(), &policy) {
            next += 1;
            let bytes = plan.inputs.iter().map(|run| run.bytes).sum::<u64>();
            model.merge(&plan);
            // Once the first state, which no merge has cut, is in pieces.
            if first == 0 && plan.drop_tombstones {
                first = epoch;
            } else if first > 0 {
                most = most.max(bytes);
            }
        }
        if epoch > first + 1 && first > 0 {
            written = written.max(model.written_rows - before);
        }
        let stored: u64 = model.runs.iter().map(|run| run.bytes).sum();
        assert!(stored * 10 <= live * 12, "{stored} of {live} in epoch {epoch}");
    }
    assert_eq!(model.view(), model.state);
    // Eight groups are eight pieces.
    assert!(most <= live / 8 * 4, "{most} of {live} in one merge");
    assert!(written as u64 * ROW_BYTES <= live / 2, "{written} rows in one epoch");
    assert!(model.written_rows <= model.changed_rows * 6, "{} for {}", model.written_rows, model.changed_rows);
}

#[test]
fn excess_is_told_in_bytes_and_makes_merges_urgent_when_there_is_much_of_it() {
    let mut model = Model::default();
    let policy = CompactionPolicy::default();
    let add = |model: &mut Model, epoch: u64, bytes: u64| {
        let object = data(Writer::Subtask(SubtaskIndex(0)), Epoch(epoch), 0);
        let run = model.add(&object, KeyGroupRange::new(0, 1), 0, Rows::from([((0, 0), Some(1))]));
        model.runs.push(RunRef { bytes, ..run });
    };
    add(&mut model, 1, 100 << 20);
    add(&mut model, 2, 30 << 20);
    let plan = model.plan(1, &BTreeSet::new(), &policy).unwrap();
    assert_eq!((plan.inputs.len(), plan.urgent, plan.drop_tombstones), (2, false, true));
    add(&mut model, 3, 20 << 20);
    assert!(model.plan(1, &BTreeSet::new(), &policy).unwrap().urgent);
    let busy = BTreeSet::new();
    let planner = Planner { operator: "op", max_parallelism: GROUPS, runs: &model.runs, busy: &busy, policy: &policy };
    let excess = planner.excess();
    assert_eq!((excess.stored, excess.live, excess.bytes()), (150 << 20, 100 << 20, 50 << 20));
}
