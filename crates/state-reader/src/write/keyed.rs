//! Keyed state from typed data.

use std::collections::HashSet;

use millpond_core::codec::{encode_into, put_varint};
use millpond_core::hash::stable_hash;
use millpond_core::{CodecError, Data, Key, KeyGroup, KeyHash, Schema};
use millpond_runs::{RowBuffer, RunError, RunSettings, SectionInfo, StateIndex, write_runs};
use millpond_state::keyed::CHUNK_ELEMENTS;
use millpond_state::{StateDescription, StateKind};

use super::StateWriter;
use crate::error::ReaderError;

/// Rows are sorted and written when there are so many bytes of them.
const BUFFER_BYTES: usize = 64 << 20;

impl StateWriter {
    /// Writes a value state. Of a key that comes twice the last value counts.
    ///
    /// # Errors
    /// When `values` gives an error, a key or value cannot be encoded, the state is written already, or
    /// storage fails.
    pub fn values<K: Key, V: Data>(
        &mut self,
        operator: &str,
        state: &str,
        values: impl IntoIterator<Item = Result<(K, V), ReaderError>>,
    ) -> Result<(), ReaderError> {
        self.single(operator, state, StateKind::Value, values)
    }

    /// Writes a reducing state, as [`Self::values`].
    ///
    /// # Errors
    /// As [`Self::values`].
    pub fn reducing<K: Key, V: Data>(
        &mut self,
        operator: &str,
        state: &str,
        values: impl IntoIterator<Item = Result<(K, V), ReaderError>>,
    ) -> Result<(), ReaderError> {
        self.single(operator, state, StateKind::Reducing, values)
    }

    /// Writes the accumulators of an aggregating state, as [`Self::values`].
    ///
    /// # Errors
    /// As [`Self::values`].
    pub fn aggregating<K: Key, V: Data>(
        &mut self,
        operator: &str,
        state: &str,
        accumulators: impl IntoIterator<Item = Result<(K, V), ReaderError>>,
    ) -> Result<(), ReaderError> {
        self.single(operator, state, StateKind::Aggregating, accumulators)
    }

    fn single<K: Key, V: Data>(
        &mut self,
        operator: &str,
        state: &str,
        kind: StateKind,
        values: impl IntoIterator<Item = Result<(K, V), ReaderError>>,
    ) -> Result<(), ReaderError> {
        let description = StateDescription::new(kind, Schema::of::<K>(), None, Schema::of::<V>());
        let mut rows = KeyedRows::begin(self, operator, state, &description)?;
        for row in values {
            let (key, value) = row?;
            let place = rows.place(&key)?;
            rows.put(place, &[], |bytes| encode_into(&value, bytes))?;
        }
        rows.finish()
    }

    /// Writes a map state. Of an entry that comes twice the last value counts.
    ///
    /// # Errors
    /// As [`Self::values`].
    pub fn map_entries<K: Key, UK: Key, UV: Data>(
        &mut self,
        operator: &str,
        state: &str,
        entries: impl IntoIterator<Item = Result<(K, UK, UV), ReaderError>>,
    ) -> Result<(), ReaderError> {
        let user_key = Some(Schema::of::<UK>());
        let description = StateDescription::new(StateKind::Map, Schema::of::<K>(), user_key, Schema::of::<UV>());
        let mut rows = KeyedRows::begin(self, operator, state, &description)?;
        let mut suffix = Vec::new();
        for row in entries {
            let (key, user_key, value) = row?;
            suffix.clear();
            encode_into(&user_key, &mut suffix).map_err(|source| rows.codec(source))?;
            let place = rows.place(&key)?;
            rows.put(place, &suffix, |bytes| encode_into(&value, bytes))?;
        }
        rows.finish()
    }

    /// Writes a list state; an empty list is no entry.
    ///
    /// # Errors
    /// As [`Self::values`]; and when a key comes twice.
    pub fn lists<K: Key, T: Data>(
        &mut self,
        operator: &str,
        state: &str,
        lists: impl IntoIterator<Item = Result<(K, Vec<T>), ReaderError>>,
    ) -> Result<(), ReaderError> {
        let description = StateDescription::new(StateKind::List, Schema::of::<K>(), None, Schema::of::<T>());
        let mut rows = KeyedRows::begin(self, operator, state, &description)?;
        let mut known = HashSet::new();
        for row in lists {
            let (key, list) = row?;
            if list.is_empty() {
                continue;
            }
            let place = rows.place(&key)?;
            if !known.insert(rows.stable) {
                return Err(ReaderError::KeyTwice { operator: operator.to_owned(), state: state.to_owned() });
            }
            for (number, chunk) in (0u32..).zip(list.chunks(CHUNK_ELEMENTS)) {
                rows.put(place, &number.to_be_bytes(), |bytes| encode_into(chunk, bytes))?;
            }
        }
        rows.finish()
    }
}

/// Collects the rows of one state and writes them as sorted runs.
pub(super) struct KeyedRows<'a> {
    writer: &'a mut StateWriter,
    operator: String,
    section: SectionInfo,
    buffer: RowBuffer,
    /// The front of the current key's rows, and the key's hash.
    key: Vec<u8>,
    stable: u64,
    scratch: Vec<u8>,
}

impl<'a> KeyedRows<'a> {
    pub(super) fn begin(
        writer: &'a mut StateWriter,
        operator: &str,
        state: &str,
        description: &StateDescription,
    ) -> Result<Self, ReaderError> {
        let section = SectionInfo { name: state.to_owned(), description: description.to_json() };
        writer.declare(operator, &section)?;
        let (buffer, key, scratch) = (RowBuffer::new(), Vec::new(), Vec::new());
        Ok(KeyedRows { writer, operator: operator.to_owned(), section, buffer, key, stable: 0, scratch })
    }

    /// Makes `key` the current one and returns its group.
    fn place<K: Key>(&mut self, key: &K) -> Result<KeyGroup, ReaderError> {
        self.stable = stable_hash(key, &mut self.scratch).map_err(|source| self.codec(source))?;
        self.scratch.clear();
        encode_into(key, &mut self.scratch).map_err(|source| self.codec(source))?;
        self.key.clear();
        put_varint(self.scratch.len() as u64, &mut self.key);
        self.key.extend_from_slice(&self.scratch);
        Ok(KeyHash::from_stable(self.stable, self.writer.max).group())
    }

    fn put(
        &mut self,
        group: KeyGroup,
        suffix: &[u8],
        value: impl FnOnce(&mut Vec<u8>) -> Result<(), CodecError>,
    ) -> Result<(), ReaderError> {
        let front = &self.key;
        let row_key = |bytes: &mut Vec<u8>| {
            bytes.extend_from_slice(front);
            bytes.extend_from_slice(suffix);
            Ok(())
        };
        let put = self.buffer.put(StateIndex(0), group, row_key, value);
        put.map_err(|source| self.codec(source))?;
        self.flush_if_full()
    }

    /// A row as it was elsewhere.
    pub(super) fn put_raw(&mut self, group: KeyGroup, row_key: &[u8], value: &[u8]) -> Result<(), ReaderError> {
        let copy = |from: &[u8], bytes: &mut Vec<u8>| {
            bytes.extend_from_slice(from);
            Ok::<(), CodecError>(())
        };
        let put = self.buffer.put(StateIndex(0), group, |bytes| copy(row_key, bytes), |bytes| copy(value, bytes));
        put.map_err(|source| self.codec(source))?;
        self.flush_if_full()
    }

    /// Says what the next rows were written with: rows of one run share a description.
    pub(super) fn describe(&mut self, description: &StateDescription) -> Result<(), ReaderError> {
        let text = description.to_json();
        if text != self.section.description {
            if !self.buffer.is_empty() {
                self.flush()?;
            }
            self.section.description = text;
        }
        Ok(())
    }

    fn flush_if_full(&mut self) -> Result<(), ReaderError> {
        if self.buffer.bytes() < BUFFER_BYTES { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<(), ReaderError> {
        let rows = std::mem::take(&mut self.buffer);
        let section = std::slice::from_ref(&self.section);
        let runs = write_runs(rows, section, &RunSettings::default()).map_err(|source| self.run(source))?;
        self.writer.put_runs(&self.operator, runs)
    }

    pub(super) fn finish(mut self) -> Result<(), ReaderError> {
        if self.buffer.is_empty() { Ok(()) } else { self.flush() }
    }

    fn codec(&self, source: CodecError) -> ReaderError {
        ReaderError::Encode { operator: self.operator.clone(), state: self.section.name.clone(), source }
    }

    fn run(&self, source: RunError) -> ReaderError {
        let object = format!("rows of state {:?}", self.section.name);
        ReaderError::Run { operator: self.operator.clone(), object, source }
    }
}
