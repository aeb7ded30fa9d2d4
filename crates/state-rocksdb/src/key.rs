//! Where a row stands in a column family: state and group as big-endian numbers, then the row's key.
//!
//! A row's key begins with the entry's key, its length in front as a varint (the rows of `state`). All rows of one
//! entry, the chunks of a list or the entries of a map, share that beginning. It is what filters are asked for when
//! the rows of one entry are scanned.

use millpond_core::KeyGroup;
use millpond_core::codec::take_varint;
use millpond_runs::StateIndex;

/// Bytes in front of a row's key.
pub(crate) const HEAD_BYTES: usize = 4;

/// Appends the place of a row.
#[inline]
pub(crate) fn put_place(state: StateIndex, group: KeyGroup, key: &[u8], place: &mut Vec<u8>) {
    place.extend_from_slice(&state.0.to_be_bytes());
    place.extend_from_slice(&group.0.to_be_bytes());
    place.extend_from_slice(key);
}

/// The place of a row.
pub(crate) fn place_of(state: StateIndex, group: KeyGroup, key: &[u8]) -> Vec<u8> {
    let mut place = Vec::with_capacity(HEAD_BYTES + key.len());
    put_place(state, group, key, &mut place);
    place
}

/// The first place after all that begin with `prefix`; `None` when there is none.
pub(crate) fn end_of(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// How much of a place all rows of one entry share; `None` when it is no row of an entry.
#[inline]
pub(crate) fn entry_bytes(place: &[u8]) -> Option<usize> {
    let (length, rest) = take_varint(place.get(HEAD_BYTES..)?)?;
    let length = usize::try_from(length).ok().filter(|length| *length <= rest.len())?;
    Some(place.len() - rest.len() + length)
}

/// Whether `prefix` is what all rows of exactly one entry begin with.
pub(crate) fn is_one_entry(prefix: &[u8]) -> bool {
    entry_bytes(prefix) == Some(prefix.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn places_are_ordered_as_rows_are(a: (u16, u16, Vec<u8>), b: (u16, u16, Vec<u8>)) {
            let place = |row: &(u16, u16, Vec<u8>)| place_of(StateIndex(row.0), KeyGroup(row.1), &row.2);
            prop_assert_eq!(place(&a).cmp(&place(&b)), a.cmp(&b));
        }

        #[test]
        fn the_end_of_a_prefix_is_above_all_that_begins_with_it(prefix: Vec<u8>, rest: Vec<u8>, other: Vec<u8>) {
            let inside = [prefix.as_slice(), &rest].concat();
            match end_of(&prefix) {
                Some(end) => {
                    prop_assert!(inside < end);
                    let above = other.starts_with(&prefix) || other < prefix || other >= end;
                    prop_assert!(above);
                }
                None => prop_assert!(prefix.iter().all(|byte| *byte == u8::MAX)),
            }
        }

        #[test]
        fn rows_of_an_entry_share_its_beginning(key in prop::collection::vec(any::<u8>(), 0..100), suffix: Vec<u8>) {
            let mut row = vec![key.len() as u8];
            row.extend_from_slice(&key);
            let entry = place_of(StateIndex(1), KeyGroup(2), &row);
            prop_assert!(is_one_entry(&entry));
            let place = [entry.as_slice(), &suffix].concat();
            prop_assert_eq!(entry_bytes(&place), Some(entry.len()));
            prop_assert_eq!(entry_bytes(&entry[..entry.len() - 1]), None);
        }
    }
}
