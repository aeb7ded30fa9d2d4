//! Which runs to merge, decided from the manifest alone.
//!
//! Owns the policy, the plan and its application to a list of runs; [`stack`] owns how runs lie over each other. Does
//! *not* read or write runs and does not decide when planning happens ([`crate::Coordinator`] does).
//!
//! Runs whose key groups overlap, directly or through others, form a *set*; sets share no key group. The older runs of a
//! set lie in *pieces* that share no key group either; the *young* ones lie over several pieces, as subtasks write them.
//! Outputs are cut where pieces begin, and within a piece that has become large. The first rule that fits:
//!
//! 1. *Tier*: when `fan_in` sorted runs of the lowest level lie over one key group, among the young or in a piece, or twice
//!    as many of a higher level, the youngest runs down to and including that level are merged into one run of the next level, in pieces. The oldest
//!    run over a key group takes no part. Of very many runs of the lowest level (a long epoch that was stored in parts) the
//!    oldest are merged by themselves first, so that a merge has not too many inputs.
//! 2. *Excess*: when the operator's bytes exceed what is certainly live in them by `excess_percent`, the piece in which
//!    the excess is the largest is merged whole, and its tombstones are dropped. Where the pieces have little excess of
//!    their own, the young runs are merged, and so get into the pieces.
//! 3. *Depth*: when still too many sorted runs lie over one key group, those of the piece, or the young ones, are merged.
//!
//! *Bounds.* When no rule fits any more, the operator is at most 1 + `excess_percent` of what is certainly live (as soon as it exceeds
//! `min_bytes`): the oldest level holds only rows that were live when it was made, and each younger tombstone kills at most
//! one of them. Rule 1 leaves fewer than twice `fan_in` sorted runs per level, and a level holds at least `fan_in` times the runs
//! of the one below, so after *n* sorted runs of a subtask (an epoch is one, or one for each of its parts) fewer than
//! `2 fan_in × (2 + log_fan_in n)` runs lie over a key group, and by rule 3 about `max_depth` at most.
//!
//! *Cost.* Rule 1 rewrites each byte once per level. Rule 2 keeps the *mean* excess at x = `excess_percent`; pieces are
//! merged in turn, so that theirs lies between 0 and about 2x, and a merge that removes 2x writes 1: it costs
//! 1 / 2x bytes written per changed byte, 2.5 by default.
//!
//! *Space.* A merge needs room for its outputs, and its inputs stay as long as a retained checkpoint names them: a piece is
//! about a 16th of the operator (at most 64 MiB, until there are 256), so merges need little room at a time.
//!
//! The scheme is size-tiered compaction, bounded by space amplification and partitioned: compare "Universal Compaction"
//! (`max_size_amplification_percent`) in the documentation of RocksDB, and its leveled compaction, which picks one file and what
//! overlaps it; O'Neil et al., "The log-structured merge-tree", 1996, has the rolling merge of a part of a level.

mod stack;

use std::collections::BTreeSet;

use millpond_core::{Attempt, Epoch};
use millpond_storage::ObjectName;
use serde::{Deserialize, Serialize};

use crate::manifest::{KeyedStateInfo, RunRef};
use crate::names::{DataObject, Writer};
pub use stack::Excess;
use stack::{Stack, excess_of, overlapping_sets};

/// When to merge.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CompactionPolicy {
    /// How many sorted runs of the lowest level over one key group are merged, at least 2; of a higher level twice as many.
    pub fan_in: u32,
    /// How much more than live state may be stored, in percent.
    pub excess_percent: u32,
    /// Below this size of an operator, in bytes, excess does not matter.
    pub min_bytes: u64,
    /// About this many sorted runs may lie over one key group without being merged otherwise.
    pub max_depth: u32,
    /// How many compactions may run at once; 0 turns compaction off.
    pub max_running: u32,
    /// Pieces are not made smaller than this, in bytes.
    pub min_piece_bytes: u64,
}

impl Default for CompactionPolicy {
    fn default() -> Self {
        CompactionPolicy {
            fan_in: 4,
            excess_percent: 20,
            min_bytes: 64 * 1024,
            max_depth: 32,
            max_running: 2,
            min_piece_bytes: 1 << 20,
        }
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
    /// Key groups, ascending, with which an output begins: none holds rows of both sides.
    pub cuts: Vec<u32>,
    /// Whether so much more than live state is stored that the merge must not wait for idle processors.
    pub urgent: bool,
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

/// Plans the merges of one operator.
#[derive(Clone, Copy, Debug)]
pub struct Planner<'a> {
    /// The operator.
    pub operator: &'a str,
    /// Number of key groups.
    pub max_parallelism: u32,
    /// Its live runs, oldest first.
    pub runs: &'a [RunRef],
    /// Runs that are being merged already; no plan takes them.
    pub busy: &'a BTreeSet<ObjectName>,
    /// When to merge.
    pub policy: &'a CompactionPolicy,
}

/// Which runs of a set to merge, and the level of the result.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Choice<'a> {
    /// Oldest first.
    inputs: Vec<&'a RunRef>,
    drop_tombstones: bool,
    level: u8,
    /// Key groups with which an output begins.
    cuts: Vec<u32>,
}

/// This many times the excess that is allowed makes merges urgent.
const URGENT_TIMES: u32 = 2;
/// Less excess than this is never urgent, in bytes.
const URGENT_BYTES: u64 = 16 << 20;
/// Pieces are about this large, in bytes, as long as their number is within bounds.
const PIECE_BYTES: u64 = 64 << 20;
/// The least and the largest number of pieces of an operator that is not small.
const PIECES: (u64, u64) = (16, 256);

impl<'a> Planner<'a> {
    /// The next merge; `None` when all is well, or what is to do is being done.
    #[must_use]
    pub fn next(&self, id: u64) -> Option<CompactionPlan> {
        let stacks: Vec<Stack<'a>> = self.stacks();
        let excess = self.excess();
        let choice = stacks
            .iter()
            .find_map(|stack| stack.young_tier(self.busy, self.policy))
            .or_else(|| self.choose_by_excess(&stacks, excess))
            .or_else(|| stacks.iter().find_map(|stack| stack.piece_tier(self.busy, self.policy)))
            .or_else(|| stacks.iter().find_map(|stack| stack.too_deep(self.busy, self.policy)));
        choice.map(|choice| self.merging(id, choice, excess))
    }

    /// The next merge of everything in a set that holds one of the runs that `must_go`: it leaves out the rows of
    /// `dropped_states`. `None` also as long as such a set has runs that are being merged.
    #[must_use]
    pub fn next_dropping(
        &self,
        id: u64,
        must_go: impl Fn(&RunRef) -> bool,
        dropped_states: &BTreeSet<String>,
    ) -> Option<CompactionPlan> {
        let is_due = |stack: &Stack<'_>| !stack.is_busy(self.busy) && stack.all().iter().any(|run| must_go(run));
        let stack = self.stacks().into_iter().find(is_due)?;
        let plan = self.merging(id, stack.everything()?, self.excess());
        Some(CompactionPlan { dropped_states: dropped_states.clone(), ..plan })
    }

    /// How much is stored, and how much of it is certainly live.
    #[must_use]
    pub fn excess(&self) -> Excess {
        overlapping_sets(self.runs).iter().map(|set| excess_of(set)).fold(Excess::default(), Excess::plus)
    }

    fn choose_by_excess(&self, stacks: &[Stack<'a>], excess: Excess) -> Option<Choice<'a>> {
        let percent = self.policy.excess_percent;
        if excess.stored < u128::from(self.policy.min_bytes) || !excess.exceeds(percent) {
            return None;
        }
        let worst = stacks.iter().filter_map(|stack| stack.worst_piece(self.busy, percent / 2));
        let worst = worst.reduce(|worst, other| if other.0.is_worse_than(worst.0) { other } else { worst });
        if let Some((_, choice)) = worst {
            return Some(choice);
        }
        stacks.iter().find_map(|stack| {
            let waits = excess_of(&stack.all()).exceeds(percent) && !stack.is_busy(self.busy);
            waits.then(|| stack.put_into_pieces()).flatten()
        })
    }

    fn stacks(&self) -> Vec<Stack<'a>> {
        let piece_bytes = self.piece_bytes();
        overlapping_sets(self.runs).into_iter().map(|set| Stack::of(set, piece_bytes)).collect()
    }

    /// How large a piece should be.
    fn piece_bytes(&self) -> u128 {
        let stored = self.runs.iter().map(|run| run.bytes).fold(0, u64::saturating_add);
        let wanted = (stored / PIECE_BYTES).clamp(PIECES.0, PIECES.1);
        let most = (stored / self.policy.min_piece_bytes.max(1)).min(u64::from(self.max_parallelism));
        u128::from(stored / wanted.min(most).max(1)).max(1)
    }

    fn merging(&self, id: u64, choice: Choice<'_>, excess: Excess) -> CompactionPlan {
        let Choice { inputs, drop_tombstones, level, cuts } = choice;
        let urgent = excess.exceeds(self.policy.excess_percent.saturating_mul(URGENT_TIMES))
            && excess.bytes() >= u128::from(URGENT_BYTES);
        CompactionPlan {
            id,
            operator: self.operator.to_owned(),
            drop_tombstones,
            epoch: inputs.iter().map(|run| run.epoch).max().unwrap_or(Epoch::ZERO),
            level,
            cuts,
            urgent,
            dropped_states: BTreeSet::new(),
            declared: Vec::new(),
            planned_ms: 0,
            inputs: inputs.into_iter().cloned().collect(),
        }
    }
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
