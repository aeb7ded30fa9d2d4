//! Apache Parquet: flat, typed columns, one row group after the other.

use std::io::Write;
use std::sync::Arc;

use ::parquet::basic::{Compression, ConvertedType, LogicalType, Repetition, Type as Physical};
use ::parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use ::parquet::schema::types::{Type, TypePtr};
use serde_json::Value;

use super::column::{Column, ColumnType, columns};
use crate::entry::StateEntry;
use crate::error::ReaderError;
use crate::info::StateInfo;

/// Entries per row group.
const GROUP_ENTRIES: usize = 65_536;

pub(super) fn write<W: Write + Send>(
    info: &StateInfo,
    entries: impl Iterator<Item = Result<StateEntry, ReaderError>>,
    out: W,
) -> Result<u64, ReaderError> {
    let columns = columns(info);
    let schema = schema(&columns).map_err(output)?;
    let properties = Arc::new(WriterProperties::builder().set_compression(Compression::SNAPPY).build());
    let mut writer = SerializedFileWriter::new(out, schema, properties).map_err(output)?;
    let mut group: Vec<Vec<Option<Value>>> = vec![Vec::new(); columns.len()];
    let mut written = 0;
    for entry in entries {
        let entry = entry?;
        for (column, cells) in columns.iter().zip(&mut group) {
            cells.push(column.cell(&entry).filter(|cell| !cell.is_null()));
        }
        written += 1;
        if group[0].len() == GROUP_ENTRIES {
            write_group(info, &columns, &mut group, &mut writer)?;
        }
    }
    if !group[0].is_empty() {
        write_group(info, &columns, &mut group, &mut writer)?;
    }
    writer.close().map_err(output)?;
    Ok(written)
}

fn write_group<W: Write + Send>(
    info: &StateInfo,
    columns: &[Column],
    group: &mut [Vec<Option<Value>>],
    writer: &mut SerializedFileWriter<W>,
) -> Result<(), ReaderError> {
    let mut rows = writer.next_row_group().map_err(output)?;
    for (column, cells) in columns.iter().zip(group) {
        let Some(target) = rows.next_column().map_err(output)? else { break };
        write_column(info, column, cells, target)?;
        cells.clear();
    }
    rows.close().map_err(output)?;
    Ok(())
}

fn write_column(
    info: &StateInfo,
    column: &Column,
    cells: &[Option<Value>],
    target: SerializedColumnWriter<'_>,
) -> Result<(), ReaderError> {
    let chunk = Chunk { info, column, cells };
    match column.kind() {
        ColumnType::Bool => chunk.write::<BoolType>(target, Value::as_bool),
        ColumnType::Integer { bits: 64, signed: true } => chunk.write::<Int64Type>(target, Value::as_i64),
        ColumnType::Integer { bits: 64, signed: false } => {
            chunk.write::<Int64Type>(target, |cell| cell.as_u64().map(|number| number as i64))
        }
        ColumnType::Integer { signed: true, .. } => {
            chunk.write::<Int32Type>(target, |cell| i32::try_from(cell.as_i64()?).ok())
        }
        ColumnType::Integer { signed: false, .. } => {
            chunk.write::<Int32Type>(target, |cell| u32::try_from(cell.as_u64()?).ok().map(|number| number as i32))
        }
        ColumnType::Float => chunk.write::<FloatType>(target, |cell| float(cell).map(|number| number as f32)),
        ColumnType::Double => chunk.write::<DoubleType>(target, float),
        ColumnType::Text => chunk.write::<ByteArrayType>(target, |cell| {
            Some(ByteArray::from(cell.as_str().map_or_else(|| cell.to_string(), str::to_owned).into_bytes()))
        }),
        ColumnType::Json => {
            chunk.write::<ByteArrayType>(target, |cell| Some(ByteArray::from(cell.to_string().into_bytes())))
        }
    }
}

/// Floats that JSON has no number for are spelt as text.
fn float(cell: &Value) -> Option<f64> {
    cell.as_f64().or_else(|| cell.as_str()?.parse().ok())
}

/// The cells of one column in a row group.
struct Chunk<'a> {
    info: &'a StateInfo,
    column: &'a Column,
    cells: &'a [Option<Value>],
}

impl Chunk<'_> {
    fn write<T: DataType>(
        &self,
        mut target: SerializedColumnWriter<'_>,
        convert: impl Fn(&Value) -> Option<T::T>,
    ) -> Result<(), ReaderError> {
        let (mut values, mut levels) = (Vec::with_capacity(self.cells.len()), Vec::with_capacity(self.cells.len()));
        for cell in self.cells {
            levels.push(i16::from(cell.is_some()));
            if let Some(cell) = cell {
                values.push(convert(cell).ok_or_else(|| self.misfit(&cell.to_string()))?);
            } else if !self.column.is_nullable() {
                return Err(self.misfit("nothing"));
            }
        }
        let levels = self.column.is_nullable().then_some(levels.as_slice());
        target.typed::<T>().write_batch(values.as_slice(), levels, None).map_err(output)?;
        target.close().map_err(output)
    }

    fn misfit(&self, found: &str) -> ReaderError {
        let reason = format!("{found} does not fit column {:?}", self.column.name());
        crate::json::damaged(self.info, "value", None, reason)
    }
}

fn schema(columns: &[Column]) -> Result<TypePtr, ParquetError> {
    let fields = columns.iter().map(|column| {
        let repetition = if column.is_nullable() { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let (physical, logical) = types(column.kind());
        let builder = Type::primitive_type_builder(column.name(), physical).with_repetition(repetition);
        builder.with_logical_type(logical).with_converted_type(ConvertedType::NONE).build().map(Arc::new)
    });
    let fields = fields.collect::<Result<Vec<_>, _>>()?;
    Type::group_type_builder("entry").with_fields(fields).build().map(Arc::new)
}

fn types(kind: ColumnType) -> (Physical, Option<LogicalType>) {
    match kind {
        ColumnType::Bool => (Physical::BOOLEAN, None),
        ColumnType::Integer { bits, signed } => {
            let physical = if bits == 64 { Physical::INT64 } else { Physical::INT32 };
            (physical, Some(LogicalType::integer(bits as i8, signed)))
        }
        ColumnType::Float => (Physical::FLOAT, None),
        ColumnType::Double => (Physical::DOUBLE, None),
        ColumnType::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        ColumnType::Json => (Physical::BYTE_ARRAY, Some(LogicalType::Json)),
    }
}

fn output(error: ParquetError) -> ReaderError {
    match error {
        ParquetError::External(source) => ReaderError::Output(std::io::Error::other(source)),
        other => ReaderError::Output(std::io::Error::other(other)),
    }
}
