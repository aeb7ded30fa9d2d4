//! What can go wrong between Millpond and PostgreSQL, and what to do next.

use std::error::Error as _;

use millpond_core::error::Classified;
use millpond_core::{ErrorKind, UserError, UserResult};
use tokio_postgres::error::{Error as ClientError, SqlState};

/// A PostgreSQL source or sink that cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    /// A setting that cannot be used.
    #[error("setting {setting} is invalid: {reason}")]
    Setting {
        /// Which one.
        setting: String,
        /// Which rule it breaks.
        reason: String,
    },
    /// The server does not answer.
    #[error("{server} does not answer within {waited_ms} ms{}", because(reason))]
    Unreachable {
        /// Host and port.
        server: String,
        /// How long was waited.
        waited_ms: u128,
        /// What was seen last, if anything.
        reason: String,
    },
    /// The server does not accept who we say we are.
    #[error("{server} refuses the credentials{}", because(reason))]
    Credentials {
        /// Host and port.
        server: String,
        /// What it said.
        reason: String,
    },
    /// A database that is not there.
    #[error("database {database} does not exist at {server}")]
    NoDatabase {
        /// The database.
        database: String,
        /// Host and port.
        server: String,
    },
    /// One side wants TLS and the other does not.
    #[error("cannot agree with {server} on TLS (setting sslmode){}", because(reason))]
    Tls {
        /// Host and port.
        server: String,
        /// What was seen.
        reason: String,
    },
    /// We may not do this.
    #[error("not permitted: cannot {operation}{}", because(reason))]
    NotPermitted {
        /// What was tried.
        operation: String,
        /// What the server said.
        reason: String,
    },
    /// A table that is not there.
    #[error("table {table} does not exist in database {database} at {server}")]
    NoTable {
        /// The table, as it was named.
        table: String,
        /// The database.
        database: String,
        /// Host and port.
        server: String,
    },
    /// A column that is not there.
    #[error("table {table} has no column {column}; it has {}", present.join(", "))]
    NoColumn {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// The columns that it has.
        present: Vec<String>,
    },
    /// A column whose type is not that of its values.
    #[error("column {column} of table {table} has type {found}, which {value} cannot be")]
    ColumnType {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// Its type.
        found: String,
        /// The type of the values.
        value: String,
    },
    /// Columns that cannot be the key of upserts.
    #[error("columns {} of table {table} cannot be a key: {reason}", columns.join(", "))]
    NoKey {
        /// The table.
        table: String,
        /// The columns.
        columns: Vec<String>,
        /// Why not.
        reason: String,
    },
    /// A record that cannot be made a row.
    #[error("cannot make a row of table {table} of a record: column {column}")]
    Encode {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// What is wrong with the value.
        source: UserError,
    },
    /// A row that the table does not take.
    #[error("table {table} refuses a row{}{}", which(row.as_deref(), constraint.as_deref()), because(reason))]
    Refused {
        /// The table.
        table: String,
        /// The constraint that it breaks, where the server names one.
        constraint: Option<String>,
        /// The values of its key, or all of them where it has none.
        row: Option<String>,
        /// What the server said.
        reason: String,
    },
    /// A table that was altered, so that no row fits it.
    #[error("table {table} does not take rows any more{}", because(reason))]
    Altered {
        /// The table.
        table: String,
        /// What the server said.
        reason: String,
    },
    /// A stored entry that is none.
    #[error("an entry of the log of a sink, {bytes} bytes, cannot be read")]
    Entry {
        /// Its size.
        bytes: usize,
    },
    /// Output of a checkpoint that was made for other columns than the sink has now.
    #[error(
        "the checkpoint holds output for table {table} that was made for other columns, types or keys: let the job that made it \
         write it first, or stop it with `stop`"
    )]
    OtherColumns {
        /// The table of the sink.
        table: String,
    },
    /// A newer attempt has taken the place of this one.
    #[error("writer {writer} was taken over by a newer attempt")]
    Fenced {
        /// The writer.
        writer: String,
    },
    /// Another attempt has taken the name of a former writer while its output was applied.
    #[error("writer {writer} was claimed by another attempt meanwhile")]
    ClaimedMeanwhile {
        /// The writer.
        writer: String,
    },
    /// A server that does not log what replication needs.
    #[error("{server} has wal_level {found}, logical replication needs wal_level logical")]
    WalLevel {
        /// Host and port.
        server: String,
        /// The level.
        found: String,
    },
    /// A publication that is not there, or publishes no table.
    #[error("publication {publication} in database {database} at {server} {reason}")]
    Publication {
        /// The publication.
        publication: String,
        /// The database.
        database: String,
        /// Host and port.
        server: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A replication slot that is not there.
    #[error("replication slot {slot} does not exist at {server}: changes since {position} are gone for this job{hint}")]
    NoSlot {
        /// The slot.
        slot: String,
        /// Host and port.
        server: String,
        /// Where the job would have gone on, if it had begun.
        position: String,
        /// What to do.
        hint: &'static str,
    },
    /// A replication slot that is for something else.
    #[error("replication slot {slot} cannot be used: {reason}")]
    OtherSlot {
        /// The slot.
        slot: String,
        /// Why not.
        reason: String,
    },
    /// A replication slot that somebody else reads.
    #[error("replication slot {slot} is in use by process {pid} of the server for {waited_ms} ms")]
    SlotInUse {
        /// The slot.
        slot: String,
        /// The server's process that reads it.
        pid: i32,
        /// How long was waited.
        waited_ms: u128,
    },
    /// What a slot should have kept was removed.
    #[error(
        "replication slot {slot} has lost the write-ahead log that it needs (max_slot_wal_keep_size): the job cannot go on from {position}"
    )]
    SlotLost {
        /// The slot.
        slot: String,
        /// Where the job would have gone on.
        position: String,
    },
    /// A slot that is ahead of the checkpoint.
    #[error(
        "replication slot {slot} was read up to {confirmed}, beyond {position} where the checkpoint goes on: what lies between is gone"
    )]
    SlotAhead {
        /// The slot.
        slot: String,
        /// Where the checkpoint goes on.
        position: String,
        /// What was confirmed.
        confirmed: String,
    },
    /// A table whose changes do not tell what the source is to emit.
    #[error("table {table} has replica identity {found}, but {wanted}")]
    Identity {
        /// The table.
        table: String,
        /// Its replica identity.
        found: &'static str,
        /// What is needed, and how to get it.
        wanted: String,
    },
    /// A table without a primary key.
    #[error("table {table} has no primary key, which reading it at the start needs; see without_snapshot")]
    NoPrimaryKey {
        /// The table.
        table: String,
    },
    /// A change that cannot be decoded into a record.
    #[error("bad row of table {table} at {position}: {cause}")]
    BadRow {
        /// The table.
        table: String,
        /// Where in the log.
        position: String,
        /// What is wrong with it.
        cause: String,
    },
    /// A change without a value that was too large to be repeated and did not change.
    #[error(
        "an update of table {table} at {position} leaves out column {column}, which is stored out of line and did not change: \
         set REPLICA IDENTITY FULL"
    )]
    Unchanged {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// Where in the log.
        position: String,
    },
    /// A table that was emptied at once.
    #[error("table {table} was truncated at {position}: the rows that went are not told; see on_truncate")]
    Truncated {
        /// The table.
        table: String,
        /// Where in the log.
        position: String,
    },
    /// Bytes of the replication stream that make no sense.
    #[error("the replication stream cannot be read: {what} at byte {at} of a message of {bytes} bytes")]
    Stream {
        /// What was expected.
        what: &'static str,
        /// Where.
        at: usize,
        /// The size of the message.
        bytes: usize,
    },
    /// The replication connection broke, or was refused.
    #[error("replication from {server} ended{}", because(reason))]
    Replication {
        /// Host and port.
        server: String,
        /// What was said.
        reason: String,
    },
    /// A call that failed.
    #[error("cannot {operation}{}", because(reason))]
    Call {
        /// What was tried.
        operation: String,
        /// What the server or the connection said.
        reason: String,
        /// Whether it may have happened nevertheless.
        uncertain: bool,
        /// What the client said.
        source: ClientError,
    },
    /// A call that was not answered.
    #[error("cannot {operation}: no answer within {waited_ms} ms")]
    TimedOut {
        /// What was tried.
        operation: String,
        /// How long was waited.
        waited_ms: u128,
    },
    /// The system refused a thread or a socket.
    #[error("cannot start the connection's runtime")]
    Runtime {
        /// What it said.
        source: std::io::Error,
    },
    /// Used before it was opened.
    #[error("the connection is not open")]
    NotOpen,
}

fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

fn which(row: Option<&str>, constraint: Option<&str>) -> String {
    let row = row.map(|row| format!(" with {row}")).unwrap_or_default();
    row + &constraint.map(|constraint| format!(" (constraint {constraint})")).unwrap_or_default()
}

impl PostgresError {
    /// What to do next.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            PostgresError::Setting { .. }
            | PostgresError::Credentials { .. }
            | PostgresError::NoDatabase { .. }
            | PostgresError::Tls { .. }
            | PostgresError::NotPermitted { .. }
            | PostgresError::NoTable { .. }
            | PostgresError::NoColumn { .. }
            | PostgresError::ColumnType { .. }
            | PostgresError::NoKey { .. }
            | PostgresError::Encode { .. }
            | PostgresError::Refused { .. }
            | PostgresError::Altered { .. }
            | PostgresError::OtherColumns { .. }
            | PostgresError::WalLevel { .. }
            | PostgresError::Publication { .. }
            | PostgresError::NoSlot { .. }
            | PostgresError::OtherSlot { .. }
            | PostgresError::SlotLost { .. }
            | PostgresError::SlotAhead { .. }
            | PostgresError::Identity { .. }
            | PostgresError::NoPrimaryKey { .. }
            | PostgresError::BadRow { .. }
            | PostgresError::Unchanged { .. }
            | PostgresError::Truncated { .. } => ErrorKind::Invalid,
            PostgresError::Unreachable { .. }
            | PostgresError::ClaimedMeanwhile { .. }
            | PostgresError::SlotInUse { .. }
            | PostgresError::Replication { .. }
            | PostgresError::Runtime { .. }
            | PostgresError::Call { uncertain: false, .. } => ErrorKind::Unavailable,
            PostgresError::Call { uncertain: true, .. } | PostgresError::TimedOut { .. } => ErrorKind::Uncertain,
            PostgresError::Fenced { .. } => ErrorKind::Fenced,
            PostgresError::Entry { .. } | PostgresError::Stream { .. } => ErrorKind::Corrupt,
            PostgresError::NotOpen => ErrorKind::Bug,
        }
    }

    /// The error of a call, by what it means to the caller.
    pub(crate) fn call(operation: impl Into<String>, source: ClientError) -> Self {
        let (operation, reason) = (operation.into(), words(&source));
        match source.code() {
            Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => {
                PostgresError::NotPermitted { operation, reason }
            }
            _ => PostgresError::Call { operation, reason, uncertain: false, source },
        }
    }

    /// The error of a call that writes rows: what the table refuses is refused for good.
    pub(crate) fn write(table: &str, operation: &str, source: ClientError) -> Self {
        let (table, reason) = (table.to_owned(), words(&source));
        match source.code().map(SqlState::code) {
            // The bytes do not fit the columns, or the statement the table: that is not the row's fault.
            Some("22P03" | "22P04") => PostgresError::Altered { table, reason },
            Some(code) if code.starts_with("42") && code != "42501" => PostgresError::Altered { table, reason },
            // Data exceptions, violated constraints, limits of an index, exceptions of triggers, and conditions of views.
            Some(code)
                if code.starts_with("22") || code.starts_with("23") || ["54000", "P0001", "44000"].contains(&code) =>
            {
                let constraint = source.as_db_error().and_then(|error| error.constraint()).map(str::to_owned);
                PostgresError::Refused { table, constraint, row: None, reason }
            }
            _ => PostgresError::call(operation, source),
        }
    }

    /// The same, for a call that may have had its effect.
    pub(crate) fn uncertain(self) -> Self {
        match self {
            PostgresError::Call { operation, reason, source, .. } => {
                PostgresError::Call { operation, reason, uncertain: true, source }
            }
            other => other,
        }
    }
}

/// What the server said, in one line; else what the client saw.
pub(crate) fn words(error: &ClientError) -> String {
    let Some(server) = error.as_db_error() else {
        return error.source().map_or_else(|| error.to_string(), ToString::to_string);
    };
    let mut words = server.message().to_owned();
    for more in [server.detail(), server.where_()].into_iter().flatten() {
        words.push_str("; ");
        words.push_str(&more.replace('\n', " "));
    }
    words
}

/// What connectors return to whoever runs them: an error that says whether another attempt makes sense.
pub(crate) trait Classify<T> {
    /// Boxes the error together with its class.
    fn classify(self) -> UserResult<T>;
}

impl<T> Classify<T> for Result<T, PostgresError> {
    fn classify(self) -> UserResult<T> {
        self.map_err(|error| Classified::new(error.kind(), error).into())
    }
}
