//! Which objects may be deleted, decided from names and manifests alone.
//!
//! Owns the one rule of deletion. Does *not* delete.
//!
//! An object may go only when no retained manifest names it and no manifest to come can name it:
//! * a manifest below the newest one's `retained_from`;
//! * data of an older attempt: that attempt is fenced, and what later manifests take over from it is
//!   named by ours;
//! * data of our own attempt for an epoch up to the newest completed one, when it is not pending: an
//!   acknowledgement of a later epoch never adds a run or blob of a completed epoch that the completed
//!   epoch's own acknowledgement did not have.
//!
//! Data of newer attempts and objects that are not ours by name always stay.

use std::collections::BTreeSet;

use millpond_core::Attempt;
use millpond_storage::ObjectName;

use crate::manifest::Manifest;
use crate::names::{DataObject, JobObject, Names, Writer};

/// What our own attempt may still publish.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// Objects that are acknowledged, being published, inputs of running compactions, results of finished ones, or pinned.
    pub objects: BTreeSet<ObjectName>,
    /// Compactions that are running.
    pub plans: BTreeSet<u64>,
}

/// The objects among `existing` that may be deleted, manifests first, each kind ascending.
///
/// `retained` is the log that `attempt` owns, oldest first, from the newest one's `retained_from`.
#[must_use]
pub fn collectable(
    names: &Names,
    existing: &[ObjectName],
    retained: &[Manifest],
    attempt: Attempt,
    pending: &Pending,
) -> Vec<ObjectName> {
    let Some(newest) = retained.last() else {
        return Vec::new();
    };
    let named: BTreeSet<&ObjectName> = retained.iter().flat_map(Manifest::objects).collect();
    let is_past = |object: &DataObject| match object.writer {
        _ if object.attempt != attempt => object.attempt < attempt,
        Writer::Subtask(_) => object.epoch <= newest.epoch,
        Writer::Compaction(plan) => !pending.plans.contains(&plan),
        // Imports end before the attempt begins.
        Writer::Import { .. } => true,
    };
    let mut manifests = BTreeSet::new();
    let mut data = BTreeSet::new();
    for name in existing {
        match names.parse(name) {
            Some(JobObject::Manifest(sequence)) if sequence < newest.retained_from => {
                manifests.insert(name);
            }
            Some(JobObject::Run(object) | JobObject::Blob(object))
                if is_past(&object) && !named.contains(name) && !pending.objects.contains(name) =>
            {
                data.insert(name);
            }
            _ => {}
        }
    }
    manifests.into_iter().chain(data).cloned().collect()
}
