//! Names that users give to operators and state: they identify state for ever, so they are checked.

use crate::error::ErrorKind;

/// Longest allowed name, in bytes.
pub const MAX_NAME_BYTES: usize = 128;

/// A name that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name is the empty string.
    #[error("a name must not be empty")]
    Empty,
    /// The name is too long.
    #[error("name {name:?} has {bytes} bytes, more than {MAX_NAME_BYTES}")]
    TooLong {
        /// The refused name.
        name: String,
        /// Its length.
        bytes: usize,
    },
    /// The name holds a character that could not stand in an object name.
    #[error("name {name:?} contains {character:?}; letters, digits, '-', '_', '.' and ' ' are allowed")]
    Character {
        /// The refused name.
        name: String,
        /// The first refused character.
        character: char,
    },
}

impl NameError {
    /// Always [`ErrorKind::Invalid`].
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }
}

/// Checks a name given by a user to an operator or a state.
///
/// # Errors
/// When the name is empty, longer than 128 bytes, or holds other characters than letters (of any
/// script), digits, `-`, `_`, `.` and space.
pub fn check_name(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(NameError::TooLong { name: name.to_owned(), bytes: name.len() });
    }
    match name.chars().find(|c| !(c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ' '))) {
        Some(character) => Err(NameError::Character { name: name.to_owned(), character }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        assert!(check_name("per carrier-1_a.b").is_ok());
        assert_eq!(check_name(""), Err(NameError::Empty));
        assert!(matches!(check_name("a/b"), Err(NameError::Character { character: '/', .. })));
        assert!(matches!(check_name(&"x".repeat(129)), Err(NameError::TooLong { bytes: 129, .. })));
    }
}
