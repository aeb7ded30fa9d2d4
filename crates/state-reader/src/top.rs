//! Where the state is: largest keys, keys with most entries, key groups out of balance.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use millpond_core::KeyGroup;
use serde::Serialize;
use serde_json::Value;

use crate::count::{LastKey, row_bytes, row_entries};
use crate::error::ReaderError;
use crate::info::{Kind, StateInfo};
use crate::json::decode;
use crate::reader::StateReader;

/// The size of one key's state.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KeySize {
    /// The key's group.
    pub key_group: KeyGroup,
    /// The key.
    pub key: Value,
    /// Its values, list elements, map entries.
    pub entries: u64,
    /// Encoded size of keys and values, in bytes.
    pub bytes: u64,
}

/// The size of one key group's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GroupSize {
    /// The group.
    pub key_group: KeyGroup,
    /// Its keys.
    pub keys: u64,
    /// Their values, list elements, map entries.
    pub entries: u64,
    /// Encoded size of keys and values, in bytes.
    pub bytes: u64,
}

/// The size of a state and how evenly it lies in the key groups.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StateSkew {
    /// Its kind.
    pub kind: Kind,
    /// Its keys.
    pub keys: u64,
    /// Its values, list elements, map entries.
    pub entries: u64,
    /// Encoded size of keys and values, in bytes.
    pub bytes: u64,
    /// Bytes of a key group on average.
    pub mean_group_bytes: f64,
    /// Bytes of the largest key group.
    pub max_group_bytes: u64,
    /// The largest key group in multiples of the mean; 1 is even, 0 is empty.
    pub skew: f64,
}

/// What is largest in a keyed state.
#[derive(Clone, Debug, PartialEq)]
pub struct Top {
    /// The whole.
    pub state: StateSkew,
    /// The keys with most bytes, largest first.
    pub by_bytes: Vec<KeySize>,
    /// The keys with most entries, most first.
    pub by_entries: Vec<KeySize>,
    /// The key groups with most bytes, largest first; empty ones are left out.
    pub groups: Vec<GroupSize>,
}

impl StateReader {
    /// The `number` largest keys and key groups of a keyed state. Walks all its live rows; memory is
    /// for `number` keys and for every key group.
    ///
    /// # Errors
    /// When it is no keyed state, what is stored is damaged, or storage fails.
    pub fn top(&self, info: &StateInfo, number: usize) -> Result<Top, ReaderError> {
        let mut rows = self.rows(info)?;
        let all = self.max_parallelism()?.all();
        let groups = (all.start..all.end).map(|group| KeyGroup(group as u16));
        let mut groups: Vec<GroupSize> =
            groups.map(|key_group| GroupSize { key_group, ..GroupSize::default() }).collect();
        let (mut by_bytes, mut by_entries) = (Largest::new(number), Largest::new(number));
        let mut last = LastKey::default();
        let mut key = RawKey::default();
        while rows.advance()? {
            let Some(row) = rows.current()? else { break };
            let group = groups.get_mut(usize::from(row.group.0));
            let group = group.ok_or_else(|| {
                crate::json::damaged(info, "key", Some(row.group), "the group is beyond those of the job")
            })?;
            if last.is_new(row.key) {
                by_bytes.offer(key.bytes, &key);
                by_entries.offer(key.entries, &key);
                key = RawKey { group: row.group, key: row.key.to_vec(), entries: 0, bytes: 0 };
                group.keys += 1;
            }
            let (entries, bytes) = (row_entries(info, &row)?, row_bytes(&row));
            key.entries += entries;
            key.bytes += bytes;
            group.entries += entries;
            group.bytes += bytes;
        }
        by_bytes.offer(key.bytes, &key);
        by_entries.offer(key.entries, &key);
        let state = skew(info.kind, &groups);
        groups.retain(|group| group.keys > 0);
        groups.sort_by_key(|group| (Reverse(group.bytes), group.key_group));
        groups.truncate(number);
        let decoded = |largest: Largest| largest.decoded(info);
        Ok(Top { state, by_bytes: decoded(by_bytes)?, by_entries: decoded(by_entries)?, groups })
    }
}

fn skew(kind: Kind, groups: &[GroupSize]) -> StateSkew {
    let sum = |part: fn(&GroupSize) -> u64| groups.iter().map(part).sum::<u64>();
    let bytes = sum(|group| group.bytes);
    let mean_group_bytes = bytes as f64 / groups.len().max(1) as f64;
    let max_group_bytes = groups.iter().map(|group| group.bytes).max().unwrap_or_default();
    let skew = if bytes == 0 { 0.0 } else { max_group_bytes as f64 / mean_group_bytes };
    StateSkew {
        kind,
        keys: sum(|group| group.keys),
        entries: sum(|group| group.entries),
        bytes,
        mean_group_bytes,
        max_group_bytes,
        skew,
    }
}

/// A key that is not decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct RawKey {
    group: KeyGroup,
    key: Vec<u8>,
    entries: u64,
    bytes: u64,
}

/// The keys with the largest measure, of all that were offered; among equals the first in order.
struct Largest {
    number: usize,
    heap: BinaryHeap<Reverse<(u64, Reverse<RawKey>)>>,
}

impl Largest {
    fn new(number: usize) -> Self {
        Largest { number, heap: BinaryHeap::new() }
    }

    fn offer(&mut self, measure: u64, key: &RawKey) {
        let full = self.heap.len() >= self.number;
        let too_small = || self.heap.peek().is_none_or(|Reverse((smallest, _))| *smallest >= measure);
        if measure == 0 || (full && too_small()) {
            return;
        }
        if full {
            self.heap.pop();
        }
        self.heap.push(Reverse((measure, Reverse(key.clone()))));
    }

    fn decoded(self, info: &StateInfo) -> Result<Vec<KeySize>, ReaderError> {
        let schema = info.key.as_ref().unwrap_or(&info.value);
        let keys = self.heap.into_sorted_vec().into_iter().map(|Reverse((_, Reverse(key)))| key);
        let decoded = keys.map(|raw| {
            let key = decode(info, "key", Some(raw.group), schema, &raw.key)?;
            Ok(KeySize { key_group: raw.group, key, entries: raw.entries, bytes: raw.bytes })
        });
        decoded.collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_largest_are_those_that_sorting_gives(sizes in prop::collection::vec(1u64..20, 0..40), number in 0usize..10) {
            let mut largest = Largest::new(number);
            let mut all = Vec::new();
            for (i, bytes) in sizes.into_iter().enumerate() {
                let key = RawKey { group: KeyGroup(i as u16), key: Vec::new(), entries: 0, bytes };
                largest.offer(bytes, &key);
                all.push(key);
            }
            all.sort_by_key(|key| Reverse(key.bytes));
            all.truncate(number);
            let found: Vec<RawKey> = largest.heap.into_sorted_vec().into_iter().map(|Reverse((_, Reverse(key)))| key).collect();
            prop_assert_eq!(found, all);
        }
    }
}
