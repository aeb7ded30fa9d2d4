//! What differs between two checkpoints of a state: one walk over both.

use std::cmp::Ordering;
use std::iter::Peekable;

use millpond_core::KeyGroup;
use serde::Serialize;
use serde_json::Value;

use crate::entry::{Entries, StateEntry};
use crate::error::ReaderError;
use crate::info::StateInfo;
use crate::reader::StateReader;

/// How an entry differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It is only in the second.
    Added,
    /// It is only in the first.
    Removed,
    /// It is in both, with different values.
    Changed,
}

/// An entry that differs. As JSON, absent parts are left out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// How it differs.
    pub change: Change,
    /// The key's group; keyed state only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_group: Option<KeyGroup>,
    /// Index of the subtask; operator state only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subtask: Option<u32>,
    /// The key of the stream; keyed state only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Value>,
    /// The user key; maps only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_key: Option<Value>,
    /// Place in the list; lists only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    /// The value in the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// The value in the second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// The entries of a state that differ between two checkpoints, in order. A state that only one of them
/// has counts as empty in the other.
///
/// # Errors
/// When the checkpoints have different numbers of key groups, what is stored is damaged, or storage
/// fails; so may every step.
pub fn diff(
    first: (&StateReader, Option<&StateInfo>),
    second: (&StateReader, Option<&StateInfo>),
) -> Result<impl Iterator<Item = Result<Difference, ReaderError>> + use<>, ReaderError> {
    let (left, right) = (first.0.key_groups(), second.0.key_groups());
    if left != right {
        return Err(ReaderError::OtherKeyGroups { left, right });
    }
    let open = |(reader, info): (&StateReader, Option<&StateInfo>)| {
        info.map(|info| reader.entries(info)).transpose().map(|entries| entries.into_iter().flatten().peekable())
    };
    Ok(Walk { first: open(first)?, second: open(second)? })
}

type Side = Peekable<std::iter::Flatten<std::option::IntoIter<Entries>>>;

struct Walk {
    first: Side,
    second: Side,
}

impl Iterator for Walk {
    type Item = Result<Difference, ReaderError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let order = match (self.first.peek(), self.second.peek()) {
                (None, None) => return None,
                (Some(Ok(a)), Some(Ok(b))) => a.position().cmp(&b.position()),
                (Some(_), None) | (Some(Err(_)), _) => Ordering::Less,
                (None, Some(_)) | (_, Some(Err(_))) => Ordering::Greater,
            };
            let before = if order.is_le() { self.first.next().transpose() } else { Ok(None) };
            let after = if order.is_ge() { self.second.next().transpose() } else { Ok(None) };
            match (before, after) {
                (Err(error), _) | (_, Err(error)) => return Some(Err(error)),
                (Ok(Some(before)), Ok(Some(after))) if before.value == after.value => {}
                (Ok(before), Ok(after)) => return difference(before, after).map(Ok),
            }
        }
    }
}

fn difference(before: Option<StateEntry>, after: Option<StateEntry>) -> Option<Difference> {
    let change = match (&before, &after) {
        (None, _) => Change::Added,
        (_, None) => Change::Removed,
        _ => Change::Changed,
    };
    let (old, new) =
        (before.as_ref().map(|entry| entry.value.clone()), after.as_ref().map(|entry| entry.value.clone()));
    let StateEntry { key_group, subtask, key, user_key, index, .. } = after.or(before)?;
    Some(Difference { change, key_group, subtask, key, user_key, index, before: old, after: new })
}
