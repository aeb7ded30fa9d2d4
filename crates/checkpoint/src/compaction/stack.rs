//! How runs lie over each other: sets, pieces, sorted runs, and what in them is certainly live.
//!
//! Owns the geometry, and the choice within one set. Does *not* own when a choice is made ([`super::Planner`] does).
//!
//! Invariants of a [`Stack`]: no run of a piece shares a key group with a run of another piece; every run that is
//! older than a run of a piece and shares a key group with it is in that piece; all young runs are younger than all
//! runs in pieces. So a whole piece may be merged without its tombstones, and any stretch of a piece or of the young.

use std::collections::BTreeSet;
use std::ops::Range;

use millpond_core::KeyGroupRange;
use millpond_storage::ObjectName;

use super::{Choice, CompactionPolicy};
use crate::manifest::RunRef;
use crate::names::place_in_sorted_run;

/// Files that a merge of parts has at most, roughly: each takes memory for reading.
const MAX_PART_FILES: usize = 64;

/// Above the lowest level, so many times the runs wait for each other: until then most often the whole piece is merged.
const HIGHER_TIMES: usize = 2;

/// How much is stored, and how much of it is certainly live, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excess {
    /// All runs together.
    pub stored: u128,
    /// What no younger row can have superseded: of the oldest level, and without deletions as many as there are.
    pub live: u128,
}

impl Excess {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Excess) -> Excess {
        Excess { stored: self.stored + other.stored, live: self.live + other.live }
    }

    /// Whether more than `percent` of what is live is stored beside it.
    #[must_use]
    pub fn exceeds(self, percent: u32) -> bool {
        self.stored * 100 > self.live * u128::from(100 + u64::from(percent))
    }

    /// What is not certainly live, in bytes.
    #[must_use]
    pub fn bytes(self) -> u128 {
        self.stored.saturating_sub(self.live)
    }

    /// Whether a larger part of it is not certainly live.
    pub(super) fn is_worse_than(self, other: Excess) -> bool {
        self.stored * other.live > other.stored * self.live
    }
}

/// Runs of a set, or of a part of it.
#[derive(Clone, Debug)]
struct Layer<'a> {
    /// Oldest first.
    runs: Vec<&'a RunRef>,
    /// For each of them a number that it shares with the files of the same sorted run.
    sorted: Vec<usize>,
    /// How many in front are the oldest over their key groups, in the whole set.
    oldest: usize,
    /// From the first key group of any of them to the last.
    groups: KeyGroupRange,
    /// Key groups with which an output of theirs begins.
    cuts: Vec<u32>,
}

/// The runs of a set.
#[derive(Clone, Debug)]
pub(super) struct Stack<'a> {
    /// By their key groups.
    pieces: Vec<Layer<'a>>,
    young: Layer<'a>,
    piece_bytes: u128,
}

/// A piece may have so many times the bytes that it should have.
const MOST_JOINED: u128 = 3;

/// Pieces as they are found, from the oldest run to the youngest.
struct Growing {
    groups: KeyGroupRange,
    bytes: u128,
    members: Vec<usize>,
}

impl<'a> Stack<'a> {
    /// Finds the pieces of a `set`, oldest first, which should have `piece_bytes` bytes each. A run that lies over several
    /// pieces makes them one if they do not get too large then; else it and all younger ones are young.
    pub(super) fn of(set: Vec<&'a RunRef>, piece_bytes: u128) -> Stack<'a> {
        let mut found: Vec<Growing> = Vec::new();
        let mut young = set.len();
        for (at, run) in set.iter().enumerate() {
            let over = |piece: &Growing| piece.groups.intersects(run.groups);
            let joined: u128 = found.iter().filter(|piece| over(piece)).map(|piece| piece.bytes).sum();
            let bytes = joined + u128::from(run.bytes);
            if found.iter().filter(|piece| over(piece)).count() > 1 && bytes > MOST_JOINED * piece_bytes {
                young = at;
                break;
            }
            let mut piece = Growing { groups: run.groups, bytes, members: vec![at] };
            found.retain(|other| {
                let joins = other.groups.intersects(run.groups);
                if joins {
                    let (start, end) = (piece.groups.start, piece.groups.end);
                    piece.groups = KeyGroupRange::new(start.min(other.groups.start), end.max(other.groups.end));
                    piece.members.extend(&other.members);
                }
                !joins
            });
            found.push(piece);
        }
        let (sorted, oldest) = (sorted_runs(&set), oldest_of(&set));
        let layer = |members: &[usize]| Layer {
            runs: members.iter().map(|at| set[*at]).collect(),
            sorted: members.iter().map(|at| sorted[*at]).collect(),
            oldest: members.iter().take_while(|at| oldest[**at]).count(),
            groups: hull(members.iter().map(|at| set[*at])),
            cuts: Vec::new(),
        };
        found.sort_unstable_by_key(|piece| piece.groups.start);
        let pieces = found.iter_mut().map(|piece| {
            piece.members.sort_unstable();
            let cuts = even_cuts(piece.groups, piece.bytes, piece_bytes);
            Layer { cuts, ..layer(&piece.members) }
        });
        let (pieces, young): (Vec<Layer<'a>>, Vec<usize>) = (pieces.collect(), (young..set.len()).collect());
        let young = Layer { cuts: cuts_of(&pieces, piece_bytes), ..layer(&young) };
        Stack { pieces, young, piece_bytes }
    }

    /// All runs; those of pieces first.
    pub(super) fn all(&self) -> Vec<&'a RunRef> {
        self.layers().flat_map(|layer| layer.runs.iter().copied()).collect()
    }

    pub(super) fn is_busy(&self, busy: &BTreeSet<ObjectName>) -> bool {
        self.layers().any(|layer| layer.is_busy(busy))
    }

    fn layers(&self) -> impl Iterator<Item = &Layer<'a>> {
        self.pieces.iter().chain([&self.young])
    }

    /// Young runs of one level, once there are enough of them.
    pub(super) fn young_tier(&self, busy: &BTreeSet<ObjectName>, policy: &CompactionPolicy) -> Option<Choice<'a>> {
        self.young.tier(busy, policy.fan_in)
    }

    /// Runs of one level in a piece, once there are enough of them.
    pub(super) fn piece_tier(&self, busy: &BTreeSet<ObjectName>, policy: &CompactionPolicy) -> Option<Choice<'a>> {
        self.pieces.iter().find_map(|piece| piece.tier(busy, policy.fan_in))
    }

    /// The whole piece with the largest excess, if that is more than `percent`.
    pub(super) fn worst_piece(&self, busy: &BTreeSet<ObjectName>, percent: u32) -> Option<(Excess, Choice<'a>)> {
        let idle = self.pieces.iter().filter(|piece| !piece.is_busy(busy));
        let excess = idle.map(|piece| (excess_of(&piece.runs), piece)).filter(|(excess, _)| excess.exceeds(percent));
        let worst = excess.reduce(|worst, other| if other.0.is_worse_than(worst.0) { other } else { worst });
        worst.and_then(|(excess, piece)| Some((excess, piece.whole(true)?)))
    }

    /// The young runs, so that they get into the pieces; or everything where that would not help: because the young
    /// hold oldest rows, or are cut as the pieces are already.
    pub(super) fn put_into_pieces(&self) -> Option<Choice<'a>> {
        let young = &self.young;
        let is_cut = |cut: &u32| !young.runs.iter().any(|run| run.groups.start < *cut && *cut < run.groups.end);
        let helps = !young.cuts.iter().all(is_cut) || young.depth(|_| true) > 1;
        if young.oldest == 0 && helps && !self.pieces.is_empty() { young.whole(false) } else { self.everything() }
    }

    /// Everything.
    pub(super) fn everything(&self) -> Option<Choice<'a>> {
        // Pieces share no key group, so that any order of them is right.
        let inputs = self.all();
        let level = inputs.iter().map(|run| run.level).max()?.saturating_add(1);
        let cuts = even_cuts(hull(inputs.iter().copied()), bytes_of(&inputs), self.piece_bytes);
        Some(Choice { inputs, drop_tombstones: true, level, cuts })
    }

    /// A piece, or the young runs, with too many sorted runs over one key group.
    pub(super) fn too_deep(&self, busy: &BTreeSet<ObjectName>, policy: &CompactionPolicy) -> Option<Choice<'a>> {
        let most = (policy.max_depth / 2).max(2) as usize;
        let deep = |layer: &Layer<'a>| !layer.is_busy(busy) && layer.depth(|_| true) >= most;
        let piece = self.pieces.iter().find(|piece| deep(piece)).and_then(|piece| piece.whole(true));
        piece.or_else(|| deep(&self.young).then(|| self.young.whole(false)).flatten())
    }
}

impl<'a> Layer<'a> {
    fn is_busy(&self, busy: &BTreeSet<ObjectName>) -> bool {
        self.runs.iter().any(|run| busy.contains(&run.object))
    }

    fn whole(&self, drop_tombstones: bool) -> Option<Choice<'a>> {
        let level = self.runs.iter().map(|run| run.level).max()?.saturating_add(1);
        Some(Choice { inputs: self.runs.clone(), drop_tombstones, level, cuts: self.cuts() })
    }

    fn tier(&self, busy: &BTreeSet<ObjectName>, fan_in: u32) -> Option<Choice<'a>> {
        if self.runs.len() == self.oldest || self.is_busy(busy) {
            return None;
        }
        let (chosen, level) = self.choose_tier(fan_in.max(2) as usize)?;
        Some(Choice { inputs: self.runs[chosen].to_vec(), drop_tombstones: false, level, cuts: self.cuts() })
    }

    /// The cuts that lie within its key groups.
    fn cuts(&self) -> Vec<u32> {
        self.cuts.iter().copied().filter(|cut| self.groups.start < *cut && *cut < self.groups.end).collect()
    }

    /// Which runs to merge, and the level of the result.
    fn choose_tier(&self, fan_in: usize) -> Option<(Range<usize>, u8)> {
        let (runs, sorted) = (&self.runs, &self.sorted);
        let highest = runs[self.oldest..].iter().map(|run| run.level).max()?;
        let mut choice = None;
        let mut carried = 0;
        for level in 0..=highest {
            let older = runs.iter().rposition(|run| run.level > level).map_or(0, |older| older + 1);
            let first = older.max(self.oldest);
            let wanted = if level == 0 { fan_in } else { fan_in * HIGHER_TIMES };
            let full = self.depth(|at| at >= first && runs[at].level == level) + carried >= wanted;
            carried = usize::from(full);
            if full {
                choice = Some((first..runs.len(), level.saturating_add(1)));
            }
            if full && level == 0 && runs.len() - first > MAX_PART_FILES {
                // Files of one sorted run stay together.
                let wanted = (first + MAX_PART_FILES..runs.len()).find(|at| sorted[*at] != sorted[*at - 1]);
                return Some((first..wanted.unwrap_or(runs.len()), 1));
            }
        }
        choice
    }

    /// Most sorted runs among the `wanted` that lie over one key group.
    fn depth(&self, wanted: impl Fn(usize) -> bool) -> usize {
        let mut wanted: Vec<usize> = (0..self.runs.len()).filter(|at| wanted(*at)).collect();
        wanted.sort_unstable_by_key(|at| self.sorted[*at]);
        let mut lying: Vec<(usize, usize)> = vec![(0, usize::MAX); groups_end(&self.runs)];
        for at in wanted {
            for (depth, newest) in &mut lying[span(self.runs[at])] {
                *depth += usize::from(*newest != self.sorted[at]);
                *newest = self.sorted[at];
            }
        }
        lying.iter().map(|(depth, _)| *depth).max().unwrap_or(0)
    }
}

/// Cuts `runs` into sets that share no key group; within a set the order stays.
pub(super) fn overlapping_sets(runs: &[RunRef]) -> Vec<Vec<&RunRef>> {
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

/// Cuts `groups`, over which runs of so many `bytes` lie, into even pieces, if they are more than two.
fn even_cuts(groups: KeyGroupRange, bytes: u128, piece_bytes: u128) -> Vec<u32> {
    let pieces = u64::try_from(bytes / piece_bytes.max(1)).unwrap_or(u64::MAX).min(u64::from(groups.len()));
    if pieces <= 2 {
        return Vec::new();
    }
    let cut = |piece: u64| u32::try_from(piece * u64::from(groups.len()) / pieces).ok();
    (1..pieces).filter_map(cut).map(|cut| groups.start + cut).collect()
}

/// Where young runs are cut so that their parts lie over one of the `pieces` each, or over some small ones.
fn cuts_of(pieces: &[Layer<'_>], piece_bytes: u128) -> Vec<u32> {
    let (mut cuts, mut before) = (Vec::new(), 0);
    for piece in pieces {
        let bytes = bytes_of(&piece.runs);
        if before > 0 && before + bytes > piece_bytes {
            cuts.push(piece.groups.start);
            before = 0;
        }
        before += bytes;
        cuts.extend(&piece.cuts);
    }
    cuts
}

fn bytes_of(runs: &[&RunRef]) -> u128 {
    runs.iter().map(|run| u128::from(run.bytes)).sum()
}

/// From the first key group of any run to the last.
fn hull<'r>(runs: impl Iterator<Item = &'r RunRef>) -> KeyGroupRange {
    let hull =
        |all: KeyGroupRange, run: KeyGroupRange| KeyGroupRange::new(all.start.min(run.start), all.end.max(run.end));
    runs.map(|run| run.groups).reduce(hull).unwrap_or(KeyGroupRange::new(0, 0))
}

/// What `runs` hold, which are a whole set, or a whole piece: oldest first where they overlap.
pub(super) fn excess_of(runs: &[&RunRef]) -> Excess {
    let (mut stored, mut bytes, mut rows, mut dead) = (0u128, 0u128, 0u128, 0u128);
    for (run, is_oldest) in runs.iter().zip(oldest_of(runs)) {
        stored += u128::from(run.bytes);
        dead += u128::from(run.tombstones);
        if is_oldest {
            bytes += u128::from(run.bytes);
            rows += u128::from(run.rows);
        }
    }
    Excess { stored, live: (bytes * rows.saturating_sub(dead)).checked_div(rows).unwrap_or(0) }
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

/// For each run, whether no other sorted run lies under any of its key groups.
fn oldest_of(set: &[&RunRef]) -> Vec<bool> {
    let sorted = sorted_runs(set);
    let mut lowest = vec![usize::MAX; groups_end(set)];
    let mut is_oldest = Vec::with_capacity(set.len());
    for (run, sorted) in set.iter().zip(sorted) {
        let groups = &mut lowest[span(run)];
        is_oldest.push(groups.iter().all(|lowest| *lowest == usize::MAX || *lowest == sorted));
        groups.iter_mut().filter(|lowest| **lowest == usize::MAX).for_each(|lowest| *lowest = sorted);
    }
    is_oldest
}

fn groups_end(runs: &[&RunRef]) -> usize {
    runs.iter().map(|run| run.groups.end as usize).max().unwrap_or(0)
}

fn span(run: &RunRef) -> Range<usize> {
    run.groups.start as usize..run.groups.end as usize
}
