//! What a checkpoint says about a keyed state, beside its rows.

use std::fmt;

use millpond_core::{Evolution, Schema};
use serde::{Deserialize, Serialize};

use super::expiring::Ttl;
use super::list::CHUNK_ELEMENTS;
use super::migration::{RowContent, row_schema, schema_changed};
use crate::error::StateError;

/// Kind of a keyed state. Never changes under one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateKind {
    /// One value.
    Value,
    /// A list.
    List,
    /// A map.
    Map,
    /// One value that additions are folded into.
    Reducing,
    /// One accumulator.
    Aggregating,
}

impl fmt::Display for StateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StateKind::Value => "value",
            StateKind::List => "list",
            StateKind::Map => "map",
            StateKind::Reducing => "reducing",
            StateKind::Aggregating => "aggregating",
        })
    }
}

/// Kind and schemas of a keyed state, stored as JSON in the description of its section.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateDescription {
    /// Kind.
    pub kind: StateKind,
    /// Schema of the key of the stream.
    pub key: Schema,
    /// Schema of the user key; maps only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_key: Option<Schema>,
    /// Schema of the value, the list's element or the accumulator.
    pub value: Schema,
    /// Time to live; such rows hold values with their times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Ttl>,
    /// Elements per row; lists only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_elements: Option<usize>,
}

impl fmt::Display for StateDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.user_key {
            Some(user_key) => write!(f, "{} from {user_key} to {}", self.kind, self.value),
            None => write!(f, "{} of {}", self.kind, self.value),
        }
    }
}

impl StateDescription {
    /// Of a state with these types; `user_key` for maps only.
    #[must_use]
    pub fn new(kind: StateKind, key: Schema, user_key: Option<Schema>, value: Schema) -> Self {
        let chunk_elements = (kind == StateKind::List).then_some(CHUNK_ELEMENTS);
        StateDescription { kind, key, user_key, value, ttl: None, chunk_elements }
    }

    /// The same, of a state whose entries are forgotten after a time.
    #[must_use]
    pub fn with_ttl(self, ttl: Ttl) -> Self {
        StateDescription { ttl: Some(ttl), ..self }
    }

    /// The same rows described without a time to live: the times are part of the values.
    #[must_use]
    pub fn as_stored(self) -> Self {
        let value = row_schema(&self.value, self.ttl.is_some(), false);
        StateDescription { value, ttl: None, ..self }
    }

    /// The schema of the value of a row: of the value, of a value with its time, or of a list of these.
    #[must_use]
    pub fn row_schema(&self) -> Schema {
        row_schema(&self.value, self.ttl.is_some(), self.kind == StateKind::List)
    }

    /// As JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("schemas and names always have a JSON form")
    }

    /// From JSON.
    ///
    /// # Errors
    /// When the JSON is not a description; `state` is for the message.
    pub fn from_json(state: &str, json: &str) -> Result<Self, StateError> {
        serde_json::from_str(json)
            .map_err(|error| StateError::DamagedDescription { state: state.to_owned(), reason: error.to_string() })
    }

    /// How rows written under `self` become rows of `now`, whose values are `content`.
    ///
    /// # Errors
    /// When kind, chunking or a key differs, or a value cannot become what it is now.
    pub(crate) fn evolution(
        &self,
        state: &str,
        now: &StateDescription,
        content: RowContent,
    ) -> Result<Evolution, StateError> {
        let same_parts = self.user_key.is_some() == now.user_key.is_some();
        if self.kind != now.kind || self.chunk_elements != now.chunk_elements || !same_parts {
            return Err(StateError::KindChanged {
                state: state.to_owned(),
                stored: self.to_string(),
                now: now.to_string(),
            });
        }
        // Keys are looked up by their encoding, and rows sorted by it: it must not change at all.
        let same = |part, stored: &Schema, now: &Schema| {
            stored.check_readable_as(now).map_err(|mismatch| schema_changed(state, part, mismatch))
        };
        same("key", &self.key, &now.key)?;
        if let (Some(stored), Some(now)) = (&self.user_key, &now.user_key) {
            same("user key", stored, now)?;
        }
        let evolution = content.evolution(&self.value, &now.value);
        let evolution = evolution.map_err(|mismatch| schema_changed(state, "value", mismatch))?;
        let alike = self.ttl.is_some() == now.ttl.is_some();
        Ok(if alike { evolution } else { Evolution::Migrated })
    }
}
