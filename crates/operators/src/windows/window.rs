//! A window: an interval of time.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An interval of time `[start, end)` in milliseconds. The global window is all of time.
///
/// Windows that would reach beyond the ends of `i64` end there; one that ends at [`i64::MAX`] holds that
/// time as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Window {
    /// The first time inside.
    pub start: i64,
    /// The first time after it (WI-03).
    pub end: i64,
}

impl Window {
    /// All of time.
    pub const GLOBAL: Window = Window { start: i64::MIN, end: i64::MAX };

    /// The window `[start, end)`.
    #[must_use]
    pub const fn new(start: i64, end: i64) -> Self {
        Window { start, end }
    }

    /// The last time inside: results carry it as their event time (WI-11).
    #[must_use]
    pub const fn max_time(&self) -> i64 {
        if self.end == i64::MAX { i64::MAX } else { self.end - 1 }
    }

    /// Whether `time_ms` lies inside.
    #[must_use]
    pub const fn contains(&self, time_ms: i64) -> bool {
        self.start <= time_ms && time_ms <= self.max_time()
    }

    /// Whether the two overlap, or one begins where the other ends (WI-20).
    #[must_use]
    pub const fn touches(&self, other: &Window) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    /// The smallest window that holds both.
    #[must_use]
    pub const fn cover(&self, other: &Window) -> Window {
        let start = if self.start < other.start { self.start } else { other.start };
        let end = if self.end > other.end { self.end } else { other.end };
        Window { start, end }
    }

    /// The window of `size_ms` from `start` on, which may lie outside of `i64`.
    pub(crate) fn clamped(start: i128, size_ms: i64) -> Window {
        Window { start: clamp(start), end: clamp(start + i128::from(size_ms)) }
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.start, self.end)
    }
}

/// The nearest time there is.
pub(crate) fn clamp(time: i128) -> i64 {
    i64::try_from(time).unwrap_or(if time < 0 { i64::MIN } else { i64::MAX })
}

/// The last multiple of `step_ms`, shifted by `offset_ms`, at or below `time_ms` (WI-01).
#[inline]
pub(crate) fn floor(time_ms: i64, step_ms: i64, offset_ms: i64) -> i128 {
    if let Some(shifted) = time_ms.checked_sub(offset_ms) {
        return i128::from(time_ms) - i128::from(shifted.rem_euclid(step_ms));
    }
    let shifted = i128::from(time_ms) - i128::from(offset_ms);
    i128::from(time_ms) - shifted.rem_euclid(i128::from(step_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wi_01_starts_are_below_negative_times_as_well() {
        let starts = |offset: i64| [-6, -5, -1, 0, 4, 5].map(|time: i64| floor(time, 5, offset));
        assert_eq!(starts(0), [-10, -5, -5, 0, 0, 5]);
        assert_eq!(starts(2), [-8, -8, -3, -3, 2, 2]);
        assert_eq!(starts(-2), [-7, -7, -2, -2, 3, 3]);
    }

    #[test]
    fn windows_at_the_ends_of_time_end_there() {
        let last = Window::clamped(floor(i64::MAX, 1_000, 0), 1_000);
        assert_eq!((last.end, last.contains(i64::MAX)), (i64::MAX, true));
        let first = Window::clamped(floor(i64::MIN + 1, 1_000, 0), 1_000);
        assert_eq!(first.start, i64::MIN);
        assert!(first.contains(i64::MIN + 1));
        assert_eq!(
            floor(i64::MIN + 1, 10, 9),
            i128::from(i64::MIN) + 1 - (i128::from(i64::MIN) + 1 - 9).rem_euclid(10)
        );
    }

    #[test]
    fn wi_20_windows_that_touch_merge_and_a_gap_of_one_keeps_them_apart() {
        let window = Window::new(0, 10);
        assert!(window.touches(&Window::new(10, 12)) && window.touches(&Window::new(-5, 0)));
        assert!(!window.touches(&Window::new(11, 12)) && !window.touches(&Window::new(-5, -1)));
        assert_eq!(window.cover(&Window::new(-5, 3)), Window::new(-5, 10));
    }
}
