//! The bytes of a row's key, and where a row goes.
//!
//! Row key = varint length of the encoded key, the encoded key (postcard), then a suffix by kind:
//! nothing (value, reducing, aggregating), the chunk number as four big-endian bytes (list), the
//! encoded user key (map). The length in front keeps keys apart of which one is the prefix of
//! another (KS-29, KS-30).

use millpond_core::codec::{encode_into, put_varint, take_varint};
use millpond_core::{CodecError, Key, KeyGroup};

use millpond_runs::{RowBuffer, StateIndex};

/// Where the rows of one entry go.
pub(crate) struct RowTarget<'a> {
    pub(crate) rows: &'a mut RowBuffer,
    pub(crate) state: StateIndex,
    pub(crate) group: KeyGroup,
}

impl RowTarget<'_> {
    /// A row with a value.
    pub(crate) fn put<K: Key>(
        &mut self,
        key: &K,
        suffix: impl FnOnce(&mut Vec<u8>) -> Result<(), CodecError>,
        value: impl FnOnce(&mut Vec<u8>) -> Result<(), CodecError>,
    ) -> Result<(), CodecError> {
        let row_key = |bytes: &mut Vec<u8>| put_key(key, bytes).and_then(|()| suffix(bytes));
        self.rows.put(self.state, self.group, row_key, value)
    }

    /// A tombstone.
    pub(crate) fn delete<K: Key>(
        &mut self,
        key: &K,
        suffix: impl FnOnce(&mut Vec<u8>) -> Result<(), CodecError>,
    ) -> Result<(), CodecError> {
        let row_key = |bytes: &mut Vec<u8>| put_key(key, bytes).and_then(|()| suffix(bytes));
        self.rows.delete(self.state, self.group, row_key)
    }
}

/// No suffix.
#[expect(clippy::unnecessary_wraps, reason = "has the shape of the other suffixes")]
pub(crate) fn no_suffix(_: &mut Vec<u8>) -> Result<(), CodecError> {
    Ok(())
}

/// The row key of `key` up to its suffix.
pub(crate) fn put_key<K: Key>(key: &K, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
    let start = bytes.len();
    bytes.push(0);
    encode_into(key, bytes)?;
    let length = bytes.len() - start - 1;
    if length < 0x80 {
        bytes[start] = length as u8;
    } else {
        let mut varint = Vec::with_capacity(10);
        put_varint(length as u64, &mut varint);
        bytes.splice(start..=start, varint);
    }
    Ok(())
}

/// The encoded key and the suffix of a row key; `None` when it is cut off.
pub(crate) fn split_key(row_key: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = take_varint(row_key)?;
    rest.split_at_checked(usize::try_from(length).ok()?)
}

/// A row key up to its suffix.
pub(crate) fn without_suffix(row_key: &[u8]) -> &[u8] {
    let suffix = split_key(row_key).map_or(0, |(_, suffix)| suffix.len());
    &row_key[..row_key.len() - suffix]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ks_30_keys_that_are_prefixes_of_others_do_not_clash(a in ".{0,200}", b in ".{0,3}", suffix in prop::collection::vec(any::<u8>(), 0..5)) {
            let (mut first, mut second) = (Vec::new(), Vec::new());
            put_key(&a, &mut first).unwrap();
            let longer = format!("{a}{b}");
            put_key(&longer, &mut second).unwrap();
            prop_assert_eq!(first == second, b.is_empty());
            first.extend_from_slice(&suffix);
            let (key, rest) = split_key(&first).unwrap();
            prop_assert_eq!(millpond_core::codec::decode::<String>(key).unwrap(), a);
            prop_assert_eq!(rest, suffix.as_slice());
        }
    }

    #[test]
    fn ks_30_keys_of_every_length_around_the_first_step_of_the_varint_come_back() {
        for length in (0..300).chain(16_380..16_390) {
            let key = "k".repeat(length);
            let mut row_key = Vec::new();
            put_key(&key, &mut row_key).unwrap();
            row_key.push(7);
            let (found, suffix) = split_key(&row_key).unwrap();
            assert_eq!(millpond_core::codec::decode::<String>(found).unwrap(), key);
            assert_eq!(suffix, [7]);
        }
    }
}
