//! Keyed state as the runtime drives it, without the key's type.
//!
//! A snapshot passes as `freeze` (O(1)) → `serialise_slice` between batches → the epoch's rows, oldest epoch first. The
//! mirror is `set_stored_sections` → declare → `row_version` and `restore_row`, oldest run first → `finish_restore`.

use std::any::Any;

use millpond_core::{Epoch, KeyGroup, KeyGroupRange};
use millpond_runs::{RowBuffer, SectionInfo};

use super::budget::Pressure;
use super::cold_restore::{ColdEntries, ColdRestore};
use super::description::StateKind;
use super::migration::RowVersion;
use crate::cold::ColdRows;
use crate::error::StateError;

/// What one slice of writing came to.
#[derive(Debug)]
pub enum SliceProgress {
    /// No epoch is frozen.
    Idle,
    /// The budget was used up; there is more to write.
    More,
    /// There is more to write, but so many rows are on their way to storage that it has to wait for them.
    Waiting,
    /// Some of what changed in the epoch that comes next; there may be more.
    Part {
        /// What changed since the freeze before, be it of a part or of an epoch, or some of it.
        rows: RowBuffer,
        /// For the cold store, and counts the rows as memory; where there is a cold store.
        cold: Option<ColdRows>,
        /// Whether rows of the same freeze follow which are of other keys, but for tombstones here of what is put there.
        continued: bool,
    },
    /// An epoch is complete: its rows, to be put on top of those of every earlier epoch and part.
    Done {
        /// Which epoch.
        epoch: Epoch,
        /// Everything that changed in it; indexes refer to [`KeyedBackendControl::sections`].
        rows: RowBuffer,
        /// For the cold store, and counts the rows as memory; where there is a cold store.
        cold: Option<ColdRows>,
        /// Whether the rows of this epoch hold all that was live when it was frozen: every row that is stored of the
        /// key groups owned here, of whichever state, is superseded by them.
        whole: bool,
    },
}

/// How much one state holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateSize {
    /// Name of the state.
    pub name: String,
    /// Kind of the state.
    pub kind: StateKind,
    /// Keys with something present; of a map, those of which something is in memory.
    pub keys: usize,
    /// Values, lists or map entries.
    pub entries: usize,
    /// Estimate of the memory held, in bytes.
    pub memory_bytes: usize,
}

/// The side of keyed state that the runtime drives, without the key's type.
pub trait KeyedBackendControl: Send {
    /// The backend with its key's type, for tests and tools that know it: a [`KeyedBackend`].
    fn as_any_mut(&mut self) -> &mut dyn Any;

    /// Ends the current epoch: what it changed is frozen as `epoch`. O(1) in the size of the state. Some
    /// of what has expired is removed first.
    ///
    /// # Errors
    /// When `epoch` is not above the last one, a restore is not finished, or the cold store fails.
    fn freeze(&mut self, epoch: Epoch) -> Result<(), StateError>;

    /// Writes about `budget_bytes` of what is frozen, the oldest epoch first; looking at an entry
    /// counts as 16 bytes.
    ///
    /// # Errors
    /// When a value cannot be encoded.
    fn serialise_slice(&mut self, budget_bytes: usize) -> Result<SliceProgress, StateError>;

    /// Number of epochs that are frozen and not handed over.
    fn frozen_epochs(&self) -> usize;

    /// Number of parts of epochs that are frozen and not handed over.
    fn frozen_parts(&self) -> usize;

    /// Removes some of what has expired, and keeps the state within its share of the memory: evicts what is in the cold store, freezes a part where
    /// changes are in the way. Call it after every batch, with no key current; takes about 100 µs at most.
    ///
    /// # Errors
    /// When the cold store has failed, be it in the background.
    fn keep_budget(&mut self) -> Result<Pressure, StateError>;

    /// Whether memory has become short before: rows go to the cold store.
    fn spills(&self) -> bool;

    /// Where to put the rows of a restore that would take about `bytes` in memory; `None` when they belong
    /// into memory, by [`Self::restore_row`].
    fn cold_restore(&mut self, bytes: u64) -> Option<ColdRestore>;

    /// Ends a restore into the cold store. Keys may be set afterwards.
    fn finish_cold_restore(&mut self, entries: ColdEntries);

    /// Says that no epoch will be frozen, for a job without checkpoints: what changes is not
    /// remembered from now on, unless it has to go to a cold store, and [`Self::freeze`] fails.
    fn stop_tracking(&mut self);

    /// Name and description of every declared state, by the index that rows carry.
    fn sections(&self) -> Vec<SectionInfo>;

    /// Says which states the checkpoint holds, once per name and description, before states are
    /// declared. Declarations are checked against it.
    fn set_stored_sections(&mut self, stored: Vec<SectionInfo>);

    /// The stored states that were not declared. Their rows need not be restored: they stay in their
    /// runs, and so in every later checkpoint.
    fn undeclared_sections(&self) -> Vec<SectionInfo>;

    /// How rows of a state that were written with `description` are read.
    ///
    /// # Errors
    /// When the state is not declared, or such rows cannot become rows of what was declared.
    fn row_version(&mut self, state: &str, description: &str) -> Result<RowVersion, StateError>;

    /// Applies one stored row. Rows of older runs come first; within a run in any order. A value of an
    /// older schema is migrated.
    ///
    /// # Errors
    /// When the group is not owned, or the row is damaged.
    fn restore_row(
        &mut self,
        version: RowVersion,
        group: KeyGroup,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), StateError>;

    /// A stored value as it is written today, for a restore into the cold store.
    ///
    /// # Errors
    /// When the value is damaged.
    fn migrated<'a>(
        &'a mut self,
        version: RowVersion,
        group: KeyGroup,
        value: &'a [u8],
    ) -> Result<&'a [u8], StateError>;

    /// Ends a restore; keys may be set afterwards. Needed only after [`Self::restore_row`].
    ///
    /// # Errors
    /// When rows are missing.
    fn finish_restore(&mut self) -> Result<(), StateError>;

    /// The key groups owned here.
    fn key_groups(&self) -> KeyGroupRange;

    /// Values, lists and map entries of all states.
    fn live_entries(&self) -> usize;

    /// Estimate of the memory held by all states and by rows not handed over, in bytes.
    fn memory_bytes(&self) -> usize;

    /// Sizes state by state.
    fn state_sizes(&self) -> Vec<StateSize>;
}
