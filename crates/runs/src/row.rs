//! A row, and how two keys are compared.

use millpond_core::KeyGroup;

/// Largest allowed sum of the bytes of a row's key and value: 1 GiB.
pub const MAX_ROW_BYTES: u64 = 1 << 30;

/// A row as it is read: borrowed from the block it stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowRef<'a> {
    /// The key's group.
    pub group: KeyGroup,
    /// The key, without its group.
    pub key: &'a [u8],
    /// The value; `None` is a tombstone: the key was deleted.
    pub value: Option<&'a [u8]>,
    /// Index into the section's descriptions: the one that was valid when the value was written.
    pub description: u32,
}

/// How many bytes `a` and `b` have in common at the front.
#[inline]
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let shorter = a.len().min(b.len());
    let (a, b) = (&a[..shorter], &b[..shorter]);
    let mut length = 0;
    for (x, y) in a.chunks_exact(8).zip(b.chunks_exact(8)) {
        let difference = word(x) ^ word(y);
        if difference != 0 {
            return length + difference.trailing_zeros() as usize / 8;
        }
        length += 8;
    }
    match (a.last_chunk::<8>(), b.last_chunk::<8>()) {
        // The last 8 bytes, some of them compared before: no loop over the rest.
        (Some(x), Some(y)) => shorter - 8 + (word(x) ^ word(y)).trailing_zeros() as usize / 8,
        _ => a.iter().zip(b).take_while(|(x, y)| x == y).count(),
    }
}

#[inline]
fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("chunks_exact(8) gives 8 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn common_prefix_counts_equal_bytes(base: Vec<u8>, a: Vec<u8>, b: Vec<u8>) {
            let a = [base.as_slice(), &a].concat();
            let b = [base.as_slice(), &b].concat();
            let expected = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
            prop_assert_eq!(common_prefix(&a, &b), expected);
        }
    }
}
