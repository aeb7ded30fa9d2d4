//! Entries as rows of typed columns.
//!
//! Structs and tuples become one column per part, named with a dot (`value.delay`, `key.0`); options
//! of plain values become columns that may be empty; enums without content become text. Everything
//! else (lists, maps, enums with content, options of structs, recursion) is JSON text in one column.

use millpond_core::Schema;
use serde_json::Value;

use crate::entry::StateEntry;
use crate::info::{Kind, StateInfo};

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// True or false.
    Bool,
    /// An integer of so many bits.
    Integer {
        /// 8, 16, 32 or 64.
        bits: u8,
        /// Whether it may be negative.
        signed: bool,
    },
    /// 32-bit floating point.
    Float,
    /// 64-bit floating point.
    Double,
    /// Text; also bytes as hexadecimal digits and integers above 64 bits as digits.
    Text,
    /// JSON text.
    Json,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    name: String,
    kind: ColumnType,
    nullable: bool,
    part: Part,
    steps: Vec<Step>,
}

/// A part of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    KeyGroup,
    Subtask,
    Key,
    UserKey,
    Index,
    Value,
}

/// A way into a part.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    Position(usize),
}

impl Column {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it holds.
    #[must_use]
    pub fn kind(&self) -> ColumnType {
        self.kind
    }

    /// Whether it may be empty.
    #[must_use]
    pub fn is_nullable(&self) -> bool {
        self.nullable
    }

    pub(super) fn is_json(&self) -> bool {
        self.kind == ColumnType::Json
    }

    /// What an entry has in this column, if anything.
    pub(super) fn cell(&self, entry: &StateEntry) -> Option<Value> {
        let whole = match self.part {
            Part::KeyGroup => return entry.key_group.map(|group| Value::from(group.0)),
            Part::Subtask => return entry.subtask.map(Value::from),
            Part::Index => return entry.index.map(Value::from),
            Part::Key => entry.key.as_ref()?,
            Part::UserKey => entry.user_key.as_ref()?,
            Part::Value => &entry.value,
        };
        let found = self.steps.iter().try_fold(whole, |value, step| match step {
            Step::Field(name) => value.get(name),
            Step::Position(position) => value.get(position),
        });
        found.cloned()
    }
}

/// The columns of a state's entries.
#[must_use]
pub(crate) fn columns(info: &StateInfo) -> Vec<Column> {
    let number = |name: &str, part, bits| Column {
        name: name.to_owned(),
        kind: ColumnType::Integer { bits, signed: false },
        nullable: false,
        part,
        steps: Vec::new(),
    };
    let mut columns = Vec::new();
    if info.kind.is_keyed() {
        columns.push(number("key_group", Part::KeyGroup, 16));
    } else {
        columns.push(number("subtask", Part::Subtask, 32));
    }
    if let Some(key) = &info.key {
        flatten("key", Part::Key, &[], key, &mut columns);
    }
    if let Some(user_key) = &info.user_key {
        flatten("user_key", Part::UserKey, &[], user_key, &mut columns);
    }
    if matches!(info.kind, Kind::List | Kind::SplitList | Kind::UnionList) {
        columns.push(number("index", Part::Index, 64));
    }
    flatten("value", Part::Value, &[], &info.value, &mut columns);
    columns
}

fn flatten(name: &str, part: Part, steps: &[Step], schema: &Schema, columns: &mut Vec<Column>) {
    let mut inner = |step: Step, below: String, schema: &Schema| {
        let steps: Vec<Step> = steps.iter().cloned().chain([step]).collect();
        flatten(&format!("{name}.{below}"), part, &steps, schema, columns);
    };
    match schema {
        Schema::Struct(fields) => {
            fields.iter().for_each(|(field, schema)| inner(Step::Field(field.clone()), field.clone(), schema));
        }
        Schema::Tuple(parts) => {
            (0..).zip(parts).for_each(|(at, schema)| inner(Step::Position(at), at.to_string(), schema));
        }
        other => {
            let (kind, optional) = match other {
                Schema::Option(inner) => (plain(inner).unwrap_or(ColumnType::Json), true),
                other => (plain(other).unwrap_or(ColumnType::Json), false),
            };
            // Rows that were written before a field was added do not have it.
            let nullable = optional || !steps.is_empty() || other == &Schema::Primitive("unit".to_owned());
            columns.push(Column { name: name.to_owned(), kind, nullable, part, steps: steps.to_vec() });
        }
    }
}

/// The type of a column for a value without parts.
fn plain(schema: &Schema) -> Option<ColumnType> {
    let integer = |bits, signed| Some(ColumnType::Integer { bits, signed });
    match schema {
        Schema::Primitive(name) => match name.as_str() {
            "bool" => Some(ColumnType::Bool),
            "u8" => integer(8, false),
            "u16" => integer(16, false),
            "u32" => integer(32, false),
            "u64" => integer(64, false),
            "i8" => integer(8, true),
            "i16" => integer(16, true),
            "i32" => integer(32, true),
            "i64" => integer(64, true),
            "f32" => Some(ColumnType::Float),
            "f64" => Some(ColumnType::Double),
            "u128" | "i128" | "char" | "str" | "bytes" => Some(ColumnType::Text),
            _ => None,
        },
        Schema::Enum(variants) => {
            let empty = |content: &Schema| matches!(content, Schema::Primitive(name) if name == "unit");
            variants.iter().all(|(_, _, content)| empty(content)).then_some(ColumnType::Text)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Serialize, Deserialize)]
    enum Level {
        Low,
        High,
    }

    #[derive(Serialize, Deserialize)]
    struct Nested {
        count: u32,
        delay: Option<i16>,
        level: Level,
        place: (f64, f64),
        tags: Vec<String>,
        notes: BTreeMap<String, u8>,
        inner: Option<(u8, u8)>,
        big: i128,
    }

    #[test]
    fn structs_and_tuples_are_taken_apart_and_everything_else_is_plain_or_json() {
        let info = StateInfo {
            operator: "o".to_owned(),
            state: "s".to_owned(),
            kind: Kind::List,
            key: Some(Schema::of::<(String, u64)>()),
            user_key: None,
            value: Schema::of::<Nested>(),
        };
        let shown: Vec<String> = columns(&info)
            .iter()
            .map(|column| format!("{}: {:?}{}", column.name, column.kind, if column.nullable { "?" } else { "" }))
            .collect();
        let integer = |bits: u8, signed: bool| format!("Integer {{ bits: {bits}, signed: {signed} }}");
        let expected = [
            format!("key_group: {}", integer(16, false)),
            "key.0: Text?".to_owned(),
            format!("key.1: {}?", integer(64, false)),
            format!("index: {}", integer(64, false)),
            format!("value.count: {}?", integer(32, false)),
            format!("value.delay: {}?", integer(16, true)),
            "value.level: Text?".to_owned(),
            "value.place.0: Double?".to_owned(),
            "value.place.1: Double?".to_owned(),
            "value.tags: Json?".to_owned(),
            "value.notes: Json?".to_owned(),
            "value.inner: Json?".to_owned(),
            "value.big: Text?".to_owned(),
        ];
        assert_eq!(shown, expected);
    }
}
