//! Rows that were written when the state had another type or another time to live, made rows of today.
//!
//! Whether that is possible is decided when the state is declared, and again for every description that a
//! run has; here nothing but bytes pass. A migrated row is clean: what is not changed afterwards stays in its
//! old run, under its old description, and migrates again at the next restore.

use millpond_core::codec::encode_into;
use millpond_core::schema::SchemaMismatch;
use millpond_core::{Data, Evolution, KeyGroup, Schema, SchemaError};
use serde::Serialize;

use super::any_table::damaged;
use super::expiring::Timed;
use super::states::Declared;
use crate::error::StateError;

/// Which of the descriptions of a state a row was written with: from
/// [`super::KeyedBackendControl::row_version`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowVersion {
    pub(crate) state: u16,
    pub(crate) version: u16,
}

/// Reads a row under its stored schema and appends the row of today; the number is the time of the migration.
type Transcode = fn(&Schema, i64, &[u8], &mut Vec<u8>) -> Result<(), String>;

/// What a table's rows hold, without its type.
#[derive(Clone, Copy)]
pub(crate) struct RowContent {
    evolution: fn(&Schema, &Schema) -> Result<Evolution, SchemaMismatch>,
    /// For rows that were stored with a time to live if and only if there is one now.
    alike: Transcode,
    /// For rows that were stored with a time to live if and only if there is none now.
    otherwise: Transcode,
    /// Whether a row is a list of values.
    many: bool,
}

fn same<Row: Data>(stored: &Schema, _: i64, row: &[u8], bytes: &mut Vec<u8>) -> Result<(), String> {
    Schema::transcode::<Row>(stored, row, bytes).map_err(text)
}

fn text(error: SchemaError) -> String {
    error.to_string()
}

fn put<Row: Serialize>(row: &Row, bytes: &mut Vec<u8>) -> Result<(), String> {
    encode_into(row, bytes).map_err(|error| error.to_string())
}

fn stamp_one<V: Data>(stored: &Schema, at_ms: i64, row: &[u8], bytes: &mut Vec<u8>) -> Result<(), String> {
    let value: V = stored.read(row).map_err(text)?;
    put(&Timed { at_ms, value }, bytes)
}

fn stamp_many<V: Data>(stored: &Schema, at_ms: i64, row: &[u8], bytes: &mut Vec<u8>) -> Result<(), String> {
    let values: Vec<V> = stored.read(row).map_err(text)?;
    put(&values.into_iter().map(|value| Timed { at_ms, value }).collect::<Vec<_>>(), bytes)
}

fn strip_one<V: Data>(stored: &Schema, _: i64, row: &[u8], bytes: &mut Vec<u8>) -> Result<(), String> {
    let timed: Timed<V> = stored.read(row).map_err(text)?;
    put(&timed.value, bytes)
}

fn strip_many<V: Data>(stored: &Schema, _: i64, row: &[u8], bytes: &mut Vec<u8>) -> Result<(), String> {
    let timed: Vec<Timed<V>> = stored.read(row).map_err(text)?;
    put(&timed.into_iter().map(|timed| timed.value).collect::<Vec<_>>(), bytes)
}

impl RowContent {
    /// One `V` per row.
    pub(crate) fn one<V: Data>() -> Self {
        let evolution = Schema::evolution_of::<V>;
        RowContent { evolution, alike: same::<V>, otherwise: strip_one::<V>, many: false }
    }

    /// Several `T` per row.
    pub(crate) fn many<T: Data>() -> Self {
        let evolution = Schema::evolution_of::<T>;
        RowContent { evolution, alike: same::<Vec<T>>, otherwise: strip_many::<T>, many: true }
    }

    /// One `V` per row, with its time.
    pub(crate) fn timed_one<V: Data>() -> Self {
        let evolution = Schema::evolution_of::<V>;
        RowContent { evolution, alike: same::<Timed<V>>, otherwise: stamp_one::<V>, many: false }
    }

    /// Several `T` per row, each with its time.
    pub(crate) fn timed_many<T: Data>() -> Self {
        let evolution = Schema::evolution_of::<T>;
        RowContent { evolution, alike: same::<Vec<Timed<T>>>, otherwise: stamp_many::<T>, many: true }
    }

    /// How values of `stored` become values of `now`.
    pub(crate) fn evolution(self, stored: &Schema, now: &Schema) -> Result<Evolution, SchemaMismatch> {
        (self.evolution)(stored, now)
    }

    /// Makes rows whose values were written under `stored` rows of today.
    pub(crate) fn migration(self, stored: &Schema, stored_timed: bool, alike: bool) -> Migration {
        let row = row_schema(stored, stored_timed, self.many);
        Migration { row, transcode: if alike { self.alike } else { self.otherwise } }
    }
}

/// The schema of a row of such values.
pub(crate) fn row_schema(value: &Schema, timed: bool, many: bool) -> Schema {
    let mut row = value.clone();
    if timed {
        let at = Schema::Primitive("i64".to_owned());
        row = Schema::Struct(vec![("at_ms".to_owned(), at), ("value".to_owned(), row)]);
    }
    if many { Schema::Seq(Box::new(row)) } else { row }
}

/// Makes one old description's rows rows of today.
pub(crate) struct Migration {
    row: Schema,
    transcode: Transcode,
}

impl Migration {
    /// Replaces `migrated` by the row of today; a row without time that needs one gets `now_ms`.
    fn migrate(&self, now_ms: i64, row: &[u8], migrated: &mut Vec<u8>) -> Result<(), String> {
        migrated.clear();
        (self.transcode)(&self.row, now_ms, row, migrated)
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
    now_ms: impl FnOnce() -> i64,
    row: &'a [u8],
    migrated: &'a mut Vec<u8>,
) -> Result<&'a [u8], StateError> {
    let version = declared.versions.get(usize::from(version.version));
    let Some(migration) = version.and_then(|version| version.migration.as_ref()) else { return Ok(row) };
    migration.migrate(now_ms(), row, migrated).map_err(|reason| damaged(&declared.name, group, reason))?;
    Ok(migrated)
}

/// Names the state and the part of it in a difference of schemas.
pub(crate) fn schema_changed(state: &str, part: &'static str, mismatch: SchemaMismatch) -> StateError {
    StateError::SchemaChanged { state: state.to_owned(), part, mismatch: Box::new(mismatch) }
}
