//! The log of an epoch: entries one after the other, cheap to hand around.

use std::fmt;
use std::sync::Arc;

use millpond_core::Epoch;
use millpond_core::codec::{put_varint, take_varint};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What one writer wrote in one epoch. Clones share the bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochLog {
    epoch: Epoch,
    entries: u64,
    bytes: LogBytes,
}

impl EpochLog {
    /// The epoch.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// How many entries it has.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.entries
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Its size, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.0.len()
    }

    /// The entries, in the order in which they were written.
    pub fn entries(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.bytes.0.as_slice();
        std::iter::from_fn(move || {
            let (length, after) = take_varint(rest)?;
            let (entry, after) = after.split_at_checked(usize::try_from(length).ok()?)?;
            rest = after;
            Some(entry)
        })
    }
}

/// How many of these logs, in order, go into one transaction of about `limit_bytes`: at least one, if there is any.
pub(super) fn within(logs: &[EpochLog], limit_bytes: usize) -> usize {
    let mut bytes = 0usize;
    let fits = logs.iter().take_while(|log| {
        bytes = bytes.saturating_add(log.bytes());
        bytes <= limit_bytes
    });
    fits.count().max(1).min(logs.len())
}

/// The log of the epoch that is open.
#[derive(Default)]
pub(super) struct OpenLog {
    entries: u64,
    bytes: Vec<u8>,
    scratch: Vec<u8>,
}

impl OpenLog {
    /// Appends what `encode` writes as one entry, or nothing when it fails.
    pub(super) fn add<E>(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        self.scratch.clear();
        encode(&mut self.scratch)?;
        put_varint(self.scratch.len() as u64, &mut self.bytes);
        self.bytes.extend_from_slice(&self.scratch);
        self.entries += 1;
        Ok(())
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Closes the log as that of `epoch`; `None` when it is empty.
    pub(super) fn close(&mut self, epoch: Epoch) -> Option<EpochLog> {
        if self.entries == 0 {
            return None;
        }
        let bytes = LogBytes(Arc::new(std::mem::take(&mut self.bytes)));
        Some(EpochLog { epoch, entries: std::mem::take(&mut self.entries), bytes })
    }
}

/// What operator state holds of a writer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WriterLog {
    /// The writer's name.
    pub(super) writer: String,
    /// What it has logged and not seen applied, in order.
    pub(super) epochs: Vec<EpochLog>,
}

/// Bytes that are encoded as such, and shared.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LogBytes(Arc<Vec<u8>>);

impl Serialize for LogBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for LogBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_byte_buf(BytesVisitor)
    }
}

struct BytesVisitor;

impl Visitor<'_> for BytesVisitor {
    type Value = LogBytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<LogBytes, E> {
        Ok(LogBytes(Arc::new(bytes.to_vec())))
    }

    fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<LogBytes, E> {
        Ok(LogBytes(Arc::new(bytes)))
    }
}
