//! How far windows have fired, as operator state.
//!
//! Watermarks are not stored (TM-08), but windows that have fired must not fire again after a restore, and a record
//! that was late stays late: with this, what windows emit does not depend on failures. Marks of several senders reach
//! the subtasks of an operator in different orders, so that these have not come equally far at a checkpoint: each
//! stores how far it has come with the key groups that it owns, and after a restore a key goes on from where its
//! group was.

use millpond_core::hash::stable_hash;
use millpond_core::{Key, KeyGroup, KeyGroupRange, KeyHash, MaxParallelism, UserResult};
use millpond_dataflow::time::{MAX_WATERMARK, MIN_WATERMARK};
use millpond_dataflow::{OpenContext, OperatorContext};
use millpond_state::OperatorListState;

/// The state's name.
const FIRED: &str = "fired";

/// Key groups, and how far their windows have fired.
type Share = (KeyGroupRange, i64);

/// See the module.
pub(crate) struct Fired {
    state: Option<OperatorListState<Share>>,
    /// How far the windows of the own key groups had fired before the restore; none when nowhere.
    restored: Vec<Share>,
    /// The least and the most of it.
    least: i64,
    most: i64,
    /// What the state holds, as far as this attempt has written it.
    written: Option<Vec<Share>>,
}

/// How far the windows of each key have fired, at one watermark.
#[derive(Clone, Copy)]
pub(crate) struct Clocks<'a> {
    fired: &'a Fired,
    watermark: i64,
    least: i64,
    differs: bool,
}

impl Clocks<'_> {
    /// The clock of a record whose key has this hash.
    #[inline]
    pub(crate) fn of(&self, hash: Option<KeyHash>) -> i64 {
        match hash {
            Some(hash) if self.differs => self.fired.clock_of(self.watermark, hash.group()),
            _ => self.least,
        }
    }
}

impl Default for Fired {
    fn default() -> Self {
        Fired { state: None, restored: Vec::new(), least: MIN_WATERMARK, most: MIN_WATERMARK, written: None }
    }
}

impl Fired {
    pub(crate) fn open(&mut self, context: &mut OpenContext<'_>) -> UserResult {
        let state = context.states.union_list::<Share>(FIRED)?;
        let own = context.info.key_groups();
        let shares = state.get(context.states)?.iter().map(|(range, clock)| (range.intersection(own), *clock));
        // A job that goes on after its end has new input: nothing of it is late before it comes.
        let shares = shares.map(|(range, clock)| (range, if clock == MAX_WATERMARK { MIN_WATERMARK } else { clock }));
        self.restored = shares.filter(|(range, _)| !range.is_empty()).collect();
        self.least = self.restored.iter().map(|(_, clock)| *clock).min().unwrap_or(MIN_WATERMARK);
        self.most = self.restored.iter().map(|(_, clock)| *clock).max().unwrap_or(MIN_WATERMARK);
        self.state = Some(state);
        Ok(())
    }

    /// The watermark, or how far the windows of all keys had fired before the restore.
    #[inline]
    pub(crate) fn clock(&self, watermark: i64) -> i64 {
        watermark.max(self.least)
    }

    /// Whether the windows of some keys had fired further than those of others, and than the watermark.
    #[inline]
    fn differs(&self, watermark: i64) -> bool {
        self.most > self.clock(watermark)
    }

    /// The watermark, or how far the windows of this key group had fired before the restore.
    fn clock_of(&self, watermark: i64, group: KeyGroup) -> i64 {
        let share = self.restored.iter().find(|(range, _)| range.contains(group));
        share.map_or(watermark, |(_, restored)| watermark.max(*restored))
    }

    /// The clocks of the records of a batch.
    #[inline]
    pub(crate) fn clocks(&self, watermark: i64) -> Clocks<'_> {
        Clocks { fired: self, watermark, least: self.clock(watermark), differs: self.differs(watermark) }
    }

    /// Whether windows that end with `time_ms` had fired before the restore for some keys.
    pub(crate) fn differs_at(&self, time_ms: i64) -> bool {
        time_ms <= self.most
    }

    /// Whether windows of `key` that end with `time_ms` had fired before the restore.
    pub(crate) fn has_fired<K: Key>(&self, key: &K, time_ms: i64, max: MaxParallelism) -> UserResult<bool> {
        let hash = KeyHash::from_stable(stable_hash(key, &mut Vec::new())?, max);
        Ok(time_ms <= self.clock_of(MIN_WATERMARK, hash.group()))
    }

    /// How far the windows of all keys had fired before the restore.
    pub(crate) fn restored(&self) -> i64 {
        self.least
    }

    pub(crate) fn snapshot(&mut self, context: &mut OperatorContext<'_>) -> UserResult {
        let Some(state) = &self.state else { return Ok(()) };
        let watermark = context.watermark;
        let shares = if self.differs(watermark) {
            self.restored.iter().map(|(range, clock)| (*range, watermark.max(*clock))).collect()
        } else {
            vec![(context.info.key_groups(), self.clock(watermark))]
        };
        if self.written.as_ref() != Some(&shares) {
            state.update(context.states, shares.iter().copied())?;
            self.written = Some(shares);
        }
        Ok(())
    }
}
