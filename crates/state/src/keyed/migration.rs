//! Rows that were written when the state had another type, made rows of today.
//!
//! Whether that is possible is decided when the state is declared, and again for every description that a
//! run has; here nothing but bytes pass. A migrated row is clean: what is not changed afterwards stays in its
//! old run, under its old description, and migrates again at the next restore.

use millpond_core::schema::SchemaMismatch;
use millpond_core::{Data, Evolution, KeyGroup, Schema, SchemaError};

use super::any_table::damaged;
use super::states::Declared;
use crate::error::StateError;

/// Which of the descriptions of a state a row was written with: from
/// [`super::KeyedBackendControl::row_version`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowVersion {
    pub(crate) state: u16,
    pub(crate) version: u16,
}

/// Reads a row under its stored schema and appends the row of today.
type Transcode = fn(&Schema, &[u8], &mut Vec<u8>) -> Result<(), SchemaError>;

/// What a table's rows hold, without its type.
#[derive(Clone, Copy)]
pub(crate) struct RowContent {
    evolution: fn(&Schema, &Schema) -> Result<Evolution, SchemaMismatch>,
    transcode: Transcode,
    /// Whether a row is a list of values.
    many: bool,
}

impl RowContent {
    /// One `V` per row.
    pub(crate) fn one<V: Data>() -> Self {
        RowContent { evolution: Schema::evolution_of::<V>, transcode: Schema::transcode::<V>, many: false }
    }

    /// Several `T` per row.
    pub(crate) fn many<T: Data>() -> Self {
        RowContent { evolution: Schema::evolution_of::<T>, transcode: Schema::transcode::<Vec<T>>, many: true }
    }

    /// How values of `stored` become values of `now`.
    pub(crate) fn evolution(self, stored: &Schema, now: &Schema) -> Result<Evolution, SchemaMismatch> {
        (self.evolution)(stored, now)
    }

    /// Makes rows whose values were written under `stored` rows of today.
    pub(crate) fn migration(self, stored: Schema) -> Migration {
        let row = if self.many { Schema::Seq(Box::new(stored)) } else { stored };
        Migration { row, transcode: self.transcode }
    }
}

/// Makes one old description's rows rows of today.
pub(crate) struct Migration {
    row: Schema,
    transcode: Transcode,
}

impl Migration {
    /// Replaces `migrated` by the row of today.
    fn migrate(&self, row: &[u8], migrated: &mut Vec<u8>) -> Result<(), SchemaError> {
        migrated.clear();
        (self.transcode)(&self.row, row, migrated)
    }
}

/// A description that rows may have, and what makes them rows of today; none for those that are.
pub(crate) struct Version {
    pub(crate) description: String,
    pub(crate) migration: Option<Migration>,
}

/// The row of today of a stored row: itself, or what it was migrated to, in `migrated`.
pub(crate) fn row_of_today<'a>(
    declared: &Declared,
    version: RowVersion,
    group: KeyGroup,
    row: &'a [u8],
    migrated: &'a mut Vec<u8>,
) -> Result<&'a [u8], StateError> {
    let version = declared.versions.get(usize::from(version.version));
    let Some(migration) = version.and_then(|version| version.migration.as_ref()) else { return Ok(row) };
    migration.migrate(row, migrated).map_err(|error| damaged(&declared.name, group, error.to_string()))?;
    Ok(migrated)
}

/// Names the state and the part of it in a difference of schemas.
pub(crate) fn schema_changed(state: &str, part: &'static str, mismatch: SchemaMismatch) -> StateError {
    StateError::SchemaChanged { state: state.to_owned(), part, mismatch: Box::new(mismatch) }
}
