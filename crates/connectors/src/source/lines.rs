//! Lines: the framing that text and JSON files share, and plain lines as records.
//!
//! A line ends with `\n`; a `\r` before it belongs to the ending. The last line of a file needs no
//! ending, unless the file may still grow.

use memchr::memchr;

use super::bytes::FileBytes;
use super::decode::{Decode, Ending, Extent, Frame, Long, Next, take};
use crate::ConnectorError;

/// Finds the ends of lines.
pub(crate) struct LineFramer {
    max: usize,
    /// Pending bytes that have been searched already.
    searched: usize,
    long: Option<Long>,
}

impl LineFramer {
    /// Lines of at most `max` bytes.
    pub(crate) fn new(max: usize) -> Self {
        LineFramer { max, searched: 0, long: None }
    }

    /// The next line, which starts at the position of `bytes`.
    pub(crate) fn next(&mut self, bytes: &mut FileBytes, ending: Ending) -> Result<Frame, ConnectorError> {
        if !bytes.skip_mark()? && ending == Ending::Open {
            return Ok(Frame::Wait);
        }
        loop {
            let pending = bytes.pending();
            if let Some(found) = memchr(b'\n', &pending[self.searched..]) {
                let end = self.searched + found;
                let content = if end > 0 && pending[end - 1] == b'\r' { end - 1 } else { end };
                return Ok(self.frame(bytes, Extent { content, total: end + 1, lines: 1 }));
            }
            self.searched = pending.len();
            // One byte more than allowed may be the `\r` of an ending that is not there yet.
            if self.searched > self.max + 1 || self.long.is_some() {
                self.long.get_or_insert_default().add(bytes, self.searched, self.max);
                self.searched = 0;
            }
            if bytes.fill()? > 0 {
                continue;
            }
            let end = bytes.pending().len();
            return Ok(match ending {
                Ending::Open => Frame::Wait,
                Ending::Final if end == 0 && self.long.is_none() => Frame::End,
                Ending::Final => self.frame(bytes, Extent { content: end, total: end, lines: 1 }),
            });
        }
    }

    fn frame(&mut self, bytes: &FileBytes, extent: Extent) -> Frame {
        self.searched = 0;
        if self.long.is_none() && extent.content <= self.max {
            return Frame::Whole(extent);
        }
        let mut long = self.long.take().unwrap_or_default();
        long.note(&bytes.pending()[..extent.content], self.max);
        Frame::TooLong(extent, long)
    }
}

/// Makes a string of every line.
pub struct LinesDecoder {
    framer: LineFramer,
    max: usize,
}

impl LinesDecoder {
    pub(crate) fn new(max: usize) -> Self {
        LinesDecoder { framer: LineFramer::new(max), max }
    }
}

impl Decode for LinesDecoder {
    type Record = String;

    fn begin(&mut self, _bytes: &mut FileBytes, _ending: Ending) -> Result<bool, ConnectorError> {
        Ok(true)
    }

    fn next(&mut self, bytes: &mut FileBytes, ending: Ending) -> Result<Next<String>, ConnectorError> {
        let frame = self.framer.next(bytes, ending)?;
        let next = take(frame, bytes, self.max, |line| Some(text(line).map(str::to_owned)));
        Ok(next.expect("no line is skipped"))
    }
}

/// `bytes` as text, or why they are none.
pub(crate) fn text(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|error| format!("not valid utf-8 from byte {} on", error.valid_up_to()))
}
