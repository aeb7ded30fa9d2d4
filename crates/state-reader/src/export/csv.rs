//! Comma-separated values with a header line.

use std::io::Write;

use serde_json::Value;

use super::column::{Column, columns};
use crate::entry::StateEntry;
use crate::error::ReaderError;
use crate::info::StateInfo;

pub(super) fn write(
    info: &StateInfo,
    entries: impl Iterator<Item = Result<StateEntry, ReaderError>>,
    out: impl Write,
) -> Result<u64, ReaderError> {
    let columns = columns(info);
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(columns.iter().map(Column::name)).map_err(output)?;
    let mut written = 0;
    for entry in entries {
        let entry = entry?;
        for column in &columns {
            writer.write_field(text(column, &entry)).map_err(output)?;
        }
        writer.write_record(None::<&[u8]>).map_err(output)?;
        written += 1;
    }
    writer.flush()?;
    Ok(written)
}

fn text(column: &Column, entry: &StateEntry) -> String {
    match column.cell(entry) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) if !column.is_json() => text,
        Some(other) => other.to_string(),
    }
}

fn output(error: csv::Error) -> ReaderError {
    ReaderError::Output(error.into())
}
