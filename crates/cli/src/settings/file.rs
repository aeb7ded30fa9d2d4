//! The layer of a TOML file.

use std::path::Path;

use toml::{Table, Value};

use super::layer::{Layer, Origin};
use super::setting::Setting;
use crate::error::CliError;

/// The file that is read when no other is named and it exists.
pub(crate) const DEFAULT_FILE: &str = "millpond.toml";

/// Reads the settings file at `path`.
///
/// # Errors
/// When it cannot be read, is not TOML, or holds a key that is no setting.
pub(crate) fn read(path: &Path) -> Result<Layer, CliError> {
    let text =
        std::fs::read_to_string(path).map_err(|source| CliError::SettingsFile { file: path.to_owned(), source })?;
    parse(path, &text)
}

/// Reads the text of the settings file at `path`.
fn parse(path: &Path, text: &str) -> Result<Layer, CliError> {
    let table: Table = toml::from_str(text).map_err(|error: toml::de::Error| {
        let before = error.span().map_or(text, |span| text.get(..span.start).unwrap_or(text));
        let line = before.matches('\n').count() + 1;
        CliError::SettingsSyntax { file: path.to_owned(), line, reason: error.message().to_owned() }
    })?;
    let mut layer = Layer::default();
    for (key, value) in table {
        let Some(setting) = Setting::from_key(&key) else {
            return Err(CliError::UnknownKey { file: path.to_owned(), key });
        };
        let text = match value {
            Value::String(text) => text,
            Value::Integer(number) => number.to_string(),
            Value::Boolean(switch) => switch.to_string(),
            other => {
                let reason = format!("type {} is not expected here", other.type_str());
                let origin = Origin::File(path.to_owned());
                return Err(CliError::BadValue { setting, value: other.to_string(), origin, reason });
            }
        };
        layer.give(setting, text, Origin::File(path.to_owned()));
    }
    Ok(layer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        parse(Path::new("millpond.toml"), text).unwrap_err().to_string()
    }

    #[test]
    fn strings_numbers_and_switches_are_values() {
        let text = "workers = 4\ncheckpoint-interval = \"5s\"\nallow-dropped-state = true\n";
        let layer = parse(Path::new("millpond.toml"), text).unwrap();
        let text_of = |setting| layer.get(setting).unwrap().text.as_str();
        assert_eq!(text_of(Setting::Workers), "4");
        assert_eq!(text_of(Setting::CheckpointInterval), "5s");
        assert_eq!(text_of(Setting::AllowDroppedState), "true");
    }

    #[test]
    fn an_unknown_key_is_named_with_its_file() {
        assert_eq!(refusal("wrokers = 4"), "unknown setting \"wrokers\" in millpond.toml");
    }

    #[test]
    fn a_value_of_another_type_is_named() {
        let refused = refusal("workers = [1, 2]");
        assert_eq!(refused, "bad value [1, 2] for workers (file millpond.toml): type array is not expected here");
    }

    #[test]
    fn a_syntax_error_is_one_line_with_its_place() {
        let refused = refusal("workers = 4\nretain = = 3\n");
        assert!(refused.starts_with("millpond.toml is not valid TOML at line 2: "), "{refused}");
        assert!(!refused.contains('\n'), "{refused}");
    }
}
