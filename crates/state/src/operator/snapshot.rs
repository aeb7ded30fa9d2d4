//! The operator state of one subtask at a freeze. Plain data.

use std::collections::BTreeMap;

use millpond_core::{KeyGroup, Schema};

use super::pieces::{Entries, Pieces};

/// How a list is given to the subtasks of another parallelism. Never changes under one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListMode {
    /// Elements are dealt out evenly.
    Split,
    /// Every subtask gets all elements.
    Union,
}

impl ListMode {
    /// One word for messages.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            ListMode::Split => "a split list",
            ListMode::Union => "a union list",
        }
    }
}

/// One operator list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListSnapshot {
    /// Name of the state.
    pub name: String,
    /// How it is redistributed.
    pub mode: ListMode,
    /// Schema of an element.
    pub schema: Schema,
    /// Encoded elements.
    pub elements: Pieces,
}

/// One broadcast map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BroadcastSnapshot {
    /// Name of the state.
    pub name: String,
    /// Schema of a key.
    pub key: Schema,
    /// Schema of a value.
    pub value: Schema,
    /// Encoded entries.
    pub entries: Entries,
}

/// The operator state of one subtask: what [`super::OperatorStates::freeze`] gives, in O(number of
/// states). A subtask without any state has the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperatorStateSnapshot {
    /// Lists, by name. Names of lists and of broadcast maps are separate (OS-05).
    pub lists: Vec<ListSnapshot>,
    /// Broadcast maps, by name.
    pub broadcasts: Vec<BroadcastSnapshot>,
    /// The user's own bytes, in pieces that are redistributed like a split list.
    pub raw_pieces: Pieces,
    /// The user's own bytes per key group, which move with the group.
    pub raw_keyed: BTreeMap<KeyGroup, std::sync::Arc<[u8]>>,
}

impl OperatorStateSnapshot {
    /// Whether there is nothing to store: no state is registered, no raw bytes are set (OS-06).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty() && self.broadcasts.is_empty() && self.raw_pieces.is_empty() && self.raw_keyed.is_empty()
    }
}
