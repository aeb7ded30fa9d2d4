//! What follows from completed epochs: retention, deletion, compaction.

use std::collections::{BTreeMap, BTreeSet};

use millpond_storage::ObjectName;

use super::protocol::Action;
use super::{Coordinator, Phase};
use crate::compaction::{self, CompactionPlan, Excess, Planner};
use crate::garbage::{self, Pending};
use crate::manifest::{Blob, KeyedStateInfo, Manifest, ManifestKind, OperatorPiece, RunRef};

/// A periodic trigger waits for merges for so many intervals at most.
const MOST_INTERVALS_HELD_BACK: u64 = 10;
/// With less than this beside live state, no trigger waits for merges; in bytes.
const LEAST_LIMITED_BYTES: u128 = 64 << 20;

impl Coordinator {
    /// The lowest sequence that the manifest `sequence` retains: of the newest N completed epochs,
    /// itself included, the oldest (CR-01). It never falls.
    pub(super) fn retained_from(&self, sequence: u64) -> u64 {
        let completed = self.log.iter().rev().filter(|manifest| manifest.kind == ManifestKind::Checkpoint);
        let others = self.settings.retained.max(1) as usize - 1;
        let oldest = match others {
            0 => Some(sequence),
            _ => completed.map(|manifest| manifest.sequence).nth(others - 1),
        };
        let before = self.base().retained_from;
        oldest.map_or(before, |oldest| oldest.max(before))
    }

    /// Makes a durable manifest the newest and returns what fell out of the log.
    pub(super) fn retain(&mut self, manifest: Manifest) -> Vec<Manifest> {
        let floor = manifest.retained_from;
        self.log.push(manifest);
        self.unreadable.retain(|sequence| *sequence >= floor);
        let kept = self.log.iter().position(|kept| kept.sequence >= floor).unwrap_or(0);
        self.log.drain(..kept).collect()
    }

    /// Deletes what the manifests that fell out were the last to name, and what was discarded.
    pub(super) fn clean_up(&mut self, dropped: &[Manifest], actions: &mut Vec<Action>) {
        let named: BTreeSet<&ObjectName> = self.log.iter().flat_map(Manifest::objects).collect();
        self.upkeep.discarded.retain(|object| !named.contains(object));
        let manifests = dropped.iter().map(|manifest| self.names.manifest(manifest.sequence));
        let data = dropped.iter().flat_map(Manifest::objects).filter(|object| !named.contains(object)).cloned();
        let candidates: Vec<ObjectName> = manifests.chain(data).collect();
        self.upkeep.discarded.extend(candidates);
        let existing: Vec<ObjectName> = self.upkeep.discarded.iter().cloned().collect();
        self.found(&existing, actions);
    }

    /// Deletes the garbage among `existing`.
    pub(super) fn found(&mut self, existing: &[ObjectName], actions: &mut Vec<Action>) {
        if !self.unreadable.is_empty() {
            return;
        }
        let objects = garbage::collectable(&self.names, existing, &self.log, self.attempt(), &self.unpublished());
        if objects.is_empty() {
            return;
        }
        for object in &objects {
            self.upkeep.discarded.remove(object);
        }
        self.upkeep.cleanups += 1;
        actions.push(Action::Delete { objects });
    }

    /// Somebody begins to copy what the newest manifest names: none of it is deleted before an
    /// [`Event::Unpin`](super::protocol::Event::Unpin) with the returned sequence number, whatever becomes of
    /// the manifest.
    pub fn pin(&mut self) -> u64 {
        let newest = self.base();
        let (sequence, objects) = (newest.sequence, newest.objects().cloned().collect());
        self.upkeep.pinned.entry(sequence).or_insert((0, objects)).0 += 1;
        sequence
    }

    /// One copy has ended; after the last one, what only it kept is deleted.
    pub(super) fn unpin(&mut self, sequence: u64, actions: &mut Vec<Action>) {
        let Some((copies, _)) = self.upkeep.pinned.get_mut(&sequence) else {
            return;
        };
        *copies -= 1;
        if *copies == 0 {
            self.upkeep.pinned.remove(&sequence);
            self.clean_up(&[], actions);
        }
    }

    /// The blobs of an epoch that will not exist are garbage. Its runs are not: later
    /// acknowledgements carry them.
    pub(super) fn discard(&mut self, pieces: &[OperatorPiece]) {
        let blobs = pieces.iter().filter_map(|piece| piece.blob.as_ref().and_then(Blob::object));
        let ours: Vec<ObjectName> = blobs.filter(|object| self.names.parse(object).is_some()).cloned().collect();
        self.upkeep.discarded.extend(ours);
    }

    /// What this attempt may still publish, or copies.
    fn unpublished(&self) -> Pending {
        let pieces = self.pending.values().flat_map(|pending| pending.acknowledged.values().flatten());
        let acknowledged = pieces.flat_map(|piece| {
            let runs = piece.runs.iter().map(|run| &run.object);
            runs.chain(piece.blob.as_ref().and_then(Blob::object))
        });
        let publishing = self.publishing.iter().flat_map(|publishing| publishing.manifest.objects());
        let pinned = self.upkeep.pinned.values().flat_map(|(_, objects)| objects);
        let read = self.upkeep.running.values().flat_map(|plan| plan.inputs.iter().map(|run| &run.object));
        let merged = self.upkeep.finished.iter().flat_map(|(_, outputs)| outputs.iter().map(|run| &run.object));
        Pending {
            objects: acknowledged.chain(publishing).chain(read).chain(merged).chain(pinned).cloned().collect(),
            plans: self.upkeep.running.keys().copied().collect(),
        }
    }

    /// Plans as many compactions as may run, and looks whether merging is far behind.
    pub(super) fn plan_compactions(&mut self, actions: &mut Vec<Action>) {
        let mut busy: BTreeSet<ObjectName> = BTreeSet::new();
        for plan in self.upkeep.running.values() {
            busy.extend(plan.inputs.iter().map(|run| run.object.clone()));
        }
        let live: Vec<(String, Vec<RunRef>)> =
            self.base().operators.iter().map(|operator| (operator.name.clone(), self.live_runs(operator))).collect();
        let max_parallelism = self.base().max_parallelism;
        let policy = self.settings.compaction.clone();
        let mut excess = Excess::default();
        for (operator, runs) in &live {
            let dropped = self.dropped_states(operator);
            loop {
                let planner = Planner { operator, max_parallelism, runs, busy: &busy, policy: &policy };
                if self.upkeep.running.len() >= policy.max_running as usize {
                    break;
                }
                let Some(mut plan) = self.next_plan(&planner, &dropped) else {
                    break;
                };
                plan.declared = self.declared_states(operator);
                plan.planned_ms = self.now_ms();
                self.upkeep.next_plan += 1;
                busy.extend(plan.inputs.iter().map(|run| run.object.clone()));
                self.upkeep.running.insert(plan.id, plan.clone());
                actions.push(Action::Compact { plan });
            }
            let planner = Planner { operator, max_parallelism, runs, busy: &busy, policy: &policy };
            excess = excess.plus(planner.excess());
        }
        let limit = self.settings.excess_limit_percent;
        self.upkeep.far_behind = limit > 0 && excess.exceeds(limit) && excess.bytes() >= LEAST_LIMITED_BYTES;
    }

    /// The next merge of one operator. While states are to be dropped, nothing else is merged: they would wait for ever
    /// for their runs.
    fn next_plan(&self, planner: &Planner<'_>, dropped: &BTreeSet<String>) -> Option<CompactionPlan> {
        let id = self.upkeep.next_plan;
        if !dropped.is_empty() && planner.runs.iter().any(|run| self.is_inherited(run)) {
            planner.next_dropping(id, |run| self.is_inherited(run), dropped)
        } else {
            planner.next(id)
        }
    }

    /// Whether the next periodic trigger waits for merges: so much more than live state is stored, and some of it is
    /// being merged. It does not wait for ever.
    pub(super) fn waits_for_merges(&self, interval_ms: u64) -> bool {
        let waited_ms = self.elapsed_ms(self.clock.last_trigger_ms);
        self.upkeep.far_behind
            && !self.upkeep.running.is_empty()
            && waited_ms < interval_ms.saturating_mul(MOST_INTERVALS_HELD_BACK)
    }

    /// The keyed states of an operator, as far as this attempt has declared them.
    fn declared_states(&self, operator: &str) -> Vec<KeyedStateInfo> {
        let (Some(declared), Some(known)) = (self.declared.get(operator), self.base().operator(operator)) else {
            return Vec::new();
        };
        known.states.iter().filter(|state| declared.contains(&state.name)).cloned().collect()
    }

    /// Keyed states of an operator that nobody declares any more, if they may be dropped.
    fn dropped_states(&self, operator: &str) -> BTreeSet<String> {
        let declared = self.declared.get(operator).filter(|_| self.settings.drop_undeclared);
        let (Some(declared), Some(known)) = (declared, self.base().operator(operator)) else {
            return BTreeSet::new();
        };
        let known = known.states.iter().map(|state| state.name.clone());
        known.filter(|name| !declared.contains(name)).collect()
    }

    /// Forgets finished compactions whose inputs the newest manifest no longer names: newer runs hold all that is live.
    pub(super) fn forget_merges_in_vain(&mut self) {
        let mut live: BTreeMap<String, Vec<RunRef>> = BTreeMap::new();
        for (plan, outputs) in std::mem::take(&mut self.upkeep.finished) {
            let base =
                || self.base().operator(&plan.operator).map(|operator| operator.runs.clone()).unwrap_or_default();
            let runs = live.entry(plan.operator.clone()).or_insert_with(base);
            if compaction::apply(runs, &plan, &outputs) {
                self.upkeep.finished.push((plan, outputs));
            } else {
                self.upkeep.discarded.extend(outputs.into_iter().map(|run| run.object));
            }
        }
    }

    /// A finished compaction becomes part of the next manifest; after a failed one, planning waits
    /// for the next completed epoch.
    pub(super) fn compacted(&mut self, id: u64, outcome: Result<Vec<RunRef>, String>, actions: &mut Vec<Action>) {
        let Some(plan) = self.upkeep.running.remove(&id) else {
            return;
        };
        let Ok(outputs) = outcome else {
            return;
        };
        let base = self.base().operator(&plan.operator);
        let mut runs = base.map(|operator| self.live_runs(operator)).unwrap_or_default();
        if compaction::apply(&mut runs, &plan, &outputs) {
            self.upkeep.finished.push((plan, outputs));
        } else {
            self.upkeep.discarded.extend(outputs.into_iter().map(|run| run.object));
        }
        if self.phase == Phase::Running {
            self.plan_compactions(actions);
        }
    }
}
