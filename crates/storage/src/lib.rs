//! Durable bytes: immutable objects under checked names.
//!
//! Owns where the bytes of checkpoints lie and how they get there safely. Does *not* own what is in
//! them, how they are named, or who may write them: that is the room `checkpoint`.
//!
//! [`Storage`] is the narrow trait. [`MemoryStorage`] and [`LocalStorage`] keep bytes; [`Retry`],
//! [`Deadline`], [`Meter`], [`Faults`], [`LocalCopies`], [`ReadOnly`] and [`Within`] wrap any storage and are storages
//! themselves, so they can be stacked.
//! [`contract::check`] is the one suite that every implementation passes.
//!
//! Invariants:
//! - An object is whole or absent, never partial, and never changes.
//! - [`Storage::create`] has at most one winner per name.
//! - [`StorageError::Unavailable`] means that nothing happened; [`StorageError::Uncertain`] that it
//!   may have.

mod address;
pub mod contract;
mod copies;
mod deadline;
mod error;
mod faults;
mod interrupt;
mod local;
mod memory;
mod meter;
mod name;
mod read_only;
mod retry;
mod storage;
mod within;

pub use address::{OpenStorage, StorageAddress};
pub use copies::{Kept, LocalCopies, Wanted};
pub use deadline::{Deadline, MAX_HUNG_CALLS, time_for};
pub use error::{Cause, Operation, StorageError, cause, check_range};
pub use faults::{Effect, FaultPlan, FaultRule, Faults};
pub use interrupt::Interrupt;
pub use local::LocalStorage;
pub use memory::{MemorySnapshot, MemoryStorage};
pub use meter::{Counters, Meter, MeterSnapshot, OperationCounts};
pub use name::{MAX_COMPONENT_BYTES, MAX_OBJECT_NAME_BYTES, ObjectName};
pub use read_only::ReadOnly;
pub use retry::{Retry, RetryPolicy, Sleep, ThreadSleep};
pub use storage::{ObjectInfo, Storage};
pub use within::Within;
