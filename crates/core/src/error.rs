//! What the caller of a failed operation should do next.

use std::any::Any;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The class of an error: it tells the caller what to do next, not what went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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

/// The message of a panic.
#[must_use]
pub fn panic_message(payload: &(dyn Any + Send)) -> String {
    if let Some(message) = payload.downcast_ref::<&str>() {
        (*message).to_owned()
    } else if let Some(message) = payload.downcast_ref::<String>() {
        message.clone()
    } else {
        "a panic without a message".to_owned()
    }
}

/// An error of user code with its class: whether another attempt may succeed. Errors without a class
/// count as [`ErrorKind::Unavailable`] and lead to a restart.
///
/// ```
/// use millpond_core::error::{Classified, ErrorKind};
/// let error = Classified::new(ErrorKind::Invalid, std::io::Error::other("the table has no such column"));
/// assert_eq!(error.to_string(), "the table has no such column");
/// ```
#[derive(Debug)]
pub struct Classified {
    kind: ErrorKind,
    error: Box<dyn std::error::Error + Send + Sync>,
}

impl Classified {
    /// `error`, of class `kind`.
    pub fn new(kind: ErrorKind, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Classified { kind, error: error.into() }
    }

    /// The class.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The error without its class.
    #[must_use]
    pub fn get_ref(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
        self.error.as_ref()
    }

    /// Takes the error out.
    #[must_use]
    pub fn into_inner(self) -> Box<dyn std::error::Error + Send + Sync> {
        self.error
    }
}

impl fmt::Display for Classified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Classified {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}
