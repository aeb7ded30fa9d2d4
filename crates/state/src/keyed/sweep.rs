//! Removing what has expired and nobody reads: the bounded walk between batches.
//!
//! Each table with a time to live is looked through round and round, in proportion to the records that pass: first
//! what is in memory, then rows of the cold store, whose times stand in front of their values. What is found over is
//! removed as a read would remove it, so it leaves a tombstone, and with it memory, cold store and runs. Nothing here
//! happens to states without a time to live.

use std::ops::ControlFlow;

use millpond_core::hash::stable_hash;
use millpond_core::{Key, KeyGroup, KeyGroupRange, KeyHash, MaxParallelism};
use millpond_runs::StateIndex;

use super::backend::KeyedBackend;
use super::cold_part::FetchError;
use super::expiring::Ttl;
use super::states::{KeyedStates, Phase};
use crate::cold::{ColdError, ColdSide, ColdStore};
use crate::epochs::Epochs;
use crate::error::StateError;
use crate::rows::{split_key, without_suffix};

/// Entries of each state that are looked at per record: more than a record adds, so that what expires is found while
/// it is a small part of the state.
const STEPS_PER_RECORD: u64 = 4;
/// Entries of each state that are looked at after one batch, at most; and with a freeze where no batch came.
const MOST_STEPS: u64 = 4_096;
/// Rows of the cold store that are looked at for each entry in memory: one for each record.
const STEPS_PER_COLD_ROW: usize = 4;
/// Key groups that one look goes into, at most, and rows of a look for each of them.
const GROUPS_AT_ONCE: usize = 4;
const ROWS_PER_GROUP: usize = 64;

/// A piece of the walk.
pub(crate) struct Sweep<'a> {
    pub(crate) now_ms: i64,
    /// Entries in memory to look at, in each table.
    pub(crate) steps: usize,
    pub(crate) max: MaxParallelism,
    pub(crate) range: KeyGroupRange,
    pub(crate) scratch: &'a mut Vec<u8>,
    pub(crate) epochs: &'a mut Epochs,
    /// Grows with every key that is looked up.
    pub(crate) sequence: &'a mut u64,
}

impl Sweep<'_> {
    /// The hash of a key found on the way.
    pub(crate) fn hash<K: Key>(&mut self, state: &str, key: &K) -> Result<KeyHash, StateError> {
        let stable = stable_hash(key, self.scratch).map_err(|source| StateError::codec(state, source))?;
        Ok(KeyHash::from_stable(stable, self.max))
    }

    /// The sequence number of the next key that is looked up.
    pub(crate) fn next_sequence(&mut self) -> u64 {
        *self.sequence += 1;
        *self.sequence
    }
}

/// What the walk finds of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It stays.
    Live,
    /// Some of it is over, and worth to be taken out.
    Shorten,
    /// All of it is over.
    Over,
}

/// Where the rows of an entry are in the cold store.
pub(crate) struct ColdAt<'a> {
    pub(crate) side: &'a ColdSide,
    pub(crate) state: StateIndex,
    pub(crate) group: KeyGroup,
    pub(crate) row_key: &'a [u8],
}

pub(crate) type JudgeCold<E> = fn(&mut E, &ColdAt<'_>, Ttl, i64) -> Result<Verdict, FetchError>;

/// How a table with a time to live judges its entries, and where its walk is.
pub(crate) struct Expiry<E> {
    pub(crate) ttl: Ttl,
    /// An entry in memory.
    pub(crate) judge: fn(&E, Ttl, i64) -> Verdict,
    /// An entry of which something is in the cold store; brings in what has to be shortened.
    pub(crate) judge_cold: JudgeCold<E>,
    /// Takes out what is over.
    pub(crate) shorten: fn(&mut E, Ttl, i64),
    /// Of the value of a row, how many elements are over, and how many there are.
    pub(crate) count: fn(&[u8], Ttl, i64) -> (usize, usize),
    /// The next entry in memory, and the item in it.
    pub(crate) hot: (u32, u32),
    pub(crate) cold: ColdPlace,
}

impl<E> Expiry<E> {
    /// Of entries that are one value each.
    pub(crate) fn of_values(ttl: Ttl, judge: fn(&E, Ttl, i64) -> Verdict) -> Self {
        let count = |value: &[u8], ttl, now_ms| (usize::from(super::expired_rows::is_over(value, ttl, now_ms)), 1);
        // What is one value is all in memory once it was fetched, and judged there.
        let judge_cold: JudgeCold<E> = |_, _, _, _| Ok(Verdict::Live);
        Expiry { ttl, judge, judge_cold, shorten: |_, _, _| {}, count, hot: (0, 0), cold: ColdPlace::default() }
    }

    /// Looks at further rows of the cold store. Returns the row keys, up to their suffixes where `whole` entries count,
    /// of those of which at least half is over.
    pub(crate) fn cold_candidates(
        &mut self,
        state: StateIndex,
        whole: bool,
        sweep: &Sweep<'_>,
    ) -> Result<Vec<(KeyGroup, Vec<u8>)>, ColdError> {
        let Some(side) = &sweep.epochs.cold else { return Ok(Vec::new()) };
        let left = sweep.steps.div_ceil(STEPS_PER_COLD_ROW);
        let counting = Counting { whole, found: Vec::new(), place: &mut self.cold };
        let mut look = Look { counting, left };
        let (ttl, now_ms, count) = (self.ttl, sweep.now_ms, self.count);
        for _ in 0..GROUPS_AT_ONCE.min(1 + left / ROWS_PER_GROUP) {
            let judge = |value: &[u8]| count(value, ttl, now_ms);
            if !look.go_on(&**side.store(), state, sweep.range, &judge)? {
                break;
            }
        }
        Ok(look.counting.found)
    }
}

/// Where the walk through the cold store is.
#[derive(Default)]
pub(crate) struct ColdPlace {
    group: u32,
    /// The first row key that was not looked at.
    from: Vec<u8>,
    /// The entry whose rows are being counted, and what they came to.
    entry: Vec<u8>,
    over: usize,
    all: usize,
}

struct Counting<'a> {
    whole: bool,
    found: Vec<(KeyGroup, Vec<u8>)>,
    place: &'a mut ColdPlace,
}

impl Counting<'_> {
    fn row(&mut self, group: KeyGroup, row_key: &[u8], (over, all): (usize, usize)) {
        let entry = if self.whole { without_suffix(row_key) } else { row_key };
        if self.place.entry != entry {
            self.conclude(group);
            self.place.entry.extend_from_slice(entry);
        }
        self.place.over += over;
        self.place.all += all;
    }

    /// The rows of an entry have passed.
    fn conclude(&mut self, group: KeyGroup) {
        let ColdPlace { entry, over, all, .. } = &mut *self.place;
        if *over > 0 && *over * 2 >= *all {
            self.found.push((group, entry.clone()));
        }
        entry.clear();
        (*over, *all) = (0, 0);
    }
}

struct Look<'a> {
    counting: Counting<'a>,
    /// Rows that may still be looked at.
    left: usize,
}

impl Look<'_> {
    /// Looks at rows of one key group; false when that is enough for now.
    fn go_on(
        &mut self,
        store: &dyn ColdStore,
        state: StateIndex,
        range: KeyGroupRange,
        judge: &dyn Fn(&[u8]) -> (usize, usize),
    ) -> Result<bool, ColdError> {
        if range.is_empty() || self.left == 0 {
            return Ok(false);
        }
        if !(range.start..range.end).contains(&self.counting.place.group) {
            self.counting.place.group = range.start;
        }
        let group = KeyGroup(self.counting.place.group as u16);
        let from = std::mem::take(&mut self.counting.place.from);
        let (mut left, mut next) = (self.left, None);
        store.scan(state, group, &[], Some(from.as_slice()), &mut |row_key, value| {
            if left == 0 {
                next = Some(row_key.to_vec());
                return ControlFlow::Break(());
            }
            let counts = judge(value);
            // Looking at a long row costs more.
            left = left.saturating_sub(1 + counts.1 / 16);
            self.counting.row(group, row_key, counts);
            ControlFlow::Continue(())
        })?;
        self.left = left;
        match next {
            Some(row_key) => self.counting.place.from = row_key,
            None => {
                self.counting.conclude(group);
                self.counting.place.group += 1;
            }
        }
        Ok(true)
    }
}

/// Key and suffix of a row key that was found by a walk.
pub(crate) fn parts(row_key: &[u8]) -> Result<(&[u8], &[u8]), String> {
    split_key(row_key).ok_or_else(|| "the key is cut off".to_owned())
}

impl<K: Key> KeyedBackend<K> {
    /// Looks at about `steps` further entries in memory of each state with a time to live, and a quarter as many rows of
    /// the cold store, round and round, and removes those whose time is over. [`super::KeyedBackendControl::keep_budget`]
    /// does it, in proportion to the records since.
    ///
    /// # Errors
    /// When an entry that a running snapshot wants cannot be encoded, or the cold store fails.
    pub fn remove_expired(&mut self, steps: usize) -> Result<(), StateError> {
        let states = &mut self.states;
        if !states.expiring || states.phase != Phase::Running {
            return Ok(());
        }
        let now_ms = states.now_ms();
        let KeyedStates { tables, epochs, scratch, max, range, sequence, .. } = states;
        let mut sweep = Sweep { now_ms, steps, max: *max, range: *range, scratch, epochs, sequence };
        let swept = tables.iter_mut().try_for_each(|table| table.sweep(&mut sweep));
        states.swept_sequence = states.sequence;
        swept
    }

    /// The piece of the walk that the records since the last one call for.
    pub(super) fn sweep_after_batch(&mut self) -> Result<(), StateError> {
        let states = &self.states;
        let records = states.sequence.saturating_sub(states.swept_sequence);
        if !states.expiring || records == 0 {
            return Ok(());
        }
        self.remove_expired(records.saturating_mul(STEPS_PER_RECORD).min(MOST_STEPS) as usize)
    }

    /// The piece of the walk that comes with a freeze where no record has come: state is given back at rest, too.
    pub(super) fn sweep_at_rest(&mut self) -> Result<(), StateError> {
        let states = &self.states;
        if !states.expiring || states.sequence != states.swept_sequence {
            return Ok(());
        }
        self.remove_expired(MOST_STEPS as usize)
    }
}
