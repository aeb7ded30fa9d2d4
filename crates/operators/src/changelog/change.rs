//! One change of a set of rows.

use std::fmt;

use millpond_core::Data;
use millpond_dataflow::Output;
use serde::{Deserialize, Serialize};

/// What a change does to the set of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ChangeKind {
    /// Puts in a row.
    Insert,
    /// Takes out a row, in whose place another comes.
    UpdateBefore,
    /// Puts in a row, in whose place another was.
    UpdateAfter,
    /// Takes out a row.
    Delete,
}

impl ChangeKind {
    /// Whether the row is put in; otherwise it is taken out.
    #[must_use]
    pub const fn adds(self) -> bool {
        matches!(self, ChangeKind::Insert | ChangeKind::UpdateAfter)
    }

    /// `+I`, `-U`, `+U` or `-D`.
    #[must_use]
    pub const fn symbol(self) -> &'static str {
        match self {
            ChangeKind::Insert => "+I",
            ChangeKind::UpdateBefore => "-U",
            ChangeKind::UpdateAfter => "+U",
            ChangeKind::Delete => "-D",
        }
    }
}

impl fmt::Display for ChangeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.symbol())
    }
}

/// A change of a set of rows: what happens, and to which row.
///
/// ```
/// use millpond_operators::Change;
///
/// let change = Change::insert(("apples", 3));
/// assert!(change.adds());
/// assert_eq!(change.map(|(fruit, _)| fruit).to_string(), "+I apples");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Change<T> {
    /// What happens.
    pub kind: ChangeKind,
    /// The row.
    pub row: T,
}

impl<T> Change<T> {
    /// Puts in `row`.
    #[must_use]
    pub const fn insert(row: T) -> Self {
        Change { kind: ChangeKind::Insert, row }
    }

    /// Takes out `row`, in whose place another comes next.
    #[must_use]
    pub const fn update_before(row: T) -> Self {
        Change { kind: ChangeKind::UpdateBefore, row }
    }

    /// Puts in `row`, in place of one that was taken out just before.
    #[must_use]
    pub const fn update_after(row: T) -> Self {
        Change { kind: ChangeKind::UpdateAfter, row }
    }

    /// Takes out `row`.
    #[must_use]
    pub const fn delete(row: T) -> Self {
        Change { kind: ChangeKind::Delete, row }
    }

    /// Whether the row is put in; otherwise it is taken out.
    #[must_use]
    pub const fn adds(&self) -> bool {
        self.kind.adds()
    }

    /// The same change of another row.
    #[must_use]
    pub fn map<U>(self, row: impl FnOnce(T) -> U) -> Change<U> {
        Change { kind: self.kind, row: row(self.row) }
    }
}

impl<T: fmt::Display> fmt::Display for Change<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.row)
    }
}

/// Emits what leads from one row of a key to another, `None` being no row.
pub(crate) fn emit_replacement<T: Data>(before: Option<T>, after: Option<T>, output: &mut Output<Change<T>>) {
    match (before, after) {
        (None, None) => {}
        (None, Some(after)) => output.emit(Change::insert(after)),
        (Some(before), None) => output.emit(Change::delete(before)),
        (Some(before), Some(after)) => {
            output.emit(Change::update_before(before));
            output.emit(Change::update_after(after));
        }
    }
}
