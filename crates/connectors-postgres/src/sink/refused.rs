//! Rows that the table does not take: which they are, and what becomes of them.
//!
//! A transaction with such a row fails as a whole. It is begun again, and its rows are written in pieces, each behind a savepoint: a
//! piece that is refused is halved until the rows are found. All others are written as if they had come alone, and what
//! becomes of the rows that are left is decided in the same transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millpond_core::Epoch;
use tokio_postgres::types::{Json, ToSql};

use super::columns::{Layout, Row};
use super::target::Writing;
use crate::PostgresError;
use crate::session::{Connection, Session};
use crate::table::Table;

/// What becomes of a row that its table never takes: it breaks a constraint, a value is out of range, a trigger raises an exception.
///
/// Such a row is found when the checkpoint of its epoch is complete, so that the job cannot go on without a decision: with
/// [`RefusedRows::Fail`] it does not start again before the table takes the row, or another policy is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RefusedRows {
    /// The job ends with an error that names table, constraint and row.
    #[default]
    Fail,
    /// It is left out and counted, see [`super::PostgresSink::refused_row_counter`]; the first, second, fourth, eighth… is logged as
    /// a warning. With a key, the table keeps the row that it had.
    SkipAndCount,
    /// It goes into this table, named as in SQL, in the same transaction as the rows that are taken; it is counted, too.
    /// The table is made unless it is there.
    DeadLetter(String),
}

/// Counts refused rows. Clones count together, over all workers and attempts in the process; rows of a transaction
/// whose outcome was never heard are not counted.
#[derive(Clone, Debug, Default)]
pub struct RefusedRowCounter {
    count: Arc<AtomicU64>,
}

impl RefusedRowCounter {
    /// A counter at 0.
    #[must_use]
    pub fn new() -> Self {
        RefusedRowCounter::default()
    }

    /// Number of rows refused so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    fn count_one(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// The columns of a table of dead letters, in SQL.
const COLUMNS: &str = "at timestamptz NOT NULL DEFAULT now(), table_name text NOT NULL, deletes boolean NOT NULL, row jsonb NOT NULL, \
                       reason text NOT NULL, constraint_name text, writer text NOT NULL, epoch bigint NOT NULL";
const NAMES: [&str; 7] = ["table_name", "deletes", "row", "reason", "constraint_name", "writer", "epoch"];

/// What a sink does with refused rows.
#[derive(Clone)]
pub(super) struct Refusals {
    policy: Policy,
    counter: RefusedRowCounter,
}

#[derive(Clone)]
enum Policy {
    Fail,
    Skip,
    /// The statement that writes a letter, and its table.
    DeadLetter(String, String),
}

impl Refusals {
    /// Makes the table of dead letters if there is to be one.
    pub(super) fn open(
        session: &Session,
        connection: &Connection,
        (rows, counter): (&RefusedRows, &RefusedRowCounter),
        layout: &Layout,
    ) -> Result<Refusals, PostgresError> {
        let policy = match rows {
            RefusedRows::Fail => Policy::Fail,
            RefusedRows::SkipAndCount => Policy::Skip,
            RefusedRows::DeadLetter(name) => {
                let name = super::statements::table_with(session, name, COLUMNS)?;
                let table = Table::look(session, connection, &name)?;
                if table.name == layout.table {
                    let reason = format!("{} is the table of the sink itself", table.name);
                    return Err(PostgresError::Setting { setting: "refused_rows".to_owned(), reason });
                }
                for column in NAMES {
                    table.column(column)?;
                }
                let names = NAMES.join(", ");
                let insert = format!("INSERT INTO {} ({names}) VALUES ($1, $2, $3, $4, $5, $6, $7)", table.name);
                Policy::DeadLetter(insert, table.name)
            }
        };
        Ok(Refusals { policy, counter: counter.clone() })
    }

    /// Does what the policy says, inside the transaction.
    fn settle(
        &self,
        writing: &Writing<'_>,
        (writer, epoch): (&String, Epoch),
        refused: &[Refused<'_>],
    ) -> Result<(), PostgresError> {
        let Policy::DeadLetter(insert, table) = &self.policy else { return Ok(()) };
        if refused.is_empty() {
            return Ok(());
        }
        let (session, layout) = (writing.session, writing.layout);
        let operation = format!("write to table {table}");
        let insert = session.call(&operation, session.client.prepare(insert))?;
        let epoch = i64::try_from(epoch.0).unwrap_or(i64::MAX);
        for Refused { row, reason, constraint } in refused {
            let values = Json(layout.shown(row));
            let letter: [&(dyn ToSql + Sync); 7] =
                [&layout.table, &row.deletes, &values, reason, constraint, writer, &epoch];
            let written = session.client.execute(&insert, &letter);
            session.call_or(&operation, |error| PostgresError::write(table, &operation, error), written)?;
        }
        Ok(())
    }

    /// Once the transaction is over.
    pub(super) fn count(&self, table: &str, reasons: &[String]) {
        for reason in reasons {
            let count = self.counter.count_one();
            if count.is_power_of_two() {
                let kept = matches!(self.policy, Policy::DeadLetter(..));
                tracing::warn!(table, reason, count, kept, "a table refused a row");
            }
        }
    }
}

/// A row that is not taken, and why.
struct Refused<'a> {
    row: Row<'a>,
    reason: String,
    constraint: Option<String>,
}

/// Writes all rows that the table takes; gives the reasons of the others. With [`RefusedRows::Fail`] the first of them is the error.
pub(super) fn write_taken(
    writing: &Writing<'_>,
    refusals: &Refusals,
    of: (&String, Epoch),
    rows: Vec<Row<'_>>,
) -> Result<Vec<String>, PostgresError> {
    let mut sieve = Sieve { writing, fails: matches!(refusals.policy, Policy::Fail), refused: Vec::new() };
    sieve.pass(&rows)?;
    // What refers to rows that came after it is right by now.
    let (writing, again) = (sieve.writing, std::mem::take(&mut sieve.refused));
    for refused in &again {
        sieve.pass(std::slice::from_ref(&refused.row))?;
    }
    refusals.settle(writing, of, &sieve.refused)?;
    Ok(sieve.refused.into_iter().map(|refused| refused.reason).collect())
}

struct Sieve<'a, 'b> {
    writing: &'b Writing<'b>,
    fails: bool,
    refused: Vec<Refused<'a>>,
}

impl<'a> Sieve<'a, '_> {
    fn pass(&mut self, rows: &[Row<'a>]) -> Result<(), PostgresError> {
        if rows.is_empty() {
            return Ok(());
        }
        match (self.try_piece(rows), rows) {
            (Err(PostgresError::Refused { table, constraint, reason, .. }), [row]) => {
                if self.fails {
                    let row = Some(self.writing.layout.named(row));
                    return Err(PostgresError::Refused { table, constraint, row, reason });
                }
                self.refused.push(Refused { row: row.clone(), reason, constraint });
                Ok(())
            }
            (Err(PostgresError::Refused { .. }), rows) => {
                let (first, rest) = rows.split_at(rows.len() / 2);
                self.pass(first)?;
                self.pass(rest)
            }
            (result, _) => result,
        }
    }

    /// All of these rows or none; constraints that are looked at when the transaction ends are looked at now.
    fn try_piece(&self, rows: &[Row<'a>]) -> Result<(), PostgresError> {
        let session = self.writing.session;
        let check = || {
            session.batch("set a savepoint", "SAVEPOINT millpond_checked")?;
            let check = session.client.batch_execute("SET CONSTRAINTS ALL IMMEDIATE");
            session.call_or("check rows", |error| self.writing.refused("check rows", error), check)?;
            // They are as they were for what comes after.
            session.batch("end a savepoint", "ROLLBACK TO SAVEPOINT millpond_checked")
        };
        session.batch("set a savepoint", "SAVEPOINT millpond_piece")?;
        let written = self.writing.write(rows).and_then(|()| check());
        let end = match &written {
            Ok(()) => self.writing.forget_piece().to_owned() + "RELEASE SAVEPOINT millpond_piece",
            Err(PostgresError::Refused { .. }) => {
                "ROLLBACK TO SAVEPOINT millpond_piece; RELEASE SAVEPOINT millpond_piece".to_owned()
            }
            Err(_) => return written,
        };
        session.batch("end a savepoint", &end)?;
        written
    }
}
