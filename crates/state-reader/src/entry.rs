//! Entries: what a user would call one piece of state, as JSON.
//!
//! An entry is a key's value, one element of a key's list, or one entry of a key's map; of operator
//! state, one element or one map entry of a subtask.

use millpond_core::KeyGroup;
use serde::Serialize;
use serde_json::Value;

use crate::error::ReaderError;
use crate::info::StateInfo;
use crate::keyed::KeyedEntries;
use crate::operator::OperatorStateReader;
use crate::rows::Rows;

/// One piece of state. As JSON, absent parts are left out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StateEntry {
    /// The key's group; keyed state only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_group: Option<KeyGroup>,
    /// Index of the subtask that held it; operator state only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subtask: Option<u32>,
    /// The key of the stream; keyed state only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Value>,
    /// The user key; maps only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_key: Option<Value>,
    /// Place in the list, from 0; lists only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    /// The value, element or accumulator.
    pub value: Value,
    /// Encoded key and user key: with the group (or subtask) and the index, where the entry stands.
    #[serde(skip)]
    pub(crate) place: Vec<u8>,
}

impl StateEntry {
    /// Compares where entries stand; equal for the same entry in two checkpoints.
    pub(crate) fn position(&self) -> (Option<KeyGroup>, Option<u32>, &[u8], Option<u64>) {
        (self.key_group, self.subtask, &self.place, self.index)
    }
}

/// The live entries of one state in the order of (key group, key, user key or index), or of (subtask,
/// index or user key). Ends with the first error.
pub struct Entries {
    source: Source,
    failed: bool,
}

enum Source {
    Keyed(Box<KeyedEntries>),
    Operator(std::vec::IntoIter<StateEntry>),
}

impl Entries {
    pub(crate) fn keyed(info: StateInfo, rows: Rows) -> Entries {
        Entries { source: Source::Keyed(Box::new(KeyedEntries::new(info, rows))), failed: false }
    }

    pub(crate) fn operator(info: &StateInfo, states: OperatorStateReader) -> Result<Entries, ReaderError> {
        Ok(Entries { source: Source::Operator(states.entries(info)?.into_iter()), failed: false })
    }
}

impl Iterator for Entries {
    type Item = Result<StateEntry, ReaderError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = match &mut self.source {
            Source::Keyed(entries) => entries.next().transpose(),
            Source::Operator(entries) => entries.next().map(Ok),
        };
        self.failed = matches!(next, Some(Err(_)));
        next
    }
}
