//! Which runs to merge, decided from the manifest alone.
//!
//! Owns the policy, the plan and its application to a list of runs. Does *not* read or write runs
//! and does not decide when planning happens ([`crate::Coordinator`] does).
//!
//! Runs whose key groups overlap, directly or through others, form a *set*; sets share no key
//! group, so each is planned by itself. Within a set two rules apply, the first that fits:
//!
//! 1. *Everything*: when the set's bytes exceed 1.5 × what is certainly live in its oldest level, or
//!    too many runs lie over one key group, all runs are merged and tombstones are dropped.
//! 2. *Tier*: when `fan_in` sorted runs of one level lie over one key group, the youngest runs down
//!    to and including that level are merged into one run of the next level.
//!
//! *Bounds.* After rule 1 the set is at most 1.5 × live (as soon as it exceeds `min_bytes`): the
//! oldest level holds only rows that were live when it was made, and each younger tombstone kills at
//! most one of them. Rule 2 leaves fewer than `fan_in` sorted runs per level, and a level holds
//! `fan_in` times the epochs of the one below, so after *n* epochs fewer than
//! `fan_in × (1 + log_fan_in n)` runs lie over a key group.
//!
//! *Cost.* Rule 2 rewrites each byte once per level, `log_fan_in n` times between two applications
//! of rule 1. Rule 1 rewrites at most 1.5 × oldest, after changes of at least a third of the oldest
//! (in bytes, or in rows deleted), so it costs less than 5 bytes written per changed byte.

use std::collections::BTreeSet;

use millpond_core::{Attempt, Epoch, KeyGroupRange};
use millpond_storage::ObjectName;
use serde::{Deserialize, Serialize};

use crate::manifest::RunRef;
use crate::names::{DataObject, Writer, sorted_run};

/// When to merge.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CompactionPolicy {
    /// How many sorted runs of one level over one key group are merged; at least 2.
    pub fan_in: u32,
    /// How much more than live state may be stored, in percent.
    pub excess_percent: u32,
    /// Below this size of a set, in bytes, excess does not matter.
    pub min_bytes: u64,
    /// With this many sorted runs over one key group, everything is merged.
    pub max_depth: u32,
    /// How many compactions may run at once; 0 turns compaction off.
    pub max_running: u32,
}

impl Default for CompactionPolicy {
    fn default() -> Self {
        CompactionPolicy { fan_in: 4, excess_percent: 50, min_bytes: 64 * 1024, max_depth: 32, max_running: 2 }
    }
}

/// A merge to carry out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CompactionPlan {
    /// Number of the plan, unique within an attempt.
    pub id: u64,
    /// The operator whose runs these are.
    pub operator: String,
    /// What to merge, oldest first.
    pub inputs: Vec<RunRef>,
    /// Whether deletions may be forgotten: nothing older lies below.
    pub drop_tombstones: bool,
    /// Newest epoch among the inputs: the epoch of the outputs.
    pub epoch: Epoch,
    /// Level of the outputs.
    pub level: u8,
    /// Keyed states whose rows are left out: nobody declares them any more, and they may be dropped.
    pub dropped_states: BTreeSet<String>,
}

impl CompactionPlan {
    /// The `counter`-th output, for [`crate::Names::run`].
    #[must_use]
    pub fn output(&self, attempt: Attempt, counter: u32) -> DataObject {
        let writer = Writer::Compaction(self.id);
        DataObject { operator: self.operator.clone(), attempt, writer, epoch: self.epoch, counter }
    }
}

/// Plans the next merge of `operator`'s `runs` (oldest first), apart from sets in which one of the
/// `busy` runs is being merged already. `None` when all is well.
#[must_use]
pub fn plan(
    id: u64,
    operator: &str,
    runs: &[RunRef],
    busy: &BTreeSet<ObjectName>,
    policy: &CompactionPolicy,
) -> Option<CompactionPlan> {
    overlapping_sets(runs).into_iter().find_map(|set| {
        if set.iter().any(|run| busy.contains(&run.object)) {
            return None;
        }
        let (first, level) = choose(&set, policy)?;
        merging(id, operator, &set, first, level)
    })
}

/// Plans a merge of everything in a set that holds one of the runs that `must_go`, apart from sets in
/// which one of the `busy` runs is being merged already: it leaves out the rows of `dropped_states`.
#[must_use]
pub fn plan_dropping(
    id: u64,
    operator: &str,
    runs: &[RunRef],
    busy: &BTreeSet<ObjectName>,
    must_go: impl Fn(&RunRef) -> bool,
    dropped_states: &BTreeSet<String>,
) -> Option<CompactionPlan> {
    overlapping_sets(runs).into_iter().find_map(|set| {
        if set.iter().any(|run| busy.contains(&run.object)) || !set.iter().any(|run| must_go(run)) {
            return None;
        }
        let highest = set.iter().map(|run| run.level).max()?;
        let plan = merging(id, operator, &set, 0, highest.saturating_add(1))?;
        Some(CompactionPlan { dropped_states: dropped_states.clone(), ..plan })
    })
}

/// The merge of the runs of `set` from the `first` on.
fn merging(id: u64, operator: &str, set: &[&RunRef], first: usize, level: u8) -> Option<CompactionPlan> {
    let inputs: Vec<RunRef> = set[first..].iter().map(|run| (*run).clone()).collect();
    let epoch = inputs.iter().map(|run| run.epoch).max()?;
    let (operator, drop_tombstones) = (operator.to_owned(), first == 0);
    Some(CompactionPlan { id, operator, drop_tombstones, inputs, epoch, level, dropped_states: BTreeSet::new() })
}

/// Puts the outputs of a finished merge where its inputs were. Returns `false`, and changes
/// nothing, when an input is missing or an output reaches outside of the inputs' key groups.
#[must_use]
pub fn apply(runs: &mut Vec<RunRef>, plan: &CompactionPlan, outputs: &[RunRef]) -> bool {
    let inputs: BTreeSet<&ObjectName> = plan.inputs.iter().map(|run| &run.object).collect();
    let Some(position) = runs.iter().position(|run| inputs.contains(&run.object)) else {
        return false;
    };
    let start = plan.inputs.iter().map(|run| run.groups.start).min().unwrap_or(0);
    let end = plan.inputs.iter().map(|run| run.groups.end).max().unwrap_or(0);
    let outside = |run: &RunRef| run.groups.start < start || run.groups.end > end;
    let present = runs.iter().filter(|run| inputs.contains(&run.object)).count();
    if present != inputs.len() || outputs.iter().any(outside) {
        return false;
    }
    runs.retain(|run| !inputs.contains(&run.object));
    runs.splice(position..position, outputs.iter().cloned());
    true
}

/// Cuts `runs` into sets that share no key group; within a set the order stays.
fn overlapping_sets(runs: &[RunRef]) -> Vec<Vec<&RunRef>> {
    let mut by_start: Vec<usize> = (0..runs.len()).collect();
    by_start.sort_by_key(|&i| (runs[i].groups.start, runs[i].groups.end, i));
    let mut sets: Vec<(u32, Vec<usize>)> = Vec::new();
    for i in by_start {
        let groups = runs[i].groups;
        match sets.last_mut() {
            Some((end, set)) if groups.start < *end => {
                *end = groups.end.max(*end);
                set.push(i);
            }
            _ => sets.push((groups.end, vec![i])),
        }
    }
    let in_order = |(_, mut set): (u32, Vec<usize>)| {
        set.sort_unstable();
        set.into_iter().map(|i| &runs[i]).collect()
    };
    sets.into_iter().map(in_order).collect()
}

/// The first run to merge (all younger ones follow) and the level of the result.
fn choose(set: &[&RunRef], policy: &CompactionPolicy) -> Option<(usize, u8)> {
    let highest = set.iter().map(|run| run.level).max()?;
    let bytes = |runs: &mut dyn Iterator<Item = &&RunRef>| runs.map(|run| u128::from(run.bytes)).sum::<u128>();
    let total = bytes(&mut set.iter());
    let limit = u128::from(100 + policy.excess_percent);
    let excessive = total >= u128::from(policy.min_bytes) && total * 100 > certainly_live(set) * limit;
    let deep = depth(set) >= policy.max_depth.max(2) as usize;
    if excessive || deep {
        return Some((0, highest.saturating_add(1)));
    }
    let mut chosen = None;
    let mut carried = 0;
    for level in 0..=highest {
        let first = set.iter().rposition(|run| run.level > level).map_or(0, |older| older + 1);
        let here: Vec<&RunRef> = set[first..].iter().copied().filter(|run| run.level == level).collect();
        let full = depth(&here) + carried >= policy.fan_in.max(2) as usize;
        carried = usize::from(full);
        if full {
            chosen = Some((first, level.saturating_add(1)));
        }
    }
    chosen
}

/// Bytes of the oldest level that no younger deletion can have killed.
fn certainly_live(set: &[&RunRef]) -> u128 {
    let is_oldest = |i: usize| {
        let run = set[i];
        let same = |older: &&RunRef| sorted_run(&older.object) == sorted_run(&run.object);
        set[..i].iter().all(|older| same(older) || !older.groups.intersects(run.groups))
    };
    let (mut bytes, mut rows, mut dead) = (0u128, 0u128, 0u128);
    for (i, run) in set.iter().enumerate() {
        dead += u128::from(run.tombstones);
        if is_oldest(i) {
            bytes += u128::from(run.bytes);
            rows += u128::from(run.rows);
        }
    }
    (bytes * rows.saturating_sub(dead)).checked_div(rows).unwrap_or(0)
}

/// Most sorted runs that lie over one key group.
fn depth(runs: &[&RunRef]) -> usize {
    let over = |at: &&&RunRef| {
        let covers = |range: KeyGroupRange| range.start <= at.groups.start && at.groups.start < range.end;
        let there: BTreeSet<&str> =
            runs.iter().filter(|run| covers(run.groups)).map(|run| sorted_run(&run.object)).collect();
        there.len()
    };
    runs.iter().map(|run| over(&run)).max().unwrap_or(0)
}
