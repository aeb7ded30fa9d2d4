//! From bytes to records: what every format of a file source has in common.
//!
//! A decoder first frames (where does the next record end?) and then decodes what it framed. A record
//! that cannot be decoded is still framed, so that reading can go on behind it.

use millpond_core::Data;

use super::bytes::FileBytes;
use crate::ConnectorError;

/// Whether more bytes may come after the end of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The end is the end.
    Final,
    /// The file may grow: what has no end yet is not a record.
    Open,
}

/// A record that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undecodable {
    pub(crate) line: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) cause: String,
}

/// What comes next in a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<T> {
    /// A record.
    Record(T),
    /// Something that should have been one.
    Bad(Undecodable),
    /// Nothing for now.
    Wait,
    /// Nothing ever again.
    End,
}

/// Takes records off the bytes of a file.
pub trait Decode: 'static {
    /// What it makes of the bytes.
    type Record: Data;

    /// Reads what stands before the first record. Called at the beginning of the file, until it says
    /// that it is done.
    fn begin(&mut self, bytes: &mut FileBytes, ending: Ending) -> Result<bool, ConnectorError>;

    /// Takes the next record.
    fn next(&mut self, bytes: &mut FileBytes, ending: Ending) -> Result<Next<Self::Record>, ConnectorError>;
}

/// Where the next record ends.
pub(crate) enum Frame {
    /// It is pending as a whole.
    Whole(Extent),
    /// It is longer than allowed; its beginning and its length.
    TooLong(Extent, Long),
    /// Its end is not there yet.
    Wait,
    /// There is none.
    End,
}

/// How much of the pending bytes a record takes.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    /// Bytes without the line ending.
    pub(crate) content: usize,
    /// Bytes with it.
    pub(crate) total: usize,
    /// Lines that end in it.
    pub(crate) lines: u64,
}

/// The beginning of a record that is too long to be kept.
#[derive(Default)]
pub(crate) struct Long {
    prefix: Vec<u8>,
    length: u64,
    lines: u64,
}

impl Long {
    /// Sets the first `count` pending bytes aside, keeping at most `max` bytes of the record.
    pub(crate) fn add(&mut self, bytes: &mut FileBytes, count: usize, max: usize) {
        self.note(&bytes.pending()[..count], max);
        bytes.set_aside(count);
    }

    /// Counts the last part of the record, which stays pending.
    pub(crate) fn note(&mut self, part: &[u8], max: usize) {
        let kept = part.len().min(max - self.prefix.len());
        self.prefix.extend_from_slice(&part[..kept]);
        self.length += part.len() as u64;
        self.lines += memchr::memchr_iter(b'\n', part).count() as u64;
    }

    /// Lines that ended in what was set aside.
    pub(crate) fn lines(&self) -> u64 {
        self.lines
    }

    /// Gives the record up.
    pub(crate) fn into_undecodable(self, bytes: &FileBytes, max: usize) -> Undecodable {
        let cause = format!("the record has {} bytes, at most {max} are allowed", self.length);
        Undecodable { line: bytes.line(), offset: bytes.offset(), bytes: self.prefix, cause }
    }
}

/// Decodes what a frame holds, and moves behind it. `None` skips the record silently.
pub(crate) fn take<T>(
    frame: Frame,
    bytes: &mut FileBytes,
    max: usize,
    decode: impl FnOnce(&[u8]) -> Option<Result<T, String>>,
) -> Option<Next<T>> {
    let (extent, next) = match frame {
        Frame::Wait => return Some(Next::Wait),
        Frame::End => return Some(Next::End),
        Frame::TooLong(extent, long) => (extent, Some(Next::Bad(long.into_undecodable(bytes, max)))),
        Frame::Whole(extent) => {
            let content = &bytes.pending()[..extent.content];
            let next = decode(content).map(|decoded| match decoded {
                Ok(record) => Next::Record(record),
                Err(cause) => {
                    let content = content.to_vec();
                    Next::Bad(Undecodable { line: bytes.line(), offset: bytes.offset(), bytes: content, cause })
                }
            });
            (extent, next)
        }
    };
    bytes.consume(extent.total, extent.lines);
    next
}
