//! The list of one key: what is in memory of it, and how it becomes rows.
//!
//! Owns the elements from some chunk on; the chunks before that are in the cold store for sure and have not
//! changed since. Changes go to the end or replace the whole, so "the first changed chunk" says all that has to
//! be known about changes, and appending needs no more than the last chunk.

use std::collections::BTreeMap;
use std::mem::needs_drop;
use std::ops::ControlFlow;

use millpond_core::codec::{decode, encode_into};
use millpond_core::{CodecError, Data, Key, KeyGroup};
use millpond_runs::StateIndex;

use super::cold_part::FetchError;
use super::list::CHUNK_ELEMENTS;
use super::tracked::{Cell, encoded_bytes};
use crate::cold::ColdSide;
use crate::epochs::{CLEAN, COLD, Place};
use crate::rows::RowTarget;

/// Chunks read from the cold store at a time.
const WINDOW_CHUNKS: usize = 32;

/// Nothing changed.
const NO_CHUNK: u32 = u32::MAX;

/// What is in memory of one list: everything, or all from some chunk on.
pub(crate) struct ListCell<T> {
    /// The elements from chunk `skipped` on.
    pub(crate) items: Vec<T>,
    /// Chunks that are in the cold store and not here: `0..skipped`.
    skipped: u32,
    /// The entry's tag before it became that of the current epoch: says where the chunks are that have not
    /// changed since.
    before: u32,
    /// First chunk changed in the epoch of the entry's tag.
    dirty_from: u32,
    /// Chunks in runs and in rows handed over: `0..persisted`.
    persisted: u32,
    /// Chunks on their way in, during a restore.
    #[expect(clippy::box_collection, reason = "there only during a restore: the cell stays small")]
    arriving: Option<Box<BTreeMap<u32, Vec<T>>>>,
}

fn chunk_of(element: usize) -> u32 {
    (element / CHUNK_ELEMENTS) as u32
}

fn chunk_suffix(chunk: u32) -> impl FnOnce(&mut Vec<u8>) -> Result<(), CodecError> {
    move |bytes| {
        bytes.extend_from_slice(&chunk.to_be_bytes());
        Ok(())
    }
}

fn chunk_number(suffix: &[u8]) -> Result<u32, String> {
    let bytes = suffix.try_into().map_err(|_| format!("a chunk number of {} bytes", suffix.len()))?;
    Ok(u32::from_be_bytes(bytes))
}

impl<T: Data> ListCell<T> {
    pub(crate) fn new(items: Vec<T>) -> Self {
        ListCell { items, skipped: 0, before: CLEAN, dirty_from: 0, persisted: 0, arriving: None }
    }

    /// Elements of the whole list.
    pub(crate) fn len(&self) -> usize {
        self.skipped as usize * CHUNK_ELEMENTS + self.items.len()
    }

    /// Whether all of it is in memory.
    pub(crate) fn is_whole(&self) -> bool {
        self.skipped == 0
    }

    /// Another list takes the place of this one.
    pub(crate) fn replace(&mut self, items: Vec<T>) {
        self.changed_from(0);
        self.skipped = 0;
        self.items = items;
    }

    /// Changes come at or after this element.
    pub(crate) fn changed_from(&mut self, element: usize) {
        self.dirty_from = self.dirty_from.min(chunk_of(element));
    }

    fn chunks(&self) -> u32 {
        chunk_of(self.len() + CHUNK_ELEMENTS - 1)
    }

    fn put_chunk<K: Key>(&self, chunk: u32, key: &K, target: &mut RowTarget<'_>) -> Result<(), CodecError> {
        let start = (chunk - self.skipped) as usize * CHUNK_ELEMENTS;
        let end = (start + CHUNK_ELEMENTS).min(self.items.len());
        target.put(key, chunk_suffix(chunk), |bytes| encode_into(&self.items[start..end], bytes))
    }

    /// Brings in the beginning.
    pub(crate) fn load(
        &mut self,
        side: &ColdSide,
        state: StateIndex,
        group: KeyGroup,
        row_key: &[u8],
    ) -> Result<(), FetchError> {
        if self.skipped == 0 {
            return Ok(());
        }
        let mut all = Vec::with_capacity(self.len());
        for from in (0..self.skipped).step_by(WINDOW_CHUNKS) {
            all.extend(self.window(from, side, state, group, row_key)?);
        }
        all.append(&mut self.items);
        self.items = all;
        self.skipped = 0;
        Ok(())
    }

    /// Shows the elements that are not in memory.
    pub(crate) fn stream<E>(
        &self,
        side: &ColdSide,
        state: StateIndex,
        group: KeyGroup,
        row_key: &[u8],
        mut visit: impl FnMut(&T) -> Result<(), E>,
    ) -> Result<Result<(), E>, FetchError> {
        for from in (0..self.skipped).step_by(WINDOW_CHUNKS) {
            let window = self.window(from, side, state, group, row_key)?;
            if let Err(error) = window.iter().try_for_each(&mut visit) {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    /// Some chunks that are not in memory, from `from` on.
    fn window(
        &self,
        from: u32,
        side: &ColdSide,
        state: StateIndex,
        group: KeyGroup,
        row_key: &[u8],
    ) -> Result<Vec<T>, FetchError> {
        let end = self.skipped.min(from + WINDOW_CHUNKS as u32);
        let (mut items, mut next, mut fault) = (Vec::new(), from, None);
        let start = [row_key, &from.to_be_bytes()].concat();
        side.store().scan(state, group, row_key, Some(start.as_slice()), &mut |key, value| {
            if next == end {
                return ControlFlow::Break(());
            }
            match read_chunk(row_key, key, value) {
                Ok((chunk, mut read)) if chunk == next && read.len() == CHUNK_ELEMENTS => items.append(&mut read),
                Ok((chunk, read)) => {
                    fault = Some(format!("chunk {chunk} with {} elements where {next} should be", read.len()));
                    return ControlFlow::Break(());
                }
                Err(reason) => {
                    fault = Some(reason);
                    return ControlFlow::Break(());
                }
            }
            next += 1;
            ControlFlow::Continue(())
        })?;
        if next < end && fault.is_none() {
            fault = Some(format!("chunk {next} of a list is missing"));
        }
        fault.map_or(Ok(items), |reason| Err(FetchError::Damaged(reason)))
    }
}

/// Number and elements of the chunk in a row of the list under `row_key`.
fn read_chunk<T: Data>(row_key: &[u8], key: &[u8], value: &[u8]) -> Result<(u32, Vec<T>), String> {
    let suffix = key.strip_prefix(row_key).ok_or_else(|| "a row of another key".to_owned())?;
    Ok((chunk_number(suffix)?, decode(value).map_err(|error| error.to_string())?))
}

impl<T: Data> Cell for ListCell<T> {
    const MANY_ROWS: bool = true;

    fn begin_epoch(&mut self, before: u32) {
        self.dirty_from = NO_CHUNK;
        self.before = before;
    }

    fn is_all_changed(&self) -> bool {
        self.dirty_from == 0 && self.skipped == 0
    }

    fn write<K: Key>(&mut self, key: &K, target: &mut RowTarget<'_>) -> Result<(), CodecError> {
        let chunks = self.chunks();
        for chunk in self.dirty_from..chunks {
            self.put_chunk(chunk, key, target)?;
        }
        for chunk in chunks..self.persisted {
            target.delete(key, chunk_suffix(chunk))?;
        }
        self.persisted = chunks;
        self.dirty_from = NO_CHUNK;
        Ok(())
    }

    fn write_whole<K: Key>(&mut self, key: &K, target: &mut RowTarget<'_>) -> Result<(), CodecError> {
        let chunks = self.chunks();
        (self.skipped..chunks).try_for_each(|chunk| self.put_chunk(chunk, key, target))?;
        self.persisted = self.persisted.max(chunks);
        Ok(())
    }

    fn fetch(side: &ColdSide, state: StateIndex, group: KeyGroup, row_key: &[u8]) -> Result<Option<Self>, FetchError> {
        let Some((key, value)) = side.store().last(state, group, row_key)? else { return Ok(None) };
        let (chunk, items) = read_chunk::<T>(row_key, &key, &value).map_err(FetchError::Damaged)?;
        if items.is_empty() || items.len() > CHUNK_ELEMENTS {
            return Err(FetchError::Damaged(format!("chunk {chunk} with {} elements", items.len())));
        }
        let persisted = chunk + 1;
        Ok(Some(ListCell { items, skipped: chunk, before: COLD, dirty_from: NO_CHUNK, persisted, arriving: None }))
    }

    fn trim(&mut self, place: impl Fn(u32) -> Place) -> usize {
        // The last chunk stays: the next addition may go there.
        let end = self.dirty_from.min(self.chunks().saturating_sub(1));
        if end <= self.skipped || place(self.before) != Place::Cold {
            return 0;
        }
        let gone = (end - self.skipped) as usize * CHUNK_ELEMENTS;
        self.items.drain(..gone);
        if self.items.capacity() > 2 * self.items.len() + CHUNK_ELEMENTS {
            self.items.shrink_to(self.items.len() + CHUNK_ELEMENTS);
        }
        self.skipped = end;
        gone
    }

    fn elements(&self) -> usize {
        self.items.len()
    }

    fn write_removed<K: Key>(&self, key: &K, _: bool, target: &mut RowTarget<'_>) -> Result<(), CodecError> {
        (0..self.persisted).try_for_each(|chunk| target.delete(key, chunk_suffix(chunk)))
    }

    fn restored(suffix: &[u8], value: &[u8]) -> Result<Self, String> {
        let mut cell = ListCell::new(Vec::new());
        cell.restore(suffix, value)?;
        Ok(cell)
    }

    fn restore(&mut self, suffix: &[u8], value: &[u8]) -> Result<(), String> {
        let items: Vec<T> = decode(value).map_err(|error| error.to_string())?;
        self.arriving.get_or_insert_default().insert(chunk_number(suffix)?, items);
        Ok(())
    }

    fn restore_removed(&mut self, suffix: &[u8]) -> Result<bool, String> {
        let chunk = chunk_number(suffix)?;
        let arriving = self.arriving.get_or_insert_default();
        arriving.remove(&chunk);
        Ok(!arriving.is_empty())
    }

    fn finish_restore(&mut self) -> Result<bool, String> {
        let Some(arriving) = self.arriving.take() else {
            return Ok(!self.items.is_empty());
        };
        let chunks = arriving.len();
        for (expected, (chunk, items)) in arriving.into_iter().enumerate() {
            let whole = items.len() == CHUNK_ELEMENTS || (expected + 1 == chunks && !items.is_empty());
            if chunk as usize != expected || !whole || items.len() > CHUNK_ELEMENTS {
                return Err(format!(
                    "chunk {chunk} with {} elements where {expected} of {chunks} should be",
                    items.len()
                ));
            }
            self.items.extend(items);
        }
        self.persisted = self.chunks();
        self.dirty_from = NO_CHUNK;
        Ok(!self.items.is_empty())
    }

    fn heap_bytes(&self) -> usize {
        let cells = self.items.capacity() * size_of::<T>();
        let sample = &self.items[..self.items.len().min(16)];
        if !needs_drop::<T>() || sample.is_empty() {
            return cells;
        }
        let owned: usize = sample.iter().map(encoded_bytes).sum();
        cells + owned * self.items.len() / sample.len()
    }
}
