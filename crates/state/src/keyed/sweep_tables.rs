//! The walk that removes what has expired, as tables of whole entries and tables of maps carry it out.

use millpond_core::codec::decode;
use millpond_core::{Data, Key, KeyGroup};

use super::any_table::damaged;
use super::map_table::MapTable;
use super::sweep::{ColdAt, Sweep, Verdict, parts};
use super::tracked::{Cell, Tracked};
use crate::error::StateError;
use crate::table::{At, Entry};

impl<K: Key, C: Cell, F: Send + 'static> Tracked<K, C, F> {
    /// See [`super::any_table::AnyTable::sweep`].
    pub(super) fn sweep_entries(&mut self, sweep: &mut Sweep<'_>) -> Result<(), StateError> {
        let bound = self.keys.entries.bound();
        let Some(expiry) = &mut self.expiry else { return Ok(()) };
        let first = expiry.hot.0;
        let steps = (sweep.steps as u64).min(u64::from(bound)) as u32;
        expiry.hot.0 = (first % bound.max(1)) + steps;
        for step in 0..steps {
            let id = (first % bound + step) % bound;
            self.judge(id, sweep)?;
        }
        let none_cold = self.cold.as_ref().is_none_or(|cold| cold.entries == 0);
        if !sweep.epochs.spills() || (none_cold && !C::MANY_ROWS) {
            return Ok(());
        }
        let Some(expiry) = &mut self.expiry else { return Ok(()) };
        let candidates = expiry.cold_candidates(self.state, C::MANY_ROWS, sweep);
        let candidates = candidates.map_err(|source| StateError::cold(&self.name, source))?;
        candidates.iter().try_for_each(|(group, row_key)| self.judge_cold(*group, row_key, sweep))
    }

    /// Removes or shortens an entry in memory, if its time has come.
    fn judge(&mut self, id: u32, sweep: &mut Sweep<'_>) -> Result<(), StateError> {
        let (Some(expiry), Some(entry)) = (&self.expiry, self.keys.entries.get(id)) else { return Ok(()) };
        self.carry_out((expiry.judge)(&entry.cell, expiry.ttl, sweep.now_ms), id, sweep)
    }

    fn carry_out(&mut self, verdict: Verdict, id: u32, sweep: &mut Sweep<'_>) -> Result<(), StateError> {
        let (Some(expiry), Some(entry)) = (&self.expiry, self.keys.entries.get(id)) else { return Ok(()) };
        let (ttl, shorten) = (expiry.ttl, expiry.shorten);
        match verdict {
            Verdict::Live => {}
            Verdict::Over => {
                let hash = sweep.hash(&self.name, &entry.key)?;
                self.remove_at(id, hash, sweep.epochs)?;
            }
            Verdict::Shorten => {
                self.touch(id, sweep.epochs)?;
                if let Some(entry) = self.keys.entries.get_mut(id) {
                    let before = entry.cell.elements();
                    shorten(&mut entry.cell, ttl, sweep.now_ms);
                    self.elements -= before - entry.cell.elements();
                }
            }
        }
        Ok(())
    }

    /// Brings in what is needed to judge an entry that has rows in the cold store.
    fn judge_cold(&mut self, group: KeyGroup, row_key: &[u8], sweep: &mut Sweep<'_>) -> Result<(), StateError> {
        let fault = |reason| damaged(&self.name, group, reason);
        let key: K = decode(parts(row_key).map_err(fault)?.0).map_err(|error| fault(error.to_string()))?;
        let hash = sweep.hash(&self.name, &key)?;
        let at = At { key: &key, hash, sequence: sweep.next_sequence() };
        let Some(expiry) = &self.expiry else { return Ok(()) };
        let (ttl, judge_cold, now_ms, mut verdict) = (expiry.ttl, expiry.judge_cold, sweep.now_ms, Verdict::Live);
        let filled = self.fill(&at, sweep.epochs, |cell, side, state, group, row_key| {
            verdict = judge_cold(cell, &ColdAt { side, state, group, row_key }, ttl, now_ms)?;
            Ok(())
        });
        filled?;
        match (self.keys.look_up(&at), verdict) {
            (Some(id), Verdict::Live) => self.judge(id, sweep),
            (Some(id), verdict) => self.carry_out(verdict, id, sweep),
            (None, _) => Ok(()),
        }
    }
}

impl<K: Key, UK: Key, UV: Data> MapTable<K, UK, UV> {
    /// See [`super::any_table::AnyTable::sweep`].
    pub(super) fn sweep_items(&mut self, sweep: &mut Sweep<'_>) -> Result<(), StateError> {
        let bound = self.keys.entries.bound();
        let Some(expiry) = &self.expiry else { return Ok(()) };
        let (ttl, judge, mut next) = (expiry.ttl, expiry.judge, expiry.hot);
        for _ in 0..sweep.steps.min(self.entries + bound as usize) {
            let (id, item) = if next.0 < bound { next } else { (0, 0) };
            let Some(Entry { key, cell, .. }) =
                self.keys.entries.get(id).filter(|entry| item < entry.cell.items.bound())
            else {
                next = (id + 1, 0);
                continue;
            };
            next = (id, item + 1);
            if cell.items.get(item).is_some_and(|found| judge(&found.value, ttl, sweep.now_ms) == Verdict::Over) {
                let hash = sweep.hash(&self.name, key)?;
                self.remove_at(id, item, sweep.epochs)?;
                self.drop_if_empty(id, hash);
            }
        }
        let Some(expiry) = &mut self.expiry else { return Ok(()) };
        expiry.hot = next;
        if !sweep.epochs.spills() || self.cold.as_ref().is_none_or(|cold| cold.entries == 0) {
            return Ok(());
        }
        let candidates = expiry.cold_candidates(self.state, false, sweep);
        let candidates = candidates.map_err(|source| StateError::cold(&self.name, source))?;
        candidates.iter().try_for_each(|(group, row_key)| self.judge_cold(*group, row_key, sweep))
    }

    /// Brings an entry of the cold store in and removes it, if its time is over.
    fn judge_cold(&mut self, group: KeyGroup, row_key: &[u8], sweep: &mut Sweep<'_>) -> Result<(), StateError> {
        let fault = |reason| damaged(&self.name, group, reason);
        let (key, user_key) = parts(row_key).map_err(fault)?;
        let key: K = decode(key).map_err(|error| fault(error.to_string()))?;
        let user_key: UK = decode(user_key).map_err(|error| fault(error.to_string()))?;
        let hash = sweep.hash(&self.name, &key)?;
        let at = At { key: &key, hash, sequence: sweep.next_sequence() };
        let user_hash = self.hash(&user_key)?;
        let Some((id, item)) = self.find(&at, sweep.epochs, &user_key, user_hash)? else { return Ok(()) };
        let Some(expiry) = &self.expiry else { return Ok(()) };
        let found = self.item_at(id, item);
        if found.is_some_and(|found| (expiry.judge)(&found.value, expiry.ttl, sweep.now_ms) == Verdict::Over) {
            self.remove_at(id, item, sweep.epochs)?;
            self.drop_if_empty(id, hash);
        }
        Ok(())
    }
}
