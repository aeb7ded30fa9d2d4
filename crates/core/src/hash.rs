//! The stable hash of a key. Computed once, at `key_by`; never `std::hash`.
//!
//! Integers of up to 64 bits (and `bool`, `char`) hash by the splitmix64 finaliser of their value,
//! sign-extended to 64 bits. Every other key hashes by XXH3-64 of its canonical encoding, which is
//! its postcard encoding. Both are fixed by test vectors: they are part of the checkpoint format.

use std::any::Any;

use crate::codec;
use crate::data::Key;
use crate::key_group::{KeyGroup, MaxParallelism};
use crate::seed::mix64;

/// A key's hash with its key group on top: bits 48..64 are the group, bits 0..48 the hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub u64);

impl KeyHash {
    /// Folds a stable 64-bit hash with the group it selects.
    #[inline]
    #[must_use]
    pub const fn from_stable(stable: u64, max: MaxParallelism) -> KeyHash {
        let group = max.group_of((stable >> 32) as u32 ^ stable as u32);
        KeyHash((group.0 as u64) << 48 | stable & 0xffff_ffff_ffff)
    }

    /// The key's group.
    #[inline]
    #[must_use]
    pub const fn group(self) -> KeyGroup {
        KeyGroup((self.0 >> 48) as u16)
    }

    /// 32 well-mixed bits for a table.
    #[inline]
    #[must_use]
    pub const fn bits32(self) -> u32 {
        self.0 as u32
    }
}

/// The stable 64-bit hash of `key`. `scratch` is reused between calls so that no call allocates.
///
/// # Errors
/// When the key's `Serialize` implementation fails.
#[inline]
pub fn stable_hash<K: Key>(key: &K, scratch: &mut Vec<u8>) -> Result<u64, codec::CodecError> {
    if let Some(value) = integer_value(key) {
        return Ok(mix64(value));
    }
    scratch.clear();
    codec::encode_into(key, scratch)?;
    Ok(hash_bytes(scratch))
}

/// XXH3-64 of `bytes` with seed 0.
#[must_use]
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    twox_hash::XxHash3_64::oneshot(bytes)
}

/// The type tests below are constants after monomorphisation.
#[inline]
fn integer_value<K: Key>(key: &K) -> Option<u64> {
    let key = key as &dyn Any;
    macro_rules! integers {
        ($($t:ty),*) => {$(
            if let Some(value) = key.downcast_ref::<$t>() {
                return Some(*value as i64 as u64);
            }
        )*};
    }
    integers!(u64, i64, u32, i32, u16, i16, u8, i8, usize, isize);
    if let Some(value) = key.downcast_ref::<bool>() {
        return Some(u64::from(*value));
    }
    key.downcast_ref::<char>().map(|value| u64::from(u32::from(*value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash<K: Key>(key: K) -> u64 {
        stable_hash(&key, &mut Vec::new()).unwrap()
    }

    /// Part of the checkpoint format: a change here makes every old checkpoint unreadable.
    #[test]
    fn kg_01_stable_hash_is_fixed_by_vectors() {
        assert_eq!(hash(0u64), 0);
        assert_eq!(hash(1u64), 0x5692_161d_100b_05e5);
        assert_eq!(hash(-1i32), hash(-1i64));
        assert_eq!(hash(7u8), hash(7i64));
        assert_eq!(hash(String::new()), hash_bytes(&[0]));
        assert_eq!(hash("millpond".to_owned()), hash_bytes(b"\x08millpond"));
        assert_eq!(hash_bytes(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(hash(("AA".to_owned(), 7u32)), hash_bytes(b"\x02AA\x07"));
    }

    #[test]
    fn key_hash_carries_the_group_on_top() {
        let max = MaxParallelism::new(1000).unwrap();
        for i in 0..10_000u64 {
            let stable = hash(i);
            let folded = KeyHash::from_stable(stable, max);
            assert_eq!(folded.group(), max.group_of((stable >> 32) as u32 ^ stable as u32));
            assert_eq!(folded.bits32(), stable as u32);
        }
    }
}
