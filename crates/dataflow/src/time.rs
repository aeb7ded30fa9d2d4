//! Event time between operators: marks that travel in band with the batches.
//!
//! A mark stands behind all records that its sender has emitted before it. It carries no records, takes no
//! credit, and goes to every subtask of every receiver; merging the marks of several senders is the business
//! of the runtime.

use millpond_core::{CodecError, codec};
use serde::{Deserialize, Serialize};

use crate::batch::{BoxBatch, DecodeBatch};

/// The watermark before any other (TM-08).
pub const MIN_WATERMARK: i64 = i64::MIN;
/// The watermark behind the last record (TM-15).
pub const MAX_WATERMARK: i64 = i64::MAX;

/// What a sender says about event time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimeMark {
    /// No record with this event time (milliseconds) or an older one is expected any more.
    Watermark(i64),
    /// The sender takes no part in event time for now.
    Idle,
    /// The sender takes part again.
    Active,
}

/// What travels from one operator to another.
#[derive(Clone, Debug)]
pub enum Element {
    /// Records.
    Batch(BoxBatch),
    /// Event time.
    Mark(TimeMark),
}

impl Element {
    /// Number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Element::Batch(batch) => batch.len(),
            Element::Mark(_) => 0,
        }
    }

    /// Whether there is no record in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Roughly how many bytes of memory its records hold.
    #[must_use]
    pub fn estimate_bytes(&self) -> usize {
        match self {
            Element::Batch(batch) => batch.estimate_bytes(),
            Element::Mark(_) => 0,
        }
    }

    /// The batch, if it is one.
    #[must_use]
    pub fn into_batch(self) -> Option<BoxBatch> {
        match self {
            Element::Batch(batch) => Some(batch),
            Element::Mark(_) => None,
        }
    }

    /// Bytes for the wire; [`Element::decode`] is the mirror. The first byte tells batches (0) from marks (1).
    ///
    /// # Errors
    /// When a record's `Serialize` implementation fails.
    pub fn encode(&self) -> Result<Vec<u8>, CodecError> {
        let (kind, content) = match self {
            Element::Batch(batch) => (0, batch.encode()?),
            Element::Mark(mark) => (1, codec::encode(mark)?),
        };
        let mut bytes = Vec::with_capacity(content.len() + 1);
        bytes.push(kind);
        bytes.extend_from_slice(&content);
        Ok(bytes)
    }

    /// What [`Element::encode`] wrote; `decode` reads batches.
    ///
    /// # Errors
    /// When the bytes are not such an encoding.
    pub fn decode(bytes: &[u8], decode: DecodeBatch) -> Result<Element, CodecError> {
        match bytes.split_first() {
            Some((0, batch)) => Ok(Element::Batch(decode(batch)?)),
            // An empty message and an unknown first byte fail here, as a mark that is none.
            Some((1, mark)) => Ok(Element::Mark(codec::decode(mark)?)),
            _ => Ok(Element::Mark(codec::decode(&[])?)),
        }
    }
}

impl From<BoxBatch> for Element {
    fn from(batch: BoxBatch) -> Self {
        Element::Batch(batch)
    }
}

/// What an operator came to when it was told a new watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// All that was due has happened; the watermark passes on.
    Done,
    /// There is more to emit: call again with the same watermark once downstream has room.
    More,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Batch, decode};

    #[test]
    fn batches_and_marks_survive_the_wire() {
        for mark in [TimeMark::Watermark(-7), TimeMark::Watermark(MAX_WATERMARK), TimeMark::Idle, TimeMark::Active] {
            let bytes = Element::Mark(mark).encode().unwrap();
            assert!(matches!(Element::decode(&bytes, decode::<u64>).unwrap(), Element::Mark(back) if back == mark));
        }
        let batch = Element::from(Batch { records: vec![1u64, 2], times: vec![5, 6] }.boxed());
        let back = Element::decode(&batch.encode().unwrap(), decode::<u64>).unwrap();
        let back = back.into_batch().unwrap().downcast::<u64>();
        assert_eq!((back.records, back.times), (vec![1, 2], vec![5, 6]));
    }

    #[test]
    fn damaged_bytes_are_refused() {
        for bytes in [&[][..], &[1][..], &[7, 0][..], &[0][..]] {
            assert!(Element::decode(bytes, decode::<u64>).is_err(), "{bytes:?}");
        }
    }
}
