//! A place in a schema that knows what is above it, so that recursive types can be followed.

use super::Schema;
use super::error::{SchemaError, SchemaFault};

/// A part of a schema and the way to it.
#[derive(Clone, Copy)]
pub(crate) struct Level<'a> {
    pub(crate) schema: &'a Schema,
    above: Option<&'a Level<'a>>,
}

/// How a primitive stands in the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Unit,
    Bool,
    Unsigned(u32),
    Signed(u32),
    F32,
    F64,
    Char,
    Str,
    Bytes,
}

impl Wire {
    pub(crate) fn of(name: &str) -> Option<Wire> {
        Some(match name {
            "unit" => Wire::Unit,
            "bool" => Wire::Bool,
            "u8" => Wire::Unsigned(8),
            "u16" => Wire::Unsigned(16),
            "u32" => Wire::Unsigned(32),
            "u64" => Wire::Unsigned(64),
            "u128" => Wire::Unsigned(128),
            "i8" => Wire::Signed(8),
            "i16" => Wire::Signed(16),
            "i32" => Wire::Signed(32),
            "i64" => Wire::Signed(64),
            "i128" => Wire::Signed(128),
            "f32" => Wire::F32,
            "f64" => Wire::F64,
            "char" => Wire::Char,
            "str" => Wire::Str,
            "bytes" => Wire::Bytes,
            _ => return None,
        })
    }
}

/// What stands at a level, recursion and primitives resolved.
pub(crate) enum Shape<'a> {
    Primitive(Wire),
    Option(&'a Schema),
    Seq(&'a Schema),
    Map(&'a Schema, &'a Schema),
    Tuple(&'a [Schema]),
    Struct(&'a [(String, Schema)]),
    Enum(&'a [(u32, String, Schema)]),
}

impl<'a> Level<'a> {
    pub(crate) fn root(schema: &'a Schema) -> Self {
        Level { schema, above: None }
    }

    /// A part of this level, which must be a resolved one.
    pub(crate) fn part(&'a self, schema: &'a Schema) -> Level<'a> {
        Level { schema, above: Some(self) }
    }

    /// The level that is meant, and its shape.
    pub(crate) fn resolve(self) -> Result<(Level<'a>, Shape<'a>), SchemaError> {
        let mut level = self;
        if let Schema::Up(layers) = level.schema {
            for _ in 0..=*layers {
                level = *level.above.ok_or_else(|| opaque("a recursion that leads out of the schema"))?;
            }
        }
        let shape = match level.schema {
            Schema::Primitive(name) => {
                Shape::Primitive(Wire::of(name).ok_or_else(|| opaque(&format!("an unknown primitive {name:?}")))?)
            }
            Schema::Option(inner) => Shape::Option(inner),
            Schema::Seq(inner) => Shape::Seq(inner),
            Schema::Map(key, value) => Shape::Map(key, value),
            Schema::Tuple(parts) => Shape::Tuple(parts),
            Schema::Struct(fields) => Shape::Struct(fields),
            Schema::Enum(variants) => Shape::Enum(variants),
            Schema::Recursive(_) | Schema::Up(_) => return Err(opaque("a recursive type of an older format")),
            Schema::Opaque(name) => return Err(opaque(name)),
        };
        Ok((level, shape))
    }
}

fn opaque(what: &str) -> SchemaError {
    SchemaError::new(SchemaFault::Opaque(what.to_owned()))
}

/// The variant with an index as it stands in the bytes.
pub(crate) fn variant_at(
    variants: &[(u32, String, Schema)],
    index: u32,
) -> Result<&(u32, String, Schema), SchemaError> {
    let found = variants.iter().find(|(known, _, _)| *known == index);
    found.ok_or_else(|| SchemaError::damaged(format!("variant {index} of an enum with {} variants", variants.len())))
}
