//! Which epoch is current, which are frozen, and the rows that each has so far.
//!
//! Owns the row buffers of all epochs that are not handed over yet. Does *not* own entries: those
//! carry a *tag*, the number of the freeze that ends the time in which they last changed, counted from 1 in
//! this process; 0 is clean. An entry with the tag of a frozen epoch is not yet in that epoch's rows; once it
//! is, its tag says so ([`WRITTEN`]), so that it is known when the cold store has the rows.
//!
//! A *part* is frozen like an epoch but has none of its own: its rows belong to the next epoch. Parts are how
//! memory is freed in the middle of an epoch.

use std::collections::VecDeque;

use millpond_core::Epoch;

use millpond_runs::RowBuffer;

use crate::cold::{ColdRows, ColdSide};

/// Tag of an entry that is in the rows of every epoch handed over, from before this process.
pub(crate) const CLEAN: u32 = 0;
/// In the tag of an entry whose rows are written: the rest of the tag says among which.
pub(crate) const WRITTEN: u32 = 1 << 31;
/// Tag of an entry that came out of the cold store, and is there still.
pub(crate) const COLD: u32 = WRITTEN;

/// Where the newest content of a hot entry is beside the hot table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nowhere: it changed, and is not yet among the rows of a freeze.
    Dirty,
    /// In rows that are on their way to the cold store.
    InFlight,
    /// In the cold store: the entry may be evicted.
    Cold,
    /// In runs at most: it was written before anything went to the cold store.
    HotOnly,
}

/// An epoch, or a part of one, that is frozen and not yet written whole.
pub(crate) struct Frozen {
    /// `None` for a part.
    pub(crate) epoch: Option<Epoch>,
    pub(crate) tag: u32,
    pub(crate) rows: RowBuffer,
    /// Rows of unchanged entries, for the cold store alone; older than `rows`.
    pub(crate) transfer: RowBuffer,
    /// Tombstones of what was cleared without being in memory; older than `rows`, and handed over in pieces
    /// when they are many.
    pub(crate) clears: RowBuffer,
    /// Rows that were enough for a piece of their own, oldest first; older than `rows`.
    pub(crate) pieces: VecDeque<RowBuffer>,
    /// First table whose dirty entries are not all written.
    pub(crate) next_table: usize,
    /// Entries that there were when it was frozen, if all that is stored of them is in memory; else `None`.
    pub(crate) live: Option<usize>,
    /// Entries of which everything is among the rows.
    pub(crate) whole_entries: usize,
}

impl Frozen {
    /// Whether the rows hold all that was live at the freeze.
    fn is_whole(&self) -> bool {
        self.live.is_some_and(|live| live == self.whole_entries)
    }

    fn bytes(&self) -> usize {
        let pieces: usize = self.pieces.iter().map(RowBuffer::bytes).sum();
        self.rows.bytes() + self.transfer.bytes() + self.clears.bytes() + pieces
    }

    /// Makes a piece of the rows, once they are `bytes`. Not while there may be tombstones to come that are older.
    pub(crate) fn cut_piece(&mut self, bytes: usize) {
        if self.rows.bytes() >= bytes {
            let piece = self.take_rows();
            self.pieces.push_back(piece);
        }
    }

    /// The rows, on top of the tombstones that are older.
    fn take_rows(&mut self) -> RowBuffer {
        let (mut clears, rows) = (std::mem::take(&mut self.clears), std::mem::take(&mut self.rows));
        if clears.is_empty() {
            return rows;
        }
        clears.merge_newer(rows);
        clears
    }
}

/// A frozen epoch or part that is written.
pub(crate) struct Written {
    /// `None` for a part.
    pub(crate) epoch: Option<Epoch>,
    pub(crate) rows: RowBuffer,
    /// What the cold store gets.
    pub(crate) cold: Option<ColdRows>,
    /// Whether the rows hold all that was live at the freeze.
    pub(crate) whole: bool,
}

/// See the module.
pub(crate) struct Epochs {
    tag: u32,
    rows: RowBuffer,
    transfer: RowBuffer,
    frozen: VecDeque<Frozen>,
    newest: Option<Epoch>,
    pub(crate) cold: Option<ColdSide>,
}

impl Epochs {
    pub(crate) fn new() -> Self {
        Epochs {
            tag: CLEAN + 1,
            rows: RowBuffer::new(),
            transfer: RowBuffer::new(),
            frozen: VecDeque::new(),
            newest: None,
            cold: None,
        }
    }

    /// Tag of the current epoch.
    #[inline]
    pub(crate) fn tag(&self) -> u32 {
        self.tag
    }

    /// Rows of the current epoch.
    pub(crate) fn current_rows(&mut self) -> &mut RowBuffer {
        &mut self.rows
    }

    /// The frozen epoch with this tag; `None` when it is current, clean or handed over.
    pub(crate) fn frozen_at(&mut self, tag: u32) -> Option<&mut Frozen> {
        let oldest = self.frozen.front()?.tag;
        let at = tag.checked_sub(oldest)? as usize;
        self.frozen.get_mut(at)
    }

    /// Rows of unchanged entries that go to the cold store with the next freeze.
    pub(crate) fn transfer_rows(&mut self) -> &mut RowBuffer {
        &mut self.transfer
    }

    /// Bytes of rows that wait for the next freeze.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.rows.bytes() + self.transfer.bytes()
    }

    /// Where an entry with this tag is beside the hot table.
    #[inline]
    pub(crate) fn place(&self, tag: u32) -> Place {
        let Some(cold) = &self.cold else { return Place::Dirty };
        if tag & WRITTEN == 0 {
            let waits = |oldest: &Frozen| tag != CLEAN && oldest.tag <= tag;
            return if tag == self.tag || self.frozen.front().is_some_and(waits) {
                Place::Dirty
            } else {
                Place::HotOnly
            };
        }
        cold.place(tag & !WRITTEN)
    }

    /// Whether rows go to a cold store.
    #[inline]
    pub(crate) fn spills(&self) -> bool {
        self.cold.as_ref().is_some_and(ColdSide::is_active)
    }

    /// Newest epoch that was frozen.
    pub(crate) fn newest(&self) -> Option<Epoch> {
        self.newest
    }

    /// Ends the current epoch and begins the next. `live` is how many entries there are, if all that is stored of them is
    /// in memory.
    pub(crate) fn freeze(&mut self, epoch: Epoch, live: Option<usize>) {
        self.push(Some(epoch), live);
        self.newest = Some(epoch);
    }

    /// Freezes what the current epoch has changed so far; the epoch goes on.
    pub(crate) fn freeze_part(&mut self) {
        self.push(None, None);
    }

    fn push(&mut self, epoch: Option<Epoch>, live: Option<usize>) {
        let (rows, transfer) = (std::mem::take(&mut self.rows), std::mem::take(&mut self.transfer));
        let (clears, pieces) = (RowBuffer::new(), VecDeque::new());
        let (tag, next_table, whole_entries) = (self.tag, 0, 0);
        self.frozen.push_back(Frozen { epoch, tag, rows, transfer, clears, pieces, next_table, live, whole_entries });
        self.tag += 1;
    }

    /// What changed so far was not remembered, and is as good as never changed.
    pub(crate) fn forget_changes(&mut self) {
        self.tag += 1;
    }

    /// From now on, rows go to the cold store.
    pub(crate) fn activate(&mut self) {
        if let Some(cold) = &mut self.cold {
            cold.activate(self.tag);
        }
    }

    /// Number of frozen parts.
    pub(crate) fn frozen_parts(&self) -> usize {
        self.frozen.iter().filter(|frozen| frozen.epoch.is_none()).count()
    }

    /// Number of frozen epochs.
    pub(crate) fn frozen(&self) -> usize {
        self.frozen.iter().filter(|frozen| frozen.epoch.is_some()).count()
    }

    /// The oldest frozen epoch, and the cold store.
    pub(crate) fn oldest_mut(&mut self) -> Option<(&mut Frozen, Option<&ColdSide>)> {
        Some((self.frozen.front_mut()?, self.cold.as_ref()))
    }

    /// Hands over the tombstones of the oldest frozen epoch, ahead of its rows.
    pub(crate) fn take_clears(&mut self) -> Option<(RowBuffer, ColdRows)> {
        let Frozen { tag, clears, .. } = self.frozen.front_mut()?;
        let rows = std::mem::take(clears);
        let cold = self.cold.as_ref()?.hand_over_piece(*tag, RowBuffer::new(), &rows);
        Some((rows, cold))
    }

    /// Hands over a piece of the oldest frozen epoch.
    pub(crate) fn take_piece(&mut self) -> Option<(RowBuffer, Option<ColdRows>)> {
        let Frozen { tag, pieces, transfer, .. } = self.frozen.front_mut()?;
        let rows = pieces.pop_front()?;
        let transfer = std::mem::take(transfer);
        let cold = self.cold.as_ref().map(|cold| cold.hand_over_piece(*tag, transfer, &rows));
        Some((rows, cold))
    }

    /// Hands over the oldest frozen epoch or part.
    pub(crate) fn take_oldest(&mut self) -> Option<Written> {
        let mut frozen = self.frozen.pop_front()?;
        let (whole, rows) = (frozen.is_whole(), frozen.take_rows());
        let Frozen { epoch, tag, transfer, .. } = frozen;
        let cold = self.cold.as_ref().map(|cold| cold.hand_over(tag, transfer, &rows));
        Some(Written { epoch, rows, cold, whole })
    }

    /// Bytes of all rows not handed over.
    pub(crate) fn bytes(&self) -> usize {
        self.waiting_bytes() + self.frozen.iter().map(Frozen::bytes).sum::<usize>()
    }
}

/// The entries of one table changed in each epoch that is not handed over.
pub(crate) struct DirtyLists<I> {
    current: Vec<I>,
    frozen: VecDeque<(u32, Vec<I>)>,
    cursor: usize,
    /// Off when no epoch will ever be frozen: the list would only grow.
    pub(crate) tracking: bool,
}

impl<I: Copy> DirtyLists<I> {
    pub(crate) fn new() -> Self {
        DirtyLists { current: Vec::new(), frozen: VecDeque::new(), cursor: 0, tracking: true }
    }

    #[inline]
    pub(crate) fn push(&mut self, id: I) {
        if self.tracking {
            self.current.push(id);
        }
    }

    /// Ends the current epoch, whose tag is given.
    pub(crate) fn freeze(&mut self, tag: u32) {
        self.frozen.push_back((tag, std::mem::take(&mut self.current)));
    }

    /// The next entry of the frozen epoch `tag`, which is the oldest; `None` when all are taken.
    pub(crate) fn next(&mut self, tag: u32) -> Option<I> {
        match self.frozen.front() {
            Some((front, ids)) if *front == tag => {
                let id = ids.get(self.cursor).copied();
                if id.is_some() {
                    self.cursor += 1;
                } else {
                    self.frozen.pop_front();
                    self.cursor = 0;
                }
                id
            }
            _ => None,
        }
    }

    /// Entries changed in the current epoch; some may be listed twice.
    pub(crate) fn len(&self) -> usize {
        self.current.len()
    }

    /// The entry that [`DirtyLists::next`] will give after `ahead` more.
    #[inline]
    pub(crate) fn ahead(&self, ahead: usize) -> Option<I> {
        self.frozen.front()?.1.get(self.cursor + ahead).copied()
    }

    /// Bytes of memory held.
    pub(crate) fn bytes(&self) -> usize {
        let frozen: usize = self.frozen.iter().map(|(_, ids)| ids.capacity()).sum();
        (self.current.capacity() + frozen) * size_of::<I>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_tracking_the_dirty_list_does_not_grow() {
        let mut dirty = DirtyLists::<u32>::new();
        dirty.push(1);
        dirty.tracking = false;
        for id in 0..1_000 {
            dirty.push(id);
        }
        dirty.freeze(1);
        assert_eq!((dirty.next(1), dirty.next(1)), (Some(1), None));
    }
}
