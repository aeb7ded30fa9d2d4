//! A block: consecutive rows of one section, each key stored as its difference to the one before.
//!
//! Layout of a row (all numbers LEB128): bytes shared with the key before, bytes that follow, value
//! tag (0 = tombstone, else value length + 1), description index if the section has several, the
//! bytes that follow, the value. "Key" here is the group as 2 big-endian bytes, then the key. The
//! shared part is as long as it can be, so the order of two rows shows in one byte.
//!
//! Does *not* know about files, checksums or compression.

use millpond_core::KeyGroup;
use millpond_core::codec::{put_varint, take_varint};

use crate::row::{RowRef, common_prefix};

/// Bytes of the group in front of a key.
const GROUP_BYTES: usize = 2;

/// Builds one block after the other.
#[derive(Debug, Default)]
pub(crate) struct BlockBuilder {
    raw: Vec<u8>,
    last_key: Vec<u8>,
    rows: u32,
    first_group: u16,
}

impl BlockBuilder {
    /// Bytes so far, before compression.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.raw.len()
    }

    pub(crate) fn raw(&self) -> &[u8] {
        &self.raw
    }

    pub(crate) const fn rows(&self) -> u32 {
        self.rows
    }

    pub(crate) const fn first_group(&self) -> u16 {
        self.first_group
    }

    pub(crate) fn last_group(&self) -> u16 {
        group_of(&self.last_key)
    }

    /// Begins the next block.
    pub(crate) fn clear(&mut self) {
        self.raw.clear();
        self.last_key.clear();
        self.rows = 0;
    }

    /// Appends a row, greater than the one before. `described` writes the description index.
    #[inline]
    pub(crate) fn push(&mut self, row: RowRef<'_>, described: bool) {
        let group = row.group.0.to_be_bytes();
        let shared = self.shared_with_last(group, row.key);
        self.rows += 1;
        let following = GROUP_BYTES + row.key.len() - shared;
        let tag = row.value.map_or(0, |value| value.len() as u64 + 1);
        let all = shared as u64 | following as u64 | tag;
        if all < 0x80 {
            self.raw.extend_from_slice(&[shared as u8, following as u8, tag as u8]);
        } else {
            for number in [shared as u64, following as u64, tag] {
                put_varint(number, &mut self.raw);
            }
        }
        if described {
            put_varint(u64::from(row.description), &mut self.raw);
        }
        let key_shared = shared.saturating_sub(GROUP_BYTES);
        self.raw.extend_from_slice(&group[shared.min(GROUP_BYTES)..]);
        self.raw.extend_from_slice(&row.key[key_shared..]);
        self.raw.extend_from_slice(row.value.unwrap_or_default());

        if shared < GROUP_BYTES {
            self.last_key.clear();
            self.last_key.extend_from_slice(&group);
        }
        self.last_key.truncate(GROUP_BYTES + key_shared);
        self.last_key.extend_from_slice(&row.key[key_shared..]);
    }

    #[inline]
    fn shared_with_last(&mut self, group: [u8; GROUP_BYTES], key: &[u8]) -> usize {
        if self.rows == 0 {
            self.first_group = u16::from_be_bytes(group);
            return 0;
        }
        match self.last_key.split_first_chunk::<GROUP_BYTES>() {
            Some((last_group, last_key)) if *last_group == group => GROUP_BYTES + common_prefix(last_key, key),
            Some((last_group, _)) => usize::from(last_group[0] == group[0]),
            None => 0,
        }
    }
}

/// Which rule of the format a block breaks.
pub(crate) type Fault = &'static str;

/// What the index says about a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockShape {
    pub(crate) rows: u32,
    pub(crate) first_group: u16,
    pub(crate) last_group: u16,
    /// How many descriptions the section has.
    pub(crate) descriptions: u32,
}

/// Reads the rows of one block after the other, checking every rule.
#[derive(Debug, Default)]
pub(crate) struct BlockRows {
    raw: Vec<u8>,
    shape: BlockShape,
    position: usize,
    rows_read: u32,
    /// Group and key of the current row; of the last row of the block before at the begin of a block.
    key: Vec<u8>,
    value: Option<(usize, usize)>,
    description: u32,
}

impl BlockRows {
    /// The buffer for the next block's bytes; to be filled and then announced by [`Self::begin`].
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.raw
    }

    /// Begins the block in the buffer. Its rows must be greater than those of the block before.
    pub(crate) fn begin(&mut self, shape: BlockShape) {
        self.shape = shape;
        self.position = 0;
        self.rows_read = 0;
    }

    /// Goes to the next row; false at the block's end.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<bool, Fault> {
        if self.position == self.raw.len() {
            return if self.rows_read == self.shape.rows {
                Ok(false)
            } else {
                Err("the number of rows is not that of the index")
            };
        }
        let rest = &self.raw[self.position..];
        let (shared, rest) = take_length(rest)?;
        let (following, rest) = take_length(rest)?;
        let (tag, rest) = take_length(rest)?;
        let rest = if self.shape.descriptions > 1 {
            let (description, rest) = take_length(rest)?;
            self.description = description as u32;
            if description >= self.shape.descriptions as usize {
                return Err("a row's description is not in the table");
            }
            rest
        } else {
            rest
        };
        let value_bytes = tag.saturating_sub(1);
        let Some((suffix, tail)) = rest.split_at_checked(following) else {
            return Err("a key ends after the block");
        };
        if value_bytes > tail.len() {
            return Err("a value ends after the block");
        }
        if self.rows_read == 0 {
            if shared != 0 || suffix <= self.key.as_slice() && !self.key.is_empty() {
                return Err("the first row is not greater than the row before");
            }
        } else if !ascends(&self.key, shared, suffix) {
            return Err("a row is not greater than the row before");
        }
        let value_start = self.raw.len() - tail.len();
        self.key.truncate(shared);
        self.key.extend_from_slice(suffix);
        self.value = (tag != 0).then_some((value_start, value_start + value_bytes));
        self.position = value_start + value_bytes;
        self.rows_read += 1;
        self.check_group()?;
        Ok(true)
    }

    #[inline]
    fn check_group(&self) -> Result<(), Fault> {
        if self.key.len() < GROUP_BYTES {
            return Err("a key is shorter than its group");
        }
        let group = group_of(&self.key);
        let (first, last) = (self.shape.first_group, self.shape.last_group);
        if group < first || group > last || self.rows_read == 1 && group != first {
            return Err("a row's group is not as the index says");
        }
        if self.rows_read == self.shape.rows && group != last {
            return Err("the last row's group is not as the index says");
        }
        Ok(())
    }

    /// Group and key of the current row, as they are ordered.
    #[inline]
    pub(crate) fn ordered_key(&self) -> &[u8] {
        &self.key
    }

    #[inline]
    pub(crate) fn group(&self) -> KeyGroup {
        KeyGroup(group_of(&self.key))
    }

    /// The current row; call only after [`Self::advance`] returned true.
    #[inline]
    pub(crate) fn row(&self) -> RowRef<'_> {
        RowRef {
            group: self.group(),
            key: &self.key[GROUP_BYTES..],
            value: self.value.map(|(start, end)| &self.raw[start..end]),
            description: self.description,
        }
    }
}

#[inline]
fn group_of(key: &[u8]) -> u16 {
    match key {
        [high, low, ..] => u16::from_be_bytes([*high, *low]),
        _ => 0,
    }
}

/// Whether the key made of `shared` bytes of `last` and `suffix` is greater than `last`, and the
/// shared part is as long as it can be.
#[inline]
fn ascends(last: &[u8], shared: usize, suffix: &[u8]) -> bool {
    match (suffix.first(), last.get(shared)) {
        (Some(first), Some(was)) => first > was,
        (Some(_), None) => shared == last.len(),
        (None, _) => false,
    }
}

#[inline]
fn take_length(bytes: &[u8]) -> Result<(usize, &[u8]), Fault> {
    if let [byte, rest @ ..] = bytes
        && *byte < 0x80
    {
        return Ok((usize::from(*byte), rest));
    }
    match take_varint(bytes) {
        Some((value, rest)) if value <= u64::from(u32::MAX) => Ok((value as usize, rest)),
        _ => Err("a number is cut off or too large"),
    }
}
