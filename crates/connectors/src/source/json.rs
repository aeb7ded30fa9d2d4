//! One JSON value a line.

use std::marker::PhantomData;

use millpond_core::Data;

use super::bytes::FileBytes;
use super::decode::{Decode, Ending, Next, take};
use super::lines::LineFramer;
use crate::ConnectorError;

/// Makes a value of every line that is not blank.
pub struct JsonDecoder<T> {
    framer: LineFramer,
    max: usize,
    records: PhantomData<fn() -> T>,
}

impl<T> JsonDecoder<T> {
    pub(crate) fn new(max: usize) -> Self {
        JsonDecoder { framer: LineFramer::new(max), max, records: PhantomData }
    }
}

impl<T: Data> Decode for JsonDecoder<T> {
    type Record = T;

    fn begin(&mut self, _bytes: &mut FileBytes, _ending: Ending) -> Result<bool, ConnectorError> {
        Ok(true)
    }

    fn next(&mut self, bytes: &mut FileBytes, ending: Ending) -> Result<Next<T>, ConnectorError> {
        loop {
            let frame = self.framer.next(bytes, ending)?;
            let next = take(frame, bytes, self.max, |line| {
                let blank = line.trim_ascii().is_empty();
                (!blank).then(|| serde_json::from_slice(line).map_err(|error| cause(&error)))
            });
            if let Some(next) = next {
                return Ok(next);
            }
        }
    }
}

/// What is wrong with a line. The line in the file is told by others; the decoder knows only this one.
fn cause(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.strip_suffix(&format!(" at line {} column {}", error.line(), error.column())) {
        Some(what) => format!("{what} at column {}", error.column()),
        None => text,
    }
}
