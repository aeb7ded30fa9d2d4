//! A row on its way into a cold store.

use millpond_core::KeyGroup;
use millpond_runs::{RowBuffer, StateIndex};

/// A row with a value, or a tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColdRow<'a> {
    /// The state, by the index that its operator's rows carry.
    pub state: StateIndex,
    /// The key's group.
    pub group: KeyGroup,
    /// The row's key.
    pub key: &'a [u8],
    /// The value; `None` deletes.
    pub value: Option<&'a [u8]>,
}

/// The rows of a freeze as a cold store takes them. Of equal keys the last one is the one that holds: within a
/// freeze tombstones come before puts, and what was merged in comes later.
pub fn buffered_rows(rows: &RowBuffer) -> impl Iterator<Item = ColdRow<'_>> {
    rows.iter().map(|row| ColdRow {
        state: StateIndex(row.state),
        group: KeyGroup(row.group),
        key: row.key,
        value: row.value,
    })
}
