//! Why a changelog stream or a ranking is refused.

use millpond_core::ErrorKind;

use super::change::ChangeKind;

/// A change that does not fit what was said before, or an operator that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangelogError {
    /// A row is to be taken out that was never put in, or has been taken out already.
    #[error(
        "a change {kind} takes out a row that is not there: do equal rows get equal keys, and is every row put in first?"
    )]
    NothingToRetract {
        /// What was to happen.
        kind: ChangeKind,
    },
    /// A sum that does not fit 64 bits.
    #[error("the sum {sum} of {rows} rows does not fit 64 bits")]
    Overflow {
        /// The sum.
        sum: i128,
        /// Of how many rows.
        rows: u64,
    },
    /// A record without event time where the order is that of event time.
    #[error("a record without event time has come to a deduplication by event time: is a watermark strategy missing?")]
    NoTimestamp,
    /// A ranking of no rows.
    #[error("a ranking keeps at least 1 row, not 0")]
    NoRows,
    /// A ranking whose checkpoint holds another number of rows.
    #[error("ranking {operator} kept {stored} rows in its checkpoint and is to keep {given}: give it a new name")]
    OtherRows {
        /// The operator.
        operator: String,
        /// How many rows it kept.
        stored: u64,
        /// How many it is to keep.
        given: u64,
    },
}

impl ChangelogError {
    /// Always [`ErrorKind::Invalid`].
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }
}
