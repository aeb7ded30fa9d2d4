//! Millpond: a stateful stream processor as a library.
//!
//! One dependency, one function, one binary. The binary runs on all cores, takes checkpoints while it
//! works, resumes after `kill -9` with exactly-once results, and starts again with another number of
//! workers from any checkpoint.
//!
//! ```no_run
//! use millpond::prelude::*;
//!
//! fn main() -> ExitCode {
//!     millpond::main(|flow| {
//!         flow.source("texts", FileSource::lines("texts/*.txt"))
//!             .flat_map(|line| line.split_whitespace().map(str::to_lowercase).collect::<Vec<_>>())
//!             .key_by(|word| word.clone())
//!             .count("counts")
//!             .sink("out", FileSink::json("counts"));
//!         Ok(())
//!     })
//! }
//! ```
//!
//! [`main`] gives the program its command line: `run` (with `--workers`, `--state-dir`, …), `plan`,
//! `checkpoints`, `savepoint`, `stop` and `state`; see `--help`. A program with a `main` of its own calls [`run()`]
//! or [`run_with`].
//!
//! # Operators
//!
//! | on | method | what it does | state |
//! |---|---|---|---|
//! | `Dataflow` | [`source`](operators::SourceOperators::source) | reads a source | positions |
//! | | [`timed_source`](operators::SourceOperators::timed_source) | the same, with event time | positions |
//! | | [`from_iter`](connectors::ConnectorSources::from_iter) | emits given records | positions |
//! | `Stream<T>` | [`map`](operators::StreamOperators::map), [`filter`](operators::StreamOperators::filter), [`flat_map`](operators::StreamOperators::flat_map), [`inspect`](operators::StreamOperators::inspect) | one record at a time; each has a `try_` form that may fail (not `inspect`) | none |
//! | | [`assign_timestamps`](operators::StreamOperators::assign_timestamps) | event time begins anew | none |
//! | | [`key_by`](operators::StreamOperators::key_by) | all records of one key meet in one subtask | none |
//! | | [`union`](operators::StreamOperators::union) | two streams of one type become one | none |
//! | | [`process`](operators::StreamOperators::process) | your [`Process`](operators::Process) | lists, broadcast maps |
//! | | [`connect`](operators::StreamOperators::connect), [`connect_broadcast`](operators::StreamOperators::connect_broadcast) | two streams, one function | lists, broadcast maps |
//! | | [`window_all`](operators::StreamOperators::window_all) | [windows](operators::AllWindowedStream) over all keys, added up in every subtask first | windows |
//! | | [`async_map`](operators::StreamOperators::async_map) | calls something outside for each record, many at a time | records under way |
//! | | [`rebalance`](dataflow::Stream::rebalance), [`broadcast`](dataflow::Stream::broadcast) | other ways to the next operator | none |
//! | | [`parallelism`](dataflow::Stream::parallelism), [`side_output`](dataflow::Stream::side_output) | settings and outputs of the operator before | none |
//! | `KeyedStream<K, T>` | [`count`](operators::KeyedStreamOperators::count), [`reduce`](operators::KeyedStreamOperators::reduce), [`fold`](operators::KeyedStreamOperators::fold), [`aggregate`](operators::KeyedStreamOperators::aggregate) | a running result per key | a value per key |
//! | | [`window`](operators::KeyedStreamOperators::window), [`count_window`](operators::KeyedStreamOperators::count_window) | [windows](operators::WindowedStream) with `reduce`, `aggregate`, `process` | windows, timers |
//! | | [`join`](operators::KeyedStreamOperators::join) | pairs or groups of two streams in the same [windows](operators::WindowJoined) | windows, timers |
//! | | [`temporal_join`](operators::KeyedStreamOperators::temporal_join) | each record with the version of its time | records and versions by time |
//! | | [`deduplicate_first`](operators::RankingOperators::deduplicate_first), [`deduplicate_last`](operators::RankingOperators::deduplicate_last), [`top_n`](operators::RankingOperators::top_n) | the first, the last, the best of each key | those |
//! | | [`interval_join`](operators::KeyedStreamOperators::interval_join) | pairs of two streams close in event time | records by time |
//! | | [`process`](operators::KeyedStreamOperators::process), [`process_with`](operators::KeyedStreamOperators::process_with) | your [`KeyedProcess`](operators::KeyedProcess), or a closure | values, lists, maps, … per key |
//! | | [`connect`](operators::KeyedStreamOperators::connect), [`connect_broadcast`](operators::KeyedStreamOperators::connect_broadcast) | two streams, one function | the same, shared |
//! | `KeyedStream<K, Change<T>>` | [`aggregate_rows`](operators::KeyedChangelogOperators::aggregate_rows), [`count_rows`](operators::KeyedChangelogOperators::count_rows), [`top_rows`](operators::KeyedChangelogOperators::top_rows), [`to_upserts`](operators::KeyedChangelogOperators::to_upserts) | results over rows that come and go | accumulators, rows |
//! | `Stream<T>` | [`sink`](operators::SinkOperators::sink) | writes to a sink | prepared output |
//! | | [`print`](connectors::ConnectorSinks::print), [`collect`](connectors::ConnectorSinks::collect) | looks, gathers | none, prepared output |
//!
//! Operators with state, sources and sinks have a name: state is found again by it, so it may move in the
//! job, but not change.
//!
//! # Features
//!
//! - `rocksdb`: state larger than memory, with `--backend rocksdb --memory 2GB`. Needs a C++ compiler and libclang to
//!   build. Without it, all keyed state is in memory.
//! - `kafka`: Kafka as a source and as an exactly-once sink, in the module `kafka`. Needs a C compiler and zlib to build;
//!   with `kafka-ssl` also OpenSSL, for TLS and SASL/SCRAM.
//! - `postgres`: PostgreSQL as a source (logical replication) and as an exactly-once sink, in the module `postgres`.
//! - `tls`: mutual TLS between the processes of a job, with `--tls-certificate`, `--tls-key` and `--tls-ca`. Needs a C compiler
//!   to build.
//! - `s3`, `hdfs`: checkpoints at `s3://BUCKET/PREFIX` and `hdfs://HOST:PORT/DIRECTORY`.
//!
//! # Testing a job
//!
//! [`testing`] has a driver that runs a job without threads: push records, look at output and state, take a
//! checkpoint, kill, restore at another parallelism.
//!
//! # Records and state
//!
//! A record is any type with serde's `Serialize` and `Deserialize` that is `Clone + Send + 'static`; a
//! key is also `Eq`. [`State`] derives both, and says how a type has changed since values of it were stored:
//!
//! ```
//! use millpond::prelude::*;
//!
//! #[derive(Clone, State)]
//! struct Flight {
//!     #[state(alias = "carrier")]
//!     airline: String,
//!     delay_minutes: Option<i64>,
//!     #[state(default = "180")]
//!     seats: u32,
//! }
//! ```
//!
//! At a start, stored values are read by the type of today: fields and variants by name, added fields by their
//! default, integers as they were or narrower. A change that would lose something is refused before
//! anything runs. [`assert_schema_unchanged`] keeps watch in tests.
//!
//! The prelude also brings serde's own derive macros. A crate that does not depend on serde itself adds one line:
//!
//! ```
//! use millpond::prelude::*;
//!
//! #[derive(Clone, Serialize, Deserialize)]
//! #[serde(crate = "millpond::serde")]
//! struct Flight {
//!     carrier: String,
//!     delay_minutes: Option<i32>,
//! }
//! ```

mod command_line;
mod embed;
pub mod prelude;
pub mod testing;

pub use command_line::{extensions, main, main_named};
pub use embed::{run, run_with};
pub use millpond_checkpoint as checkpoint;
pub use millpond_cli::{CliError, Extensions, args, main_with};
pub use millpond_connectors as connectors;
#[cfg(feature = "kafka")]
pub use millpond_connectors_kafka as kafka;
#[cfg(feature = "postgres")]
pub use millpond_connectors_postgres as postgres;
pub use millpond_core::{
    Attempt, Clock, Data, Epoch, ErrorKind, Key, ManualClock, MaxParallelism, Schema, StateType, SystemClock,
    UserError, UserResult,
};
pub use millpond_dataflow as dataflow;
pub use millpond_derive::State;
pub use millpond_jobmanager::{
    Backend, ClusterError, ClusterSettings, Components, ControlError, Done, JobControl, JobError, JobOutcome,
    JobReport, JobSettings, JobStatus, MemoryPlan, OperatorTime, QueryError, RestartPolicy, StartFrom, StateQuery,
    StatusSnapshot, StopRequest, StopSignal, StorageSettings, TimeBoard, TlsSettings, UploadLimits,
};
pub use millpond_operators as operators;
pub use millpond_state as state;
pub use millpond_state_reader as state_reader;
pub use millpond_storage as storage;
pub use serde;
