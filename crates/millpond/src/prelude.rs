//! What a job needs, for one `use`.
//!
//! ```
//! use millpond::prelude::*;
//! ```

pub use std::process::ExitCode;

pub use millpond_connectors::{
    BAD_RECORDS, BadRecord, BadRecordCounter, BadRecords, Collector, ConnectorSinks, ConnectorSources, FileSink,
    FileSource, GeneratorSource, VecSource,
};
pub use millpond_core::{Data, Epoch, Key, UserError, UserResult};
pub use millpond_dataflow::{
    Dataflow, KeyedContext, KeyedStream, OpenContext, Output, ProcessContext, SideTag, SinkStream, Stream, TimeDomain,
    Timer,
};
pub use millpond_derive::State;
pub use millpond_operators::{
    AsyncMap, BlockingPool, BroadcastProcess, Change, ChangeKind, ChangelogOperators, CoProcess, Deduplicate, Failed,
    InsertOperators, Interval, KeyedBroadcastProcess, KeyedChangelogOperators, KeyedCoProcess, KeyedInsertOperators,
    KeyedProcess, KeyedStreamOperators, KeyedUpsertOperators, Process, Ranked, RankingOperators, RetractableAggregate,
    Retry, Sided, SinkOperators, SourceOperators, StreamOperators, Triggers, WatermarkStrategy, Window,
    WindowCoProcess, WindowProcess, Windowed, Windows,
};
pub use millpond_state::{
    AggregateFunction, AggregatingState, BroadcastState, BroadcastView, ExpiringAggregating, ExpiringList, ExpiringMap,
    ExpiringReducing, ExpiringValue, ListState, MapState, OperatorListState, ReducingState, StateDeclarer, Ttl,
    ValueState,
};
pub use serde::{Deserialize, Serialize};
