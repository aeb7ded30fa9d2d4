//! The shape of a type, as stored beside the data: names of fields and variants, types, nesting.
//!
//! A schema is traced from the type's own serde implementations, so that no extra derive is
//! needed. Names of structs and enums do not count; names of fields and variants do. With a schema,
//! bytes can be read by a type that has changed since ([`Schema::read`]) and without any type
//! ([`Schema::to_json`], [`Schema::encode_json`]).

mod deserialize;
mod error;
mod evolve;
mod example;
mod fill;
mod from_json;
mod input;
mod level;
mod to_json;
mod trace;

use std::collections::BTreeSet;
use std::fmt;

pub use deserialize::SchemaDeserializer;
pub use error::SchemaError;
pub use evolve::Evolution;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};

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
    Struct(#[serde(deserialize_with = "distinct_fields")] Vec<(String, Schema)>),
    /// An enum: variants by index, each with a name and its content.
    Enum(#[serde(deserialize_with = "distinct_variants")] Vec<(u32, String, Schema)>),
    /// A type that contains itself, as first builds wrote it: how many levels of structs and enums up it
    /// is described, where it is not clear what counts. Read, no longer written.
    Recursive(u32),
    /// A type that contains itself: how many layers of this schema further out it is described; 0 is the
    /// layer directly around.
    Up(u32),
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
    pub fn of<T: Serialize + DeserializeOwned>() -> Schema {
        trace::trace::<T>().unwrap_or_else(|| Schema::Opaque(std::any::type_name::<T>().to_owned()))
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
            Schema::Recursive(_) | Schema::Up(_) => "recursive type".to_owned(),
            Schema::Opaque(name) => name.clone(),
        }
    }
}

/// Fields of a stored struct, of which no two have one name: as JSON, the second would hide the first.
fn distinct_fields<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, Schema)>, D::Error> {
    let fields = Vec::<(String, Schema)>::deserialize(deserializer)?;
    let mut seen = BTreeSet::new();
    match fields.iter().find(|(name, _)| !seen.insert(name)) {
        Some((name, _)) => Err(D::Error::custom(format!("two fields are named {name:?}"))),
        None => Ok(fields),
    }
}

/// Variants of a stored enum, of which no two have one name or one index.
fn distinct_variants<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(u32, String, Schema)>, D::Error> {
    let variants = Vec::<(u32, String, Schema)>::deserialize(deserializer)?;
    let (mut indexes, mut names) = (BTreeSet::new(), BTreeSet::new());
    match variants.iter().find(|(index, name, _)| !indexes.insert(index) || !names.insert(name)) {
        Some((index, name, _)) => Err(D::Error::custom(format!("two variants are {name:?}, or number {index}"))),
        None => Ok(variants),
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
        (Schema::Recursive(_), Schema::Up(_)) => Ok(()),
        (a, b) if a == b => Ok(()),
        _ => differ(),
    }
}

#[cfg(test)]
mod tests;
