//! Time to live: states whose entries are forgotten some time after they were last written, or read.
//!
//! Owns what *expired* means and a handle of each kind that never shows it. Does *not* own a table: an
//! expiring state is a state of [`Timed`] values behind the handle of its kind, so the time is part of the value and of
//! its row, and states without a time to live pay nothing. Time is the processing time of the backend's clock.
//!
//! Invariants: an entry written at `t` with time to live `d` is gone from `t + d` on (TL-01); what a read finds
//! expired it removes (TL-02); what was read as live stays readable for the rest of the record.

mod aggregating;
mod list;
mod map;
mod reducing;
mod value;

use std::time::Duration;

use millpond_core::Data;
use serde::{Deserialize, Serialize};

pub use aggregating::ExpiringAggregating;
pub(crate) use aggregating::TimedAggregate;
pub use list::ExpiringList;
pub(crate) use list::list_expiry;
pub use map::ExpiringMap;
pub use reducing::ExpiringReducing;
pub(crate) use reducing::timed_reduce;
pub use value::ExpiringValue;

use super::sweep::{Expiry, Verdict};
use super::value::Single;
use crate::error::StateError;

/// How long entries of a state live, and what renews them.
///
/// ```
/// use std::time::Duration;
/// use millpond_state::Ttl;
///
/// let hour = Ttl::after(Duration::from_secs(3600));                        // since the last write
/// let session = Ttl::after(Duration::from_secs(1800)).on_read_and_write(); // since it was last used
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ttl {
    /// Milliseconds that an entry lives; `i64::MAX` is for ever.
    after_ms: i64,
    /// Whether reading renews, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    on_read: bool,
}

impl Ttl {
    /// Entries live this long after they were created or last written. Counted in whole milliseconds; less than
    /// one is refused when a state is declared with it.
    #[must_use]
    pub fn after(lifetime: Duration) -> Self {
        Ttl { after_ms: i64::try_from(lifetime.as_millis()).unwrap_or(i64::MAX), on_read: false }
    }

    /// Reading an entry renews it, as writing does. A read then costs as much as a write.
    #[must_use]
    pub fn on_read_and_write(self) -> Self {
        Ttl { on_read: true, ..self }
    }

    /// Whether an entry that was renewed at `at_ms` is gone at `now_ms`. A sum beyond 64 bits never comes.
    #[must_use]
    pub fn is_expired(self, at_ms: i64, now_ms: i64) -> bool {
        at_ms.checked_add(self.after_ms).is_some_and(|end_ms| end_ms <= now_ms)
    }

    pub(crate) fn check(self, state: &str) -> Result<Self, StateError> {
        if self.after_ms > 0 { Ok(self) } else { Err(StateError::TtlTooShort { state: state.to_owned() }) }
    }

    /// Whether reading an entry that was renewed at `at_ms` changes it.
    fn renews(self, at_ms: i64, now_ms: i64) -> bool {
        self.on_read && at_ms != now_ms
    }
}

/// A value and when it was written or renewed. This is what rows of expiring states hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timed<V> {
    /// Milliseconds since 1970-01-01 UTC.
    pub(crate) at_ms: i64,
    pub(crate) value: V,
}

impl<V> Timed<V> {
    /// The value.
    #[must_use]
    pub fn into_value(self) -> V {
        self.value
    }

    /// When it was written or renewed, in milliseconds since 1970-01-01 UTC.
    #[must_use]
    pub fn at_ms(&self) -> i64 {
        self.at_ms
    }

    fn peek(&self, ttl: Ttl, now_ms: i64) -> Option<&V> {
        (!ttl.is_expired(self.at_ms, now_ms)).then_some(&self.value)
    }

    fn live(self, ttl: Ttl, now_ms: i64) -> Option<V> {
        (!ttl.is_expired(self.at_ms, now_ms)).then_some(self.value)
    }
}

/// How a table of values that expire finds what is over.
pub(crate) fn value_expiry<V: Data>(ttl: Ttl) -> Expiry<Timed<V>> {
    Expiry::of_values(ttl, judge_value)
}

/// How a table of cells with one such value each finds what is over.
pub(crate) fn cell_expiry<V: Data>(ttl: Ttl) -> Expiry<Single<Timed<V>>> {
    Expiry::of_values(ttl, |cell, ttl, now_ms| judge_value(&cell.0, ttl, now_ms))
}

fn judge_value<V>(timed: &Timed<V>, ttl: Ttl, now_ms: i64) -> Verdict {
    if ttl.is_expired(timed.at_ms, now_ms) { Verdict::Over } else { Verdict::Live }
}

/// Why a walk ended before its end.
pub(crate) enum Stop {
    /// What was looked for is found.
    Found,
    Failed(StateError),
}

impl From<StateError> for Stop {
    fn from(error: StateError) -> Self {
        Stop::Failed(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tl_01_tl_10_an_entry_is_gone_exactly_when_its_time_is_over_and_never_on_overflow() {
        let ttl = Ttl::after(Duration::from_millis(10));
        assert!(!ttl.is_expired(5, 14));
        assert!(ttl.is_expired(5, 15));
        assert!(!ttl.is_expired(i64::MAX - 5, i64::MAX));
        assert!(!Ttl::after(Duration::MAX).is_expired(1, i64::MAX));
    }
}
