//! Encoded parts of an entry as JSON by the stored schema, with errors that say which entry.

use millpond_core::{KeyGroup, Schema};
use serde_json::Value;

use crate::error::ReaderError;
use crate::info::StateInfo;

/// `bytes` as JSON; `part` is `key`, `user key` or `value`.
pub(crate) fn decode(
    info: &StateInfo,
    part: &'static str,
    group: Option<KeyGroup>,
    schema: &Schema,
    bytes: &[u8],
) -> Result<Value, ReaderError> {
    schema.to_json(bytes).map_err(|error| damaged(info, part, group, error.to_string()))
}

/// The encoding of a key from outside; text that is no JSON is taken for a string.
pub(crate) fn encode_key(
    info: &StateInfo,
    part: &'static str,
    schema: &Schema,
    given: &Value,
) -> Result<Vec<u8>, ReaderError> {
    schema.encode_json(given).map_err(|error| ReaderError::WrongKey {
        operator: info.operator.clone(),
        state: info.state.clone(),
        part,
        given: given.to_string(),
        reason: error.to_string(),
    })
}

pub(crate) fn damaged(
    info: &StateInfo,
    part: &'static str,
    group: Option<KeyGroup>,
    reason: impl Into<String>,
) -> ReaderError {
    ReaderError::Damaged {
        operator: info.operator.clone(),
        state: info.state.clone(),
        part,
        group,
        reason: reason.into(),
    }
}
