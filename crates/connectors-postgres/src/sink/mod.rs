//! PostgreSQL as a sink, exactly once by the logged contract.
//!
//! Owns: rows of records, the transaction that writes them, what a marker is in PostgreSQL. Does *not* own: the log and who
//! applies it (`millpond_operators`, module `logged`).
//!
//! ```text
//! record ─► row (columns) ─► log ─► checkpoint ─► COPY ─► insert, or merge by key ─► marker, all in one transaction (target)
//! ```

mod columns;
mod refused;
mod statements;
mod target;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use millpond_core::{Data, UserResult};
use millpond_dataflow::{SinkContext, SinkStream, Stream};
use millpond_operators::{Applier, Change, LoggedSink, LoggedSinkOperators, LostMarker, Patience};
use tokio_postgres::types::ToSql;

use crate::PostgresError;
use crate::error::Classify;
use crate::session::Connection;
use columns::{ColumnOf, Layout};
use refused::Refusals;
pub use refused::{RefusedRowCounter, RefusedRows};
use target::PostgresTarget;

/// Bytes of the log of a subtask unless set otherwise.
const LOG_BYTES: usize = 64 << 20;
/// Bytes of logs in one transaction unless set otherwise.
const TRANSACTION_BYTES: usize = 16 << 20;
/// How long a transaction may take unless set otherwise.
const TRANSACTION: Duration = Duration::from_secs(60);
/// How long the server may be away unless set otherwise.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// Whether a record deletes its row.
type Deletes<T> = Arc<dyn Fn(&T) -> bool + Send + Sync>;

/// Writes rows to a table of PostgreSQL, each exactly once.
///
/// A column is a name and a function that reads its value from a record; the types of the values are compared with those of
/// the table when the job starts. Values are anything that is [`ToSql`]: numbers, texts, `SystemTime`, `Option` of them, ….
///
/// Without a key rows are inserted. With one, a row takes the place of the row with its key.
///
/// ```
/// use millpond_connectors_postgres::PostgresSink;
/// # #[derive(Clone, serde::Serialize, serde::Deserialize)]
/// struct Total { customer: i64, cents: i64 }
/// let totals = PostgresSink::table("postgresql://user:secret@localhost/shop", "totals")
///     .column("customer", |total: &Total| total.customer)
///     .column("cents", |total: &Total| total.cents)
///     .key(["customer"]);
/// # let _ = totals;
/// ```
#[must_use]
pub struct PostgresSink<T> {
    settings: Settings<T>,
}

struct Settings<T> {
    connection: Connection,
    table: String,
    columns: Vec<ColumnOf<T>>,
    key: Vec<String>,
    deletes: Option<Deletes<T>>,
    marker_table: String,
    log_bytes: usize,
    transaction_bytes: usize,
    transaction_timeout: Duration,
    patience: Duration,
    lost_marker: LostMarker,
    refused: RefusedRows,
    refused_counter: RefusedRowCounter,
}

impl<T> PostgresSink<T> {
    /// A sink for `table` in the database at `url`, which is of the form `postgresql://user:password@host:port/database` or
    /// `host=… user=… password=… dbname=…`. The table is named as in SQL: `orders`, `shop.orders`, `"Orders"`.
    pub fn table(url: &str, table: &str) -> Self {
        let settings = Settings {
            connection: Connection::new(url),
            table: table.to_owned(),
            columns: Vec::new(),
            key: Vec::new(),
            deletes: None,
            marker_table: "millpond_markers".to_owned(),
            log_bytes: LOG_BYTES,
            transaction_bytes: TRANSACTION_BYTES,
            transaction_timeout: TRANSACTION,
            patience: PATIENCE,
            lost_marker: LostMarker::Fail,
            refused: RefusedRows::Fail,
            refused_counter: RefusedRowCounter::new(),
        };
        PostgresSink { settings }
    }

    /// Writes what `value` reads from a record into the column called `name`. Columns that are not written get their
    /// defaults.
    pub fn column<V: ToSql>(mut self, name: &str, value: impl Fn(&T) -> V + Send + Sync + 'static) -> Self {
        self.settings.columns.push(ColumnOf::new(name, value));
        self
    }

    /// A row takes the place of the one with the same values in these columns. There must be a unique index on just
    /// them, and they must not be null. Of the records of one key, all must come to one subtask, as they do after a `key_by`
    /// with that key; else the last one does not always win.
    pub fn key<'a>(mut self, columns: impl IntoIterator<Item = &'a str>) -> Self {
        self.settings.key = columns.into_iter().map(str::to_owned).collect();
        self
    }

    /// Records of which `deletes` is true delete the row with their key; needs [`PostgresSink::key`].
    pub fn delete_if(mut self, deletes: impl Fn(&T) -> bool + Send + Sync + 'static) -> Self {
        self.settings.deletes = Some(Arc::new(deletes));
        self
    }

    /// The table that says what was applied, named as in SQL; `millpond_markers` unless set. It is made unless it is there. All
    /// sinks of a database may share it.
    pub fn marker_table(mut self, table: &str) -> Self {
        table.clone_into(&mut self.settings.marker_table);
        self
    }

    /// How many bytes a subtask may log before they are written; 64 MiB unless set. At half of it a checkpoint is taken
    /// before its time, when it is full the job waits. It takes about four times as much memory.
    pub fn log_bytes(mut self, bytes: usize) -> Self {
        self.settings.log_bytes = bytes;
        self
    }

    /// How many bytes of the log go into one transaction when more than one epoch is due, as after an outage; 16 MiB unless set. An
    /// epoch is never divided.
    pub fn transaction_bytes(mut self, bytes: usize) -> Self {
        self.settings.transaction_bytes = bytes;
        self
    }

    /// What becomes of rows that the table never takes; [`RefusedRows::Fail`] unless set.
    pub fn refused_rows(mut self, refused: RefusedRows) -> Self {
        self.settings.refused = refused;
        self
    }

    /// Counts refused rows that do not end the job.
    pub fn refused_row_counter(mut self, counter: &RefusedRowCounter) -> Self {
        self.settings.refused_counter = counter.clone();
        self
    }

    /// How long a transaction may take before it is given up and begun again; 60 s unless set.
    pub fn transaction_timeout(mut self, timeout: Duration) -> Self {
        self.settings.transaction_timeout = timeout;
        self
    }

    /// How long the server may be away before the attempt ends; 2 min unless set. Until then the job goes on as far as
    /// its log has room.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.settings.patience = patience;
        self
    }

    /// What to do when a marker that a checkpoint's output needs was deleted; [`LostMarker::Fail`] unless set.
    pub fn lost_marker(mut self, lost: LostMarker) -> Self {
        self.settings.lost_marker = lost;
        self
    }

    /// How long a contact with the server may take; 10 s unless set.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.settings.connection.deadline = deadline;
        self
    }
}

impl<T> Settings<T> {
    /// Compares the settings with the database.
    fn check(&self) -> Result<(Layout, Refusals, String), PostgresError> {
        let setting = |setting: &str, reason: &str| PostgresError::Setting {
            setting: setting.to_owned(),
            reason: reason.to_owned(),
        };
        if self.transaction_timeout < Duration::from_millis(1) {
            return Err(setting("transaction_timeout", "it must be at least 1 ms"));
        }
        if self.deletes.is_some() && self.key.is_empty() {
            return Err(setting("key", "rows to delete are found by it: name its columns"));
        }
        let session = self.connection.open(self.connection.deadline)?;
        let layout = Layout::find(&session, &self.connection, &self.table, &self.columns, &self.key)?;
        let marker_table = statements::marker_table(&session, &self.marker_table)?;
        let how = (&self.refused, &self.refused_counter);
        let refusals = Refusals::open(&session, &self.connection, how, &layout)?;
        Ok((layout, refusals, marker_table))
    }
}

/// A sink of records `R` that are rows of `T`.
struct LoggedPostgres<T, R> {
    settings: Settings<T>,
    layout: Option<Layout>,
    scratch: BytesMut,
    /// The row of a record, and whether it goes; `None` for the sink's own judgement.
    row: fn(&R) -> (&T, Option<bool>),
}

impl<T: 'static, R: Data> LoggedSink for LoggedPostgres<T, R> {
    type Record = R;

    fn open(&mut self, context: &SinkContext<'_>) -> UserResult<Applier> {
        let settings = &self.settings;
        let (layout, refusals, marker_table) = settings.check().classify()?;
        self.layout = Some(layout.clone());
        let connection = settings.connection.clone();
        let (attempt, timeout) = (context.info.attempt, settings.transaction_timeout);
        let target = PostgresTarget::new(connection, (layout, refusals), &marker_table, attempt, timeout);
        Ok(Applier::on_thread(target, Patience { total: settings.patience, pause: PAUSE }))
    }

    /// Attempts of one job differ in their number, jobs and lives of a job in what is drawn.
    fn writer(&self, context: &SinkContext<'_>) -> String {
        let info = context.info;
        let drawn = RandomState::new().build_hasher().finish();
        format!("{}-{}-{}-{drawn:016x}", info.operator, info.attempt.0, info.index)
    }

    fn encode(&mut self, record: R, _time: Option<i64>, entry: &mut Vec<u8>) -> UserResult {
        let layout = self.layout.as_ref().ok_or(PostgresError::NotOpen).classify()?;
        let (row, deletes) = (self.row)(&record);
        let deletes = deletes.unwrap_or_else(|| self.settings.deletes.as_ref().is_some_and(|deletes| deletes(row)));
        layout.encode(&self.settings.columns, row, deletes, &mut self.scratch, entry).classify()
    }

    fn transaction_bytes(&self) -> usize {
        self.settings.transaction_bytes
    }

    fn log_limit_bytes(&self) -> usize {
        self.settings.log_bytes
    }

    fn lost_marker(&self) -> LostMarker {
        self.settings.lost_marker
    }
}

/// Methods of a stream that end it in PostgreSQL.
pub trait PostgresSinks<T: Data> {
    /// Writes the records to a table. `name` identifies the sink in checkpoints.
    #[track_caller]
    fn to_postgres(&self, name: &str, sink: PostgresSink<T>) -> SinkStream;
}

impl<T: Data> PostgresSinks<T> for Stream<T> {
    #[track_caller]
    fn to_postgres(&self, name: &str, sink: PostgresSink<T>) -> SinkStream {
        let (settings, scratch) = (sink.settings, BytesMut::new());
        self.logged_sink(name, LoggedPostgres { settings, layout: None, scratch, row: |record: &T| (record, None) })
    }
}

/// Methods of a changelog stream that end it in PostgreSQL.
pub trait PostgresChangeSinks<T: Data> {
    /// Keeps a table as the changes say: rows that are put in take the place of those with their key, rows that are taken out are
    /// deleted by their key. Needs [`PostgresSink::key`], which must identify a row of the changelog. `name` identifies the
    /// sink in checkpoints.
    #[track_caller]
    fn changes_to_postgres(&self, name: &str, sink: PostgresSink<T>) -> SinkStream;
}

impl<T: Data> PostgresChangeSinks<T> for Stream<Change<T>> {
    #[track_caller]
    fn changes_to_postgres(&self, name: &str, mut sink: PostgresSink<T>) -> SinkStream {
        // Only the kind of a change decides; a sink without a key is refused when it opens.
        sink.settings.deletes = Some(Arc::new(|_| false));
        let (settings, scratch) = (sink.settings, BytesMut::new());
        fn row<T>(change: &Change<T>) -> (&T, Option<bool>) {
            (&change.row, Some(!change.adds()))
        }
        self.logged_sink(name, LoggedPostgres { settings, layout: None, scratch, row })
    }
}
