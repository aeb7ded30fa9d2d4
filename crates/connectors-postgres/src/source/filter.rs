//! Which changes of the log were seen already when the tables were read.
//!
//! A change counts if the transaction that read its key's part of the table did not see it. While all parts of a table
//! agree, the key does not matter; where they do not, the server says in which part a key lies.

use tokio_postgres::Client;

use super::change::{Row, RowChange};
use super::copy::typed;
use super::plan::PlannedTable;
use super::split::{TableCopy, TablePart};
use super::visible::Visible;
use crate::PostgresError;

/// What is known of a table's parts for one transaction of the log.
pub(super) enum Seen {
    /// None has seen it.
    None,
    /// All have.
    All,
    /// Some have: which, in the order of parts.
    Some(Vec<bool>),
}

/// Which parts of a table saw the transaction with this id, which was committed at `position`.
pub(super) fn seen(table: Option<&TableCopy>, id: u32, position: u64) -> Result<Seen, PostgresError> {
    let Some(table) = table else { return Ok(Seen::None) };
    let sees = |part: &TablePart| -> Result<bool, PostgresError> {
        Ok(position < part.seen_before && Visible::parse(&part.snapshot)?.sees(id))
    };
    let parts = table.parts.iter().map(sees).collect::<Result<Vec<bool>, _>>()?;
    Ok(match (parts.iter().any(|seen| *seen), parts.iter().all(|seen| *seen)) {
        (false, _) => Seen::None,
        (true, true) => Seen::All,
        (true, false) => Seen::Some(parts),
    })
}

/// What is left of a change that some parts have seen.
pub(super) async fn left_of(
    change: RowChange,
    seen: &[bool],
    copy: &TableCopy,
    table: &PlannedTable,
    client: &Client,
) -> Result<Option<RowChange>, PostgresError> {
    let unseen = async |row: &Row| -> Result<bool, PostgresError> {
        let key = row.key().ok_or_else(|| PostgresError::NoPrimaryKey { table: table.full_name() })?;
        Ok(!seen[part_of(&key, copy, table, client).await?])
    };
    Ok(match change {
        RowChange::Insert { new } => unseen(&new).await?.then_some(RowChange::Insert { new }),
        RowChange::Delete { old } => unseen(&old).await?.then_some(RowChange::Delete { old }),
        RowChange::Update { old: None, new } => unseen(&new).await?.then_some(RowChange::Update { old: None, new }),
        RowChange::Update { old: Some(old), new } => match (unseen(&old).await?, unseen(&new).await?) {
            (true, true) => Some(RowChange::Update { old: Some(old), new }),
            (true, false) => Some(RowChange::Delete { old }),
            (false, true) => Some(RowChange::Insert { new }),
            (false, false) => None,
        },
    })
}

/// The part in which a key lies: the first that ends at or behind it. The last one has no end.
async fn part_of(
    key: &[String],
    copy: &TableCopy,
    table: &PlannedTable,
    client: &Client,
) -> Result<usize, PostgresError> {
    let last = copy.parts.len() - 1;
    let value = |(at, text): (&usize, &String)| {
        let column = &table.columns[*at];
        let collation = column.collation.as_ref().map(|name| format!(" COLLATE {name}")).unwrap_or_default();
        format!("{}{collation}", typed(text, &column.type_name))
    };
    let row = |key: &[String]| table.key.iter().zip(key).map(value).collect::<Vec<_>>().join(", ");
    let within = copy.parts[..last].iter().map(|part| format!("({}) <= ({})", row(key), row(&part.up_to)));
    let within: Vec<String> = within.collect();
    if within.is_empty() {
        return Ok(0);
    }
    let query = format!("SELECT array_position(ARRAY[{}], true)", within.join(", "));
    let found = client.query_one(&query, &[]).await;
    let found = found.map_err(|error| PostgresError::call("compare keys", error))?.get::<_, Option<i32>>(0);
    Ok(found.map_or(last, |place| place as usize - 1))
}
