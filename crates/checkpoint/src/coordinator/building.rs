//! Makes the next manifest of the newest one, the finished compactions and the acknowledgements.

use std::collections::{BTreeMap, BTreeSet};

use millpond_core::{Epoch, KeyGroupRange};
use millpond_storage::ObjectName;

use super::protocol::{FailReason, SubtaskId, TriggerKind};
use super::{Coordinator, PendingEpoch};
use crate::compaction;
use crate::manifest::{KeyedStateInfo, Manifest, ManifestKind, OperatorManifest, OperatorPiece, RunRef, Whole};
use crate::names::{DataObject, JobObject, Writer};

impl Coordinator {
    /// The manifest of an epoch that everybody acknowledged: per operator the live runs of the base,
    /// then the new runs by age, without those that hold nothing any more because a subtask has written all it has
    /// since; these are also returned. Operators that are not in this execution are not carried over.
    pub(super) fn build(
        &self,
        epoch: Epoch,
        pending: &PendingEpoch,
    ) -> Result<(Manifest, Vec<ObjectName>), FailReason> {
        let base = self.base();
        let mut operators: BTreeMap<&str, OperatorManifest> = BTreeMap::new();
        let mut fresh: BTreeMap<&str, Vec<RunRef>> = BTreeMap::new();
        for (subtask, pieces) in &pending.acknowledged {
            for piece in pieces {
                let operator = operators.entry(&piece.operator).or_insert_with(|| self.carried_over(*subtask, piece));
                declare(&mut operator.states, &piece.states);
                if let Some(part) = operator.subtasks.get_mut(subtask.index as usize) {
                    part.clone_from(&piece.blob);
                }
                let added = self.added_runs(*subtask, epoch, piece)?;
                fresh.entry(&piece.operator).or_default().extend(added.cloned());
            }
        }
        for (name, mut runs) in fresh {
            // Stable: the runs of one subtask, whose key groups overlap, keep their order.
            runs.sort_by_key(|run| run.epoch);
            if let Some(operator) = operators.get_mut(name) {
                let mut present: BTreeSet<ObjectName> = operator.runs.iter().map(|run| run.object.clone()).collect();
                operator.runs.extend(runs.into_iter().filter(|run| present.insert(run.object.clone())));
            }
        }
        let mut superseded = Vec::new();
        for operator in operators.values_mut() {
            let wholes = wholes(&operator.name, pending.acknowledged.values().flatten());
            superseded.extend(take_superseded(&mut operator.runs, &wholes));
        }
        if self.settings.drop_undeclared {
            for operator in operators.values_mut() {
                self.forget_dropped(operator, pending);
            }
        }
        let duration_ms = self.elapsed_ms(pending.triggered_ms);
        let sequence = base.sequence + 1;
        let manifest = Manifest {
            job: base.job.clone(),
            millpond_version: env!("CARGO_PKG_VERSION").to_owned(),
            sequence,
            retained_from: self.retained_from(sequence),
            attempt: base.attempt,
            writer: base.writer,
            kind: ManifestKind::Checkpoint,
            epoch,
            created_ms: pending.triggered_ms,
            duration_ms,
            finished: pending.kind == TriggerKind::Final,
            committed: false,
            max_parallelism: base.max_parallelism,
            operators: operators.into_values().collect(),
        };
        Ok((manifest, superseded))
    }

    /// The runs of an operator as the newest manifest has them, with finished compactions applied.
    pub(super) fn live_runs(&self, operator: &OperatorManifest) -> Vec<RunRef> {
        let mut runs = operator.runs.clone();
        for (plan, outputs) in self.upkeep.finished.iter().filter(|(plan, _)| plan.operator == operator.name) {
            let applied = compaction::apply(&mut runs, plan, outputs);
            debug_assert!(applied, "only compactions that fit are kept");
        }
        runs
    }

    /// Forgets states that nobody declares, once no run can hold rows of them: else a state of the same
    /// name, declared later, would find them.
    fn forget_dropped(&self, operator: &mut OperatorManifest, pending: &PendingEpoch) {
        if !operator.runs.iter().any(|run| self.is_inherited(run)) {
            let declared = declared(&operator.name, pending.acknowledged.values().flatten());
            operator.states.retain(|state| declared.contains(state.name.as_str()));
        }
    }

    /// Whether a run may hold states that this attempt does not declare: it was written before.
    pub(super) fn is_inherited(&self, run: &RunRef) -> bool {
        match self.names.parse(&run.object) {
            Some(JobObject::Run(DataObject {
                attempt, writer: Writer::Subtask(_) | Writer::Compaction(_), ..
            })) => attempt != self.attempt(),
            _ => true,
        }
    }

    /// The operator before anything of this epoch is added.
    fn carried_over(&self, subtask: SubtaskId, piece: &OperatorPiece) -> OperatorManifest {
        let of_chain = self.subtasks.iter().filter(|other| other.chain == subtask.chain);
        let parallelism = of_chain.map(|other| other.index + 1).max().unwrap_or(0);
        let before = self.base().operator(&piece.operator);
        OperatorManifest {
            name: piece.operator.clone(),
            parallelism,
            states: before.map(|operator| operator.states.clone()).unwrap_or_default(),
            runs: before.map(|operator| self.live_runs(operator)).unwrap_or_default(),
            subtasks: vec![None; parallelism as usize],
        }
    }

    /// What the piece adds to the completed epochs. A run of a completed epoch must have been part
    /// of it: otherwise its rows would be missing there, or come back over newer ones here.
    fn added_runs<'a>(
        &self,
        subtask: SubtaskId,
        epoch: Epoch,
        piece: &'a OperatorPiece,
    ) -> Result<impl Iterator<Item = &'a RunRef>, FailReason> {
        let completed = self.completed();
        let is_stray = |run: &&RunRef| {
            run.epoch > epoch || run.epoch <= completed && !self.acknowledged_runs.contains(&run.object)
        };
        match piece.runs.iter().find(is_stray) {
            Some(run) => {
                let object = run.object.clone();
                Err(FailReason::StrayRun { subtask, object, of: run.epoch, epoch, completed })
            }
            None => Ok(piece.runs.iter().filter(move |run| run.epoch > completed)),
        }
    }
}

/// Adds or replaces declarations, sorted by name; what is not declared any more stays in the runs.
fn declare(states: &mut Vec<KeyedStateInfo>, declared: &[KeyedStateInfo]) {
    for state in declared {
        match states.binary_search_by(|known| known.name.cmp(&state.name)) {
            Ok(at) => states[at].clone_from(state),
            Err(at) => states.insert(at, state.clone()),
        }
    }
}

/// Where subtasks have written all they have of `operator`, by key group.
fn wholes<'a>(operator: &str, pieces: impl Iterator<Item = &'a OperatorPiece>) -> Vec<Whole> {
    let mut all: Vec<Whole> =
        pieces.filter(|piece| piece.operator == operator).filter_map(|piece| piece.whole).collect();
    all.sort_unstable_by_key(|whole| whole.groups.start);
    all
}

/// Takes out the runs that hold nothing any more. One that lies over an older run that stays has to stay as well: it may
/// hold the deletion of what is there.
fn take_superseded(runs: &mut Vec<RunRef>, wholes: &[Whole]) -> Vec<ObjectName> {
    if wholes.is_empty() {
        return Vec::new();
    }
    let mut staying: Vec<KeyGroupRange> = Vec::new();
    let superseded = runs.extract_if(.., |run| {
        let goes = is_superseded(run, wholes) && !staying.iter().any(|groups| groups.intersects(run.groups));
        if !goes {
            staying.push(run.groups);
        }
        goes
    });
    superseded.map(|run| run.object).collect()
}

/// Whether newer runs hold all that is live in each of the run's key groups. `wholes` are in order and share none.
fn is_superseded(run: &RunRef, wholes: &[Whole]) -> bool {
    let mut from = run.groups.start;
    for Whole { groups, .. } in wholes.iter().filter(|whole| run.epoch < whole.since) {
        if groups.start <= from && from < run.groups.end {
            from = from.max(groups.end);
        }
    }
    from >= run.groups.end
}

/// The keyed states of `operator` that `pieces` declare.
fn declared<'a>(operator: &str, pieces: impl Iterator<Item = &'a OperatorPiece>) -> BTreeSet<&'a str> {
    let own = pieces.filter(|piece| piece.operator == operator);
    own.flat_map(|piece| piece.states.iter().map(|state| state.name.as_str())).collect()
}

/// The keyed states of each operator that somebody declares.
pub(super) fn all_declared(pending: &PendingEpoch) -> BTreeMap<String, BTreeSet<String>> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for piece in pending.acknowledged.values().flatten() {
        let states = piece.states.iter().map(|state| state.name.clone());
        all.entry(piece.operator.clone()).or_default().extend(states);
    }
    all
}
