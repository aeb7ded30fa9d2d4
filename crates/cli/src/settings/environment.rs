//! The layer of environment variables.

use std::ffi::OsString;
use std::path::PathBuf;

use super::layer::{Layer, Origin};
use super::setting::Setting;
use crate::error::CliError;

/// Names the settings file, as the flag `--config` does.
pub(crate) const CONFIG_VARIABLE: &str = "MILLPOND_CONFIG";
const PREFIX: &str = "MILLPOND_";

/// What the environment says.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    /// Its values.
    pub(crate) layer: Layer,
    /// The settings file it names.
    pub(crate) config: Option<PathBuf>,
    /// Variables that look like settings and are none.
    pub(crate) unknown: Vec<String>,
}

/// Picks the settings out of `variables`.
///
/// # Errors
/// When the value of a setting is not valid Unicode.
pub(crate) fn read(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Environment, CliError> {
    let mut environment = Environment::default();
    for (name, value) in variables {
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else {
            continue;
        };
        if name == CONFIG_VARIABLE {
            environment.config = Some(PathBuf::from(value));
        } else if let Some(setting) = Setting::from_variable(name) {
            let origin = Origin::Variable(name.to_owned());
            match value.into_string() {
                Ok(text) => environment.layer.give(setting, text, origin),
                Err(value) => {
                    let (value, reason) = (value.to_string_lossy().into_owned(), "it is not valid Unicode".to_owned());
                    return Err(CliError::BadValue { setting, value, origin, reason });
                }
            }
        } else {
            environment.unknown.push(name.to_owned());
        }
    }
    environment.unknown.sort_unstable();
    Ok(environment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_variables_are_listed_and_foreign_ones_ignored() {
        let variables =
            [("PATH", "/bin"), ("MILLPOND_WROKERS", "4"), ("MILLPOND_WORKERS", "3"), ("MILLPOND_CONFIG", "x.toml")];
        let environment = read(variables.map(|(name, value)| (name.into(), value.into()))).unwrap();
        assert_eq!(environment.unknown, ["MILLPOND_WROKERS"]);
        assert_eq!(environment.layer.get(Setting::Workers).unwrap().text, "3");
        assert_eq!(environment.config, Some(PathBuf::from("x.toml")));
    }
}
