//! The schemas that a type had in released versions, kept in a file beside its tests.

use std::path::Path;

use millpond_core::{Data, Schema};

/// Set to anything, the file is brought up to date instead of being complained about.
const UPDATE: &str = "MILLPOND_UPDATE_SCHEMAS";

/// Checks a type against the file of its released schemas; see [`crate::assert_schema_unchanged`].
///
/// # Errors
/// A message for people: the file cannot be read, an older schema cannot be read as `T` any more, or the
/// schema of today is not the last one in the file.
pub fn check_released_schemas<T: Data>(file: &Path) -> Result<(), String> {
    let released = read(file)?;
    let now = Schema::of::<T>();
    for (index, stored) in released.iter().enumerate() {
        Schema::evolution_of::<T>(stored, &now).map_err(|mismatch| {
            format!("schema {} of {} cannot be read any more: {mismatch}", index + 1, file.display())
        })?;
    }
    if released.last() == Some(&now) {
        return Ok(());
    }
    if std::env::var_os(UPDATE).is_some() {
        return write(file, released, now);
    }
    let last = released.last().and_then(|last| last.check_readable_as(&now).err());
    let difference = last.map_or_else(|| "it is not in the file".to_owned(), |mismatch| mismatch.to_string());
    Err(format!(
        "the schema of {} has changed ({difference}); if that is meant, run the test once with {UPDATE}=1, which adds \
         the new schema to {}",
        std::any::type_name::<T>(),
        file.display()
    ))
}

fn read(file: &Path) -> Result<Vec<Schema>, String> {
    match std::fs::read(file) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", file.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(format!("{}: {error}", file.display())),
    }
}

fn write(file: &Path, mut released: Vec<Schema>, now: Schema) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", file.display());
    released.push(now);
    let mut text = serde_json::to_string_pretty(&released).map_err(|error| error.to_string())?;
    text.push('\n');
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    std::fs::write(file, text).map_err(failed)
}

/// Asserts that a type still has the schema in a file of its crate, and still reads every earlier one in it.
///
/// The file is a JSON list, oldest first, kept in the repository. A change that is meant adds to it: run the
/// test once with `MILLPOND_UPDATE_SCHEMAS=1`. A change that could not read what earlier versions stored fails.
///
/// ```no_run
/// use millpond::prelude::*;
///
/// #[derive(Clone, State)]
/// struct Flight {
///     airline: String,
/// }
///
/// millpond::assert_schema_unchanged!(Flight, "tests/schemas/flight.json");
/// ```
#[macro_export]
macro_rules! assert_schema_unchanged {
    ($type:ty, $file:literal) => {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/", $file);
        if let Err(message) = $crate::testing::check_released_schemas::<$type>(std::path::Path::new(file)) {
            panic!("{message}");
        }
    };
}
