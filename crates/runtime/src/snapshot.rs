//! Snapshots of one subtask: frozen at once, serialised in slices.

use std::collections::VecDeque;

use millpond_core::{Epoch, KeyGroupRange};
use millpond_runs::{RowBuffer, SectionInfo};
use millpond_state::{ColdRows, OperatorStateSnapshot, SliceProgress};

use crate::chain::{Chain, guard};
use crate::error::SubtaskError;

/// What one operator puts into a checkpoint.
#[derive(Debug)]
pub struct OperatorSnapshot {
    /// The operator.
    pub operator: String,
    /// Its operator state; a cheap copy that shares structure with the live one.
    pub states: OperatorStateSnapshot,
    /// Version of the operator state: equal versions in one attempt are equal states.
    pub version: u64,
    /// Names and descriptions of its keyed states, by the index used in `rows`.
    pub sections: Vec<SectionInfo>,
    /// Keyed rows that changed since the freeze before.
    pub rows: RowBuffer,
    /// For the operator's cold store, where rows go there.
    pub cold: Option<ColdRows>,
    /// The key groups of which the rows hold all that is live, if they do.
    pub whole: Option<KeyGroupRange>,
    /// Whether the next rows of the operator are of the same freeze and of other keys.
    pub continued: bool,
}

/// Whether a snapshot is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotKind {
    /// Together with the parts that came before it, it is all that changed in its epoch.
    Whole,
    /// Keyed rows of an epoch that is still open, handed over early to free memory. Nobody acknowledges it.
    Part,
}

/// What one subtask puts into a checkpoint.
#[derive(Debug)]
pub struct SubtaskSnapshot {
    /// Of which epoch.
    pub epoch: Epoch,
    /// Whether it is whole.
    pub kind: SnapshotKind,
    /// Its operators that have state.
    pub operators: Vec<OperatorSnapshot>,
}

impl SubtaskSnapshot {
    /// Bytes of its keyed rows.
    #[must_use]
    pub fn row_bytes(&self) -> u64 {
        self.operators.iter().map(|operator| operator.rows.bytes() as u64).sum()
    }
}

/// A snapshot that is frozen and not yet serialised.
struct Frozen {
    epoch: Epoch,
    operators: Vec<FrozenOperator>,
}

struct FrozenOperator {
    position: usize,
    snapshot: OperatorSnapshot,
    serialised: bool,
}

/// The snapshots of a subtask that are in flight, oldest first.
#[derive(Default)]
pub(crate) struct Snapshots {
    frozen: VecDeque<Frozen>,
    /// Whether the last call found that rows on their way to storage have to arrive there first.
    waiting: bool,
}

impl Snapshots {
    /// Whether there is something to serialise.
    pub(crate) fn is_empty(&self) -> bool {
        self.frozen.is_empty()
    }

    /// Whether rows on their way to storage have to arrive there before more is serialised.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting
    }

    /// Freezes the state of the chain as of now. Costs the same whatever the size of the state.
    pub(crate) fn freeze(&mut self, chain: &mut Chain, epoch: Epoch) -> Result<(), SubtaskError> {
        let mut operators = Vec::new();
        for (position, cell) in chain.cells.iter_mut().enumerate() {
            let (states, version) = (cell.states.freeze(), cell.states.version());
            let mut sections = Vec::new();
            let mut serialised = true;
            if let Some(keyed) = cell.instance.operator().keyed() {
                guard(&cell.info, "freezing state", || Ok(keyed.freeze(epoch)?))?;
                sections = keyed.sections();
                serialised = false;
            }
            if serialised && states.is_empty() {
                continue;
            }
            let operator = cell.info.operator.to_string();
            let (rows, cold, whole, continued) = (RowBuffer::new(), None, None, false);
            let snapshot = OperatorSnapshot { operator, states, version, sections, rows, cold, whole, continued };
            operators.push(FrozenOperator { position, snapshot, serialised });
        }
        self.frozen.push_back(Frozen { epoch, operators });
        Ok(())
    }

    /// Serialises up to about `budget_bytes` of the oldest frozen snapshot, or of a part of the `open` epoch when
    /// there is none; returns what is complete.
    pub(crate) fn serialise_slice(
        &mut self,
        chain: &mut Chain,
        budget_bytes: usize,
        open: Epoch,
    ) -> Result<Option<SubtaskSnapshot>, SubtaskError> {
        self.waiting = false;
        let Some(frozen) = self.frozen.front_mut() else { return self.serialise_part(chain, budget_bytes, open) };
        if let Some(operator) = frozen.operators.iter_mut().find(|operator| !operator.serialised) {
            let cell = &mut chain.cells[operator.position];
            let Some(keyed) = cell.instance.operator().keyed() else { return Ok(None) };
            let progress = guard(&cell.info, "serialising state", || Ok(keyed.serialise_slice(budget_bytes)?))?;
            match progress {
                SliceProgress::Done { epoch, rows, cold, whole } => {
                    debug_assert_eq!(epoch, frozen.epoch, "snapshots are serialised oldest first");
                    operator.snapshot.rows = rows;
                    operator.snapshot.cold = cold;
                    operator.snapshot.whole = whole.then(|| keyed.key_groups());
                    operator.serialised = true;
                }
                SliceProgress::Part { rows, cold, continued } => {
                    let sections = operator.snapshot.sections.clone();
                    return Ok(part(&operator.snapshot.operator, frozen.epoch, sections, rows, cold, continued));
                }
                SliceProgress::Waiting => self.waiting = true,
                SliceProgress::Idle | SliceProgress::More => {}
            }
        }
        if frozen.operators.iter().any(|operator| !operator.serialised) {
            return Ok(None);
        }
        Ok(self.frozen.pop_front().map(|frozen| SubtaskSnapshot {
            epoch: frozen.epoch,
            kind: SnapshotKind::Whole,
            operators: frozen.operators.into_iter().map(|operator| operator.snapshot).collect(),
        }))
    }

    /// Serialises some of the parts that are frozen while no epoch is.
    fn serialise_part(
        &mut self,
        chain: &mut Chain,
        budget_bytes: usize,
        open: Epoch,
    ) -> Result<Option<SubtaskSnapshot>, SubtaskError> {
        for cell in &mut chain.cells {
            let keyed = cell.instance.operator().keyed();
            let Some(keyed) = keyed.filter(|keyed| keyed.frozen_parts() > 0) else { continue };
            let progress = guard(&cell.info, "serialising state", || Ok(keyed.serialise_slice(budget_bytes)?))?;
            self.waiting = matches!(progress, SliceProgress::Waiting);
            if let SliceProgress::Part { rows, cold, continued } = progress {
                return Ok(part(&cell.info.operator, open, keyed.sections(), rows, cold, continued));
            }
            return Ok(None);
        }
        Ok(None)
    }
}

fn part(
    operator: &str,
    epoch: Epoch,
    sections: Vec<SectionInfo>,
    rows: RowBuffer,
    cold: Option<ColdRows>,
    continued: bool,
) -> Option<SubtaskSnapshot> {
    if rows.is_empty() && cold.is_none() {
        return None;
    }
    let (operator, states) = (operator.to_owned(), OperatorStateSnapshot::default());
    let snapshot = OperatorSnapshot { operator, states, version: 0, sections, rows, cold, whole: None, continued };
    let operators = vec![snapshot];
    Some(SubtaskSnapshot { epoch, kind: SnapshotKind::Part, operators })
}
