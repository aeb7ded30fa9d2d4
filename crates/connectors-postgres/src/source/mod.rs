//! PostgreSQL as a source: the rows of tables, then their changes out of the write-ahead log.
//!
//! Owns: publications and slots, which changes were seen when the tables were read, positions, rows as values of the user's
//! types. Does *not* own: the replication protocol (`pgwire-replication`), who reads the split.
//!
//! ```text
//! slot (plan) ─► tables, in the order of their keys (copy) ─► log (log): changes not seen before (filter) ─► thread (feed) ─► reader ─► record
//! ```
//!
//! Invariants: a slot is one split; a position is the end of a transaction and how many changes of the next were emitted; the
//! server may forget only what a durable checkpoint is beyond.

mod change;
mod copy;
mod decode;
mod feed;
mod filter;
mod log;
pub mod pgoutput;
mod plan;
mod reader;
mod split;
mod visible;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millpond_core::{Data, UserResult};
use millpond_dataflow::Source;
use millpond_operators::Change;
use serde::de::DeserializeOwned;

use crate::PostgresError;
use crate::error::Classify;
use crate::session::Connection;
pub use change::{Row, RowChange, TableChange, TableShape};
pub use decode::RowError;
use feed::Shared;
pub use plan::drop_replication_slot;
use plan::{Plan, end_of_log};
pub use reader::PostgresReader;
pub use split::{PostgresSplit, TableCopy, TablePart};

/// How long the server may be away unless set otherwise.
const PATIENCE: Duration = Duration::from_secs(120);

/// What to do when a table is truncated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnTruncate {
    /// The attempt ends with an error that names the table.
    #[default]
    Fail,
    /// Nothing: rows that went stay where they were put. The log says so.
    Ignore,
}

/// Makes records of a change.
type Decode<T> = Arc<dyn Fn(TableChange, &mut Vec<T>) -> Result<(), PostgresError> + Send + Sync>;

/// What is emitted, as far as it needs something of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rows {
    Changes,
    Upserts,
    Any,
}

struct Settings {
    connection: Connection,
    publication: String,
    slot: String,
    tables: Vec<String>,
    rows: Rows,
    snapshot: bool,
    create_slot: bool,
    stops: bool,
    on_truncate: OnTruncate,
    patience: Duration,
}

impl Settings {
    /// Whether a table is one of those that are read.
    fn reads(&self, schema: &str, name: &str) -> bool {
        let is = |wanted: &String| wanted == name || *wanted == format!("{schema}.{name}");
        self.tables.is_empty() || self.tables.iter().any(is)
    }

    fn check(&self) -> Result<(), PostgresError> {
        plan::check_name(&self.slot)
    }
}

/// Reads tables of PostgreSQL and their changes, each once.
///
/// First the rows that are there, then every change, from the write-ahead log by way of a *publication* (which the
/// database's owner makes) and a *replication slot* (which the source makes). The slot keeps the log for the job also while it
/// does not run: drop it with [`drop_replication_slot`] when the job is not to run again.
///
/// Changes come in the order in which they were committed. Records have the time of their commit as event time.
///
/// ```
/// use millpond_connectors_postgres::PostgresSource;
/// #[derive(Clone, serde::Serialize, serde::Deserialize)]
/// struct Order { id: i64, customer: i64, cents: i64 }
/// let orders = PostgresSource::changes::<Order>("postgresql://user:secret@localhost/shop", "shop_changes", "totals_job");
/// # let _ = orders;
/// ```
#[must_use]
pub struct PostgresSource<T> {
    settings: Settings,
    decode: Decode<T>,
    running: Option<(Arc<Settings>, Arc<Shared>)>,
}

impl PostgresSource<()> {
    /// Rows that come and go, as a changelog stream. The tables need `REPLICA IDENTITY FULL`, so that rows that go are told
    /// whole. A row is a struct with the names of columns, or a tuple.
    pub fn changes<T: Data + DeserializeOwned>(url: &str, publication: &str, slot: &str) -> PostgresSource<Change<T>> {
        PostgresSource::new(url, publication, slot, Rows::Changes, Arc::new(changes))
    }

    /// For each change the primary key and the row that it has then; `None` when it has none. A key is a value, or a tuple, or a
    /// struct of the key's columns.
    pub fn upserts<K, T>(url: &str, publication: &str, slot: &str) -> PostgresSource<(K, Option<T>)>
    where
        K: Data + DeserializeOwned,
        T: Data + DeserializeOwned,
    {
        PostgresSource::new(url, publication, slot, Rows::Upserts, Arc::new(upserts))
    }

    /// What `decode` makes of changes, also of several tables.
    pub fn with<T: Data>(
        url: &str,
        publication: &str,
        slot: &str,
        decode: impl Fn(&TableChange) -> UserResult<Option<T>> + Send + Sync + 'static,
    ) -> PostgresSource<T> {
        let decode = move |change: TableChange, records: &mut Vec<T>| {
            let decoded = decode(&change);
            let record = decoded.map_err(|error| bad_row(&change, millpond_core::error::chain(error.as_ref())))?;
            records.extend(record);
            Ok(())
        };
        PostgresSource::new(url, publication, slot, Rows::Any, Arc::new(decode))
    }
}

impl<T: Data> PostgresSource<T> {
    fn new(url: &str, publication: &str, slot: &str, rows: Rows, decode: Decode<T>) -> Self {
        let settings = Settings {
            connection: Connection::new(url),
            publication: publication.to_owned(),
            slot: slot.to_owned(),
            tables: Vec::new(),
            rows,
            snapshot: true,
            create_slot: true,
            stops: false,
            on_truncate: OnTruncate::Fail,
            patience: PATIENCE,
        };
        PostgresSource { settings, decode, running: None }
    }

    /// Reads this table of the publication, `orders` or `shop.orders`, and others that are named so; all of them unless called.
    pub fn table(mut self, name: &str) -> Self {
        self.settings.tables.push(name.to_owned());
        self
    }

    /// Begins with changes that are committed after the slot was made, instead of the rows that are there.
    pub fn without_snapshot(mut self) -> Self {
        self.settings.snapshot = false;
        self
    }

    /// Whether the source makes the slot when there is none and no checkpoint says where to go on; true unless set.
    pub fn create_slot(mut self, create: bool) -> Self {
        self.settings.create_slot = create;
        self
    }

    /// Makes the source a bounded one: it ends with what was committed when it started.
    pub fn stop_at_latest(mut self) -> Self {
        self.settings.stops = true;
        self
    }

    /// What to do when a table is truncated; [`OnTruncate::Fail`] unless set.
    pub fn on_truncate(mut self, on_truncate: OnTruncate) -> Self {
        self.settings.on_truncate = on_truncate;
        self
    }

    /// How long the server may be away before the attempt ends; 2 min unless set.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.settings.patience = patience;
        self
    }

    /// How long a contact with the server may take, and how long a slot that is in use is waited for; 10 s unless set.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.settings.connection.deadline = deadline;
        self
    }

    fn first(&self) -> Result<PostgresSplit, PostgresError> {
        let session = self.settings.connection.open(self.settings.connection.deadline)?;
        Plan::look(&session, &self.settings)?;
        let stop = if self.settings.stops { Some(end_of_log(&session)?) } else { None };
        Ok(PostgresSplit { slot: self.settings.slot.clone(), position: 0, skip: 0, stop, tables: Vec::new() })
    }
}

impl<T: Data> Source for PostgresSource<T> {
    type Record = T;
    type Split = PostgresSplit;
    type Reader = PostgresReader<T>;

    fn enumerate(&mut self) -> UserResult<Vec<PostgresSplit>> {
        self.first().map(|split| vec![split]).classify()
    }

    fn open_split(&mut self, split: PostgresSplit) -> UserResult<PostgresReader<T>> {
        let Settings { ref publication, ref slot, ref tables, .. } = self.settings;
        let settings = Arc::new(Settings {
            connection: self.settings.connection.clone(),
            publication: publication.clone(),
            slot: slot.clone(),
            tables: tables.clone(),
            ..self.settings
        });
        if split.slot != *slot {
            let reason = format!("the checkpoint has read slot {}, not {slot}", split.slot);
            return Err(PostgresError::OtherSlot { slot: slot.clone(), reason }).classify();
        }
        let shared = Arc::new(Shared::default());
        self.running = Some((Arc::clone(&settings), Arc::clone(&shared)));
        PostgresReader::open(split, settings, shared, Arc::clone(&self.decode)).classify()
    }

    fn wants_progress(&self) -> bool {
        true
    }

    fn progress(&mut self, splits: Vec<PostgresSplit>) -> UserResult {
        let Some((_, shared)) = &self.running else { return Ok(()) };
        for split in splits {
            shared.durable.fetch_max(split.position, Ordering::Relaxed);
        }
        Ok(())
    }
}

fn bad_row(change: &TableChange, cause: String) -> PostgresError {
    let table = change.row().table.full_name();
    PostgresError::BadRow { table, position: split::shown(change.position), cause }
}

fn of_row(change: &TableChange, error: RowError) -> PostgresError {
    match error.unchanged {
        Some(column) => {
            let table = change.row().table.full_name();
            PostgresError::Unchanged { table, column, position: split::shown(change.position) }
        }
        None => bad_row(change, error.to_string()),
    }
}

/// The old row must be whole, the table may have been altered meanwhile.
fn whole_old(change: &TableChange) -> Result<(), PostgresError> {
    if change.whole_old {
        return Ok(());
    }
    let table = change.row().table.full_name();
    let wanted = format!("changes need whole rows: ALTER TABLE {table} REPLICA IDENTITY FULL");
    Err(PostgresError::Identity { table, found: "other than full", wanted })
}

fn changes<T: DeserializeOwned>(change: TableChange, records: &mut Vec<Change<T>>) -> Result<(), PostgresError> {
    let decode = |row: &Row| row.decode::<T>().map_err(|error| of_row(&change, error));
    match &change.change {
        RowChange::Insert { new } => records.push(Change::insert(decode(new)?)),
        RowChange::Delete { old } => {
            whole_old(&change)?;
            records.push(Change::delete(decode(old)?));
        }
        RowChange::Update { old, new } => {
            whole_old(&change)?;
            if let Some(old) = old {
                records.push(Change::update_before(decode(old)?));
            }
            records.push(Change::update_after(decode(new)?));
        }
    }
    Ok(())
}

fn upserts<K, T>(change: TableChange, records: &mut Vec<(K, Option<T>)>) -> Result<(), PostgresError>
where
    K: DeserializeOwned,
    T: DeserializeOwned,
{
    let key = |row: &Row| row.decode_key::<K>().map_err(|error| of_row(&change, error));
    match &change.change {
        RowChange::Delete { old } => records.push((key(old)?, None)),
        RowChange::Insert { new } | RowChange::Update { new, .. } => {
            if let RowChange::Update { old: Some(old), .. } = &change.change
                && old.key() != new.key()
            {
                records.push((key(old)?, None));
            }
            let row = new.decode::<T>().map_err(|error| of_row(&change, error))?;
            records.push((key(new)?, Some(row)));
        }
    }
    Ok(())
}
