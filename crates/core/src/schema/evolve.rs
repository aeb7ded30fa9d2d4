//! Whether a type of today can read what was stored, decided before anything is read.
//!
//! Equal schemas: the type reads the bytes itself. Else the type is tried on example values of the
//! *stored* schema, through [`super::SchemaDeserializer`]; that is how `default`, `alias` and `rename` get
//! their say although no schema knows them. What reads all examples reads all values, unless it looks at
//! content.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::{SchemaError, SchemaFault};
use super::example::examples;
use super::fill::FILLS;
use super::{Schema, SchemaMismatch};
use crate::codec::encode_into;

/// How stored values become values of the type of today.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evolution {
    /// The bytes are those of today.
    AsIs,
    /// Each value is read by the stored schema, and written anew when it changes.
    Migrated,
}

impl Schema {
    /// How values under a stored schema become values of `T`, whose schema is `now`.
    ///
    /// # Errors
    /// When they cannot: names the first place at which they differ, and both types.
    pub fn evolution_of<T: Serialize + DeserializeOwned>(
        stored: &Schema,
        now: &Schema,
    ) -> Result<Evolution, SchemaMismatch> {
        let Err(difference) = stored.check_readable_as(now) else { return Ok(Evolution::AsIs) };
        // First builds could not describe some types that can be described now.
        if matches!(stored, Schema::Opaque(name) if name == std::any::type_name::<T>()) {
            return Ok(Evolution::AsIs);
        }
        if now.has_opaque_part() || stored.has_opaque_part() {
            return Err(difference);
        }
        let mut refused = None;
        for fill in FILLS {
            let Some(examples) = examples(stored, fill) else { return Err(difference) };
            match examples.iter().try_for_each(|example| stored.read::<T>(example).map(drop)) {
                Ok(()) => return Ok(Evolution::Migrated),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        Err(refused.map_or(difference.clone(), |error| mismatch(&error, difference)))
    }

    /// Appends the encoding that a `T` has today of a value that was written under `stored`. On error,
    /// `bytes` is as it was.
    ///
    /// # Errors
    /// When the value is damaged, or `T` refuses it.
    pub fn transcode<T: Serialize + DeserializeOwned>(
        stored: &Schema,
        value: &[u8],
        bytes: &mut Vec<u8>,
    ) -> Result<(), SchemaError> {
        let value: T = stored.read(value)?;
        encode_into(&value, bytes).map_err(|error| SchemaError::new(SchemaFault::Refused(error.to_string())))
    }

    fn has_opaque_part(&self) -> bool {
        match self {
            Schema::Opaque(_) | Schema::Recursive(_) => true,
            Schema::Primitive(_) | Schema::Up(_) => false,
            Schema::Option(inner) | Schema::Seq(inner) => inner.has_opaque_part(),
            Schema::Map(key, value) => key.has_opaque_part() || value.has_opaque_part(),
            Schema::Tuple(parts) => parts.iter().any(Schema::has_opaque_part),
            Schema::Struct(fields) => fields.iter().any(|(_, field)| field.has_opaque_part()),
            Schema::Enum(variants) => variants.iter().any(|(_, _, content)| content.has_opaque_part()),
        }
    }
}

fn mismatch(error: &SchemaError, difference: SchemaMismatch) -> SchemaMismatch {
    match error.fault() {
        SchemaFault::Changed { stored, now } => {
            SchemaMismatch { path: error.path(), stored: stored.clone(), now: now.clone() }
        }
        SchemaFault::Refused(reason) => {
            SchemaMismatch { path: error.path(), stored: difference.stored, now: format!("a type that says: {reason}") }
        }
        _ => difference,
    }
}
