//! The name of an object: a checked relative path that every storage can hold.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::StorageError;

/// Longest allowed object name, in bytes.
pub const MAX_OBJECT_NAME_BYTES: usize = 1_024;

/// Longest allowed component of an object name, in bytes.
pub const MAX_COMPONENT_BYTES: usize = 255;

/// A checked relative object name, like `job/checkpoints/7/manifest`.
///
/// Components are separated by `/`. Each is non-empty, at most 255 bytes long and does not begin
/// with a dot, so `.` and `..` are impossible and dotted names stay free for a storage's own use.
/// Allowed are letters and digits of any script, space, and the printable ASCII characters except
/// the backslash. The whole name has at most 1,024 bytes. Cheap to clone.
///
/// ```
/// use millpond_storage::ObjectName;
///
/// let name: ObjectName = "job/7".parse()?;
/// assert_eq!(name.join("manifest")?.as_str(), "job/7/manifest");
/// assert!(ObjectName::new("job/../7").is_err());
/// # Ok::<(), millpond_storage::StorageError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ObjectName(Arc<str>);

impl ObjectName {
    /// Checks `name`.
    ///
    /// # Errors
    /// [`StorageError::InvalidName`] when it breaks a rule given at [`ObjectName`].
    pub fn new(name: impl AsRef<str>) -> Result<ObjectName, StorageError> {
        let name = name.as_ref();
        match fault_of(name) {
            None => Ok(ObjectName(Arc::from(name))),
            Some(reason) => Err(StorageError::InvalidName { name: name.to_owned(), reason }),
        }
    }

    /// This name with more components below it; `below` may itself contain `/`.
    ///
    /// # Errors
    /// [`StorageError::InvalidName`] when the result breaks a rule given at [`ObjectName`].
    pub fn join(&self, below: impl AsRef<str>) -> Result<ObjectName, StorageError> {
        ObjectName::new(format!("{}/{}", self.0, below.as_ref()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What is wrong with `name`, if anything.
fn fault_of(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        return Some("it is empty");
    }
    if name.len() > MAX_OBJECT_NAME_BYTES {
        return Some("it is longer than 1024 bytes");
    }
    if !name.chars().all(is_allowed) {
        return Some("it contains a character that is not allowed");
    }
    name.split('/').find_map(|component| match component {
        "" => Some("a component is empty"),
        dotted if dotted.starts_with('.') => Some("a component begins with a dot"),
        long if long.len() > MAX_COMPONENT_BYTES => Some("a component is longer than 255 bytes"),
        _ => None,
    })
}

fn is_allowed(character: char) -> bool {
    character.is_alphanumeric() || character == ' ' || character.is_ascii_graphic() && character != '\\'
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl AsRef<str> for ObjectName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// Orders, compares and hashes as its text does.
impl Borrow<str> for ObjectName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl FromStr for ObjectName {
    type Err = StorageError;

    fn from_str(name: &str) -> Result<Self, StorageError> {
        ObjectName::new(name)
    }
}

impl TryFrom<&str> for ObjectName {
    type Error = StorageError;

    fn try_from(name: &str) -> Result<Self, StorageError> {
        ObjectName::new(name)
    }
}

impl TryFrom<String> for ObjectName {
    type Error = StorageError;

    fn try_from(name: String) -> Result<Self, StorageError> {
        ObjectName::new(name)
    }
}

impl From<ObjectName> for String {
    fn from(name: ObjectName) -> String {
        name.0.as_ref().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_that_could_leave_the_directory_are_refused() {
        for name in ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a/.", ".tmp/x", "a\\b", "a\0b", "a\nb"] {
            assert!(matches!(ObjectName::new(name), Err(StorageError::InvalidName { .. })), "{name:?}");
        }
    }

    #[test]
    fn names_that_a_file_system_cannot_hold_are_refused() {
        assert!(ObjectName::new("x".repeat(255)).is_ok());
        assert!(ObjectName::new("x".repeat(256)).is_err());
        assert!(ObjectName::new(["x".repeat(255).as_str(); 4].join("/")).is_ok());
        assert!(ObjectName::new(["x".repeat(255).as_str(); 5].join("/")).is_err());
        assert!(ObjectName::new("right\u{202e}left").is_err());
    }

    #[test]
    fn every_operator_name_can_stand_in_an_object_name() {
        assert_eq!(ObjectName::new("per carrier-1_a.b/größe").unwrap().to_string(), "per carrier-1_a.b/größe");
    }

    #[test]
    fn names_are_checked_when_deserialised() {
        let name = ObjectName::new("a/b").unwrap();
        let json = serde_json::to_string(&name).unwrap();
        assert_eq!(json, "\"a/b\"");
        assert_eq!(serde_json::from_str::<ObjectName>(&json).unwrap(), name);
        assert!(serde_json::from_str::<ObjectName>("\"../b\"").is_err());
    }

    proptest! {
        #[test]
        fn an_accepted_name_is_a_plain_relative_path(name in "[a-z./ \\\\]{0,12}") {
            if let Ok(name) = ObjectName::new(&name) {
                let mut components = std::path::Path::new(name.as_str()).components();
                prop_assert!(components.all(|c| matches!(c, std::path::Component::Normal(_))));
            }
        }
    }
}
