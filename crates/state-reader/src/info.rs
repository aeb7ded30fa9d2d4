//! What a checkpoint says about a state: name, kind and schemas.

use std::fmt;

use millpond_core::Schema;
use millpond_state::{ListMode, StateDescription, StateKind};
use serde::{Serialize, Serializer};

/// Kind of a state, keyed or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Per key: one value.
    Value,
    /// Per key: a list.
    List,
    /// Per key: a map.
    Map,
    /// Per key: one value that additions are folded into.
    Reducing,
    /// Per key: one accumulator.
    Aggregating,
    /// Per subtask: a list that is dealt out evenly.
    SplitList,
    /// Per subtask: a list of which every subtask gets all elements.
    UnionList,
    /// Per subtask: a map that is the same everywhere.
    Broadcast,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 8] = [
        Kind::Value,
        Kind::List,
        Kind::Map,
        Kind::Reducing,
        Kind::Aggregating,
        Kind::SplitList,
        Kind::UnionList,
        Kind::Broadcast,
    ];

    /// As written on the command line and in results.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Kind::Value => "value",
            Kind::List => "list",
            Kind::Map => "map",
            Kind::Reducing => "reducing",
            Kind::Aggregating => "aggregating",
            Kind::SplitList => "split-list",
            Kind::UnionList => "union-list",
            Kind::Broadcast => "broadcast",
        }
    }

    /// The kind with this word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.word() == word)
    }

    /// Whether there is one state per key, in run files.
    #[must_use]
    pub const fn is_keyed(self) -> bool {
        !matches!(self, Kind::SplitList | Kind::UnionList | Kind::Broadcast)
    }
}

impl From<StateKind> for Kind {
    fn from(kind: StateKind) -> Kind {
        match kind {
            StateKind::Value => Kind::Value,
            StateKind::List => Kind::List,
            StateKind::Map => Kind::Map,
            StateKind::Reducing => Kind::Reducing,
            StateKind::Aggregating => Kind::Aggregating,
        }
    }
}

impl From<ListMode> for Kind {
    fn from(mode: ListMode) -> Kind {
        match mode {
            ListMode::Split => Kind::SplitList,
            ListMode::Union => Kind::UnionList,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

/// A state in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StateInfo {
    /// The operator it belongs to.
    pub operator: String,
    /// Its name.
    pub state: String,
    /// Its kind.
    pub kind: Kind,
    /// Schema of the key of the stream; keyed states only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Schema>,
    /// Schema of the user key; maps and broadcast maps only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_key: Option<Schema>,
    /// Schema of the value, the list's element or the accumulator.
    pub value: Schema,
}

impl StateInfo {
    pub(crate) fn keyed(operator: &str, state: &str, description: StateDescription) -> StateInfo {
        StateInfo {
            operator: operator.to_owned(),
            state: state.to_owned(),
            kind: description.kind.into(),
            key: Some(description.key),
            user_key: description.user_key,
            value: description.value,
        }
    }
}
