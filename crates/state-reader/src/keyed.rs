//! Rows of keyed state as entries: a list's chunks taken apart, keys decoded once.

use std::collections::VecDeque;
use std::sync::Arc;

use millpond_core::Schema;
use millpond_state::{StateDescription, StateKind};
use serde_json::Value;

use crate::entry::StateEntry;
use crate::error::ReaderError;
use crate::info::StateInfo;
use crate::json::{damaged, decode};
use crate::rows::{Row, Rows};

/// Turns the rows of one state into entries.
pub(crate) struct KeyedEntries {
    info: StateInfo,
    rows: Rows,
    /// The rest of a list's chunk.
    waiting: VecDeque<StateEntry>,
    decoder: Decoder,
}

impl KeyedEntries {
    pub(crate) fn new(info: StateInfo, rows: Rows) -> Self {
        KeyedEntries { info, rows, waiting: VecDeque::new(), decoder: Decoder::default() }
    }

    pub(crate) fn next(&mut self) -> Result<Option<StateEntry>, ReaderError> {
        while self.waiting.is_empty() {
            if !self.rows.advance()? {
                return Ok(None);
            }
            if let Some(row) = self.rows.current()? {
                self.decoder.decode(&self.info, row, &mut self.waiting)?;
            }
        }
        Ok(self.waiting.pop_front())
    }
}

/// Decodes rows one after the other; remembers the last key.
#[derive(Default)]
pub(crate) struct Decoder {
    key: Option<(Vec<u8>, Value)>,
    /// The schema of a chunk, for the description it was made from.
    chunk: Option<(Arc<StateDescription>, Schema)>,
}

impl Decoder {
    /// Appends the entries of a row.
    pub(crate) fn decode(
        &mut self,
        info: &StateInfo,
        row: Row<'_>,
        entries: &mut VecDeque<StateEntry>,
    ) -> Result<(), ReaderError> {
        let group = Some(row.group);
        let key = self.key(info, &row)?;
        let entry = |user_key, index, value, place| StateEntry {
            key_group: group,
            subtask: None,
            key: Some(key.clone()),
            user_key,
            index,
            value,
            place,
        };
        match row.description.kind {
            StateKind::Value | StateKind::Reducing | StateKind::Aggregating => {
                let value = decode(info, "value", group, &row.description.value, row.value)?;
                entries.push_back(entry(None, None, value, row.place()));
            }
            StateKind::Map => {
                let schema = row.description.user_key.as_ref();
                let schema = schema.ok_or_else(|| damaged(info, "user key", group, "its schema is missing"))?;
                let user_key = decode(info, "user key", group, schema, row.suffix)?;
                let value = decode(info, "value", group, &row.description.value, row.value)?;
                entries.push_back(entry(Some(user_key), None, value, row.place()));
            }
            StateKind::List => {
                let first = first_index(info, &row)?;
                let Value::Array(values) = decode(info, "value", group, self.chunk_schema(row.description), row.value)?
                else {
                    return Err(damaged(info, "value", group, "a chunk is no list"));
                };
                let place = row.place();
                let elements = (first..).zip(values);
                entries.extend(elements.map(|(index, value)| entry(None, Some(index), value, place.clone())));
            }
        }
        Ok(())
    }

    fn key(&mut self, info: &StateInfo, row: &Row<'_>) -> Result<Value, ReaderError> {
        if let Some((bytes, key)) = &self.key
            && bytes == row.key
        {
            return Ok(key.clone());
        }
        let key = decode(info, "key", Some(row.group), &row.description.key, row.key)?;
        self.key = Some((row.key.to_vec(), key.clone()));
        Ok(key)
    }

    fn chunk_schema(&mut self, description: &Arc<StateDescription>) -> &Schema {
        let known = self.chunk.take().filter(|(known, _)| Arc::ptr_eq(known, description));
        let made = || (Arc::clone(description), Schema::Seq(Box::new(description.value.clone())));
        &self.chunk.insert(known.unwrap_or_else(made)).1
    }
}

/// Index of the first element of a list's chunk.
pub(crate) fn first_index(info: &StateInfo, row: &Row<'_>) -> Result<u64, ReaderError> {
    let number: Result<[u8; 4], _> = row.suffix.try_into();
    let number = number.map_err(|_| damaged(info, "key", Some(row.group), "a chunk has no number"))?;
    let per_chunk = row.description.chunk_elements.unwrap_or_default() as u64;
    Ok(u64::from(u32::from_be_bytes(number)) * per_chunk)
}
