//! A change of a row, as the user's function sees it, and rows as values of the user's types.

use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::decode::{RowError, deserialize};
use super::pgoutput::Cell;

/// The table of a row: its name, and its columns as they were when the row was written.
#[derive(Debug, PartialEq, Eq)]
pub struct TableShape {
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// Names of its columns, and the ids of their types.
    pub(crate) columns: Vec<(String, u32)>,
    /// Indexes of the columns of its primary key.
    pub(crate) key: Vec<usize>,
}

impl TableShape {
    /// Schema and name.
    pub(crate) fn full_name(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub(crate) table: Arc<TableShape>,
    pub(crate) cells: Vec<Cell>,
}

impl Row {
    /// The text of a value; `None` when it is null, is not told, or there is no such column.
    #[must_use]
    pub fn get(&self, column: &str) -> Option<&str> {
        let at = self.table.columns.iter().position(|(name, _)| name == column)?;
        match self.cells.get(at)? {
            Cell::Text(text) => Some(text),
            Cell::Null | Cell::Unchanged => None,
        }
    }

    /// The row as a value: structs and maps by the names of columns, tuples by their order, a single column as it is. Numbers, booleans
    /// and texts are read from what PostgreSQL writes, `json` and `jsonb` as what they hold, all other types as texts; null as
    /// `None`.
    ///
    /// # Errors
    /// When a value does not fit, is missing, or was left out because it is large and did not change.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, RowError> {
        let columns = self.table.columns.iter().zip(&self.cells);
        deserialize(columns.map(|((name, ty), cell)| (name.as_str(), *ty, cell)).collect())
    }

    /// The values of the primary key as a value; see [`Row::decode`].
    ///
    /// # Errors
    /// As [`Row::decode`].
    pub fn decode_key<T: DeserializeOwned>(&self) -> Result<T, RowError> {
        let columns = self.table.key.iter().filter_map(|at| {
            let ((name, ty), cell) = (self.table.columns.get(*at)?, self.cells.get(*at)?);
            Some((name.as_str(), *ty, cell))
        });
        deserialize(columns.collect())
    }

    /// The texts of the primary key.
    pub(crate) fn key(&self) -> Option<Vec<String>> {
        let texts = self.table.key.iter().map(|at| match self.cells.get(*at) {
            Some(Cell::Text(text)) => Some(text.clone()),
            _ => None,
        });
        texts.collect()
    }
}

/// What happened to a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowChange {
    /// It was there when the source began, or was inserted.
    Insert {
        /// The row.
        new: Row,
    },
    /// It was updated.
    Update {
        /// The row before: all of it with `REPLICA IDENTITY FULL`, else its key, and only if that changed.
        old: Option<Row>,
        /// The row after.
        new: Row,
    },
    /// It was deleted.
    Delete {
        /// The row before: all of it with `REPLICA IDENTITY FULL`, else its key.
        old: Row,
    },
}

/// A change of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableChange {
    /// What happened.
    pub change: RowChange,
    /// Whether the old row is there as a whole.
    pub(crate) whole_old: bool,
    /// When it was committed, in milliseconds since 1970-01-01 UTC; for rows that were there, when the source looked.
    pub time_ms: i64,
    /// Where in the write-ahead log it was committed.
    pub position: u64,
}

impl TableChange {
    /// The row after the change, or before it when there is none any more.
    #[must_use]
    pub fn row(&self) -> &Row {
        match &self.change {
            RowChange::Insert { new } | RowChange::Update { new, .. } => new,
            RowChange::Delete { old } => old,
        }
    }

    /// The name of the table, without its schema.
    #[must_use]
    pub fn table(&self) -> &str {
        &self.row().table.name
    }

    /// The schema of the table.
    #[must_use]
    pub fn schema(&self) -> &str {
        &self.row().table.schema
    }
}
