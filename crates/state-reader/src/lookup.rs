//! The entries of one key: only the blocks of its key group are read.

use std::collections::VecDeque;
use std::sync::Arc;

use millpond_core::codec::{decode, put_varint};
use millpond_core::hash::hash_bytes;
use millpond_core::seed::mix64;
use millpond_core::{KeyGroup, KeyGroupRange, KeyHash, MaxParallelism, Schema};
use serde_json::Value;

use crate::entry::StateEntry;
use crate::error::ReaderError;
use crate::info::StateInfo;
use crate::json::encode_key;
use crate::keyed::Decoder;
use crate::reader::StateReader;
use crate::rows::{Row, Rows};

impl StateReader {
    /// The entries of `key` in a keyed state, none if it has none; with a user key, at most the one
    /// entry of the map. Keys are given as JSON in the form in which entries show them.
    ///
    /// # Errors
    /// When it is no keyed state, a key does not have the shape of the state's keys, or what is stored
    /// is damaged.
    pub fn get(&self, info: &StateInfo, key: &Value, user_key: Option<&Value>) -> Result<Vec<StateEntry>, ReaderError> {
        self.check_keyed(info, "keys")?;
        let schema = info.key.as_ref().unwrap_or(&info.value);
        let encoded = encode_key(info, "key", schema, key)?;
        let suffix = match (user_key, &info.user_key) {
            (None, _) => None,
            (Some(user_key), Some(schema)) => Some(encode_key(info, "user key", schema, user_key)?),
            (Some(_), None) => {
                let (operator, state) = (info.operator.clone(), info.state.clone());
                return Err(ReaderError::WrongKind { operator, state, kind: info.kind.word(), what: "user keys" });
            }
        };
        let mut entries = VecDeque::new();
        let mut decoder = Decoder::default();
        for group in possible_groups(schema, &encoded, self.max_parallelism()?) {
            self.visit_key(info, group, &encoded, |row| match &suffix {
                Some(wanted) if row.suffix != wanted => Ok(()),
                _ => decoder.decode(info, row, &mut entries),
            })?;
        }
        Ok(entries.into())
    }

    /// Visits the rows of one encoded key in its group.
    pub(crate) fn visit_key(
        &self,
        info: &StateInfo,
        group: KeyGroup,
        key: &[u8],
        mut visit: impl FnMut(Row<'_>) -> Result<(), ReaderError>,
    ) -> Result<(), ReaderError> {
        let operator = self.operator(&info.operator)?;
        let one = KeyGroupRange::new(u32::from(group.0), u32::from(group.0) + 1);
        let mut rows = Rows::new(Arc::clone(self.storage()), operator, &info.state, one);
        let mut wanted = Vec::new();
        put_varint(key.len() as u64, &mut wanted);
        wanted.extend_from_slice(key);
        while rows.advance()? {
            let Some(row) = rows.current()? else { break };
            if row.key == key {
                visit(row)?;
            } else if row.key_place() > wanted {
                break;
            }
        }
        Ok(())
    }
}

/// The groups that a key may be in. An integer is in the group of its value, an integer wrapped in a
/// type of its own in that of its encoding, and the schema does not tell one from the other.
fn possible_groups(schema: &Schema, encoded: &[u8], max: MaxParallelism) -> Vec<KeyGroup> {
    let stable = [integer_value(schema, encoded).map(mix64), Some(hash_bytes(encoded))];
    let mut groups: Vec<KeyGroup> =
        stable.into_iter().flatten().map(|stable| KeyHash::from_stable(stable, max).group()).collect();
    groups.dedup();
    groups
}

/// The value by which a key hashes that is an integer of up to 64 bits, a `bool` or a `char`.
fn integer_value(schema: &Schema, encoded: &[u8]) -> Option<u64> {
    let Schema::Primitive(name) = schema else { return None };
    match name.as_str() {
        "u8" => decode::<u8>(encoded).ok().map(u64::from),
        "u16" | "u32" | "u64" => decode::<u64>(encoded).ok(),
        "i8" => decode::<i8>(encoded).ok().map(|value| i64::from(value) as u64),
        "i16" | "i32" | "i64" => decode::<i64>(encoded).ok().map(|value| value as u64),
        "bool" => decode::<bool>(encoded).ok().map(u64::from),
        "char" => decode::<char>(encoded).ok().map(|value| u64::from(u32::from(value))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use millpond_core::codec::encode;
    use millpond_core::hash::stable_hash;
    use millpond_core::{Key, KeyHash};
    use serde::{Serialize, de::DeserializeOwned};

    use super::*;

    fn is_found<K: Key + Serialize + DeserializeOwned>(key: K) {
        for max in [1, 7, 128, 1_024] {
            let max = MaxParallelism::new(max).unwrap();
            let group = KeyHash::from_stable(stable_hash(&key, &mut Vec::new()).unwrap(), max).group();
            let groups = possible_groups(&Schema::of::<K>(), &encode(&key).unwrap(), max);
            assert!(groups.contains(&group), "{groups:?} of {}", std::any::type_name::<K>());
        }
    }

    #[derive(Clone, PartialEq, Eq, Serialize, serde::Deserialize)]
    struct Wrapped(u64);

    #[test]
    fn kg_01_the_group_of_every_kind_of_key_is_found_by_its_schema() {
        for value in [0, 1, 77, 255] {
            is_found(value as u8);
            is_found(value as u16 * 250);
            is_found(value as u32 * 77_777);
            is_found(u64::MAX - value as u64);
            is_found(value as u128);
            is_found(Wrapped(value as u64));
            is_found(-(value / 2) as i8);
            is_found(-value * 100);
            is_found(i64::MIN + value as i64);
            is_found(value.to_string());
            is_found((value.to_string(), value));
            is_found(Some(value));
            is_found(char::from(value as u8));
        }
        is_found(true);
        is_found(());
    }
}
