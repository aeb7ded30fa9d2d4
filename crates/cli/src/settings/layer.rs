//! Values as they were given, with their origin; and the one rule by which layers cover each other.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use super::setting::Setting;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// A settings file.
    File(PathBuf),
    /// The environment variable of the setting.
    Variable(String),
    /// The flag of the setting.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(path) => write!(f, "file {}", path.display()),
            Origin::Variable(name) => write!(f, "variable {name}"),
            Origin::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// A value as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    /// As written.
    pub(crate) text: String,
    /// By whom.
    pub(crate) origin: Origin,
}

/// Some of the settings, as given in one place or, after covering, in several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layer {
    given: BTreeMap<Setting, Given>,
}

impl Layer {
    /// Adds a value; the last one counts.
    pub(crate) fn give(&mut self, setting: Setting, text: impl Into<String>, origin: Origin) {
        self.given.insert(setting, Given { text: text.into(), origin });
    }

    /// This layer where it says something, `lower` elsewhere.
    #[must_use]
    pub(crate) fn over(self, mut lower: Layer) -> Layer {
        lower.given.extend(self.given);
        lower
    }

    /// What was given for `setting`.
    #[must_use]
    pub(crate) fn get(&self, setting: Setting) -> Option<&Given> {
        self.given.get(&setting)
    }
}
