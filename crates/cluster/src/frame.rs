//! Frames: a length and so many bytes. Nothing else is on a wire. See `docs/formats/cluster.md`.

use std::io::{self, Read, Write};

use millpond_core::codec;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest frame of an established wire: a manifest with all that it holds inline.
pub(crate) const LONGEST: u32 = 256 << 20;
/// The longest greeting: who is not known yet gets no more memory.
pub(crate) const LONGEST_GREETING: u32 = 1 << 20;

/// Writes a frame with `content`.
pub(crate) fn write(stream: &mut impl Write, content: &[u8]) -> io::Result<()> {
    let length = u32::try_from(content.len()).ok().filter(|length| *length <= LONGEST);
    let length = length.ok_or_else(|| io::Error::other(format!("a message of {} bytes is too long", content.len())))?;
    let mut frame = Vec::with_capacity(content.len() + 4);
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(content);
    stream.write_all(&frame)?;
    stream.flush()
}

/// Reads a frame of at most `longest` bytes.
pub(crate) fn read(stream: &mut impl Read, longest: u32) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > longest {
        return Err(io::Error::other(format!("a frame of {length} bytes, {longest} are allowed")));
    }
    // Memory grows with what really comes.
    let mut content = Vec::new();
    stream.take(u64::from(length)).read_to_end(&mut content)?;
    if content.len() < length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(content)
}

/// Writes a value as a frame.
pub(crate) fn write_value(stream: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    write(stream, &codec::encode(value).map_err(io::Error::other)?)
}

/// Reads a value from a frame of at most `longest` bytes.
pub(crate) fn read_value<T: DeserializeOwned>(stream: &mut impl Read, longest: u32) -> io::Result<T> {
    codec::decode(&read(stream, longest)?).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::greeting::Greeting;

    #[test]
    fn frames_survive_and_what_is_too_long_or_cut_is_refused() {
        let mut bytes = Vec::new();
        write(&mut bytes, b"").unwrap();
        write_value(&mut bytes, &(7u32, "seven")).unwrap();
        let mut from = bytes.as_slice();
        assert!(read(&mut from, 0).unwrap().is_empty());
        assert_eq!(read_value::<(u32, String)>(&mut from, 100).unwrap(), (7, "seven".to_owned()));
        assert!(read(&mut &bytes[4..], 3).unwrap_err().to_string().contains("3 are allowed"));
        let cut = &bytes[4..bytes.len() - 1];
        assert_eq!(read(&mut &*cut, 100).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    proptest! {
        #[test]
        fn whatever_strangers_send_is_a_greeting_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut framed = (bytes.len() as u32).to_le_bytes().to_vec();
            framed.extend_from_slice(&bytes);
            for stream in [&framed, &bytes] {
                if let Ok(greeting) = read_value::<Greeting>(&mut stream.as_slice(), LONGEST_GREETING) {
                    let mut again = Vec::new();
                    write_value(&mut again, &greeting).unwrap();
                    prop_assert_eq!(read_value::<Greeting>(&mut again.as_slice(), LONGEST_GREETING).unwrap(), greeting);
                }
            }
        }
    }
}
