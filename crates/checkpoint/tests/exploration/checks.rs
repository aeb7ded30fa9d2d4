//! What must always be true, checked after every step.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use millpond_checkpoint::{FailReason, Manifest, ManifestKind, RunRef};
use millpond_core::{Attempt, Epoch};
use millpond_storage::ObjectName;

use crate::world::{SUBTASKS, World, is_whole, run_of};

/// What really happened, as nobody in the world can see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ghost {
    /// Every manifest that was ever part of the log.
    pub(crate) history: BTreeMap<u64, Rc<Manifest>>,
    /// The runs of subtasks that a compaction's output stands for in a key group, oldest first.
    leaves: BTreeMap<(ObjectName, u32), Vec<ObjectName>>,
    digest: u64,
}

/// Only what the future depends on: the newest entry, and which entries there were.
impl Hash for Ghost {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

impl Ghost {
    pub(crate) fn merged(&mut self, output: &RunRef, inputs: &[RunRef]) {
        for group in output.groups.start..output.groups.end {
            let leaves = self.leaves_over(inputs, group);
            self.note(&(&output.object, group, &leaves));
            self.leaves.insert((output.object.clone(), group), leaves);
        }
    }

    /// The runs of subtasks behind those of `runs` that lie over `group`, in order.
    fn leaves_over(&self, runs: &[RunRef], group: u32) -> Vec<ObjectName> {
        let over = runs.iter().filter(|run| run.groups.start <= group && group < run.groups.end);
        let expand = |run: &RunRef| {
            let leaves = self.leaves.get(&(run.object.clone(), group)).cloned();
            leaves.unwrap_or_else(|| vec![run.object.clone()])
        };
        over.flat_map(expand).collect()
    }

    fn note(&mut self, what: &impl Hash) {
        let mut hasher = std::hash::DefaultHasher::new();
        (self.digest, what).hash(&mut hasher);
        self.digest = hasher.finish();
    }
}

impl World {
    /// A manifest has appeared in a free slot.
    pub(crate) fn check_created(&mut self, manifest: &Rc<Manifest>) {
        let (newest, floor) = self.newest();
        let sequence = manifest.sequence;
        if sequence < floor {
            assert!(newest > sequence);
            return;
        }
        assert_eq!(newest, sequence, "a manifest appeared within the log");
        assert_eq!(sequence, self.ghost.history.len() as u64 + 1, "the log is linear and dense");
        let before = self.ghost.history.get(&(sequence - 1)).cloned();
        match (manifest.kind, before) {
            (ManifestKind::Fence, None) => assert_eq!(manifest.attempt, Attempt(1)),
            (ManifestKind::Fence, Some(before)) => {
                assert_eq!(manifest.attempt, before.attempt.next());
                assert_eq!((manifest.epoch, &manifest.operators), (before.epoch, &before.operators));
            }
            (ManifestKind::Checkpoint, before) => {
                let before = before.expect("an epoch follows a fence");
                assert_eq!(manifest.attempt, before.attempt, "a fenced attempt published");
                assert_eq!(manifest.writer, before.writer, "two writers share an attempt");
                assert!(manifest.epoch > before.epoch, "epochs complete in order");
                self.check_complete(manifest);
            }
        }
        self.ghost.note(&**manifest);
        self.ghost.history.insert(sequence, manifest.clone());
        self.check_retained();
    }

    /// For each key group: all runs of the attempt's base, then all that its subtask made up to the epoch, in order. Of
    /// those before the last one that holds everything the oldest may be missing, but none between two that are there.
    fn check_complete(&self, manifest: &Manifest) {
        let history = self.ghost.history.values();
        let fence = history.rev().find(|m| m.kind == ManifestKind::Fence).expect("an attempt begins with a fence");
        let execution = self.executions.iter().find(|x| x.attempt() == manifest.attempt).expect("somebody published");
        let operator = &manifest.operators[0];
        let base = fence.operator("o").map(|operator| operator.runs.clone()).unwrap_or_default();
        for index in 0..SUBTASKS {
            let groups = run_of(manifest.attempt, index, manifest.epoch).groups;
            for group in groups.start..groups.end {
                let over = |runs: &[RunRef]| self.ghost.leaves_over(runs, group);
                let made = execution.subtasks[index as usize].made.iter().filter(|epoch| **epoch <= manifest.epoch);
                let made: Vec<Epoch> = made.copied().collect();
                let mut expected = over(&base);
                let mut needed = expected.len() + made.len();
                if let Some(whole) = made.iter().rposition(|epoch| is_whole(index, *epoch)) {
                    needed = made.len() - whole;
                }
                expected.extend(made.into_iter().map(|epoch| run_of(manifest.attempt, index, epoch).object));
                let found = over(&operator.runs);
                assert!(
                    found.len() >= needed && expected.ends_with(&found),
                    "key group {group} of {}: {found:?} of {expected:?}, {needed} at least",
                    manifest.epoch
                );
            }
            let blob = operator.subtasks[index as usize].as_ref().and_then(|blob| blob.object());
            assert!(blob.is_some(), "the blob of subtask {index} is missing");
        }
    }

    /// The log is dense, as it was written, and everything that it names exists.
    pub(crate) fn check_retained(&self) {
        let (newest, floor) = self.newest();
        assert_eq!(newest, self.ghost.history.len() as u64, "the newest manifest was deleted");
        for sequence in floor..=newest {
            let manifest = self.slots.get(&sequence).expect("a retained manifest was deleted");
            assert_eq!(Some(manifest), self.ghost.history.get(&sequence), "a manifest was replaced");
            for object in manifest.objects() {
                assert!(self.objects.contains(object), "{object} of manifest {sequence} was deleted");
            }
        }
    }

    /// A publisher believes that it has published.
    pub(crate) fn check_published(&self, manifest: &Manifest) {
        let published = self.ghost.history.get(&manifest.sequence).map(|published| &**published);
        assert_eq!(published, Some(manifest), "a publication that never was");
    }

    /// Committed ⊆ completed (TP-03, TP-04).
    pub(crate) fn check_commit(&self, attempt: Attempt, epoch: Epoch) {
        let exists = |m: &Rc<Manifest>| (m.kind, m.attempt, m.epoch) == (ManifestKind::Checkpoint, attempt, epoch);
        assert!(self.ghost.history.values().any(exists), "{epoch} of {attempt} was committed and never completed");
    }

    /// The newest epoch that exists.
    pub(crate) fn completed(&self) -> Option<Epoch> {
        self.ghost.history.values().map(|manifest| manifest.epoch).max().filter(|epoch| *epoch > Epoch::ZERO)
    }

    fn newest(&self) -> (u64, u64) {
        self.slots.last_key_value().map_or((0, 1), |(newest, manifest)| (*newest, manifest.retained_from))
    }
}

/// The ways in which an attempt may end here.
pub(crate) fn check_failure(reason: &FailReason) {
    assert!(matches!(reason, FailReason::Fenced { .. } | FailReason::PublishUnresolved { .. }), "{reason}");
}
