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
                (!blank).then(|| serde_json::from_slice(line).map_err(|error| error.to_string()))
            });
            if let Some(next) = next {
                return Ok(next);
            }
        }
    }
}
