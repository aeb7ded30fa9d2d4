//! A JSON value as bytes under a schema. The mirror of `to_json`, whose table says what becomes what.

use serde_json::{Map, Value};

use super::Schema;
use super::error::{SchemaError, SchemaFault};
use super::input::DEPTH_LIMIT;
use super::level::{Level, Shape, Wire};
use super::to_json::{is_text, may_be_null};
use crate::codec::put_varint;

impl Schema {
    /// The encoding of a JSON value, the same bytes that the type itself would give. Integers may be
    /// numbers or strings of digits; fields of option type may be left out.
    ///
    /// # Errors
    /// Names the place at which the value does not fit the schema.
    pub fn encode_json(&self, value: &Value) -> Result<Vec<u8>, SchemaError> {
        let mut bytes = Vec::new();
        write(Level::root(self), value, &mut bytes, 0)?;
        Ok(bytes)
    }
}

fn differs<T>(expected: &str, found: &Value) -> Result<T, SchemaError> {
    let mut found = found.to_string();
    if found.len() > 40 {
        found = format!("{}…", found.chars().take(39).collect::<String>());
    }
    Err(SchemaError::new(SchemaFault::Json { expected: expected.to_owned(), found }))
}

fn write(level: Level<'_>, value: &Value, bytes: &mut Vec<u8>, depth: u32) -> Result<(), SchemaError> {
    let (level, shape) = level.resolve()?;
    if depth > DEPTH_LIMIT {
        let reason = format!("nested deeper than {DEPTH_LIMIT} levels");
        return Err(SchemaError::new(SchemaFault::Refused(reason)));
    }
    let depth = depth + 1;
    match shape {
        Shape::Primitive(wire) => primitive(wire, value, bytes),
        Shape::Option(inner) => {
            if value.is_null() {
                bytes.push(0);
                return Ok(());
            }
            bytes.push(1);
            let inner = level.part(inner);
            let content = if may_be_null(inner)? {
                match value.as_object().filter(|object| object.len() == 1).and_then(|object| object.get("some")) {
                    Some(content) => content,
                    None => return differs("null or {\"some\": …}", value),
                }
            } else {
                value
            };
            write(inner, content, bytes, depth).map_err(|error| error.within("?"))
        }
        Shape::Seq(element) => {
            let Some(values) = value.as_array() else { return differs("an array", value) };
            put_varint(values.len() as u64, bytes);
            let mut values = values.iter();
            values.try_for_each(|value| {
                write(level.part(element), value, bytes, depth).map_err(|error| error.within("[]"))
            })
        }
        Shape::Map(key, content) => map(level, key, content, value, bytes, depth),
        Shape::Tuple(parts) => {
            let Some(values) = value.as_array().filter(|values| values.len() == parts.len()) else {
                return differs(&format!("an array of {}", parts.len()), value);
            };
            parts.iter().zip(values).enumerate().try_for_each(|(index, (part, value))| {
                write(level.part(part), value, bytes, depth).map_err(|error| error.within(format!(".{index}")))
            })
        }
        Shape::Struct(fields) => object(level, fields, value, bytes, depth),
        Shape::Enum(variants) => variant(level, variants, value, bytes, depth),
    }
}

fn map(
    level: Level<'_>,
    key: &Schema,
    content: &Schema,
    value: &Value,
    bytes: &mut Vec<u8>,
    depth: u32,
) -> Result<(), SchemaError> {
    let length = value.as_object().map(Map::len).or_else(|| value.as_array().map(Vec::len));
    put_varint(length.unwrap_or_default() as u64, bytes);
    let mut put = |name: &Value, value: &Value| {
        write(level.part(key), name, bytes, depth).map_err(|error| error.within(".key"))?;
        write(level.part(content), value, bytes, depth).map_err(|error| error.within("[]"))
    };
    if is_text(level.part(key))? {
        let entries = value.as_object().map(|entries| entries.iter());
        return entries.map_or_else(
            || differs("an object", value),
            |mut entries| entries.try_for_each(|(name, value)| put(&Value::String(name.clone()), value)),
        );
    }
    let Some(pairs) = value.as_array() else { return differs("an array of pairs", value) };
    pairs.iter().try_for_each(|pair| match pair.as_array().map(Vec::as_slice) {
        Some([name, value]) => put(name, value),
        _ => differs("a pair of key and value", pair),
    })
}

fn object(
    level: Level<'_>,
    fields: &[(String, Schema)],
    value: &Value,
    bytes: &mut Vec<u8>,
    depth: u32,
) -> Result<(), SchemaError> {
    let Some(object) = value.as_object() else { return differs("an object", value) };
    if let Some(name) = object.keys().find(|name| fields.iter().all(|(known, _)| known != *name)) {
        return Err(SchemaError::new(SchemaFault::Refused("no such field".to_owned())).within(format!(".{name}")));
    }
    for (name, field) in fields {
        let part = level.part(field);
        let outcome = match object.get(name) {
            Some(value) => write(part, value, bytes, depth),
            None if matches!(part.resolve()?.1, Shape::Option(_)) => write(part, &Value::Null, bytes, depth),
            None => Err(SchemaError::new(SchemaFault::Refused("the field is missing".to_owned()))),
        };
        outcome.map_err(|error| error.within(format!(".{name}")))?;
    }
    Ok(())
}

fn variant(
    level: Level<'_>,
    variants: &[(u32, String, Schema)],
    value: &Value,
    bytes: &mut Vec<u8>,
    depth: u32,
) -> Result<(), SchemaError> {
    let single = |object: &Map<String, Value>| match object.iter().next() {
        Some((name, content)) if object.len() == 1 => Some((name.clone(), content.clone())),
        _ => None,
    };
    let named = match value {
        Value::String(name) => Some((name.clone(), Value::Null)),
        Value::Object(object) => single(object),
        _ => None,
    };
    let found = named.and_then(|(name, content)| {
        variants.iter().find(|(_, known, _)| *known == name).map(|variant| (variant, content))
    });
    let Some(((index, name, schema), content)) = found else {
        let names: Vec<&str> = variants.iter().map(|(_, name, _)| name.as_str()).collect();
        return differs(&format!("one of the variants {}", names.join(", ")), value);
    };
    put_varint(u64::from(*index), bytes);
    write(level.part(schema), &content, bytes, depth).map_err(|error| error.within(format!("::{name}")))
}

fn primitive(wire: Wire, value: &Value, bytes: &mut Vec<u8>) -> Result<(), SchemaError> {
    match wire {
        Wire::Unit if value.is_null() => {}
        Wire::Unit => return differs("null", value),
        Wire::Bool => match value.as_bool() {
            Some(flag) => bytes.push(u8::from(flag)),
            None => return differs("true or false", value),
        },
        Wire::Unsigned(bits) => match unsigned(value).filter(|value| bits == 128 || *value >> bits == 0) {
            Some(number) if bits == 8 => bytes.push(number as u8),
            Some(number) => put_wide_varint(number, bytes),
            None => return differs(&format!("an integer of {bits} bits without sign"), value),
        },
        Wire::Signed(bits) => match signed(value).filter(|value| fits_signed(*value, bits)) {
            Some(number) if bits == 8 => bytes.push(number as i8 as u8),
            Some(number) => put_wide_varint(((number << 1) ^ (number >> 127)) as u128, bytes),
            None => return differs(&format!("an integer of {bits} bits"), value),
        },
        Wire::F32 => match float(value) {
            Some(number) => bytes.extend_from_slice(&(number as f32).to_le_bytes()),
            None => return differs("a number", value),
        },
        Wire::F64 => match float(value) {
            Some(number) => bytes.extend_from_slice(&number.to_le_bytes()),
            None => return differs("a number", value),
        },
        Wire::Char => match value.as_str().filter(|text| text.chars().count() == 1) {
            Some(text) => put_text(text.as_bytes(), bytes),
            None => return differs("a string of one character", value),
        },
        Wire::Str => match value.as_str() {
            Some(text) => put_text(text.as_bytes(), bytes),
            None => return differs("a string", value),
        },
        Wire::Bytes => match value.as_str().and_then(from_hexadecimal) {
            Some(content) => put_text(&content, bytes),
            None => return differs("a string of hexadecimal digits", value),
        },
    }
    Ok(())
}

fn put_text(content: &[u8], bytes: &mut Vec<u8>) {
    put_varint(content.len() as u64, bytes);
    bytes.extend_from_slice(content);
}

fn put_wide_varint(mut value: u128, bytes: &mut Vec<u8>) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn fits_signed(value: i128, bits: u32) -> bool {
    bits == 128 || (value >> (bits - 1) == 0) || (value >> (bits - 1) == -1)
}

fn unsigned(value: &Value) -> Option<u128> {
    value.as_u64().map(u128::from).or_else(|| value.as_str()?.parse().ok())
}

fn signed(value: &Value) -> Option<i128> {
    let number = value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from));
    number.or_else(|| value.as_str()?.parse().ok())
}

fn float(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| match value.as_str()? {
        "NaN" => Some(f64::NAN),
        "inf" => Some(f64::INFINITY),
        "-inf" => Some(f64::NEG_INFINITY),
        _ => None,
    })
}

fn from_hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}
