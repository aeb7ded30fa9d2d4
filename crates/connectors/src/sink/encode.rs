//! The formats that a file sink writes.

use std::cell::RefCell;
use std::fmt::Display;
use std::io::{self, Write};
use std::rc::Rc;

use serde::Serialize;

use crate::ConnectorError;

/// Turns records into bytes of a file.
pub(crate) trait Encode<T> {
    /// Appends a record to `bytes`. `first` says whether it is the first of its file.
    fn encode(&mut self, record: &T, first: bool, bytes: &mut Vec<u8>) -> Result<(), ConnectorError>;
}

/// One record a line, as text.
pub(crate) struct EncodeLines;

impl<T: Display> Encode<T> for EncodeLines {
    fn encode(&mut self, record: &T, _first: bool, bytes: &mut Vec<u8>) -> Result<(), ConnectorError> {
        writeln!(bytes, "{record}").map_err(|error| failed("text", error))
    }
}

/// One record a line, as JSON.
pub(crate) struct EncodeJson;

impl<T: Serialize> Encode<T> for EncodeJson {
    fn encode(&mut self, record: &T, _first: bool, bytes: &mut Vec<u8>) -> Result<(), ConnectorError> {
        serde_json::to_writer(&mut *bytes, record).map_err(|error| failed("json", error))?;
        bytes.push(b'\n');
        Ok(())
    }
}

/// Comma separated values; each file begins with the names of the columns.
pub(crate) struct EncodeCsv {
    writer: csv::Writer<Written>,
    written: Written,
}

/// What the CSV writer wrote and nobody took yet.
#[derive(Clone, Default)]
struct Written(Rc<RefCell<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl EncodeCsv {
    pub(crate) fn new() -> Self {
        let written = Written::default();
        EncodeCsv { writer: csv::Writer::from_writer(written.clone()), written }
    }
}

impl<T: Serialize> Encode<T> for EncodeCsv {
    fn encode(&mut self, record: &T, first: bool, bytes: &mut Vec<u8>) -> Result<(), ConnectorError> {
        if first {
            // A writer writes the header once, before its first record.
            self.writer = csv::Writer::from_writer(self.written.clone());
        }
        self.writer.serialize(record).map_err(|error| failed("csv", error))?;
        self.writer.flush().map_err(|error| failed("csv", error))?;
        bytes.append(&mut self.written.0.borrow_mut());
        Ok(())
    }
}

fn failed(format: &'static str, error: impl std::error::Error + Send + Sync + 'static) -> ConnectorError {
    ConnectorError::Format { format, source: Box::new(error) }
}
