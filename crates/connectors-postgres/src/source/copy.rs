//! Reads the tables themselves, before the log is followed.
//!
//! All tables are read by one transaction that sees one state of the database, each in the order of its primary key. What that
//! transaction saw is part of the position, until the log is beyond it: a change in the log counts only if it was not seen
//! (`filter`). When reading is interrupted, another transaction, which sees more, goes on behind the last key.

use std::sync::Arc;

use tokio_postgres::SimpleQueryMessage;

use super::change::{Row, RowChange, TableShape};
use super::feed::Feed;
use super::pgoutput::Cell;
use super::plan::{Plan, PlannedTable, end_of_log};
use super::split::{Item, TablePart, inserted};
use crate::PostgresError;
use crate::session::{Session, literal, quoted};

/// Rows that are fetched at once.
const FETCH: usize = 1_000;

/// Reads what is left of the tables; false when the reader has gone.
pub(super) fn read(feed: &mut Feed, session: &Session, plan: &Plan) -> Result<bool, PostgresError> {
    const SEEN: &str = "SELECT pg_current_snapshot()::text, (extract(epoch FROM now()) * 1000)::bigint";
    let begin = "SET idle_in_transaction_session_timeout = 0; BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
    session.batch("begin to read tables", begin)?;
    let seen = session.query("begin to read tables", SEEN, &[])?;
    let (snapshot, time_ms): (String, i64) = seen.first().map(|row| (row.get(0), row.get(1))).unwrap_or_default();
    // Later than the snapshot, so that whatever is committed at or after it was not seen.
    let seen_before = end_of_log(session)?;
    let mut split = feed.split.clone();
    for table in split.tables.iter_mut().filter(|table| !table.whole) {
        // One that emitted nothing says nothing.
        if table.parts.last().is_some_and(|part| part.up_to.is_empty()) {
            table.parts.pop();
        }
        table.parts.push(TablePart { snapshot: snapshot.clone(), seen_before, up_to: Vec::new() });
    }
    feed.push(Item::At(Box::new(split)));
    for at in 0..feed.split.tables.len() {
        let copied = &feed.split.tables[at];
        if copied.whole {
            continue;
        }
        let Some(place) = plan.place(&copied.schema, &copied.name) else {
            return Err(PostgresError::NoTable {
                table: format!("{}.{}", copied.schema, copied.name),
                database: feed.settings.connection.database(),
                server: feed.settings.connection.server(),
            });
        };
        if !read_table(feed, session, &plan.tables[place], at, (time_ms, seen_before))? {
            return Ok(false);
        }
        let mut split = feed.split.clone();
        split.tables[at].whole = true;
        feed.push(Item::At(Box::new(split)));
    }
    session.batch("end reading tables", "COMMIT")?;
    feed.flush_waiting()
}

fn read_table(
    feed: &mut Feed,
    session: &Session,
    table: &PlannedTable,
    at: usize,
    (time_ms, position): (i64, u64),
) -> Result<bool, PostgresError> {
    let operation = format!("read table {}", table.full_name());
    // Of the parts before the last, which has none yet.
    let up_to = feed.split.tables[at].parts.iter().rev().find(|part| !part.up_to.is_empty());
    let query = query(table, up_to.map(|part| part.up_to.as_slice()));
    session.batch(&operation, &format!("DECLARE millpond_rows NO SCROLL CURSOR FOR {query}"))?;
    let shape = Arc::new(TableShape {
        schema: table.schema.clone(),
        name: table.name.clone(),
        columns: table.columns.iter().map(|column| (column.name.clone(), column.ty)).collect(),
        key: table.key.clone(),
    });
    let fetch = format!("FETCH {FETCH} FROM millpond_rows");
    loop {
        let messages = session.call(&operation, session.client.simple_query(&fetch))?;
        let mut rows = 0;
        for message in messages {
            let SimpleQueryMessage::Row(found) = message else { continue };
            rows += 1;
            let cell = |at| found.get(at).map_or(Cell::Null, |text: &str| Cell::Text(text.to_owned()));
            let new = Row { table: Arc::clone(&shape), cells: (0..shape.columns.len()).map(cell).collect() };
            let key = new.key().ok_or_else(|| PostgresError::NoPrimaryKey { table: table.full_name() })?;
            feed.push(Item::There(at, key, inserted(RowChange::Insert { new }, time_ms, position)));
        }
        if !feed.flush_waiting()? {
            return Ok(false);
        }
        if rows < FETCH {
            session.batch(&operation, "CLOSE millpond_rows")?;
            return Ok(true);
        }
    }
}

/// The published rows of a table that come after a key, in the order of the key.
fn query(table: &PlannedTable, after: Option<&[String]>) -> String {
    let name = |at: &usize| quoted(&table.columns[*at].name);
    let all: Vec<String> = (0..table.columns.len()).map(|at| name(&at)).collect();
    let key: Vec<String> = table.key.iter().map(name).collect();
    let mut conditions = Vec::new();
    if let Some(after) = after {
        let values = table.key.iter().zip(after).map(|(at, text)| typed(text, &table.columns[*at].type_name));
        conditions.push(format!("({}) > ({})", key.join(", "), values.collect::<Vec<_>>().join(", ")));
    }
    if let Some(filter) = &table.filter {
        conditions.push(format!("({filter})"));
    }
    let condition = if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) };
    format!("SELECT {} FROM {}{condition} ORDER BY {}", all.join(", "), table.in_sql(), key.join(", "))
}

/// A value in SQL.
pub(super) fn typed(text: &str, type_name: &str) -> String {
    format!("CAST({} AS {type_name})", literal(text))
}
