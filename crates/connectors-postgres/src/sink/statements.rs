//! The SQL of a sink, and its marker table.

use super::columns::Layout;
use crate::PostgresError;
use crate::session::{Session, literal, quoted};

/// The temporary table from which rows are merged; a session has one.
const ROWS: &str = "pg_temp.millpond_rows";
/// Its columns besides those of the target. A name of PostgreSQL cannot be as long as the target's could be, so they do not meet.
const ORDER: &str = "\"millpond row order\"";
const GONE: &str = "\"millpond row goes\"";

/// All statements of a sink.
pub(super) struct Statements {
    /// Gets a session ready; not needed by sinks that only insert.
    pub(super) prepare: Option<String>,
    pub(super) copy: String,
    /// From the temporary table into the target.
    pub(super) merge: Vec<String>,
    pub(super) claim: String,
    pub(super) claim_again: String,
    pub(super) look: String,
    pub(super) set_marker: String,
    /// Forgets what was merged, so that more can be merged in the same transaction.
    pub(super) forget: &'static str,
}

impl Statements {
    /// `marker_table` as in SQL.
    pub(super) fn new(layout: &Layout, marker_table: &str) -> Self {
        let names: Vec<String> = layout.columns.iter().map(|column| quoted(&column.name)).collect();
        let (all, table) = (names.join(", "), &layout.table);
        let upserts = !layout.key.is_empty();
        let (prepare, copy, merge) = if upserts {
            let prepare = format!(
                "CREATE TEMPORARY TABLE millpond_rows ON COMMIT DELETE ROWS AS \
                 SELECT 0::bigint AS {ORDER}, false AS {GONE}, {all} FROM {table} WITH NO DATA"
            );
            (
                Some(prepare),
                format!("COPY {ROWS} ({ORDER}, {GONE}, {all}) FROM STDIN (FORMAT binary)"),
                merge(layout, &names),
            )
        } else {
            (None, format!("COPY {table} ({all}) FROM STDIN (FORMAT binary)"), Vec::new())
        };
        Statements {
            prepare,
            copy,
            merge,
            claim: format!(
                "INSERT INTO {marker_table} AS marker (writer, token, attempt) VALUES ($1, $2, $3) ON CONFLICT (writer) \
                 DO UPDATE SET token = excluded.token, attempt = excluded.attempt, updated_at = now() RETURNING marker.epoch"
            ),
            claim_again: format!(
                "UPDATE {marker_table} SET token = $2, updated_at = now() WHERE writer = $1 AND token = ANY ($3) RETURNING epoch"
            ),
            look: format!("SELECT 1 FROM {marker_table} WHERE writer = $1"),
            set_marker: format!(
                "UPDATE {marker_table} SET epoch = $3, updated_at = now() WHERE writer = $1 AND token = $2"
            ),
            forget: if upserts { "DELETE FROM pg_temp.millpond_rows;" } else { "" },
        }
    }
}

/// The last row of each key says whether it is put or deleted.
fn merge(layout: &Layout, names: &[String]) -> Vec<String> {
    let (table, all) = (&layout.table, names.join(", "));
    let of_key: Vec<&String> = layout.key.iter().map(|index| &names[*index]).collect();
    let key = of_key.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
    let last = format!("(SELECT DISTINCT ON ({key}) * FROM {ROWS} ORDER BY {key}, {ORDER} DESC) AS last");
    let same = of_key.iter().map(|name| format!("target.{name} = last.{name}")).collect::<Vec<_>>().join(" AND ");
    let others = names.iter().filter(|name| !of_key.contains(name));
    let set: Vec<String> = others.map(|name| format!("{name} = excluded.{name}")).collect();
    let conflict = if set.is_empty() { "NOTHING".to_owned() } else { format!("UPDATE SET {}", set.join(", ")) };
    vec![
        format!("DELETE FROM {table} AS target USING {last} WHERE last.{GONE} AND {same}"),
        format!(
            "INSERT INTO {table} ({all}) SELECT {all} FROM {last} WHERE NOT last.{GONE} ON CONFLICT ({key}) DO {conflict}"
        ),
    ]
}

/// Makes the marker table unless it is there; gives its name as it stands in SQL.
pub(super) fn marker_table(session: &Session, name: &str) -> Result<String, PostgresError> {
    const COLUMNS: &str = "writer text PRIMARY KEY, epoch bigint, token bigint NOT NULL, attempt bigint, \
                           updated_at timestamptz NOT NULL DEFAULT now()";
    table_with(session, name, COLUMNS)
}

/// Makes a table with these columns unless there is one of that name; gives its name as it stands in SQL.
pub(super) fn table_with(session: &Session, name: &str, columns: &str) -> Result<String, PostgresError> {
    const FIND: &str = "SELECT to_regclass($1)::text";
    let operation = format!("look at table {name}");
    let found = |session: &Session| -> Result<Option<String>, PostgresError> {
        Ok(session.query(&operation, FIND, &[&name])?.first().and_then(|row| row.get(0)))
    };
    if let Some(found) = found(session)? {
        return Ok(found);
    }
    // One after the other: the server does not make one table twice at the same time, it fails.
    let make = format!(
        "BEGIN; SELECT pg_advisory_xact_lock(hashtext({})); CREATE TABLE IF NOT EXISTS {name} ({columns}); COMMIT",
        literal(name)
    );
    let made = session.batch(&format!("make table {name}"), &make);
    if let Err(error) = made {
        let _ = session.batch("end a transaction", "ROLLBACK");
        return Err(error);
    }
    found(session)?.ok_or(PostgresError::NotOpen)
}
