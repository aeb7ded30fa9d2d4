//! Bytes and their schema as a JSON value. The mirror is `from_json`; together they lose nothing.
//!
//! | schema | JSON |
//! |---|---|
//! | integers | number; beyond 64 bits a string of digits |
//! | floats | number; `"NaN"`, `"inf"`, `"-inf"` |
//! | `str`, `char` | string |
//! | `bytes` | string of hexadecimal digits |
//! | `unit` | null |
//! | option | null or the value; `{"some": …}` where the value itself may be null |
//! | list, tuple | array |
//! | map | object if its keys are strings, else array of `[key, value]` |
//! | struct | object |
//! | enum | `"Name"` without content, else `{"Name": content}` |

use std::fmt::Write as _;

use serde_json::{Map, Number, Value};

use super::Schema;
use super::error::SchemaError;
use super::input::Input;
use super::level::{Level, Shape, Wire, variant_at};

impl Schema {
    /// The value in `bytes` as JSON: structs and enums by name, nothing rounded. `docs/formats.md`
    /// says what becomes what.
    ///
    /// # Errors
    /// When the bytes are not one whole value of this schema, or the schema is opaque.
    pub fn to_json(&self, bytes: &[u8]) -> Result<Value, SchemaError> {
        let mut input = Input::new(bytes);
        let value = read(Level::root(self), &mut input)?;
        input.finish()?;
        Ok(value)
    }
}

/// Whether the JSON form of a value can be null, so that an option around it must say more.
pub(super) fn may_be_null(level: Level<'_>) -> Result<bool, SchemaError> {
    Ok(matches!(level.resolve()?.1, Shape::Option(_) | Shape::Primitive(Wire::Unit)))
}

/// Whether a map with such keys is an object.
pub(super) fn is_text(level: Level<'_>) -> Result<bool, SchemaError> {
    Ok(matches!(level.resolve()?.1, Shape::Primitive(Wire::Str)))
}

fn read(level: Level<'_>, input: &mut Input<'_>) -> Result<Value, SchemaError> {
    let (level, shape) = level.resolve()?;
    if let Shape::Primitive(wire) = shape {
        return primitive(wire, input);
    }
    input.enter()?;
    let value = match shape {
        Shape::Primitive(wire) => primitive(wire, input)?,
        Shape::Option(inner) => option(level, inner, input)?,
        Shape::Seq(element) => list(level, element, input)?,
        Shape::Map(key, value) => map(level, key, value, input)?,
        Shape::Tuple(parts) => {
            let parts = parts.iter().enumerate();
            let values = parts
                .map(|(index, part)| read(level.part(part), input).map_err(|error| error.within(format!(".{index}"))));
            Value::Array(values.collect::<Result<_, _>>()?)
        }
        Shape::Struct(fields) => {
            let mut object = Map::new();
            for (name, field) in fields {
                let value = read(level.part(field), input).map_err(|error| error.within(format!(".{name}")))?;
                object.insert(name.clone(), value);
            }
            Value::Object(object)
        }
        Shape::Enum(variants) => {
            let (_, name, content) = variant_at(variants, input.variant()?)?;
            let value = read(level.part(content), input).map_err(|error| error.within(format!("::{name}")))?;
            let has_content = !matches!(content, Schema::Primitive(unit) if unit == "unit");
            if has_content { single(name, value) } else { Value::String(name.clone()) }
        }
    };
    input.leave();
    Ok(value)
}

fn single(name: &str, value: Value) -> Value {
    let mut object = Map::new();
    object.insert(name.to_owned(), value);
    Value::Object(object)
}

fn option(level: Level<'_>, inner: &Schema, input: &mut Input<'_>) -> Result<Value, SchemaError> {
    if !input.flag()? {
        return Ok(Value::Null);
    }
    let inner = level.part(inner);
    let value = read(inner, input).map_err(|error| error.within("?"))?;
    Ok(if may_be_null(inner)? { single("some", value) } else { value })
}

fn list(level: Level<'_>, element: &Schema, input: &mut Input<'_>) -> Result<Value, SchemaError> {
    let mut values = Vec::new();
    for _ in 0..input.count()? {
        let before = input.left();
        values.push(read(level.part(element), input).map_err(|error| error.within("[]"))?);
        input.element_read(before)?;
    }
    Ok(Value::Array(values))
}

fn map(level: Level<'_>, key: &Schema, value: &Schema, input: &mut Input<'_>) -> Result<Value, SchemaError> {
    let (mut object, mut pairs) = (Map::new(), Vec::new());
    let named = is_text(level.part(key))?;
    for _ in 0..input.count()? {
        let before = input.left();
        let key = read(level.part(key), input).map_err(|error| error.within(".key"))?;
        let value = read(level.part(value), input).map_err(|error| error.within("[]"))?;
        input.element_read(before)?;
        match key {
            Value::String(name) if named => {
                if object.insert(name, value).is_some() {
                    return Err(SchemaError::damaged("a map with the same key twice"));
                }
            }
            key => pairs.push(Value::Array(vec![key, value])),
        }
    }
    Ok(if named { Value::Object(object) } else { Value::Array(pairs) })
}

fn primitive(wire: Wire, input: &mut Input<'_>) -> Result<Value, SchemaError> {
    Ok(match wire {
        Wire::Unit => Value::Null,
        Wire::Bool => Value::Bool(input.flag()?),
        Wire::Unsigned(bits) => {
            let value = input.unsigned(bits)?;
            u64::try_from(value).map_or_else(|_| Value::String(value.to_string()), Value::from)
        }
        Wire::Signed(bits) => {
            let value = input.signed(bits)?;
            i64::try_from(value).map_or_else(|_| Value::String(value.to_string()), Value::from)
        }
        Wire::F32 => {
            // By its own shortest digits: 0.1 stays 0.1.
            let value = f32::from_le_bytes(input.fixed()?);
            let text = value.to_string();
            if value.is_finite() {
                float(text.parse().unwrap_or_else(|_| f64::from(value)))
            } else {
                Value::String(text)
            }
        }
        Wire::F64 => float(f64::from_le_bytes(input.fixed()?)),
        Wire::Char => Value::String(input.character()?.to_string()),
        Wire::Str => Value::String(input.text()?.to_owned()),
        Wire::Bytes => Value::String(hexadecimal(input.bytes()?)),
    })
}

fn float(value: f64) -> Value {
    Number::from_f64(value).map_or_else(|| Value::String(value.to_string()), Value::Number)
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
