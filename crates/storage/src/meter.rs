//! A layer that counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Operation, StorageError};
use crate::name::ObjectName;
use crate::storage::{ObjectInfo, Storage};

const OPERATIONS: usize = Operation::OF_STORAGE.len();

/// Wraps a storage and counts calls, errors and bytes per operation.
#[derive(Debug)]
pub struct Meter<S> {
    inner: S,
    counters: Counters,
}

/// The counters of a [`Meter`]; clones share them, so they outlive the layer.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    counters: Arc<[AtomicCounts; OPERATIONS]>,
}

#[derive(Debug, Default)]
struct AtomicCounts {
    calls: AtomicU64,
    errors: AtomicU64,
    bytes: AtomicU64,
}

/// Counts of one operation since the meter was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationCounts {
    /// Calls that ended, well or not.
    pub calls: u64,
    /// Calls that ended with an error of any kind, `AlreadyExists` and `NotFound` included.
    pub errors: u64,
    /// Bytes written by successful creates or returned by successful reads.
    pub bytes: u64,
}

/// All counts at one moment; each count is exact, together they may be a call apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeterSnapshot {
    counts: [OperationCounts; OPERATIONS],
}

impl MeterSnapshot {
    /// The counts of `operation`; zeros for one that is not of the [`Storage`] trait.
    #[must_use]
    pub fn of(&self, operation: Operation) -> OperationCounts {
        self.counts.get(operation as usize).copied().unwrap_or_default()
    }

    /// Bytes written, in total.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.of(Operation::Create).bytes
    }

    /// Bytes read, in total.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.of(Operation::Read).bytes + self.of(Operation::ReadRange).bytes
    }
}

impl Counters {
    /// The counts now.
    #[must_use]
    pub fn snapshot(&self) -> MeterSnapshot {
        let load = |operation: usize| {
            let counts = &self.counters[operation];
            OperationCounts {
                calls: counts.calls.load(Ordering::Relaxed),
                errors: counts.errors.load(Ordering::Relaxed),
                bytes: counts.bytes.load(Ordering::Relaxed),
            }
        };
        MeterSnapshot { counts: std::array::from_fn(load) }
    }

    fn count<T>(
        &self,
        operation: Operation,
        result: Result<T, StorageError>,
        bytes: impl FnOnce(&T) -> usize,
    ) -> Result<T, StorageError> {
        let counts = &self.counters[operation as usize];
        counts.calls.fetch_add(1, Ordering::Relaxed);
        match &result {
            Ok(value) => counts.bytes.fetch_add(bytes(value) as u64, Ordering::Relaxed),
            Err(_) => counts.errors.fetch_add(1, Ordering::Relaxed),
        };
        result
    }
}

impl<S> Meter<S> {
    /// A layer around `inner` with counters at zero.
    pub fn new(inner: S) -> Self {
        Meter { inner, counters: Counters::default() }
    }

    /// The counters, shared.
    pub fn counters(&self) -> Counters {
        self.counters.clone()
    }

    /// The counts now.
    pub fn snapshot(&self) -> MeterSnapshot {
        self.counters.snapshot()
    }
}

impl<S: Storage> Storage for Meter<S> {
    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), StorageError> {
        self.counters.count(Operation::Create, self.inner.create(name, bytes), |()| bytes.len())
    }

    fn read(&self, name: &ObjectName) -> Result<Vec<u8>, StorageError> {
        self.counters.count(Operation::Read, self.inner.read(name), Vec::len)
    }

    fn read_range(&self, name: &ObjectName, offset: u64, length: u64) -> Result<Vec<u8>, StorageError> {
        self.counters.count(Operation::ReadRange, self.inner.read_range(name, offset, length), Vec::len)
    }

    fn size(&self, name: &ObjectName) -> Result<u64, StorageError> {
        self.counters.count(Operation::Size, self.inner.size(name), |_| 0)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, StorageError> {
        self.counters.count(Operation::List, self.inner.list(prefix), |_| 0)
    }

    fn delete(&self, name: &ObjectName) -> Result<(), StorageError> {
        self.counters.count(Operation::Delete, self.inner.delete(name), |()| 0)
    }

    fn location(&self) -> String {
        self.inner.location()
    }

    fn ends_calls(&self) -> bool {
        self.inner.ends_calls()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStorage;

    #[test]
    fn calls_errors_and_bytes_are_counted_per_operation() {
        let meter = Meter::new(MemoryStorage::new());
        let name = ObjectName::new("a").unwrap();
        meter.create(&name, b"12345").unwrap();
        meter.create(&name, b"123").unwrap_err();
        meter.read(&name).unwrap();
        meter.read_range(&name, 1, 2).unwrap();
        meter.read_range(&name, 4, 2).unwrap_err();
        meter.size(&name).unwrap();
        meter.list("").unwrap();
        meter.delete(&name).unwrap();
        let counts = meter.counters().snapshot();
        let of = |calls, errors, bytes| OperationCounts { calls, errors, bytes };
        assert_eq!(counts.of(Operation::Create), of(2, 1, 5));
        assert_eq!(counts.of(Operation::Read), of(1, 0, 5));
        assert_eq!(counts.of(Operation::ReadRange), of(2, 1, 2));
        assert_eq!(counts.of(Operation::Size), of(1, 0, 0));
        assert_eq!(counts.of(Operation::List), of(1, 0, 0));
        assert_eq!(counts.of(Operation::Delete), of(1, 0, 0));
        assert_eq!(counts.of(Operation::Open), of(0, 0, 0));
        assert_eq!((counts.bytes_written(), counts.bytes_read()), (5, 7));
    }
}
