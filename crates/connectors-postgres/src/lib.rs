//! PostgreSQL as a source and as a sink.
//!
//! Owns: tables and their rows, transactions, replication slots. Does *not* own: the client protocol (that is
//! `tokio-postgres`, and `pgwire-replication` for replication), when a checkpoint is durable, what a logged sink is (see
//! `operators`).
//!
//! The guarantees, and what happens on each failure, are described in `docs/postgres.md`.

mod error;
mod session;
mod sink;
mod source;
mod table;
mod tls;

pub use error::PostgresError;
pub use sink::{PostgresChangeSinks, PostgresSink, PostgresSinks, RefusedRowCounter, RefusedRows};
pub use source::{
    OnTruncate, PostgresReader, PostgresSource, PostgresSplit, Row, RowChange, RowError, TableChange, TableCopy,
    TablePart, TableShape, drop_replication_slot, pgoutput,
};
pub use tokio_postgres::types::{Json, ToSql};
