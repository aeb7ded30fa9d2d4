//! Bytes for values: postcard (its published wire format), plus checksums and varints.
//!
//! The encoding is positional and compact. What a field is called and which type it has is kept
//! beside the data, once per state, in a [`crate::Schema`].

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::ErrorKind;

/// A value that could not be encoded, or bytes that could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The value's `Serialize` implementation failed or asked for something unsupported.
    #[error("cannot encode a value of type {type_name}: {reason}")]
    Encode {
        /// Rust type.
        type_name: &'static str,
        /// What the encoder said.
        reason: String,
    },
    /// The bytes are not an encoding of the type.
    #[error("cannot decode {bytes} bytes as {type_name}: {reason}")]
    Decode {
        /// Rust type.
        type_name: &'static str,
        /// How many bytes there were.
        bytes: usize,
        /// What the decoder said.
        reason: String,
    },
}

impl CodecError {
    /// [`ErrorKind::Corrupt`] for decoding, [`ErrorKind::Invalid`] for encoding.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            CodecError::Encode { .. } => ErrorKind::Invalid,
            CodecError::Decode { .. } => ErrorKind::Corrupt,
        }
    }
}

struct Appender<'a>(&'a mut Vec<u8>);

impl postcard::ser_flavors::Flavor for Appender<'_> {
    type Output = ();

    #[inline]
    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(data);
        Ok(())
    }

    #[inline]
    fn try_push(&mut self, data: u8) -> postcard::Result<()> {
        self.0.push(data);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Appends the encoding of `value` to `bytes`. On error, `bytes` is as it was.
///
/// # Errors
/// When the value's `Serialize` implementation fails.
#[inline]
pub fn encode_into<T: Serialize + ?Sized>(value: &T, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
    let length = bytes.len();
    postcard::serialize_with_flavor::<T, _, ()>(value, Appender(bytes)).map_err(|error| {
        bytes.truncate(length);
        CodecError::Encode { type_name: std::any::type_name::<T>(), reason: error.to_string() }
    })
}

/// How many bytes the encoding of `value` takes, without writing it.
///
/// # Errors
/// When the value's `Serialize` implementation fails.
pub fn encoded_size<T: Serialize + ?Sized>(value: &T) -> Result<usize, CodecError> {
    postcard::serialize_with_flavor(value, postcard::ser_flavors::Size::default())
        .map_err(|error| CodecError::Encode { type_name: std::any::type_name::<T>(), reason: error.to_string() })
}

/// The encoding of `value`.
///
/// # Errors
/// When the value's `Serialize` implementation fails.
pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, CodecError> {
    let mut bytes = Vec::new();
    encode_into(value, &mut bytes)?;
    Ok(bytes)
}

/// Decodes exactly one value from `bytes`; left-over bytes are an error.
///
/// # Errors
/// When the bytes are not one whole encoding of `T`.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    let (value, rest) = decode_prefix(bytes)?;
    if rest.is_empty() {
        Ok(value)
    } else {
        Err(decode_error::<T>(bytes.len(), format!("{} bytes left over", rest.len())))
    }
}

/// Decodes one value from the front of `bytes` and returns what follows it.
///
/// # Errors
/// When the front of the bytes is not an encoding of `T`.
pub fn decode_prefix<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, &[u8]), CodecError> {
    postcard::take_from_bytes(bytes).map_err(|error| decode_error::<T>(bytes.len(), error.to_string()))
}

fn decode_error<T>(bytes: usize, reason: String) -> CodecError {
    CodecError::Decode { type_name: std::any::type_name::<T>(), bytes, reason }
}

/// CRC-32 (IEEE) of `bytes`.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// Appends `value` as a LEB128 varint, 1 to 10 bytes.
#[inline]
pub fn put_varint(mut value: u64, bytes: &mut Vec<u8>) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Takes a LEB128 varint from the front of `bytes`; `None` when it is cut off or too long.
#[inline]
#[must_use]
pub fn take_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    for (i, byte) in bytes.iter().enumerate().take(10) {
        let low = u64::from(byte & 0x7f);
        if i == 9 && low > 1 {
            return None;
        }
        value |= low << (7 * i);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[i + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn left_over_bytes_are_refused() {
        let mut bytes = encode(&7u32).unwrap();
        bytes.push(0);
        assert_eq!(decode::<u32>(&bytes).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn a_cut_encoding_is_refused() {
        let bytes = encode(&("abc".to_owned(), 300u32)).unwrap();
        for cut in 0..bytes.len() {
            assert!(decode::<(String, u32)>(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }

    proptest! {
        #[test]
        fn varints_come_back(value: u64, tail: Vec<u8>) {
            let mut bytes = Vec::new();
            put_varint(value, &mut bytes);
            bytes.extend_from_slice(&tail);
            prop_assert_eq!(take_varint(&bytes), Some((value, tail.as_slice())));
        }

        #[test]
        fn values_come_back(value: (u64, String, Option<i32>, Vec<u8>)) {
            prop_assert_eq!(decode::<(u64, String, Option<i32>, Vec<u8>)>(&encode(&value).unwrap()).unwrap(), value);
        }
    }
}
