//! The unsorted rows of one epoch, collected on the worker's thread.
//!
//! Owns an arena of chunks into which a row is written once: a 12-byte head, the key, the value. Does
//! *not* sort, compare or index: that is left to the background thread (`sort`). Appending
//! allocates once per chunk, moves nothing that is already written, and never fails by itself.

use millpond_core::{KeyGroup, KeyGroupRange};

use crate::error::RunError;
use crate::row::MAX_ROW_BYTES;
use crate::spare::{self, CHUNK_BYTES};

/// A chunk with less room than this is full.
const CHUNK_RESERVE: usize = 4 << 10;
/// Bits of a place that say where in its chunk a row begins.
const OFFSET_BITS: u32 = CHUNK_BYTES.trailing_zeros();
const HEAD_BYTES: usize = 12;
const TOMBSTONE: u32 = u32::MAX;

/// Identifies a state inside one [`RowBuffer`]: an index into a table of sections kept by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateIndex(pub u16);

/// An arena of unsorted rows.
///
/// When a (state, group, key) occurs more than once, a put beats a delete, whatever their order (its
/// value is what was live at the freeze), and the later of two puts wins. Everything that came in by
/// [`RowBuffer::merge_newer`] beats everything that was there before.
///
/// ```
/// use millpond_core::KeyGroup;
/// use millpond_runs::{RowBuffer, StateIndex};
///
/// let mut rows = RowBuffer::new();
/// rows.put::<()>(StateIndex(0), KeyGroup(7), |key| Ok(key.push(1)), |value| Ok(value.push(2)))?;
/// assert_eq!(rows.rows(), 1);
/// # Ok::<(), ()>(())
/// ```
#[derive(Debug)]
pub struct RowBuffer {
    chunks: Vec<Vec<u8>>,
    rows: usize,
    row_bytes: usize,
    groups: KeyGroupRange,
    /// Index of the first chunk of each merged-in buffer, ascending: rows from there on beat all rows before.
    generations: Vec<usize>,
    too_large: Option<TooLarge>,
}

#[derive(Clone, Copy, Debug)]
struct TooLarge {
    state: StateIndex,
    group: KeyGroup,
    bytes: u64,
}

impl Drop for RowBuffer {
    fn drop(&mut self) {
        self.chunks.drain(..).for_each(spare::give);
    }
}

impl Default for RowBuffer {
    fn default() -> Self {
        RowBuffer::new()
    }
}

impl RowBuffer {
    /// A buffer without rows. Does not allocate.
    #[must_use]
    pub const fn new() -> Self {
        RowBuffer {
            chunks: Vec::new(),
            rows: 0,
            row_bytes: 0,
            groups: KeyGroupRange::new(u32::MAX, 0),
            generations: Vec::new(),
            too_large: None,
        }
    }

    /// How many rows were put and deleted, the superseded ones included.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes taken by the rows.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.row_bytes
    }

    /// Whether there are no rows.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows == 0 && self.too_large.is_none()
    }

    /// Appends a row with a value. `key` and `value` append their bytes to what they are given.
    /// A row above [`MAX_ROW_BYTES`] is reported by [`crate::write_runs`].
    ///
    /// # Errors
    /// The error of `key` or `value`; the buffer is then as before.
    ///
    /// # Panics
    /// When `key` or `value` shortens what it is given.
    #[inline]
    pub fn put<E>(
        &mut self,
        state: StateIndex,
        group: KeyGroup,
        key: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
        value: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let chunk = self.open_chunk();
        let start = chunk.len();
        chunk.extend_from_slice(&[0; HEAD_BYTES]);
        if let Err(error) = key(chunk) {
            chunk.truncate(start);
            return Err(error);
        }
        let key_end = chunk.len();
        if let Err(error) = value(chunk) {
            chunk.truncate(start);
            return Err(error);
        }
        let value_bytes = chunk.len() - key_end;
        self.close_row(state, group, start, key_end, value_bytes, false);
        Ok(())
    }

    /// Appends a tombstone. `key` appends its bytes to what it is given.
    ///
    /// # Errors
    /// The error of `key`; the buffer is then as before.
    ///
    /// # Panics
    /// When `key` shortens what it is given.
    #[inline]
    pub fn delete<E>(
        &mut self,
        state: StateIndex,
        group: KeyGroup,
        key: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let chunk = self.open_chunk();
        let start = chunk.len();
        chunk.extend_from_slice(&[0; HEAD_BYTES]);
        if let Err(error) = key(chunk) {
            chunk.truncate(start);
            return Err(error);
        }
        let key_end = chunk.len();
        self.close_row(state, group, start, key_end, 0, true);
        Ok(())
    }

    /// Takes in all rows of `newer`; each of them beats every row that is here now. Takes time
    /// proportional to the number of chunks, not of rows.
    pub fn merge_newer(&mut self, mut newer: RowBuffer) {
        if newer.is_empty() {
            return;
        }
        let first = self.chunks.len();
        self.generations.push(first);
        self.generations.extend(newer.generations.iter().map(|chunk| chunk + first));
        self.chunks.append(&mut newer.chunks);
        self.rows += newer.rows;
        self.row_bytes += newer.row_bytes;
        self.groups.start = self.groups.start.min(newer.groups.start);
        self.groups.end = self.groups.end.max(newer.groups.end);
        self.too_large = self.too_large.or(newer.too_large);
    }

    /// The chunk that the next row goes to.
    #[inline]
    fn open_chunk(&mut self) -> &mut Vec<u8> {
        let full = self.chunks.last().is_none_or(|chunk| chunk.len() > CHUNK_BYTES - CHUNK_RESERVE);
        if full {
            self.add_chunk();
        }
        self.chunks.last_mut().expect("a chunk was added if there was none")
    }

    /// The first chunk grows as it fills, so that a buffer of a few rows stays small.
    #[cold]
    fn add_chunk(&mut self) {
        let chunk = if self.chunks.is_empty() { Vec::new() } else { spare::take() };
        self.chunks.push(chunk);
    }

    #[inline]
    fn close_row(
        &mut self,
        state: StateIndex,
        group: KeyGroup,
        start: usize,
        key_end: usize,
        value_bytes: usize,
        tombstone: bool,
    ) {
        let chunk = self.chunks.last_mut().expect("the row was written to the last chunk");
        let key_bytes = key_end - start - HEAD_BYTES;
        if key_bytes as u64 + value_bytes as u64 > MAX_ROW_BYTES {
            chunk.truncate(start);
            let bytes = key_bytes as u64 + value_bytes as u64;
            self.too_large = Some(TooLarge { state, group, bytes });
            return;
        }
        let head = Head {
            state: state.0,
            group: group.0,
            key_bytes: key_bytes as u32,
            value_bytes: if tombstone { TOMBSTONE } else { value_bytes as u32 },
        };
        chunk[start..start + HEAD_BYTES].copy_from_slice(&head.encode());
        self.row_bytes += HEAD_BYTES + key_bytes + value_bytes;
        self.rows += 1;
        self.groups.start = self.groups.start.min(u32::from(group.0));
        self.groups.end = self.groups.end.max(u32::from(group.0) + 1);
    }

    /// The groups between the first and the last group of any row.
    pub(crate) const fn groups(&self) -> KeyGroupRange {
        self.groups
    }

    /// Fails when a row had to be refused.
    pub(crate) fn check(&self) -> Result<(), RunError> {
        match self.too_large {
            None => Ok(()),
            Some(TooLarge { state, group, bytes }) => {
                Err(RunError::RowTooLarge { state: state.0, group, bytes, limit: MAX_ROW_BYTES })
            }
        }
    }

    /// Every row in the order of appending.
    pub fn iter(&self) -> impl Iterator<Item = BufferedRow<'_>> {
        self.chunks.iter().flat_map(|chunk| RowsOf(chunk))
    }

    /// Visits every row in the order of appending.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(BufferedRow<'_>)) {
        for chunk in &self.chunks {
            for_each_in(chunk, &mut visit);
        }
    }

    /// Visits every row in the order of appending, with its place: a number below 2^60 that [`Self::row_at`] takes.
    /// Places ascend.
    pub(crate) fn for_each_placed(&self, mut visit: impl FnMut(usize, BufferedRow<'_>)) {
        for (index, chunk) in self.chunks.iter().enumerate() {
            let mut rest = chunk.as_slice();
            while !rest.is_empty() {
                // A row begins only where the chunk is not full yet.
                let offset = chunk.len() - rest.len();
                let (row, tail) = BufferedRow::split_off(rest);
                visit(index << OFFSET_BITS | offset, row);
                rest = tail;
            }
        }
    }

    /// The row at a place.
    #[inline]
    pub(crate) fn row_at(&self, place: usize) -> BufferedRow<'_> {
        let chunk = &self.chunks[place >> OFFSET_BITS];
        BufferedRow::split_off(&chunk[place & ((1 << OFFSET_BITS) - 1)..]).0
    }

    /// How many buffers had been merged in before the row at a place came.
    pub(crate) fn generation_of(&self, place: usize) -> u32 {
        self.generations.partition_point(|first| *first <= place >> OFFSET_BITS) as u32
    }

    /// Visits every row in the order of appending, with the number of buffers that had been merged in
    /// before it came. Gives the memory back on the way.
    pub(crate) fn consume(mut self, mut visit: impl FnMut(u32, BufferedRow<'_>)) {
        let mut generation = 0;
        for (index, chunk) in std::mem::take(&mut self.chunks).into_iter().enumerate() {
            while self.generations.get(generation).is_some_and(|first| *first <= index) {
                generation += 1;
            }
            for_each_in(&chunk, |row| visit(generation as u32, row));
            spare::give(chunk);
        }
    }
}

fn for_each_in(chunk: &[u8], mut visit: impl FnMut(BufferedRow<'_>)) {
    let mut rest = chunk;
    while !rest.is_empty() {
        let (row, tail) = BufferedRow::split_off(rest);
        visit(row);
        rest = tail;
    }
}

/// The rows of one chunk.
struct RowsOf<'a>(&'a [u8]);

impl<'a> Iterator for RowsOf<'a> {
    type Item = BufferedRow<'a>;

    fn next(&mut self) -> Option<BufferedRow<'a>> {
        if self.0.is_empty() {
            return None;
        }
        let (row, rest) = BufferedRow::split_off(self.0);
        self.0 = rest;
        Some(row)
    }
}

/// A row in the buffer.
#[derive(Clone, Copy, Debug)]
pub struct BufferedRow<'a> {
    /// Index of the state.
    pub state: u16,
    /// Number of the key's group.
    pub group: u16,
    /// The key.
    pub key: &'a [u8],
    /// The value; `None` is a tombstone.
    pub value: Option<&'a [u8]>,
}

impl<'a> BufferedRow<'a> {
    /// The row at the front of a chunk's bytes, and what follows it.
    #[inline]
    fn split_off(bytes: &'a [u8]) -> (Self, &'a [u8]) {
        let (head, rest) = bytes.split_at(HEAD_BYTES);
        let head = Head::decode(head);
        let (key, rest) = rest.split_at(head.key_bytes as usize);
        let value_bytes = if head.value_bytes == TOMBSTONE { 0 } else { head.value_bytes };
        let (value, rest) = rest.split_at(value_bytes as usize);
        let value = (head.value_bytes != TOMBSTONE).then_some(value);
        (BufferedRow { state: head.state, group: head.group, key, value }, rest)
    }
}

/// What stands before a row's key.
struct Head {
    state: u16,
    group: u16,
    key_bytes: u32,
    value_bytes: u32,
}

impl Head {
    #[inline]
    fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[0..2].copy_from_slice(&self.state.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.group.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.key_bytes.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.value_bytes.to_le_bytes());
        bytes
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Head {
        let b: &[u8; HEAD_BYTES] = bytes.try_into().expect("a head was split off");
        Head {
            state: u16::from_le_bytes([b[0], b[1]]),
            group: u16::from_le_bytes([b[2], b[3]]),
            key_bytes: u32::from_le_bytes([b[4], b[5], b[6], b[7]]),
            value_bytes: u32::from_le_bytes([b[8], b[9], b[10], b[11]]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_core::ErrorKind;

    #[test]
    fn a_row_above_the_limit_is_refused_when_the_rows_are_written() {
        let mut rows = RowBuffer::new();
        let key = |bytes: &mut Vec<u8>| -> Result<(), ()> {
            bytes.push(1);
            Ok(())
        };
        rows.put(StateIndex(2), KeyGroup(3), key, key).unwrap();
        let start = rows.chunks[0].len();
        rows.chunks[0].extend_from_slice(&[0; HEAD_BYTES]);
        // As if the value had this size.
        let value_bytes = MAX_ROW_BYTES as usize + 1;
        rows.close_row(StateIndex(2), KeyGroup(3), start, start + HEAD_BYTES, value_bytes, false);
        assert_eq!((rows.rows(), rows.chunks[0].len()), (1, start));
        let mut older = RowBuffer::new();
        older.merge_newer(rows);
        let error = older.check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert_eq!(error.to_string(), "a row of state 2 in key group 3 has 1073741825 bytes, more than 1073741824");
    }

    #[test]
    fn rows_keep_their_bytes_over_many_chunks() {
        let mut rows = RowBuffer::new();
        let sizes = [0, 1, 5_000, 300_000, 10, 262_144, 4_000];
        for round in 0..50u8 {
            for size in sizes {
                let key = |bytes: &mut Vec<u8>| -> Result<(), ()> {
                    bytes.push(round);
                    Ok(())
                };
                let value = |bytes: &mut Vec<u8>| -> Result<(), ()> {
                    bytes.resize(bytes.len() + size, round);
                    Ok(())
                };
                rows.put(StateIndex(0), KeyGroup(1), key, value).unwrap();
            }
        }
        assert!(rows.chunks.len() > 50);
        let mut seen = 0;
        rows.consume(|generation, row| {
            let round = (seen / sizes.len()) as u8;
            assert_eq!((generation, row.key), (0, &[round][..]));
            assert_eq!(row.value, Some(&vec![round; sizes[seen % sizes.len()]][..]));
            seen += 1;
        });
        assert_eq!(seen, 350);
    }
}
