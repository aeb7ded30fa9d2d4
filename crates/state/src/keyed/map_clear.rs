//! Clearing a map of which much is in the cold store.
//!
//! What is in memory goes at once. What is not is counted, hidden by one mark, and noted: its tombstones are
//! written when the epoch is, window by window, so that a map larger than memory does not leave a buffer of
//! tombstones that is. They come before all other rows of the epoch, in pieces: an entry that was put again, before
//! or after its tombstone is written, stays.

use std::ops::ControlFlow;

use millpond_core::{CodecError, Data, Key, KeyGroup};
use millpond_runs::RowBuffer;

use super::any_table::Budget;
use super::map_cold::Walk;
use super::map_table::MapTable;
use crate::cold::ColdSide;
use crate::epochs::{Epochs, Frozen};
use crate::error::StateError;
use crate::table::At;

/// Rows read at a time.
const WINDOW_ROWS: usize = 128;

/// A map that was cleared, of which the cold store has rows.
pub(super) struct Clear {
    /// Of the epoch in which it was cleared.
    tag: u32,
    group: KeyGroup,
    walk: Walk,
}

impl Clear {
    pub(super) fn tag(&self) -> u32 {
        self.tag
    }
}

impl<K: Key, UK: Key, UV: Data> MapTable<K, UK, UV> {
    /// Removes every entry of the current key.
    pub(super) fn clear_map(&mut self, at: &At<'_, K>, epochs: &mut Epochs) -> Result<(), StateError> {
        let cold = self.clear_cold(at, epochs)?;
        let mut persisted_ones = false;
        if let Some((id, bound)) = self.item_ids(at) {
            for item in 0..bound {
                if let Some(taken) = self.take_out(id, item, epochs)? {
                    persisted_ones |= taken.persisted;
                    self.bury(id, &taken.key, taken.persisted, epochs)?;
                }
            }
            self.drop_if_empty(id, at.hash);
        }
        if (cold || persisted_ones) && epochs.spills() {
            self.hide(at, epochs)?;
        }
        Ok(())
    }

    /// No row of the current key in the cold store counts until the tombstones of this epoch are there.
    fn hide(&mut self, at: &At<'_, K>, epochs: &Epochs) -> Result<(), StateError> {
        let Some(cold) = &mut self.cold else { return Ok(()) };
        let mut prefix = std::mem::take(&mut cold.scratch);
        prefix.clear();
        crate::rows::put_key(at.key, &mut prefix).map_err(|source| StateError::codec(&self.name, source))?;
        cold.note_removed(&prefix, epochs.tag());
        cold.scratch = prefix;
        Ok(())
    }

    /// Counts the entries that are in the cold store alone out, and sees to their tombstones. Says whether there
    /// are any. Must come while the others are still in memory.
    fn clear_cold(&mut self, at: &At<'_, K>, epochs: &mut Epochs) -> Result<bool, StateError> {
        let Some(mut walk) = self.walk_cold(at)? else { return Ok(false) };
        let mut count = 0;
        while let Some(items) = self.next_cold(&mut walk, at, epochs)? {
            count += items.len();
        }
        if count > 0 {
            walk.next = Some(walk.prefix.clone());
            self.clears.push_back(Clear { tag: epochs.tag(), group: at.hash.group(), walk });
        }
        if let Some(cold) = &mut self.cold {
            cold.entries -= count;
        }
        Ok(count > 0)
    }

    /// Writes tombstones of maps that were cleared in the frozen epoch; true when none is left.
    pub(super) fn write_clears(
        &mut self,
        frozen: &mut Frozen,
        side: &ColdSide,
        budget: &mut Budget,
    ) -> Result<bool, StateError> {
        while let Some(Clear { group, walk, .. }) = self.clears.front_mut().filter(|clear| clear.tag == frozen.tag) {
            if budget.is_spent() {
                return Ok(false);
            }
            let Some(from) = walk.next.take() else {
                self.clears.pop_front();
                continue;
            };
            let (mut rows, before) = (0, frozen.clears.bytes());
            let scanned = side.store().scan(self.state, *group, &walk.prefix, Some(from.as_slice()), &mut |key, _| {
                if rows == WINDOW_ROWS {
                    walk.next = Some(key.to_vec());
                    return ControlFlow::Break(());
                }
                rows += 1;
                delete(&mut frozen.clears, self.state, *group, key);
                ControlFlow::Continue(())
            });
            scanned.map_err(|source| StateError::cold(&self.name, source))?;
            budget.spend(frozen.clears.bytes() - before);
        }
        Ok(true)
    }
}

fn delete(rows: &mut RowBuffer, state: millpond_runs::StateIndex, group: KeyGroup, row_key: &[u8]) {
    let appended = rows.delete(state, group, |bytes| {
        bytes.extend_from_slice(row_key);
        Ok::<(), CodecError>(())
    });
    appended.expect("appending bytes does not fail");
}
