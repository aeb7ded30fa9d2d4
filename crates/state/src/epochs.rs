//! Which epoch is current, which are frozen, and the rows that each has so far.
//!
//! Owns the row buffers of all epochs that are not handed over yet. Does *not* own entries: those
//! carry a *tag*, the number of the epoch that last changed them, counted from 1 in this process; 0
//! is clean. An entry with the tag of a frozen epoch is not yet in that epoch's rows.

use std::collections::VecDeque;

use millpond_core::Epoch;

use millpond_runs::RowBuffer;

/// Tag of an entry that is in the rows of every epoch handed over.
pub(crate) const CLEAN: u32 = 0;

/// An epoch that is frozen and not yet written whole.
pub(crate) struct Frozen {
    pub(crate) epoch: Epoch,
    pub(crate) tag: u32,
    pub(crate) rows: RowBuffer,
    /// First table whose dirty entries are not all written.
    pub(crate) next_table: usize,
}

/// See the module.
pub(crate) struct Epochs {
    tag: u32,
    rows: RowBuffer,
    frozen: VecDeque<Frozen>,
    newest: Option<Epoch>,
}

impl Epochs {
    pub(crate) fn new() -> Self {
        Epochs { tag: CLEAN + 1, rows: RowBuffer::new(), frozen: VecDeque::new(), newest: None }
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

    /// Rows of the frozen epoch with this tag; `None` when it is current, clean or handed over.
    pub(crate) fn frozen_rows(&mut self, tag: u32) -> Option<&mut RowBuffer> {
        let oldest = self.frozen.front()?.tag;
        let at = tag.checked_sub(oldest)? as usize;
        self.frozen.get_mut(at).map(|frozen| &mut frozen.rows)
    }

    /// Newest epoch that was frozen.
    pub(crate) fn newest(&self) -> Option<Epoch> {
        self.newest
    }

    /// Ends the current epoch and begins the next.
    pub(crate) fn freeze(&mut self, epoch: Epoch) {
        let rows = std::mem::take(&mut self.rows);
        self.frozen.push_back(Frozen { epoch, tag: self.tag, rows, next_table: 0 });
        self.tag += 1;
        self.newest = Some(epoch);
    }

    /// Number of frozen epochs.
    pub(crate) fn frozen(&self) -> usize {
        self.frozen.len()
    }

    /// The oldest frozen epoch.
    pub(crate) fn oldest_mut(&mut self) -> Option<&mut Frozen> {
        self.frozen.front_mut()
    }

    /// Hands over the oldest frozen epoch.
    pub(crate) fn take_oldest(&mut self) -> Option<Frozen> {
        self.frozen.pop_front()
    }

    /// Bytes of all rows not handed over.
    pub(crate) fn bytes(&self) -> usize {
        self.rows.bytes() + self.frozen.iter().map(|frozen| frozen.rows.bytes()).sum::<usize>()
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
