//! The rows that a changelog leaves, for tests and for programs that read one.

use std::collections::BTreeMap;

use super::change::Change;
use super::error::ChangelogError;

/// The rows that are there after a number of changes, in order; equal ones as often as they were put in.
///
/// ```
/// use millpond_operators::{Change, MaterializedView};
///
/// let mut view = MaterializedView::new();
/// view.apply_all([Change::insert(3), Change::update_before(3), Change::update_after(4)])?;
/// assert_eq!(view.into_rows(), [4]);
/// # Ok::<(), millpond_operators::ChangelogError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MaterializedView<T> {
    rows: BTreeMap<T, u64>,
}

impl<T: Ord> MaterializedView<T> {
    /// No rows.
    #[must_use]
    pub fn new() -> Self {
        MaterializedView { rows: BTreeMap::new() }
    }

    /// Applies a change.
    ///
    /// # Errors
    /// When it takes out a row that is not there; nothing has changed then.
    pub fn apply(&mut self, change: Change<T>) -> Result<(), ChangelogError> {
        if change.adds() {
            *self.rows.entry(change.row).or_default() += 1;
            return Ok(());
        }
        let count = self.rows.get_mut(&change.row).ok_or(ChangelogError::NothingToRetract { kind: change.kind })?;
        *count -= 1;
        if *count == 0 {
            self.rows.remove(&change.row);
        }
        Ok(())
    }

    /// Applies changes in their order.
    ///
    /// # Errors
    /// As [`MaterializedView::apply`]; those before the failed one are applied.
    pub fn apply_all(&mut self, changes: impl IntoIterator<Item = Change<T>>) -> Result<(), ChangelogError> {
        changes.into_iter().try_for_each(|change| self.apply(change))
    }

    /// The rows, in order, equal ones repeated.
    pub fn rows(&self) -> impl Iterator<Item = &T> {
        self.rows.iter().flat_map(|(row, count)| (0..*count).map(move |_| row))
    }

    /// The rows, in order, equal ones repeated.
    #[must_use]
    pub fn into_rows(self) -> Vec<T>
    where
        T: Clone,
    {
        self.rows().cloned().collect()
    }
}
