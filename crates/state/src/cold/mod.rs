//! The cold store: the bytes of keyed state that do not fit into memory.
//!
//! A *cold store* belongs to one operator subtask and lies beneath its hot tables. It holds rows exactly as
//! runs hold them (`rows.rs`: the same key bytes, the same value bytes), by (state, key group, key). It is
//! working space and no more: it begins empty, is filled by a restore and by the rows of every freeze, and is
//! worth nothing after the subtask; what is safe is in the runs.
//!
//! Owns the contract ([`ColdStore`], [`ColdLoader`], [`ColdStores`]) and the implementation in memory
//! ([`MemoryColdStores`]). Does *not* know values, epochs, budgets, or which entries are hot.
//!
//! ```text
//! background thread   rows of a freeze → write          worker   misses of a batch → get_many
//! restore             merged rows → load → finish                iteration         → scan, last
//! ```
//!
//! Rows are ordered by (state, key group, key bytes), ascending and bytewise: a store with one flat key space
//! writes state and group as big-endian numbers in front of the key.

mod backend;
mod budget;
pub mod contract;
mod error;
mod files;
mod memory;
mod row;
mod side;

use std::ops::ControlFlow;
use std::sync::Arc;

use millpond_core::{KeyGroup, KeyGroupRange};
use millpond_runs::StateIndex;

pub use backend::ColdBackend;
pub use budget::{BudgetShare, ColdBacking, MemoryBudget};
pub use error::ColdError;
pub use files::{ColdFile, ColdFiles, LocalFiles, MemoryFiles};
pub use memory::{MemoryCold, MemoryColdStores};
pub use row::{ColdRow, buffered_rows};
pub use side::ColdRows;
pub(crate) use side::ColdSide;

/// A row that has a value: its key and the value.
pub type KeyAndValue = (Vec<u8>, Vec<u8>);

/// Shown key and value of a row; breaks to see no more.
pub type RowVisitor<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// The rows of one operator subtask that may be in memory no more.
///
/// One thread writes and one thread reads at a time, but at the same time as each other. A read sees every
/// write that had returned when it began; of a write that is going on it may see any part. No call needs to be
/// durable: the process that crashes starts with an empty store. After an error the store may be used further;
/// a failed `write` may be repeated whole and has then the same result as one that did not fail.
pub trait ColdStore: Send + Sync {
    /// Looks up many rows of one state. `found` is called once for every key, in the order of `keys`, with the
    /// key's position and its value, or `None` where there is no row.
    ///
    /// # Errors
    /// When the store cannot be read, or a row that it reads is damaged. `found` may have been called for a
    /// part of the keys.
    fn get_many(
        &self,
        state: StateIndex,
        keys: &[(KeyGroup, &[u8])],
        found: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<(), ColdError>;

    /// Shows the rows of one state and group whose key begins with `prefix` and is not below `from` (where
    /// given), in ascending order, with key and value, until `visit` breaks. `visit` must not use the store.
    ///
    /// # Errors
    /// When the store cannot be read, or a row that it reads is damaged.
    fn scan(
        &self,
        state: StateIndex,
        group: KeyGroup,
        prefix: &[u8],
        from: Option<&[u8]>,
        visit: &mut RowVisitor<'_>,
    ) -> Result<(), ColdError>;

    /// The last row of one state and group whose key begins with `prefix`: key and value.
    ///
    /// # Errors
    /// When the store cannot be read, or the row is damaged.
    #[expect(clippy::type_complexity, reason = "key and value of a row that may be missing")]
    fn last(&self, state: StateIndex, group: KeyGroup, prefix: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>, ColdError>;

    /// Puts and deletes rows in the order given; a later row of the same key wins. Deleting what is not there
    /// is no error. Not atomic.
    ///
    /// # Errors
    /// When the store cannot be written.
    fn write(&self, rows: &mut dyn Iterator<Item = ColdRow<'_>>) -> Result<(), ColdError>;

    /// Begins to fill the store with many rows at once; see [`ColdLoader`] for what may be given to it.
    ///
    /// # Errors
    /// When the store cannot be written.
    fn load(&self) -> Result<Box<dyn ColdLoader + '_>, ColdError>;

    /// Removes all rows of one state whose group is in `groups`.
    ///
    /// # Errors
    /// When the store cannot be written.
    fn delete_range(&self, state: StateIndex, groups: KeyGroupRange) -> Result<(), ColdError>;

    /// Removes all rows.
    ///
    /// # Errors
    /// When the store cannot be written.
    fn clear(&self) -> Result<(), ColdError>;

    /// Bytes that the rows take where they are kept, estimated.
    fn bytes(&self) -> u64;

    /// Working space beside the rows, which is given back when the store and this are dropped.
    fn files(&self) -> Arc<dyn ColdFiles>;
}

/// Fills a cold store in bulk. Rows of a state come in one piece, ascending by (group, key), each key once; the
/// states come in any order. A state that had rows before is not loaded. Nothing is read before
/// [`ColdLoader::finish`] has returned.
pub trait ColdLoader {
    /// Adds a row.
    ///
    /// # Errors
    /// When the store cannot be written, or rows are out of order.
    fn put(&mut self, state: StateIndex, group: KeyGroup, key: &[u8], value: &[u8]) -> Result<(), ColdError>;

    /// Makes the rows readable.
    ///
    /// # Errors
    /// When the store cannot be written.
    fn finish(self: Box<Self>) -> Result<(), ColdError>;
}

/// Opens cold stores: what the job hands down to its subtasks. A job without one keeps all state in memory.
pub trait ColdStores: Send + Sync {
    /// A new, empty store for one subtask of an operator. A store of the same subtask that an earlier attempt
    /// opened may still be in use by its last threads: the two do not disturb each other. What a store takes
    /// on disk is given back when the last [`Arc`] to it is dropped.
    ///
    /// # Errors
    /// When the store cannot be created.
    fn open(&self, operator: &str, subtask: u32) -> Result<Arc<dyn ColdStore>, ColdError>;

    /// How the store is called in messages and settings.
    fn name(&self) -> &'static str;
}
