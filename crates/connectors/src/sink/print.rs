//! Prints records, for people who look.

use std::fmt::{self, Debug, Display};
use std::io::{self, Write};

use millpond_core::{Data, Epoch, UserResult};
use millpond_dataflow::{Sink, SinkContext};

use crate::ConnectorError;
use crate::error::Classify;

/// Writes each record as a line to standard output.
///
/// At least once: a line appears at once and is not taken back, so after a failure the lines since the
/// last checkpoint appear again. Lines of several subtasks do not mix.
#[must_use]
pub struct PrintSink<T> {
    format: FormatRecord<T>,
    line: Vec<u8>,
    target: Box<Target>,
}

/// Shows a record as text.
type FormatRecord<T> = fn(&T, &mut fmt::Formatter<'_>) -> fmt::Result;

/// Takes one line.
type Target = dyn FnMut(&[u8]) -> io::Result<()>;

struct Formatted<'a, T> {
    record: &'a T,
    format: FormatRecord<T>,
}

impl<T> Display for Formatted<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.format)(self.record, f)
    }
}

impl<T> PrintSink<T> {
    /// Prints records as `{}` does.
    pub fn display() -> Self
    where
        T: Display,
    {
        Self::new(T::fmt, |line| io::stdout().lock().write_all(line))
    }

    /// Prints records as `{:?}` does.
    pub fn debug() -> Self
    where
        T: Debug,
    {
        Self::new(T::fmt, |line| io::stdout().lock().write_all(line))
    }

    fn new(format: FormatRecord<T>, target: impl FnMut(&[u8]) -> io::Result<()> + 'static) -> Self {
        PrintSink { format, line: Vec::new(), target: Box::new(target) }
    }
}

impl<T: Data> Sink for PrintSink<T> {
    type Record = T;
    type Committable = ();

    fn open(&mut self, _context: &SinkContext<'_>) -> UserResult {
        Ok(())
    }

    fn write(&mut self, record: T) -> UserResult {
        self.line.clear();
        let formatted = Formatted { record: &record, format: self.format };
        let printed = writeln!(self.line, "{formatted}").and_then(|()| (self.target)(&self.line));
        printed.map_err(|source| ConnectorError::Print { source }).classify()
    }

    fn prepare(&mut self, _epoch: Epoch) -> UserResult<Vec<()>> {
        Ok(Vec::new())
    }

    fn commit(&mut self, (): ()) -> UserResult {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn each_record_is_handed_over_as_one_whole_line() {
        let lines = Rc::new(RefCell::new(Vec::new()));
        let target = lines.clone();
        let mut sink = PrintSink::<String>::new(Debug::fmt, move |line| {
            target.borrow_mut().push(String::from_utf8(line.to_vec()).unwrap());
            Ok(())
        });
        sink.write("a".to_owned()).unwrap();
        sink.write("b".to_owned()).unwrap();
        assert_eq!(*lines.borrow(), ["\"a\"\n", "\"b\"\n"]);
    }

    #[test]
    fn a_closed_output_is_an_error_and_not_a_panic() {
        let mut sink = PrintSink::<u32>::new(Display::fmt, |_| Err(io::ErrorKind::BrokenPipe.into()));
        let error = crate::error::connector_error(sink.write(1).unwrap_err());
        assert_eq!(error.kind(), millpond_core::ErrorKind::Invalid, "nobody reads on: {error}");
    }
}
