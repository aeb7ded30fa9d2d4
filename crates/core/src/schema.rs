//! The shape of a type, as stored beside the data: names of fields and variants, types, nesting.
//!
//! A schema is traced from the type's own `Deserialize` implementation, so that no extra derive is
//! needed. Names of structs and enums do not count; names of fields and variants do.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_reflection::{ContainerFormat, Format, Registry, Samples, Tracer, TracerConfig, VariantFormat};

/// The shape of a serialised type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Schema {
    /// A type without fields, described by its serde name: `unit`, `bool`, `u64`, `str`, …
    Primitive(String),
    /// An optional value.
    Option(Box<Schema>),
    /// A sequence of unknown length.
    Seq(Box<Schema>),
    /// A map.
    Map(Box<Schema>, Box<Schema>),
    /// A tuple, tuple struct or array.
    Tuple(Vec<Schema>),
    /// A struct with named fields, in the order in which they are encoded.
    Struct(Vec<(String, Schema)>),
    /// An enum: variants by index, each with a name and its content.
    Enum(Vec<(u32, String, Schema)>),
    /// A type that contains itself: how many levels of structs and enums up it is described.
    Recursive(u32),
    /// A type whose shape could not be traced; only its Rust name is known.
    Opaque(String),
}

/// The first place at which a stored schema and a type of today differ.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at {path}: stored as {stored}, now {now}")]
pub struct SchemaMismatch {
    /// Where, like `value.departures[].delay`.
    pub path: String,
    /// What was stored.
    pub stored: String,
    /// What the type is now.
    pub now: String,
}

impl Schema {
    /// Traces the shape of `T`.
    #[must_use]
    pub fn of<T: DeserializeOwned>() -> Schema {
        trace::<T>().unwrap_or_else(|| Schema::Opaque(std::any::type_name::<T>().to_owned()))
    }

    /// Checks that values written with `self` can be read as `now`.
    ///
    /// # Errors
    /// Names the first difference.
    pub fn check_readable_as(&self, now: &Schema) -> Result<(), SchemaMismatch> {
        compare("value", self, now)
    }

    /// One word for messages.
    fn word(&self) -> String {
        match self {
            Schema::Primitive(name) => name.clone(),
            Schema::Option(inner) => format!("option of {}", inner.word()),
            Schema::Seq(inner) => format!("list of {}", inner.word()),
            Schema::Map(key, value) => format!("map from {} to {}", key.word(), value.word()),
            Schema::Tuple(parts) => format!("tuple of {}", parts.len()),
            Schema::Struct(fields) => {
                let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
                format!("struct {{{}}}", names.join(", "))
            }
            Schema::Enum(variants) => {
                let names: Vec<&str> = variants.iter().map(|(_, name, _)| name.as_str()).collect();
                format!("enum {{{}}}", names.join(", "))
            }
            Schema::Recursive(_) => "recursive type".to_owned(),
            Schema::Opaque(name) => name.clone(),
        }
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.word())
    }
}

fn compare(path: &str, stored: &Schema, now: &Schema) -> Result<(), SchemaMismatch> {
    let differ = || Err(SchemaMismatch { path: path.to_owned(), stored: stored.word(), now: now.word() });
    match (stored, now) {
        (Schema::Option(a), Schema::Option(b)) => compare(&format!("{path}?"), a, b),
        (Schema::Seq(a), Schema::Seq(b)) => compare(&format!("{path}[]"), a, b),
        (Schema::Map(ak, av), Schema::Map(bk, bv)) => {
            compare(&format!("{path}.key"), ak, bk)?;
            compare(&format!("{path}[]"), av, bv)
        }
        (Schema::Tuple(a), Schema::Tuple(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().try_for_each(|(i, (a, b))| compare(&format!("{path}.{i}"), a, b))
        }
        (Schema::Struct(a), Schema::Struct(b)) => {
            if a.len() != b.len() || a.iter().zip(b).any(|((a, _), (b, _))| a != b) {
                return differ();
            }
            a.iter().zip(b).try_for_each(|((name, a), (_, b))| compare(&format!("{path}.{name}"), a, b))
        }
        (Schema::Enum(a), Schema::Enum(b)) => {
            let same_head =
                |((ai, an, _), (bi, bn, _)): (&(u32, String, Schema), &(u32, String, Schema))| ai == bi && an == bn;
            if a.len() > b.len() || !a.iter().zip(b).all(same_head) {
                return differ();
            }
            a.iter().zip(b).try_for_each(|((_, name, a), (_, _, b))| compare(&format!("{path}::{name}"), a, b))
        }
        (a, b) if a == b => Ok(()),
        _ => differ(),
    }
}

fn trace<T: DeserializeOwned>() -> Option<Schema> {
    let mut tracer = Tracer::new(TracerConfig::default().is_human_readable(false));
    let samples = Samples::new();
    let (format, _) = tracer.trace_type::<T>(&samples).ok()?;
    let registry = tracer.registry().ok()?;
    Conversion { registry: &registry, open: Vec::new() }.format(&format)
}

struct Conversion<'a> {
    registry: &'a Registry,
    open: Vec<String>,
}

impl Conversion<'_> {
    fn format(&mut self, format: &Format) -> Option<Schema> {
        Some(match format {
            Format::Variable(_) => return None,
            Format::TypeName(name) => return self.container(name),
            Format::Option(inner) => Schema::Option(Box::new(self.format(inner)?)),
            Format::Seq(inner) => Schema::Seq(Box::new(self.format(inner)?)),
            Format::Map { key, value } => Schema::Map(Box::new(self.format(key)?), Box::new(self.format(value)?)),
            Format::Tuple(parts) => Schema::Tuple(self.formats(parts)?),
            Format::TupleArray { content, size } => Schema::Tuple(vec![self.format(content)?; *size]),
            primitive => Schema::Primitive(format!("{primitive:?}").to_lowercase()),
        })
    }

    fn formats(&mut self, formats: &[Format]) -> Option<Vec<Schema>> {
        formats.iter().map(|format| self.format(format)).collect()
    }

    fn fields(&mut self, fields: &[serde_reflection::Named<Format>]) -> Option<Schema> {
        let fields = fields.iter().map(|field| Some((field.name.clone(), self.format(&field.value)?)));
        Some(Schema::Struct(fields.collect::<Option<_>>()?))
    }

    fn container(&mut self, name: &str) -> Option<Schema> {
        if let Some(depth) = self.open.iter().rev().position(|open| open == name) {
            return Some(Schema::Recursive(depth as u32));
        }
        let container = self.registry.get(name)?;
        self.open.push(name.to_owned());
        let schema = match container {
            ContainerFormat::UnitStruct => Some(Schema::Primitive("unit".to_owned())),
            ContainerFormat::NewTypeStruct(inner) => self.format(inner),
            ContainerFormat::TupleStruct(parts) => self.formats(parts).map(Schema::Tuple),
            ContainerFormat::Struct(fields) => self.fields(fields),
            ContainerFormat::Enum(variants) => {
                let variants = variants
                    .iter()
                    .map(|(index, variant)| Some((*index, variant.name.clone(), self.variant(&variant.value)?)));
                variants.collect::<Option<_>>().map(Schema::Enum)
            }
        };
        self.open.pop();
        schema
    }

    fn variant(&mut self, variant: &VariantFormat) -> Option<Schema> {
        match variant {
            VariantFormat::Variable(_) => None,
            VariantFormat::Unit => Some(Schema::Primitive("unit".to_owned())),
            VariantFormat::NewType(inner) => self.format(inner),
            VariantFormat::Tuple(parts) => self.formats(parts).map(Schema::Tuple),
            VariantFormat::Struct(fields) => self.fields(fields),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Flight {
        carrier: String,
        delay: Option<i32>,
    }

    #[derive(Serialize, Deserialize)]
    struct FlightWithWiderDelay {
        carrier: String,
        delay: Option<i64>,
    }

    #[derive(Serialize, Deserialize)]
    enum Shape {
        Point,
        Circle(f64),
    }

    #[derive(Serialize, Deserialize)]
    enum MoreShapes {
        Point,
        Circle(f64),
        Square { side: f64 },
    }

    #[derive(Serialize, Deserialize)]
    struct Tree {
        children: Vec<Tree>,
    }

    #[test]
    fn a_changed_field_type_is_named_with_its_path() {
        let stored = Schema::of::<Vec<Flight>>();
        let now = Schema::of::<Vec<FlightWithWiderDelay>>();
        let error = stored.check_readable_as(&now).unwrap_err();
        assert_eq!(error.to_string(), "at value[].delay?: stored as i32, now i64");
        assert!(stored.check_readable_as(&stored).is_ok());
    }

    #[test]
    fn an_added_enum_variant_is_readable_and_a_removed_one_is_not() {
        let (few, many) = (Schema::of::<Shape>(), Schema::of::<MoreShapes>());
        assert!(few.check_readable_as(&many).is_ok());
        assert!(many.check_readable_as(&few).is_err());
    }

    #[test]
    fn recursive_types_are_traced() {
        let fields = vec![("children".to_owned(), Schema::Seq(Box::new(Schema::Recursive(0))))];
        assert_eq!(Schema::of::<Tree>(), Schema::Struct(fields));
    }

    #[test]
    fn schemas_survive_json() {
        let schema = Schema::of::<(Vec<Flight>, MoreShapes, u64)>();
        let json = serde_json::to_string(&schema).unwrap();
        assert_eq!(serde_json::from_str::<Schema>(&json).unwrap(), schema);
    }
}
