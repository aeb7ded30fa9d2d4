//! The formats that a file source reads.

use std::fmt;
use std::marker::PhantomData;

use millpond_core::Data;

use super::csv::CsvDecoder;
use super::decode::Decode;
use super::json::JsonDecoder;
use super::lines::LinesDecoder;
use crate::ConnectorError;

/// A format of files. Only the formats of this crate implement it.
pub trait Format: Clone + 'static {
    /// What a record of it becomes.
    type Record: Data;
    /// Takes records off bytes.
    #[doc(hidden)]
    type Decoder: Decode<Record = Self::Record>;

    /// Checks the settings.
    #[doc(hidden)]
    fn check(&self) -> Result<(), ConnectorError> {
        Ok(())
    }

    /// A decoder for one file, for records of at most `max` bytes.
    #[doc(hidden)]
    fn decoder(&self, max: usize) -> Self::Decoder;
}

/// One string a line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lines;

impl Format for Lines {
    type Record = String;
    type Decoder = LinesDecoder;

    fn decoder(&self, max: usize) -> LinesDecoder {
        LinesDecoder::new(max)
    }
}

/// One JSON value a line; blank lines are skipped.
pub struct Json<T>(pub(crate) PhantomData<fn() -> T>);

impl<T> Clone for Json<T> {
    fn clone(&self) -> Self {
        Json(PhantomData)
    }
}

impl<T: Data> Format for Json<T> {
    type Record = T;
    type Decoder = JsonDecoder<T>;

    fn decoder(&self, max: usize) -> JsonDecoder<T> {
        JsonDecoder::new(max)
    }
}

/// Comma separated values, quoted where needed; empty lines are skipped.
pub struct Csv<T> {
    pub(crate) delimiter: u8,
    pub(crate) has_header: bool,
    pub(crate) records: PhantomData<fn() -> T>,
}

impl<T> Clone for Csv<T> {
    fn clone(&self) -> Self {
        Csv { delimiter: self.delimiter, has_header: self.has_header, records: PhantomData }
    }
}

impl<T> fmt::Debug for Csv<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Csv {{ delimiter: {:?}, has_header: {} }}", char::from(self.delimiter), self.has_header)
    }
}

impl<T: Data> Format for Csv<T> {
    type Record = T;
    type Decoder = CsvDecoder<T>;

    fn check(&self) -> Result<(), ConnectorError> {
        if matches!(self.delimiter, b'\r' | b'\n' | b'"') || !self.delimiter.is_ascii() {
            let reason = format!("{:?} cannot delimit fields", char::from(self.delimiter));
            return Err(ConnectorError::Setting { setting: "delimiter", reason });
        }
        Ok(())
    }

    fn decoder(&self, max: usize) -> CsvDecoder<T> {
        CsvDecoder::new(max, self.delimiter, self.has_header)
    }
}
