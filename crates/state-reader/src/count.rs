//! How many keys and entries a state has, exactly: by a walk over its live rows.

use millpond_core::codec::take_varint;
use millpond_state::StateKind;
use serde::Serialize;

use crate::error::ReaderError;
use crate::info::{Kind, StateInfo};
use crate::json::damaged;
use crate::operator::OperatorStateReader;
use crate::reader::StateReader;
use crate::rows::Row;

/// The size of the live content of a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StateCount {
    /// The operator.
    pub operator: String,
    /// The state.
    pub state: String,
    /// Its kind.
    pub kind: Kind,
    /// Keys that have an entry; absent for operator state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<u64>,
    /// Values, list elements, map entries.
    pub entries: u64,
    /// Encoded size of keys and values, in bytes, before compression.
    pub bytes: u64,
}

impl StateReader {
    /// Counts the live content of a state.
    ///
    /// # Errors
    /// When what is stored is damaged or storage fails.
    pub fn count(&self, info: &StateInfo) -> Result<StateCount, ReaderError> {
        let (operator, state, kind) = (info.operator.clone(), info.state.clone(), info.kind);
        if !kind.is_keyed() {
            let held = OperatorStateReader::load(self, self.operator(&info.operator)?)?;
            let (entries, bytes) = held.size(info);
            return Ok(StateCount { operator, state, kind, keys: None, entries, bytes });
        }
        let mut rows = self.rows(info)?;
        let (mut keys, mut entries, mut bytes) = (0, 0, 0);
        let mut last = LastKey::default();
        while rows.advance()? {
            let Some(row) = rows.current()? else { break };
            keys += u64::from(last.is_new(row.key));
            entries += row_entries(info, &row)?;
            bytes += row_bytes(&row);
        }
        Ok(StateCount { operator, state, kind, keys: Some(keys), entries, bytes })
    }
}

/// Notices when the next key begins.
#[derive(Default)]
pub(crate) struct LastKey(Option<Vec<u8>>);

impl LastKey {
    /// Whether `key` is another one than the last; keys are in order, so it comes for the first time.
    pub(crate) fn is_new(&mut self, key: &[u8]) -> bool {
        match &mut self.0 {
            Some(last) if last == key => false,
            last => {
                let last = last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(key);
                true
            }
        }
    }
}

/// Entries in a row: the elements of a list's chunk, else one.
pub(crate) fn row_entries(info: &StateInfo, row: &Row<'_>) -> Result<u64, ReaderError> {
    if row.description.kind != StateKind::List {
        return Ok(1);
    }
    let count = take_varint(row.value).map(|(count, _)| count);
    count.ok_or_else(|| damaged(info, "value", Some(row.group), "the length of a chunk is cut off"))
}

/// Encoded size of a row.
pub(crate) fn row_bytes(row: &Row<'_>) -> u64 {
    (row.key.len() + row.suffix.len() + row.value.len()) as u64
}
