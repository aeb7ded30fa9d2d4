//! The standard operators, as methods on streams.
//!
//! Owns: what each operator does with a record. Does *not* own: state (see `state`), chaining and
//! exchange (see `dataflow` and `runtime`).
//!
//! [`StreamOperators`] and [`KeyedStreamOperators`] bring the methods; one file holds one operator.

mod aggregate;
mod async_map;
mod broadcast;
mod broadcast_keyed;
mod changelog;
mod connect;
mod connect_keyed;
mod interval_join;
mod key_by;
mod keyed_host;
mod keyed_process;
mod late;
mod logged;
mod process;
mod ranking;
mod record;
mod reduce;
mod sink;
mod source;
mod stateless;
mod temporal_join;
mod watermarks;
mod windows;

pub use aggregate::{Aggregate, Fold};
pub use async_map::{AsyncError, AsyncMap, BlockingPool, Failed, Retry};
pub use broadcast::{BroadcastConnected, BroadcastProcess};
pub use broadcast_keyed::{KeyedBroadcastConnected, KeyedBroadcastProcess};
pub use changelog::{
    Average, Change, ChangeKind, ChangelogError, ChangelogOperators, CountRows, InsertOperators,
    KeyedChangelogOperators, KeyedInsertOperators, KeyedUpsertOperators, MaterializedView, RetractableAggregate, Sum,
};
pub use connect::{CoProcess, Connected};
pub use connect_keyed::{KeyedCoProcess, KeyedConnected};
pub use interval_join::{Interval, IntervalJoined, JoinError};
pub use keyed_process::{KeyedProcess, KeyedStreamOperators};
pub use logged::{Applier, EpochLog, LoggedError, LoggedSink, LoggedSinkOperators, LoggedTarget, LostMarker, Patience};
pub use process::Process;
pub use ranking::{Deduplicate, Ranked, RankingOperators};
pub use sink::SinkOperators;
pub use source::SourceOperators;
pub use stateless::StreamOperators;
pub use temporal_join::TemporalJoined;
pub use watermarks::{WatermarkGenerator, WatermarkStrategy};
pub use windows::{
    AllWindowedStream, AtEnd, Continuous, CountTrigger, DeltaTrigger, EvictWhen, Evictor, Evictors, InWindow, Joined,
    Never, Purging, Sided, Trigger, TriggerContext, TriggerResult, TriggerState, Triggers, Window, WindowCoProcess,
    WindowError, WindowJoined, WindowProcess, Windowed, WindowedStream, Windows,
};
