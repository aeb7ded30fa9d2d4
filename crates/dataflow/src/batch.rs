//! Records travel in batches. A batch is typed inside an operator and erased between operators.
//!
//! Erasure costs one virtual call per batch, not per record.

use std::any::Any;

use millpond_core::{CodecError, Data, Key, KeyHash, codec};
use serde::{Deserialize, Serialize};

/// A record with its key and the key's hash, both computed once, at `key_by`.
#[derive(Clone, Debug)]
pub struct Keyed<K, T> {
    /// Key group (top 16 bits) and hash (lower 48 bits).
    pub hash: KeyHash,
    /// The key.
    pub key: K,
    /// The record.
    pub value: T,
}

impl<K: Serialize, T: Serialize> Serialize for Keyed<K, T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.hash.0, &self.key, &self.value).serialize(serializer)
    }
}

impl<'de, K: Deserialize<'de>, T: Deserialize<'de>> Deserialize<'de> for Keyed<K, T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (hash, key, value) = Deserialize::deserialize(deserializer)?;
        Ok(Keyed { hash: KeyHash(hash), key, value })
    }
}

/// What an edge carries records of: plain ones, or keyed ones.
pub trait KeyedRecord: Data {
    /// The key's type.
    type Key: Key;
    /// The record's type.
    type Value: Data;
}

impl<K: Key, T: Data> KeyedRecord for Keyed<K, T> {
    type Key = K;
    type Value = T;
}

/// Records in order, and their event times where they have any.
#[derive(Clone, Debug)]
pub struct Batch<R> {
    /// The records.
    pub records: Vec<R>,
    /// Event times in milliseconds: empty (no record has one) or one per record, where
    /// [`NO_TIME`] stands for none.
    pub times: Vec<i64>,
}

/// "This record has no event time" (WM-19).
pub const NO_TIME: i64 = i64::MIN;

impl<R> Default for Batch<R> {
    fn default() -> Self {
        Batch { records: Vec::new(), times: Vec::new() }
    }
}

impl<R> From<Vec<R>> for Batch<R> {
    fn from(records: Vec<R>) -> Self {
        Batch { records, times: Vec::new() }
    }
}

impl<R> Batch<R> {
    /// Number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The event time of record `index`, [`NO_TIME`] when it has none.
    #[inline]
    #[must_use]
    pub fn time(&self, index: usize) -> i64 {
        self.times.get(index).copied().unwrap_or(NO_TIME)
    }

    /// The records with their event times, [`NO_TIME`] where there is none.
    pub fn into_timed(self) -> impl Iterator<Item = (R, i64)> {
        self.records.into_iter().zip(self.times.into_iter().chain(std::iter::repeat(NO_TIME)))
    }
}

impl<R: Data> Batch<R> {
    /// Erases the type.
    #[must_use]
    pub fn boxed(self) -> BoxBatch {
        BoxBatch(Box::new(self))
    }
}

/// The erased face of a batch.
trait AnyBatch: Any + Send {
    fn len(&self) -> usize;
    fn clone_box(&self) -> BoxBatch;
    fn estimate_bytes(&self) -> usize;
    fn encode(&self) -> Result<Vec<u8>, CodecError>;
    fn record_type(&self) -> &'static str;
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl<R: Data> AnyBatch for Batch<R> {
    fn len(&self) -> usize {
        self.records.len()
    }

    fn clone_box(&self) -> BoxBatch {
        self.clone().boxed()
    }

    fn estimate_bytes(&self) -> usize {
        let shallow = std::mem::size_of::<R>();
        let per_record = match self.records.first() {
            Some(first) if std::mem::needs_drop::<R>() => shallow + postcard_size(first),
            _ => shallow,
        };
        self.records.len() * per_record + self.times.len() * 8
    }

    fn encode(&self) -> Result<Vec<u8>, CodecError> {
        codec::encode(&(&self.records, &self.times))
    }

    fn record_type(&self) -> &'static str {
        std::any::type_name::<R>()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// What one record owns on the heap, roughly: its encoded size, sampled once per batch.
fn postcard_size<R: Data>(record: &R) -> usize {
    codec::encoded_size(record).unwrap_or(0)
}

/// A batch whose record type is known only to its producer and its consumer.
pub struct BoxBatch(Box<dyn AnyBatch>);

impl std::fmt::Debug for BoxBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BoxBatch({} of {})", self.len(), self.0.record_type())
    }
}

impl Clone for BoxBatch {
    fn clone(&self) -> Self {
        self.0.clone_box()
    }
}

impl BoxBatch {
    /// Number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Roughly how many bytes of memory the batch holds.
    #[must_use]
    pub fn estimate_bytes(&self) -> usize {
        self.0.estimate_bytes()
    }

    /// Bytes for the wire; [`decode`] is the mirror.
    ///
    /// # Errors
    /// When a record's `Serialize` implementation fails.
    pub fn encode(&self) -> Result<Vec<u8>, CodecError> {
        self.0.encode()
    }

    /// The typed batch back.
    ///
    /// # Panics
    /// When the batch holds another record type: the graph connected two operators wrongly.
    #[must_use]
    pub fn downcast<R: Data>(self) -> Batch<R> {
        let held = self.0.record_type();
        match self.0.into_any().downcast::<Batch<R>>() {
            Ok(batch) => *batch,
            Err(_) => panic!("a batch of {held} arrived where {} was expected", std::any::type_name::<R>()),
        }
    }
}

/// Decodes a batch of `R` that [`BoxBatch::encode`] wrote.
///
/// # Errors
/// When the bytes are not such an encoding.
pub fn decode<R: Data>(bytes: &[u8]) -> Result<BoxBatch, CodecError> {
    let (records, times): (Vec<R>, Vec<i64>) = codec::decode(bytes)?;
    Ok(Batch { records, times }.boxed())
}

/// How the receiving end of an edge turns wire bytes into a batch.
pub type DecodeBatch = fn(&[u8]) -> Result<BoxBatch, CodecError>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoded_batch_comes_back_with_its_times() {
        let batch = Batch { records: vec!["a".to_owned(), "b".to_owned()], times: vec![1, NO_TIME] };
        let bytes = batch.clone().boxed().encode().unwrap();
        let back = decode::<String>(&bytes).unwrap().downcast::<String>();
        assert_eq!(back.records, batch.records);
        assert_eq!(back.times, batch.times);
        assert!(decode::<String>(&bytes[..3]).is_err());
    }

    #[test]
    fn the_estimate_counts_what_records_own() {
        let small: BoxBatch = Batch::from(vec![0u64; 10]).boxed();
        assert_eq!(small.estimate_bytes(), 80);
        let large: BoxBatch = Batch::from(vec!["x".repeat(1000); 10]).boxed();
        assert!(large.estimate_bytes() >= 10_000);
    }
}
