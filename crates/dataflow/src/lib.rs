//! The user's API and what it builds: streams, the graph, the plan, and the traits of operators,
//! sources and sinks.
//!
//! Owns: the shape of a job. Does *not* own: running it (see `runtime` and `engine`), the standard
//! operators (see `operators`), durable bytes.
//!
//! A job is a function over a [`Dataflow`]. It is called once per worker, so that each worker owns its
//! closures and operators and nothing in it needs to be `Send` or `Sync`:
//!
//! ```text
//! job(&mut Dataflow) ─► Graph (operators and edges) ─► Plan (chains and exchanges) ─► runtime
//! ```

pub mod align;
pub mod batch;
pub mod context;
pub mod gauge;
pub mod graph;
pub mod operator;
pub mod output;
pub mod partition;
pub mod plan;
pub mod sink;
pub mod source;
pub mod stream;
pub mod time;
pub mod time_queue;
pub mod timers;

pub use batch::{Batch, BoxBatch, Keyed};
pub use context::{AttemptEnd, KeyedContext, OpenContext, OperatorContext, ProcessContext, SubtaskInfo};
pub use gauge::{OperatorTime, TimeBoard, TimeGauge};
pub use graph::{Dataflow, Graph, GraphError};
pub use operator::{Operator, SourceOperator, SourceStatus};
pub use output::{Output, Outputs, SideTag};
pub use partition::{Partition, Routing};
pub use plan::Plan;
pub use sink::{Sink, SinkContext, SinkStream};
pub use source::{ReadStatus, RestoredSplits, Source, Split, SplitReader};
pub use stream::{KeyedStream, Stream};
pub use time::{Advance, Element, MAX_WATERMARK, MIN_WATERMARK, TimeMark};
pub use timers::{Due, TimeDomain, Timer, Timers};

/// Records per batch, unless a source or operator has fewer to give.
pub const BATCH_RECORDS: usize = 1_024;
