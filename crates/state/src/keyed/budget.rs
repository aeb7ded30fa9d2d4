//! Keeps keyed state within its share of the memory.
//!
//! Nothing goes to the cold store while everything fits. Once the hot tables have come close to the limit,
//! *spilling* is on: the rows of every freeze go to the store as well, the eviction hand goes round the tables,
//! and where entries that changed are in its way, a part is frozen. Each call does a bounded amount of work.
//! What counts is entries, what operators keep beside them, rows that are not handed over, and rows that are handed over and not yet gone. Rows of a snapshot
//! are handed over in *pieces*, and are never the reason to begin spilling: what fits stays, and while there are too many
//! rows, records wait.

use millpond_core::Key;

use super::cold_part::Eviction;
use super::control::SliceProgress;
use super::states::KeyedStates;
use crate::cold::{BudgetShare, ColdSide};
use crate::error::StateError;

/// Entries that one call looks at, at most.
const SWEEP_STEPS: usize = 2_048;
/// Rows of a snapshot are handed over when they are about so many bytes, or a sixteenth of the limit.
const PIECE_BYTES: usize = 64 << 20;
/// Pieces are not made smaller than this, in bytes.
const LEAST_PIECE_BYTES: usize = 1 << 10;
/// Rows may wait for the next freeze up to this, however small the limit, in bytes.
const LEAST_WAITING_BYTES: usize = 64 << 10;
/// After so many sweeps in a row that did not free enough, a part is frozen, however small.
const FRUITLESS_SWEEPS: u32 = 64;

/// How it stands with the memory of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// Records may be processed.
    Fine,
    /// What is frozen should be serialised before more records are processed.
    Busy,
    /// Nothing helps but rows that are on their way to the cold store: wait until they are there.
    Full,
}

/// A share of the budget, and how the sweeps went.
pub(crate) struct BudgetKeeper {
    share: BudgetShare,
    /// What [`BudgetShare::look`] said last.
    limit: usize,
    fruitless: u32,
    /// Whether tombstones wait for rows that are on their way to the cold store.
    stalled: bool,
    /// Whether a piece waits for rows that are on their way.
    waiting: bool,
}

impl BudgetKeeper {
    pub(crate) fn new(mut share: BudgetShare) -> Self {
        let limit = share.look(0);
        BudgetKeeper { share, limit, fruitless: 0, stalled: false, waiting: false }
    }

    /// How many bytes could be used at the last look.
    pub(crate) fn last_limit(&self) -> usize {
        self.limit
    }

    /// How many bytes may be used now.
    pub(crate) fn limit(&mut self) -> usize {
        self.limit = self.share.look(0);
        self.limit
    }
}

impl<K: Key> KeyedStates<K> {
    /// See the module.
    pub(crate) fn keep_budget(&mut self) -> Result<Pressure, StateError> {
        let (Some(keeper), Some(side)) = (&mut self.keeper, &self.epochs.cold) else { return Ok(Pressure::Fine) };
        side.check().map_err(|source| StateError::cold("of every name", source))?;
        let (applied, in_flight) = (side.applied(), side.in_flight_bytes());
        self.tables.iter_mut().for_each(|table| table.purge(applied));
        let rows = self.epochs.bytes() + in_flight;
        let sizes: Vec<usize> = self.tables.iter_mut().map(|table| table.hot_bytes()).collect();
        let hot = sizes.iter().sum::<usize>() + self.beside_bytes;
        // Rows that come and go do not change who may have how much: the neighbour's tables still fit.
        let limit = keeper.share.look(if self.epochs.spills() { hot + rows } else { hot });
        keeper.limit = limit;
        if keeper.stalled && in_flight > limit / 4 {
            return Ok(Pressure::Full);
        }
        let waiting = keeper.waiting && in_flight > limit / 4;
        // Rows do not begin to push out what fits; later they push out half at most. Beyond that they make records wait.
        let reserved = if self.epochs.spills() { rows.min(limit / 2) } else { 0 };
        let target = (limit / 8 * 7).saturating_sub(reserved);
        if hot <= target {
            keeper.fruitless = 0;
            return Ok(self.pressure(hot + rows, limit, in_flight, waiting));
        }
        if !self.epochs.spills() {
            self.start_spilling();
        }
        // Rows of freezes that are on their way come first, whoever waits for them.
        let most_waiting = (limit / 4).max(LEAST_WAITING_BYTES).saturating_sub(rows - self.epochs.waiting_bytes());
        let freed = self.evict(&sizes, hot - target, most_waiting)?;
        let reached = freed >= hot - target;
        if let Some(keeper) = &mut self.keeper {
            keeper.fruitless = if reached { 0 } else { keeper.fruitless + 1 };
        }
        if !reached && self.part_is_due(limit, in_flight, &sizes) {
            self.freeze_part();
        }
        Ok(self.pressure(hot.saturating_sub(freed) + rows, limit, in_flight, waiting))
    }

    fn pressure(&self, used: usize, limit: usize, in_flight: usize, waiting: bool) -> Pressure {
        let frozen = self.epochs.frozen() + self.epochs.frozen_parts() > 0;
        match (used > limit / 4 * 5, frozen && !waiting) {
            (true, true) => Pressure::Busy,
            (true, false) if in_flight > 0 => Pressure::Full,
            _ => Pressure::Fine,
        }
    }

    /// Rows of the oldest freeze, once there are enough of them, and while not too much is on its way already.
    pub(crate) fn hand_over_piece(&mut self) -> Option<SliceProgress> {
        let in_flight = self.in_flight_bytes();
        let limit = self.keeper.as_ref().map(|keeper| keeper.limit);
        let bytes = limit.map_or(PIECE_BYTES, |limit| (limit / 16).clamp(LEAST_PIECE_BYTES, PIECE_BYTES));
        let bytes = self.piece_bytes.unwrap_or(bytes);
        let frozen = self.epochs.oldest_mut()?.0;
        if !self.tables.iter().any(|table| table.has_clears(frozen.tag)) {
            frozen.cut_piece(bytes);
        }
        let due = !frozen.pieces.is_empty();
        let waiting = due && limit.is_some_and(|limit| in_flight > limit / 4);
        if let Some(keeper) = &mut self.keeper {
            keeper.waiting = waiting;
        }
        if waiting {
            return Some(SliceProgress::Waiting);
        }
        let (rows, cold) = self.epochs.take_piece()?;
        Some(SliceProgress::Part { rows, cold, continued: true })
    }

    /// Tombstones of what was cleared go ahead of the rows of their epoch, once they are a sixteenth of what may be
    /// used, and while not too much is on its way already.
    pub(crate) fn hand_over_clears(&mut self) -> Option<SliceProgress> {
        let in_flight = self.in_flight_bytes();
        let keeper = self.keeper.as_mut()?;
        let waiting = self.epochs.oldest_mut()?.0.clears.bytes();
        let due = waiting > 0 && waiting >= keeper.limit / 16;
        keeper.stalled = due && in_flight > keeper.limit / 4;
        if !due {
            return None;
        }
        if keeper.stalled {
            return Some(SliceProgress::Waiting);
        }
        let (rows, cold) = self.epochs.take_clears()?;
        Some(SliceProgress::Part { rows, cold: Some(cold), continued: false })
    }

    /// From now on, rows go to the cold store.
    pub(crate) fn start_spilling(&mut self) {
        if self.epochs.spills() {
            return;
        }
        if self.tracking {
            self.freeze_part();
        } else {
            self.tables.iter_mut().for_each(|table| table.set_tracking(true));
            self.epochs.forget_changes();
        }
        self.epochs.activate();
        if let Some(keeper) = &self.keeper {
            keeper.share.begin_spilling();
        }
    }

    pub(crate) fn freeze_part(&mut self) {
        let tag = self.epochs.tag();
        self.tables.iter_mut().for_each(|table| table.freeze(tag));
        self.epochs.freeze_part();
        if let Some(keeper) = &mut self.keeper {
            keeper.fruitless = 0;
        }
    }

    /// Lets the hand go round, the largest table first. Returns the bytes freed.
    fn evict(&mut self, sizes: &[usize], wanted: usize, most_waiting: usize) -> Result<usize, StateError> {
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        order.sort_by_key(|table| std::cmp::Reverse(sizes[*table]));
        let mut eviction = Eviction { wanted, steps: SWEEP_STEPS, freed: 0, most_waiting };
        for table in order {
            self.tables[table].evict(&mut self.epochs, self.max, &mut eviction)?;
            if eviction.is_over() {
                break;
            }
        }
        Ok(eviction.freed)
    }

    /// Whether enough has changed, or waits, for a part of its own.
    fn part_is_due(&self, limit: usize, in_flight: usize, sizes: &[usize]) -> bool {
        if self.epochs.frozen_parts() > 0 || in_flight > limit / 4 {
            return false;
        }
        let waiting = self.epochs.waiting_bytes();
        let changed = self.tables.iter().zip(sizes).map(|(table, size)| {
            let hot = table.entries() - table.cold_entries();
            (size / hot.max(1)).saturating_mul(table.dirty_entries())
        });
        let changed: usize = changed.sum();
        let fruitless = self.keeper.as_ref().is_some_and(|keeper| keeper.fruitless >= FRUITLESS_SWEEPS);
        (waiting > 0 || changed > 0) && (waiting + changed >= limit / 8 || fruitless)
    }

    pub(crate) fn in_flight_bytes(&self) -> usize {
        self.epochs.cold.as_ref().map_or(0, ColdSide::in_flight_bytes)
    }
}
