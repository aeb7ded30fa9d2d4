//! Between a backend and its cold store: which rows the store has, and how rows get there.
//!
//! The worker's thread hands rows over ([`ColdSide::hand_over`]), a background thread applies them in order
//! ([`ColdRows::apply`]); between the two lie two numbers and a failure. An entry may be evicted once the rows
//! that hold it are applied.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use millpond_runs::RowBuffer;

use super::row::buffered_rows;
use super::{ColdError, ColdStore};
use crate::epochs::Place;

/// What the worker's thread and the background thread share.
struct Shared {
    store: Arc<dyn ColdStore>,
    /// Highest tag whose rows the store has; all lower ones as well.
    applied: AtomicU32,
    /// Bytes of rows that were handed over and are still in memory.
    in_flight: AtomicUsize,
    failure: Mutex<Option<ColdError>>,
}

impl Shared {
    fn fail(&self, error: ColdError) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

/// Never reached by a tag.
const NEVER: u32 = u32::MAX;

/// A backend's end.
pub(crate) struct ColdSide {
    shared: Arc<Shared>,
    /// First tag whose rows go to the store.
    active_from: u32,
}

impl ColdSide {
    pub(crate) fn new(store: Arc<dyn ColdStore>) -> Self {
        let (applied, in_flight) = (AtomicU32::new(0), AtomicUsize::new(0));
        ColdSide {
            shared: Arc::new(Shared { store, applied, in_flight, failure: Mutex::new(None) }),
            active_from: NEVER,
        }
    }

    #[inline]
    pub(crate) fn store(&self) -> &Arc<dyn ColdStore> {
        &self.shared.store
    }

    /// Highest tag whose rows the store has.
    #[inline]
    pub(crate) fn applied(&self) -> u32 {
        self.shared.applied.load(Ordering::Acquire)
    }

    pub(crate) fn in_flight_bytes(&self) -> usize {
        self.shared.in_flight.load(Ordering::Acquire)
    }

    /// Fails when rows could not be applied: the store lacks them for good.
    pub(crate) fn check(&self) -> Result<(), ColdError> {
        match &*self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.active_from != NEVER
    }

    pub(crate) fn activate(&mut self, from: u32) {
        self.active_from = self.active_from.min(from);
    }

    /// Where an entry is whose rows were written with this tag.
    #[inline]
    pub(crate) fn place(&self, written: u32) -> Place {
        if written == 0 {
            Place::Cold
        } else if written < self.active_from {
            Place::HotOnly
        } else if written <= self.applied() {
            Place::Cold
        } else {
            Place::InFlight
        }
    }

    /// The last rows of the freeze with this tag are handed over.
    pub(crate) fn hand_over(&self, tag: u32, transfer: RowBuffer, rows: &RowBuffer) -> ColdRows {
        self.on_its_way(tag, tag, transfer, rows)
    }

    /// As [`ColdSide::hand_over`], for rows of which others with the same tag follow.
    pub(crate) fn hand_over_piece(&self, tag: u32, transfer: RowBuffer, rows: &RowBuffer) -> ColdRows {
        // Everything up to the tag before is handed over; of this one there is more to come.
        self.on_its_way(tag, tag - 1, transfer, rows)
    }

    fn on_its_way(&self, tag: u32, applies: u32, transfer: RowBuffer, rows: &RowBuffer) -> ColdRows {
        let bytes = transfer.bytes() + rows.bytes();
        self.shared.in_flight.fetch_add(bytes, Ordering::AcqRel);
        let stored = tag >= self.active_from;
        ColdRows { shared: Arc::clone(&self.shared), tag: applies, transfer, bytes, pending: stored }
    }
}

/// What the cold store gets with the rows of a freeze: nothing before memory has become short for the first time. Dropping it
/// unapplied makes the store useless: the backend then fails at its next look.
pub struct ColdRows {
    shared: Arc<Shared>,
    /// All rows up to this tag are applied when these are.
    tag: u32,
    transfer: RowBuffer,
    bytes: usize,
    /// Whether they have yet to reach the store.
    pending: bool,
}

impl fmt::Debug for ColdRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ColdRows").field("tag", &self.tag).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl ColdRows {
    /// Puts `rows`, with which this was handed over, into the cold store if they go there. Must be called in the order of
    /// handing over; keep the value until `rows` are gone, for it counts their memory.
    ///
    /// # Errors
    /// When the store cannot be written. The backend fails as well, and with it the attempt.
    pub fn apply(&mut self, rows: &RowBuffer) -> Result<(), ColdError> {
        if !std::mem::take(&mut self.pending) {
            return Ok(());
        }
        let transfer = std::mem::take(&mut self.transfer);
        let mut all = buffered_rows(&transfer).chain(buffered_rows(rows));
        let outcome = self.shared.store.write(&mut all);
        match &outcome {
            Ok(()) => self.shared.applied.store(self.tag, Ordering::Release),
            Err(error) => self.shared.fail(error.clone()),
        }
        outcome
    }
}

impl Drop for ColdRows {
    fn drop(&mut self) {
        self.shared.in_flight.fetch_sub(self.bytes, Ordering::AcqRel);
        if self.pending {
            self.shared
                .fail(ColdError::Write { place: "of a subtask".to_owned(), reason: "rows were lost".to_owned() });
        }
    }
}
