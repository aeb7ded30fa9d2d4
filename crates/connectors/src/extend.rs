//! Connectors as methods of jobs and streams.

use std::fmt::{Debug, Display};

use millpond_core::Data;
use millpond_dataflow::{Dataflow, SinkStream, Stream};
use millpond_operators::{SinkOperators, SourceOperators};

use crate::sink::{Collector, PrintSink};
use crate::source::VecSource;

/// Methods of a job under construction that add simple sources.
pub trait ConnectorSources {
    /// A source of given records, read by one subtask. For more, see [`VecSource::splits`].
    #[track_caller]
    #[expect(clippy::wrong_self_convention, reason = "it reads as: a stream from an iterator")]
    fn from_iter<T: Data>(&mut self, name: &str, records: impl IntoIterator<Item = T>) -> Stream<T>;
}

impl ConnectorSources for Dataflow {
    #[track_caller]
    fn from_iter<T: Data>(&mut self, name: &str, records: impl IntoIterator<Item = T>) -> Stream<T> {
        self.source(name, VecSource::new(records))
    }
}

/// Methods of a stream that end it in a simple sink.
pub trait ConnectorSinks<T: Data> {
    /// Writes each record as a line to standard output, at once: after a failure some lines appear again.
    #[track_caller]
    fn print(&self, name: &str) -> SinkStream
    where
        T: Display;

    /// As [`ConnectorSinks::print`], in the form meant for programmers.
    #[track_caller]
    fn print_debug(&self, name: &str) -> SinkStream
    where
        T: Debug;

    /// Gathers the records in memory, exactly once: they appear when their epoch is committed.
    ///
    /// The job function runs once per worker; the collector is made outside it.
    #[track_caller]
    fn collect(&self, name: &str, collector: &Collector<T>) -> SinkStream;
}

impl<T: Data> ConnectorSinks<T> for Stream<T> {
    #[track_caller]
    fn print(&self, name: &str) -> SinkStream
    where
        T: Display,
    {
        self.sink(name, PrintSink::display())
    }

    #[track_caller]
    fn print_debug(&self, name: &str) -> SinkStream
    where
        T: Debug,
    {
        self.sink(name, PrintSink::debug())
    }

    #[track_caller]
    fn collect(&self, name: &str, collector: &Collector<T>) -> SinkStream {
        self.sink(name, collector.sink())
    }
}
