//! Sources and sinks: files (lines, JSON, CSV), a generator, given records, print, collect.
//!
//! Owns: formats, positions in files, names of output files and when they appear. Does *not* own: who
//! reads which split and when a checkpoint is durable (see `operators` and `checkpoint`). No threads.
//!
//! ```text
//! path ─► splits ─► bytes ─► frame ─► decode ─► records ─► encode ─► in progress ─► prepared ─► visible
//! ```
//!
//! Invariants: a position is always the start of a record, and everything before it was emitted; what a
//! reader of an output directory can see belongs to a durable checkpoint and is never taken back.
//!
//! ```
//! use millpond_connectors::{BAD_RECORDS, BadRecords, Collector, ConnectorSinks, FileSink, FileSource};
//! use millpond_dataflow::Dataflow;
//! use millpond_operators::{SinkOperators, SourceOperators};
//!
//! #[derive(Clone, serde::Serialize, serde::Deserialize)]
//! struct Order { id: u64, amount: u64 }
//!
//! let bad = Collector::new();
//! let graph = Dataflow::build(|flow| {
//!     let source = FileSource::csv::<Order>("orders/*.csv").bad_records(BadRecords::SideOutput);
//!     let orders = flow.source("orders", source);
//!     orders.side_output(BAD_RECORDS).collect("bad orders", &bad);
//!     orders.sink("as json", FileSink::json("out"));
//!     Ok(())
//! });
//! # assert_eq!(graph?.operators.len(), 3);
//! # Ok::<(), millpond_dataflow::GraphError>(())
//! ```

mod error;
mod extend;
mod sink;
mod source;

pub use error::ConnectorError;
pub use extend::{ConnectorSinks, ConnectorSources};
pub use sink::{CollectSink, CollectedBatch, Collector, FileSink, PreparedFile, PrintSink};
pub use source::{
    BAD_RECORDS, BadRecord, BadRecordCounter, BadRecords, Csv, FileReader, FileSource, FileSplit, Format,
    GeneratorReader, GeneratorSource, GeneratorSplit, Json, Lines, VecSource,
};
