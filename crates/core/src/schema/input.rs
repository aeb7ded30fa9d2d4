//! Postcard's wire format, value by value, from bytes that nobody vouches for.
//!
//! Owns the limits that keep damaged bytes from costing more memory or stack than they have length:
//! a length is never above the bytes that are left, except for elements without bytes, of which there
//! may be [`ELEMENTS_WITHOUT_BYTES`] in all; nesting ends at [`DEPTH_LIMIT`].

use super::error::SchemaError;

/// Elements that take no bytes, over the whole value.
const ELEMENTS_WITHOUT_BYTES: usize = 1 << 20;
/// Levels of nesting: schema layers above a value.
pub(crate) const DEPTH_LIMIT: u32 = 256;

pub(crate) struct Input<'de> {
    rest: &'de [u8],
    length: usize,
    free_elements: usize,
    depth: u32,
}

fn cut_off() -> SchemaError {
    SchemaError::damaged("the bytes are cut off")
}

impl<'de> Input<'de> {
    pub(crate) fn new(bytes: &'de [u8]) -> Self {
        Input { rest: bytes, length: bytes.len(), free_elements: ELEMENTS_WITHOUT_BYTES, depth: 0 }
    }

    /// Everything must have been read.
    pub(crate) fn finish(&self) -> Result<(), SchemaError> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(SchemaError::damaged(format!("{left} of {} bytes are left over", self.length))),
        }
    }

    /// One layer further in; [`Input::leave`] is the mirror.
    pub(crate) fn enter(&mut self) -> Result<(), SchemaError> {
        self.depth += 1;
        if self.depth > DEPTH_LIMIT {
            return Err(SchemaError::damaged(format!("nested deeper than {DEPTH_LIMIT} levels")));
        }
        Ok(())
    }

    pub(crate) fn leave(&mut self) {
        self.depth -= 1;
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'de [u8], SchemaError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or_else(cut_off)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, SchemaError> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn fixed<const N: usize>(&mut self) -> Result<[u8; N], SchemaError> {
        self.take(N)?.try_into().map_err(|_| cut_off())
    }

    /// A varint of at most `bits`.
    fn varint(&mut self, bits: u32) -> Result<u128, SchemaError> {
        let mut value = 0u128;
        let mut shift = 0;
        while shift < bits {
            let byte = self.byte()?;
            let low = u128::from(byte & 0x7f);
            let fits = shift + 7 <= bits || low >> (bits - shift) == 0;
            if !fits {
                break;
            }
            value |= low << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
            shift += 7;
        }
        Err(SchemaError::damaged(format!("a number of more than {bits} bits")))
    }

    /// An unsigned integer of 8, 16, 32, 64 or 128 bits.
    pub(crate) fn unsigned(&mut self, bits: u32) -> Result<u128, SchemaError> {
        if bits == 8 { self.byte().map(u128::from) } else { self.varint(bits) }
    }

    /// A signed integer of 8, 16, 32, 64 or 128 bits.
    pub(crate) fn signed(&mut self, bits: u32) -> Result<i128, SchemaError> {
        if bits == 8 {
            return Ok(i128::from(self.byte()? as i8));
        }
        let zigzag = self.varint(bits)?;
        Ok((zigzag >> 1) as i128 ^ -((zigzag & 1) as i128))
    }

    pub(crate) fn flag(&mut self) -> Result<bool, SchemaError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(SchemaError::damaged(format!("a flag of value {other}"))),
        }
    }

    pub(crate) fn bytes(&mut self) -> Result<&'de [u8], SchemaError> {
        let length = self.varint(64)?;
        self.take(usize::try_from(length).map_err(|_| cut_off())?)
    }

    pub(crate) fn text(&mut self) -> Result<&'de str, SchemaError> {
        std::str::from_utf8(self.bytes()?).map_err(|error| SchemaError::damaged(format!("text that is {error}")))
    }

    pub(crate) fn character(&mut self) -> Result<char, SchemaError> {
        let mut characters = self.text()?.chars();
        match (characters.next(), characters.next()) {
            (Some(one), None) => Ok(one),
            _ => Err(SchemaError::damaged("text of more or less than one character")),
        }
    }

    pub(crate) fn variant(&mut self) -> Result<u32, SchemaError> {
        self.varint(32).map(|index| index as u32)
    }

    /// The number of elements of a list or map.
    pub(crate) fn count(&mut self) -> Result<usize, SchemaError> {
        let count = usize::try_from(self.varint(64)?).map_err(|_| cut_off())?;
        let most = self.rest.len() + self.free_elements;
        if count > most {
            let left = self.rest.len();
            return Err(SchemaError::damaged(format!("{count} elements announced where {left} bytes are left")));
        }
        Ok(count)
    }

    /// Bytes that are left.
    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    /// An element of a list or map was read, before which `left` bytes were left.
    pub(crate) fn element_read(&mut self, left: usize) -> Result<(), SchemaError> {
        if self.rest.len() == left {
            let free = self.free_elements.checked_sub(1);
            self.free_elements = free.ok_or_else(|| {
                SchemaError::damaged(format!("more than {ELEMENTS_WITHOUT_BYTES} elements without bytes"))
            })?;
        }
        Ok(())
    }
}
