//! What a table looks like at the server.

use tokio_postgres::types::Type;

use crate::PostgresError;
use crate::session::{Connection, Session, quoted};

/// A table as it is now.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// Schema and name, as they stand in SQL.
    pub(crate) name: String,
    pub(crate) columns: Vec<Column>,
}

/// A column as it is now.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) ty: Type,
    /// Its type as it stands in SQL, with its length.
    pub(crate) type_name: String,
    /// The most characters that it takes, where its type says so.
    pub(crate) max_chars: Option<usize>,
    pub(crate) not_null: bool,
    /// Computed by the server: cannot be written.
    pub(crate) generated: bool,
}

const FIND: &str = "SELECT c.oid, quote_ident(n.nspname) || '.' || quote_ident(c.relname) FROM pg_class c \
                    JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)";
const COLUMNS: &str = "SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), a.atttypmod, a.attnotnull, \
                       a.attgenerated <> '' OR a.attidentity = 'a' FROM pg_attribute a \
                       WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";
const KEYS: &str = "SELECT array_agg(a.attname::text ORDER BY a.attname::text) FROM pg_index i \
                    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1]) \
                    WHERE i.indrelid = to_regclass($1) AND i.indisunique AND i.indisvalid AND i.indpred IS NULL \
                    AND i.indexprs IS NULL GROUP BY i.indexrelid, i.indnkeyatts HAVING count(*) = i.indnkeyatts";

impl Table {
    /// Looks at the table called `name`, as in SQL.
    pub(crate) fn look(session: &Session, connection: &Connection, name: &str) -> Result<Table, PostgresError> {
        let operation = format!("look at table {name}");
        let found = session.query(&operation, FIND, &[&name])?;
        let Some(found) = found.first() else {
            let (server, database) = (connection.server(), connection.database());
            return Err(PostgresError::NoTable { table: name.to_owned(), database, server });
        };
        let (oid, name): (u32, String) = (found.get(0), found.get(1));
        let rows = session.query(&operation, COLUMNS, &[&oid])?;
        let names: Vec<String> = rows.iter().map(|row| quoted(row.get(0))).collect();
        let probe = format!("SELECT {} FROM {name} LIMIT 0", names.join(", "));
        let described = session.call(&operation, session.client.prepare(&probe))?;
        let columns = rows.iter().zip(described.columns()).map(|(row, described)| {
            let (ty, typmod): (Type, i32) = (described.type_().clone(), row.get(2));
            let limited = (ty == Type::VARCHAR || ty == Type::BPCHAR) && typmod > 4;
            Column {
                name: row.get(0),
                max_chars: limited.then(|| typmod as usize - 4),
                ty,
                type_name: row.get(1),
                not_null: row.get(3),
                generated: row.get(4),
            }
        });
        Ok(Table { columns: columns.collect(), name })
    }

    /// The column called `name`.
    pub(crate) fn column(&self, name: &str) -> Result<&Column, PostgresError> {
        self.columns.iter().find(|column| column.name == name).ok_or_else(|| PostgresError::NoColumn {
            table: self.name.clone(),
            column: name.to_owned(),
            present: self.columns.iter().map(|column| column.name.clone()).collect(),
        })
    }

    /// That `key` identifies a row: its columns are never null, and there is a unique index on just them.
    pub(crate) fn check_key(&self, session: &Session, key: &[String]) -> Result<(), PostgresError> {
        let no_key = |reason: &str| PostgresError::NoKey {
            table: self.name.clone(),
            columns: key.to_vec(),
            reason: reason.to_owned(),
        };
        for name in key {
            if !self.column(name)?.not_null {
                return Err(no_key(&format!("{name} may be null")));
            }
        }
        let mut wanted = key.to_vec();
        wanted.sort_unstable();
        let operation = format!("look at the indexes of table {}", self.name);
        let rows = session.query(&operation, KEYS, &[&self.name])?;
        let mut keys = rows.iter().map(|row| {
            let mut names: Vec<String> = row.get(0);
            names.sort_unstable();
            names
        });
        if keys.any(|names| names == wanted) { Ok(()) } else { Err(no_key("there is no unique index on just them")) }
    }
}
