//! PostgreSQL as the target of a logged sink: a transaction for each log, with the marker in it.
//!
//! A writer is a row of the marker table: the last epoch that was applied, and the *token* of whoever holds the name.
//! A transaction begins with setting the marker where the token is still its own, so that it waits for, or is refused by,
//! whoever takes the name; and claiming is a write of the same row, so that it waits for a transaction under way.
//!
//! The subtask that began a writer gives it up for good once another has claimed it; whoever restores its log takes it.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::SinkExt;
use millpond_core::{Attempt, Epoch, UserResult};
use millpond_operators::{EpochLog, LoggedTarget};
use tokio_postgres::Statement;
use tokio_postgres::error::Error as ClientError;
use tokio_postgres::types::ToSql;

use super::columns::{Layout, Row};
use super::refused::{Refusals, write_taken};
use super::statements::Statements;
use crate::PostgresError;
use crate::error::Classify;
use crate::session::{Connection, Session};

/// What begins a binary COPY: a signature, flags, and the length of an extension.
const COPY_HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// Bytes that are handed to the connection at once.
const CHUNK: usize = 256 << 10;

/// See the module.
pub(super) struct PostgresTarget {
    connection: Connection,
    layout: Layout,
    statements: Statements,
    refusals: Refusals,
    attempt: Attempt,
    /// How long a transaction may take.
    transaction_timeout: Duration,
    held: Option<Held>,
    name: Name,
}

/// A name that was claimed last, in this session or in one before.
#[derive(Default)]
struct Name {
    writer: String,
    /// Whether it began here, so that nobody else may ever have had it.
    began_here: bool,
    /// Everything under which it may have been claimed here.
    tokens: Vec<i64>,
}

/// A writer that is ours.
struct Held {
    session: Session,
    token: i64,
    set_marker: Statement,
}

impl PostgresTarget {
    pub(super) fn new(
        connection: Connection,
        (layout, refusals): (Layout, Refusals),
        marker_table: &str,
        attempt: Attempt,
        transaction_timeout: Duration,
    ) -> Self {
        let statements = Statements::new(&layout, marker_table);
        PostgresTarget {
            connection,
            layout,
            statements,
            refusals,
            attempt,
            transaction_timeout,
            held: None,
            name: Name::default(),
        }
    }

    fn take_over(&mut self, writer: &str) -> Result<Option<Epoch>, PostgresError> {
        self.held = None;
        if self.name.writer != writer {
            self.name = Name { writer: writer.to_owned(), ..Name::default() };
        }
        let session = self.connection.open(self.transaction_timeout)?;
        let token = RandomState::new().build_hasher().finish() as i64;
        self.name.tokens.push(token);
        let marker = if self.name.began_here {
            self.claim_again(&session, token)?
        } else {
            self.claim_from_all(&session, token)?
        };
        if let Some(prepare) = &self.statements.prepare {
            session.batch("make a temporary table", prepare)?;
        }
        let set_marker = session.call("set a marker", session.client.prepare(&self.statements.set_marker))?;
        self.held = Some(Held { session, token, set_marker });
        Ok(marker)
    }

    /// Takes the name from whoever has it.
    fn claim_from_all(&self, session: &Session, token: i64) -> Result<Option<Epoch>, PostgresError> {
        let attempt = i64::try_from(self.attempt.0).unwrap_or(i64::MAX);
        let claimed =
            session.query("claim a writer", &self.statements.claim, &[&self.name.writer, &token, &attempt])?;
        Ok(claimed.first().and_then(|row| epoch(row.get(0))))
    }

    /// Takes the name only from ourselves.
    fn claim_again(&self, session: &Session, token: i64) -> Result<Option<Epoch>, PostgresError> {
        let (writer, tokens) = (&self.name.writer, &self.name.tokens);
        let claimed = session.query("claim a writer", &self.statements.claim_again, &[writer, &token, tokens])?;
        if let Some(row) = claimed.first() {
            return Ok(epoch(row.get(0)));
        }
        match session.query("look for a writer", &self.statements.look, &[writer])?.is_empty() {
            true => Ok(None),
            false => Err(PostgresError::Fenced { writer: writer.clone() }),
        }
    }

    fn transact(&mut self, epoch: Epoch, logs: &[EpochLog]) -> Result<(), PostgresError> {
        let held = self.held.take().ok_or(PostgresError::NotOpen)?;
        let entries = logs.iter().flat_map(EpochLog::entries).map(|entry| self.layout.decode(entry));
        let rows = entries.collect::<Result<Vec<Row<'_>>, PostgresError>>()?;
        let rows = if self.layout.key.is_empty() { rows } else { last_of_each_key(rows) };
        let writing = Writing { session: &held.session, layout: &self.layout, statements: &self.statements };
        // A session in which something failed is closed, which ends its transaction; but for rows that are refused, which is certain.
        match self.run(&held, epoch, || writing.write(&rows)) {
            Err(PostgresError::Refused { .. }) => {
                held.session.batch("end a transaction", "ROLLBACK")?;
                let of = (&self.name.writer, epoch);
                let refused = self.run(&held, epoch, || write_taken(&writing, &self.refusals, of, rows))?;
                self.refusals.count(&self.layout.table, &refused);
            }
            result => result?,
        }
        self.name.began_here |= epoch == Epoch::ZERO;
        self.held = Some(held);
        Ok(())
    }

    /// A transaction with the marker.
    fn run<R>(
        &self,
        held: &Held,
        epoch: Epoch,
        write: impl FnOnce() -> Result<R, PostgresError>,
    ) -> Result<R, PostgresError> {
        let session = &held.session;
        session.batch("begin a transaction", "BEGIN")?;
        let number = i64::try_from(epoch.0).unwrap_or(i64::MAX);
        let marker: [&(dyn ToSql + Sync); 3] = [&self.name.writer, &held.token, &number];
        if session.call("set a marker", session.client.execute(&held.set_marker, &marker))? == 0 {
            let writer = self.name.writer.clone();
            return Err(match self.name.began_here {
                true => PostgresError::Fenced { writer },
                false => PostgresError::ClaimedMeanwhile { writer },
            });
        }
        let written = write()?;
        // The server may look at constraints only now.
        let refused = |error| PostgresError::write(&self.layout.table, "commit a transaction", error).uncertain();
        session.call_or("commit a transaction", refused, session.client.batch_execute("COMMIT"))?;
        Ok(written)
    }
}

/// Where rows are written to.
pub(super) struct Writing<'a> {
    pub(super) session: &'a Session,
    pub(super) layout: &'a Layout,
    statements: &'a Statements,
}

impl Writing<'_> {
    pub(super) fn write(&self, rows: &[Row<'_>]) -> Result<(), PostgresError> {
        if rows.is_empty() {
            return Ok(());
        }
        self.copy(rows)?;
        for statement in &self.statements.merge {
            let execute = self.session.client.execute(statement, &[]);
            self.session.call_or("write rows", |error| self.refused("write rows", error), execute)?;
        }
        Ok(())
    }

    /// What makes it possible to write more in the same transaction, in SQL.
    pub(super) fn forget_piece(&self) -> &'static str {
        self.statements.forget
    }

    pub(super) fn refused(&self, operation: &str, error: ClientError) -> PostgresError {
        PostgresError::write(&self.layout.table, operation, error)
    }

    /// Sends the rows to the table, or to the temporary one from which they are merged.
    fn copy(&self, rows: &[Row<'_>]) -> Result<(), PostgresError> {
        let ordered = !self.layout.key.is_empty();
        let fields = self.layout.columns.len() + if ordered { 2 } else { 0 };
        let copy = async {
            let sink = self.session.client.copy_in::<_, Bytes>(&self.statements.copy).await?;
            let mut sink = std::pin::pin!(sink);
            let mut chunk = BytesMut::with_capacity(CHUNK + 1024);
            chunk.put_slice(COPY_HEADER);
            for (place, row) in rows.iter().enumerate() {
                chunk.put_i16(fields as i16);
                if ordered {
                    chunk.put_i32(8);
                    chunk.put_i64(place as i64);
                    chunk.put_i32(1);
                    chunk.put_u8(u8::from(row.deletes));
                }
                chunk.put_slice(row.fields);
                if chunk.len() >= CHUNK {
                    sink.feed(chunk.split().freeze()).await?;
                }
            }
            chunk.put_i16(-1);
            sink.feed(chunk.freeze()).await?;
            sink.finish().await
        };
        self.session.call_or("copy rows", |error| self.refused("copy rows", error), copy).map(drop)
    }
}

/// Of each key the row that was written last. Keys are compared by their bytes; what the server calls equal in
/// spite of that, it tells apart by the order.
fn last_of_each_key(rows: Vec<Row<'_>>) -> Vec<Row<'_>> {
    let mut last: HashMap<Vec<u8>, usize> = HashMap::with_capacity(rows.len());
    let mut kept: Vec<Option<Row<'_>>> = Vec::with_capacity(rows.len());
    for mut row in rows {
        if let Some(before) = last.insert(std::mem::take(&mut row.key), kept.len()) {
            kept[before] = None;
        }
        kept.push(Some(row));
    }
    kept.into_iter().flatten().collect()
}

fn epoch(marker: Option<i64>) -> Option<Epoch> {
    marker.and_then(|epoch| u64::try_from(epoch).ok()).map(Epoch)
}

impl LoggedTarget for PostgresTarget {
    fn claim(&mut self, writer: &str) -> UserResult<Option<Epoch>> {
        self.take_over(writer).classify()
    }

    fn apply(&mut self, epoch: Epoch, logs: &[EpochLog]) -> UserResult {
        self.transact(epoch, logs).classify()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_rows_with_one_key_the_last_is_kept_in_its_place() {
        let row = |key: u8, fields: &'static [u8]| Row { deletes: false, fields, key: vec![key] };
        let kept = last_of_each_key(vec![row(1, b"a"), row(2, b"b"), row(1, b"c"), row(3, b"d"), row(1, b"e")]);
        let fields: Vec<&[u8]> = kept.iter().map(|row| row.fields).collect();
        assert_eq!(fields, [b"b", b"d", b"e"]);
    }
}
