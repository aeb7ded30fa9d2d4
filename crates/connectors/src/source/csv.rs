//! Comma separated values: a record may go over several lines where a field is quoted.
//!
//! The framer drives the byte-level parser itself, because only so is it known where a record ends and
//! how long it has become. Empty lines are skipped.

use std::marker::PhantomData;

use csv::ByteRecord;
use csv_core::{ReadRecordResult, Reader, ReaderBuilder};
use millpond_core::Data;

use super::bytes::FileBytes;
use super::decode::{Decode, Ending, Extent, Frame, Long, Next, take};
use super::lines::text;
use crate::ConnectorError;

/// Finds the ends of records, and their fields.
struct CsvFramer {
    parser: Reader,
    max: usize,
    /// Pending bytes of this record that the parser has seen.
    seen: usize,
    fields: Buffer<u8>,
    ends: Buffer<usize>,
    long: Option<Long>,
}

/// Room for what the parser writes.
struct Buffer<T> {
    items: Vec<T>,
    used: usize,
}

impl<T: Clone + Default> Buffer<T> {
    fn new(room: usize) -> Self {
        Buffer { items: vec![T::default(); room], used: 0 }
    }

    fn free(&mut self) -> &mut [T] {
        &mut self.items[self.used..]
    }

    fn grow(&mut self) {
        self.items.resize(self.items.len() * 2, T::default());
    }

    fn written(&self) -> &[T] {
        &self.items[..self.used]
    }
}

impl CsvFramer {
    fn new(max: usize, delimiter: u8) -> Self {
        let mut parser = ReaderBuilder::new().delimiter(delimiter).build();
        // A parser that has seen something takes no byte order mark in the middle of a file for one.
        let _ = parser.read_record(b"\n", &mut [], &mut []);
        CsvFramer { parser, max, seen: 0, fields: Buffer::new(1024), ends: Buffer::new(32), long: None }
    }

    /// The next record, which starts at the position of `bytes` (after empty lines).
    fn next(&mut self, bytes: &mut FileBytes, ending: Ending) -> Result<Frame, ConnectorError> {
        if !bytes.skip_mark()? && ending == Ending::Open {
            return Ok(Frame::Wait);
        }
        loop {
            let begun = self.seen > 0 || self.long.is_some();
            if !begun {
                skip_empty_lines(bytes);
                (self.fields.used, self.ends.used) = (0, 0);
            }
            // An empty input tells the parser that the file ends.
            if self.seen == bytes.pending().len() {
                match (bytes.fill()?, ending) {
                    (0, Ending::Open) => return Ok(Frame::Wait),
                    (0, Ending::Final) if !begun => return Ok(Frame::End),
                    (0, Ending::Final) => {}
                    _ => continue,
                }
            }
            if let Some(frame) = self.step(bytes) {
                return Ok(frame);
            }
        }
    }

    fn step(&mut self, bytes: &mut FileBytes) -> Option<Frame> {
        let input = &bytes.pending()[self.seen..];
        let (result, seen, written, ended) = self.parser.read_record(input, self.fields.free(), self.ends.free());
        self.seen += seen;
        self.fields.used += written;
        self.ends.used += ended;
        if self.long.is_some() {
            (self.fields.used, self.ends.used) = (0, 0);
        }
        match result {
            ReadRecordResult::InputEmpty => {
                if self.seen > self.max || self.long.is_some() {
                    self.long.get_or_insert_default().add(bytes, self.seen, self.max);
                    self.seen = 0;
                }
                None
            }
            ReadRecordResult::OutputFull => {
                if self.fields.free().is_empty() {
                    self.fields.grow();
                }
                None
            }
            ReadRecordResult::OutputEndsFull => {
                if self.ends.free().is_empty() {
                    self.ends.grow();
                }
                None
            }
            ReadRecordResult::Record => Some(self.frame(bytes)),
            ReadRecordResult::End => Some(Frame::End),
        }
    }

    fn frame(&mut self, bytes: &FileBytes) -> Frame {
        let total = std::mem::take(&mut self.seen);
        let raw = &bytes.pending()[..total];
        let content = without_ending(raw).len();
        if self.long.is_none() && content <= self.max {
            let lines = memchr::memchr_iter(b'\n', raw).count() as u64;
            return Frame::Whole(Extent { content, total, lines });
        }
        let mut long = self.long.take().unwrap_or_default();
        long.note(raw, self.max);
        let lines = long.lines();
        Frame::TooLong(Extent { content, total, lines }, long)
    }
}

fn skip_empty_lines(bytes: &mut FileBytes) {
    let empty = bytes.pending().iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
    let (count, lines) = empty.fold((0, 0), |(count, lines), byte| (count + 1, lines + u64::from(*byte == b'\n')));
    if count > 0 {
        bytes.consume(count, lines);
    }
}

/// Without one line ending.
fn without_ending(record: &[u8]) -> &[u8] {
    let record = record.strip_suffix(b"\n").unwrap_or(record);
    record.strip_suffix(b"\r").unwrap_or(record)
}

/// Makes a value of every record.
pub struct CsvDecoder<T> {
    framer: CsvFramer,
    max: usize,
    has_header: bool,
    header: Option<ByteRecord>,
    record: ByteRecord,
    records: PhantomData<fn() -> T>,
}

impl<T> CsvDecoder<T> {
    pub(crate) fn new(max: usize, delimiter: u8, has_header: bool) -> Self {
        CsvDecoder {
            framer: CsvFramer::new(max, delimiter),
            max,
            has_header,
            header: None,
            record: ByteRecord::new(),
            records: PhantomData,
        }
    }
}

/// Copies the fields of the record that was framed last.
fn copy_fields(framer: &CsvFramer, record: &mut ByteRecord) {
    record.clear();
    let mut start = 0;
    for &end in framer.ends.written() {
        record.push_field(&framer.fields.written()[start..end]);
        start = end;
    }
}

fn decode<T: Data>(record: &ByteRecord, header: Option<&ByteRecord>) -> Result<T, String> {
    if let Some(header) = header
        && header.len() != record.len()
    {
        return Err(format!("the record has {} fields, the header has {}", record.len(), header.len()));
    }
    record.deserialize(header).map_err(|error| match error.kind() {
        csv::ErrorKind::Deserialize { err, .. } => err.to_string(),
        _ => error.to_string(),
    })
}

impl<T: Data> Decode for CsvDecoder<T> {
    type Record = T;

    fn begin(&mut self, bytes: &mut FileBytes, ending: Ending) -> Result<bool, ConnectorError> {
        if !self.has_header || self.header.is_some() {
            return Ok(true);
        }
        let frame = self.framer.next(bytes, ending)?;
        let framer = &self.framer;
        let next = take(frame, bytes, self.max, |raw| {
            let mut header = ByteRecord::new();
            copy_fields(framer, &mut header);
            Some(text(raw).map(|_| header))
        });
        match next.expect("a header is not skipped") {
            Next::Record(header) => self.header = Some(header),
            Next::Bad(bad) => {
                return Err(ConnectorError::BadHeader { path: bytes.path(), cause: bad.cause });
            }
            Next::Wait => return Ok(false),
            Next::End => {}
        }
        Ok(true)
    }

    fn next(&mut self, bytes: &mut FileBytes, ending: Ending) -> Result<Next<T>, ConnectorError> {
        let frame = self.framer.next(bytes, ending)?;
        let (framer, record, header) = (&self.framer, &mut self.record, self.header.as_ref());
        let next = take(frame, bytes, self.max, |raw| {
            copy_fields(framer, record);
            Some(text(raw).and_then(|_| decode(record, header)))
        });
        Ok(next.expect("no record is skipped"))
    }
}
