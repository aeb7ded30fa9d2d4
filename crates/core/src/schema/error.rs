//! What can be wrong between bytes, a schema, a JSON value and a type, and where.

use std::fmt;

use crate::error::ErrorKind;

/// Bytes or a JSON value that do not fit a schema, or a type that cannot be read from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaError {
    /// From the inside out.
    path: Vec<String>,
    fault: SchemaFault,
}

/// What is wrong; [`SchemaError`] says where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SchemaFault {
    #[error("damaged: {0}")]
    Damaged(String),
    #[error("stored as {stored}, now {now}")]
    Changed { stored: String, now: String },
    #[error("cannot be described by a schema: {0}")]
    Opaque(String),
    #[error("{0}")]
    Refused(String),
    #[error("expected {expected}, found {found}")]
    Json { expected: String, found: String },
}

impl SchemaError {
    pub(crate) fn new(fault: SchemaFault) -> Self {
        SchemaError { path: Vec::new(), fault }
    }

    #[cold]
    pub(crate) fn damaged(reason: impl Into<String>) -> Self {
        SchemaError::new(SchemaFault::Damaged(reason.into()))
    }

    #[cold]
    pub(crate) fn changed(stored: impl fmt::Display, now: impl Into<String>) -> Self {
        SchemaError::new(SchemaFault::Changed { stored: stored.to_string(), now: now.into() })
    }

    /// The same error, one step further out: `.field`, `[]`, `?`, `::Variant`.
    #[cold]
    pub(crate) fn within(mut self, step: impl Into<String>) -> Self {
        self.path.push(step.into());
        self
    }

    pub(crate) fn fault(&self) -> &SchemaFault {
        &self.fault
    }

    /// Where, like `value.departures[].delay`.
    #[must_use]
    pub fn path(&self) -> String {
        let mut path = "value".to_owned();
        self.path.iter().rev().for_each(|step| path.push_str(step));
        path
    }

    /// [`ErrorKind::Corrupt`] for damaged bytes, [`ErrorKind::Invalid`] for everything else.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self.fault {
            SchemaFault::Damaged(_) => ErrorKind::Corrupt,
            _ => ErrorKind::Invalid,
        }
    }
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}: {}", self.path(), self.fault)
    }
}

impl std::error::Error for SchemaError {}

impl serde::de::Error for SchemaError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        SchemaError::new(SchemaFault::Refused(message.to_string()))
    }

    fn missing_field(field: &'static str) -> Self {
        let stored = "a struct without this field";
        SchemaError::changed(stored, "a field without default").within(format!(".{field}"))
    }

    fn unknown_field(field: &str, _: &'static [&'static str]) -> Self {
        SchemaError::changed("a field", "a struct that refuses it").within(format!(".{field}"))
    }

    fn unknown_variant(variant: &str, _: &'static [&'static str]) -> Self {
        SchemaError::changed("a variant", "an enum without it").within(format!("::{variant}"))
    }
}
