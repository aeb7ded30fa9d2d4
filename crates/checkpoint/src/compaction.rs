//! Which runs to merge, decided from the manifest alone.
//!
//! Owns the policy, the plan and its application to a list of runs. Does *not* read or write runs
//! and does not decide when planning happens ([`crate::Coordinator`] does).
//!
//! Runs whose key groups overlap, directly or through others, form a *set*; sets share no key
//! group, so each is planned by itself. Within a set two rules apply, the first that fits:
//!
//! 1. *Everything*: when the set's bytes exceed 1.5 × what is certainly live in its oldest level, all
//!    runs are merged and tombstones are dropped.
//! 2. *Tier*: when `fan_in` sorted runs of one level lie over one key group, the youngest runs down
//!    to and including that level are merged into one run of the next level. Of very many runs of the lowest
//!    level (a long epoch that was stored in parts) the oldest are merged by themselves first, so that a
//!    merge has not too many inputs.
//! 3. *Depth*: when still too many runs lie over one key group, all are merged as by rule 1.
//!
//! *Bounds.* After rule 1 the set is at most 1.5 × live (as soon as it exceeds `min_bytes`): the
//! oldest level holds only rows that were live when it was made, and each younger tombstone kills at
//! most one of them. Rule 2 leaves fewer than `fan_in` sorted runs per level, and a level holds
//! `fan_in` times the runs of the one below, so after *n* sorted runs of a subtask (an epoch is one, or one for
//! each of its parts) fewer than `fan_in × (1 + log_fan_in n)` runs lie over a key group.
//!
//! *Cost.* Rule 2 rewrites each byte once per level, `log_fan_in n` times between two applications
//! of rule 1. Rule 1 rewrites at most 1.5 × oldest, after changes of at least a third of the oldest
//! (in bytes, or in rows deleted), so it costs less than 5 bytes written per changed byte.

use std::collections::BTreeSet;
use std::ops::Range;

use millpond_core::{Attempt, Epoch};
use millpond_storage::ObjectName;
use serde::{Deserialize, Serialize};

use crate::manifest::{KeyedStateInfo, RunRef};
use crate::names::{DataObject, Writer, place_in_sorted_run};

/// When to merge.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CompactionPolicy {
    /// How many sorted runs of one level over one key group are merged; at least 2.
    pub fan_in: u32,
    /// How much more than live state may be stored, in percent.
    pub excess_percent: u32,
    /// Below this size of a set, in bytes, excess does not matter.
    pub min_bytes: u64,
    /// With this many sorted runs over one key group that are not merged otherwise, everything is merged.
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
    /// Keyed states as this attempt has declared them; empty before its first checkpoint. By these, rows are judged,
    /// as when their time is over.
    pub declared: Vec<KeyedStateInfo>,
    /// When it was planned, in milliseconds since 1970-01-01 UTC.
    pub planned_ms: i64,
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
        let Choice { chosen, level } = choose(&set, policy)?;
        merging(id, operator, &set, chosen, level)
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
        let plan = merging(id, operator, &set, 0..set.len(), highest.saturating_add(1))?;
        Some(CompactionPlan { dropped_states: dropped_states.clone(), ..plan })
    })
}

/// The merge of the `chosen` runs of `set`.
fn merging(id: u64, operator: &str, set: &[&RunRef], chosen: Range<usize>, level: u8) -> Option<CompactionPlan> {
    let (operator, drop_tombstones) = (operator.to_owned(), chosen.start == 0);
    let inputs: Vec<RunRef> = set[chosen].iter().map(|run| (*run).clone()).collect();
    let epoch = inputs.iter().map(|run| run.epoch).max()?;
    let (dropped_states, declared) = (BTreeSet::new(), Vec::new());
    Some(CompactionPlan {
        id,
        operator,
        inputs,
        drop_tombstones,
        epoch,
        level,
        dropped_states,
        declared,
        planned_ms: 0,
    })
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

/// Which runs of a set to merge, and the level of the result.
struct Choice {
    chosen: Range<usize>,
    level: u8,
}

/// Files that a merge of parts has at most, roughly: each takes memory for reading.
const MAX_PART_FILES: usize = 64;

fn choose(set: &[&RunRef], policy: &CompactionPolicy) -> Option<Choice> {
    let highest = set.iter().map(|run| run.level).max()?;
    let everything = || Some(Choice { chosen: 0..set.len(), level: highest.saturating_add(1) });
    let sorted = sorted_runs(set);
    let bytes = |runs: &mut dyn Iterator<Item = &&RunRef>| runs.map(|run| u128::from(run.bytes)).sum::<u128>();
    let total = bytes(&mut set.iter());
    let limit = u128::from(100 + policy.excess_percent);
    if total >= u128::from(policy.min_bytes) && total * 100 > certainly_live(set, &sorted) * limit {
        return everything();
    }
    if let Some(choice) = choose_tier(set, &sorted, highest, policy.fan_in.max(2) as usize) {
        return Some(choice);
    }
    if depth(set, &sorted, |_| true) >= policy.max_depth.max(2) as usize { everything() } else { None }
}

fn choose_tier(set: &[&RunRef], sorted: &[usize], highest: u8, fan_in: usize) -> Option<Choice> {
    let mut choice = None;
    let mut carried = 0;
    for level in 0..=highest {
        let first = set.iter().rposition(|run| run.level > level).map_or(0, |older| older + 1);
        let full = depth(set, sorted, |at| at >= first && set[at].level == level) + carried >= fan_in;
        carried = usize::from(full);
        if full {
            choice = Some(Choice { chosen: first..set.len(), level: level.saturating_add(1) });
        }
        if full && level == 0 && set.len() - first > MAX_PART_FILES {
            // Files of one sorted run stay together.
            let wanted = (first + MAX_PART_FILES..set.len()).find(|at| sorted[*at] != sorted[*at - 1]);
            let chosen = first..wanted.unwrap_or(set.len());
            return Some(Choice { chosen, level: 1 });
        }
    }
    choice
}

/// For each run, a number that it shares with the files of the same sorted run.
fn sorted_runs(set: &[&RunRef]) -> Vec<usize> {
    let mut by_name: Vec<_> = (0..set.len()).map(|at| (place_in_sorted_run(&set[at].object), at)).collect();
    by_name.sort_unstable();
    let mut sorted = vec![0; set.len()];
    let mut current = 0;
    for (pair, before) in by_name.iter().zip(std::iter::once(None).chain(by_name.iter().map(Some))) {
        let ((shared, number), at) = *pair;
        let follows = before.is_some_and(|((before_shared, before_number), _)| {
            *before_shared == shared && before_number.and_then(|number| number.checked_add(1)) == number
        });
        current += usize::from(!follows);
        sorted[at] = current;
    }
    sorted
}

/// Bytes of the oldest level that no younger deletion can have killed.
fn certainly_live(set: &[&RunRef], sorted: &[usize]) -> u128 {
    let is_oldest = |i: usize| {
        let older = |j: usize| sorted[j] != sorted[i] && set[j].groups.intersects(set[i].groups);
        !(0..i).any(older)
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

/// Most sorted runs among the `wanted` that lie over one key group.
fn depth(set: &[&RunRef], sorted: &[usize], wanted: impl Fn(usize) -> bool) -> usize {
    let wanted: Vec<usize> = (0..set.len()).filter(|at| wanted(*at)).collect();
    let over = |at: &usize| {
        let start = set[*at].groups.start;
        let covering = wanted.iter().filter(|run| set[**run].groups.start <= start && start < set[**run].groups.end);
        covering.map(|run| sorted[*run]).collect::<BTreeSet<usize>>().len()
    };
    wanted.iter().map(over).max().unwrap_or(0)
}
