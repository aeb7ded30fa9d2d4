//! What the caller of a failed operation should do next.

use std::fmt;

/// The class of an error: it tells the caller what to do next, not what went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Did not happen; may work later. Retry.
    Unavailable,
    /// May or may not have happened. Look before retrying.
    Uncertain,
    /// Somebody newer owns this. Stop.
    Fenced,
    /// Stored bytes are damaged or missing. Give up on them, keep them for inspection.
    Corrupt,
    /// The request itself is wrong. Fix the call, the job or the settings.
    Invalid,
    /// An invariant of Millpond is broken. Report it.
    Bug,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::Uncertain => "uncertain",
            ErrorKind::Fenced => "fenced",
            ErrorKind::Corrupt => "corrupt",
            ErrorKind::Invalid => "invalid",
            ErrorKind::Bug => "bug",
        })
    }
}

/// An error with all its sources, in one line.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.ends_with(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        source = inner.source();
    }
    text
}
