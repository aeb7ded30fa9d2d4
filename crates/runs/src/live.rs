//! The rows that count: of several runs together, what is there and not deleted.
//!
//! The read side of a merge: for equal keys the newest row wins, tombstones hide. Holds one read-ahead
//! window and one block per input.

use std::ops::Deref;

use millpond_core::KeyGroupRange;

use crate::error::RunError;
use crate::merge::Merging;
use crate::reader::RunReader;
use crate::row::RowRef;
use crate::source::ReadRange;

/// Walks the live rows of one section of several runs, in the order of (key group, key). `P` points to
/// a [`RunReader`], as in [`crate::Cursor`].
pub struct LiveRows<P> {
    merging: Merging<P>,
    descriptions: Vec<String>,
    at_row: bool,
}

impl<R: ReadRange, P: Deref<Target = RunReader<R>>> LiveRows<P> {
    /// The live rows of `section` in `groups` of all `readers`, which are given oldest first.
    ///
    /// # Errors
    /// When the first blocks cannot be read or are damaged.
    pub fn new(readers: impl IntoIterator<Item = P>, section: &str, groups: KeyGroupRange) -> Result<Self, RunError> {
        let (merging, descriptions) = Merging::begin(readers, section, groups)?;
        Ok(LiveRows { merging, descriptions, at_row: false })
    }

    /// The descriptions of the section, to which [`RowRef::description`] of a row is an index.
    #[must_use]
    pub fn descriptions(&self) -> &[String] {
        &self.descriptions
    }

    /// Goes to the next live row; false when there is none.
    ///
    /// # Errors
    /// When a block cannot be read or is damaged.
    pub fn advance(&mut self) -> Result<bool, RunError> {
        self.at_row = false;
        while let Some((row, fresh)) = self.merging.next_row()? {
            if fresh && row.value.is_some() {
                self.at_row = true;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The row that was advanced to; `None` before the first and after the last. Its value is present.
    ///
    /// # Errors
    /// When the row has a description that its file does not have.
    pub fn current(&self) -> Result<Option<RowRef<'_>>, RunError> {
        if self.at_row { self.merging.current() } else { Ok(None) }
    }
}
