//! Which windows a record belongs to.

use std::time::Duration;

use millpond_core::{Data, ErrorKind, UserResult};
use millpond_dataflow::TimeDomain;

use super::trigger::{Trigger, Triggers};
use super::window::{Window, clamp, floor};

/// The most windows that a record may belong to.
const MAX_WINDOWS: i64 = 100_000;

/// Windows that cannot be, or a record that fits none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// A length that must be at least a millisecond, and no more than there is time.
    #[error("the {what} of a window must be from 1 ms to {} ms, not {given_ms}", i64::MAX)]
    Length {
        /// Which length.
        what: &'static str,
        /// What was given, in milliseconds.
        given_ms: i128,
    },
    /// An offset that is not smaller than what it shifts.
    #[error("the offset of a window must be smaller than its step of {step_ms} ms, not {offset_ms} ms")]
    Offset {
        /// The offset.
        offset_ms: i64,
        /// The size of tumbling windows, the slide of sliding ones.
        step_ms: i64,
    },
    /// Cumulative windows whose size is not a multiple of their step.
    #[error("the size of cumulative windows, {size_ms} ms, must be a multiple of their step, {step_ms} ms")]
    Step {
        /// The size.
        size_ms: i64,
        /// The step.
        step_ms: i64,
    },
    /// Windows of which too many hold each record.
    #[error(
        "windows of {size_ms} ms, one every {step_ms} ms, put each record into {windows} windows: more than {MAX_WINDOWS}"
    )]
    TooMany {
        /// The size.
        size_ms: i64,
        /// The slide of sliding windows, the step of cumulative ones.
        step_ms: i64,
        /// How many hold a record.
        windows: i64,
    },
    /// An offset for windows that do not begin at regular times.
    #[error("{what} windows cannot be shifted by an offset, here {offset_ms} ms")]
    NoOffset {
        /// Which windows.
        what: &'static str,
        /// The offset.
        offset_ms: i64,
    },
    /// Lateness for windows by the wall clock.
    #[error("no record is late for windows by the wall clock, so that they cannot have an allowed lateness")]
    Lateness,
    /// A number of records that must be at least one.
    #[error("the number of records of a window must be at least 1")]
    Count,
    /// Sessions with something that cannot follow when they merge.
    #[error("session windows merge, and {what} cannot")]
    Merging {
        /// What.
        what: &'static str,
    },
    /// The checkpoint holds records of other windows, which cannot be divided anew.
    #[error(
        "operator `{operator}` has {given}, but the checkpoint holds {stored} for it: give the new windows another name"
    )]
    Changed {
        /// The operator.
        operator: String,
        /// What the checkpoint holds.
        stored: String,
        /// What the job has now.
        given: String,
    },
    /// A record without event time (WI-07).
    #[error("a record without event time has come to windows in event time: is a watermark strategy missing?")]
    NoTimestamp,
}

impl WindowError {
    /// Always [`ErrorKind::Invalid`].
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }
}

/// Which windows there are, and in which time.
///
/// ```
/// use std::time::Duration;
/// use millpond_operators::Windows;
///
/// let minutes = Windows::<u64>::tumbling(Duration::from_secs(60));
/// let hourly_every_minute = Windows::<u64>::sliding(Duration::from_secs(3_600), Duration::from_secs(60));
/// let visits = Windows::<u64>::session(Duration::from_secs(1_800));
/// let by_the_wall_clock = Windows::<u64>::tumbling(Duration::from_secs(1)).processing_time();
/// ```
pub struct Windows<T> {
    pub(crate) shape: Shape<T>,
    pub(crate) offset_ms: i64,
    pub(crate) domain: TimeDomain,
}

/// The gap after a record.
pub(crate) type GapOf<T> = Box<dyn FnMut(&T) -> i128>;

/// The windows of a record and its time.
pub(crate) type AssignOf<T> = Box<dyn FnMut(&T, i64) -> Vec<Window>>;

pub(crate) enum Shape<T> {
    Tumbling { size_ms: i128 },
    Sliding { size_ms: i128, slide_ms: i128 },
    Cumulative { size_ms: i128, step_ms: i128 },
    Session { gap_ms: i128 },
    DynamicSession { gap: GapOf<T> },
    Global,
    Custom { assign: AssignOf<T> },
}

fn millis(duration: Duration) -> i128 {
    i128::try_from(duration.as_millis()).unwrap_or(i128::MAX)
}

impl<T> Windows<T> {
    fn of(shape: Shape<T>) -> Self {
        Windows { shape, offset_ms: 0, domain: TimeDomain::Event }
    }

    /// One window after the other (WI-02).
    #[must_use]
    pub fn tumbling(size: Duration) -> Self {
        Windows::of(Shape::Tumbling { size_ms: millis(size) })
    }

    /// Windows of `size`, one beginning every `slide` (WI-04), of which at most 100,000 may hold a record. With a slide above the size there are gaps between
    /// them, and records that belong to none (WI-05).
    #[must_use]
    pub fn sliding(size: Duration, slide: Duration) -> Self {
        Windows::of(Shape::Sliding { size_ms: millis(size), slide_ms: millis(slide) })
    }

    /// Windows that begin together every `size`, and end after one `step`, two, … up to `size`: a running total
    /// that begins anew. There may be at most 100,000 steps.
    #[must_use]
    pub fn cumulative(size: Duration, step: Duration) -> Self {
        Windows::of(Shape::Cumulative { size_ms: millis(size), step_ms: millis(step) })
    }

    /// Records of a key that are less than `gap` apart, or just that, are together in one window (WI-06).
    #[must_use]
    pub fn session(gap: Duration) -> Self {
        Windows::of(Shape::Session { gap_ms: millis(gap) })
    }

    /// Sessions in which each record brings its own gap (WI-25), which must be at least a millisecond.
    #[must_use]
    pub fn dynamic_session(mut gap: impl FnMut(&T) -> Duration + 'static) -> Self {
        Windows::of(Shape::DynamicSession { gap: Box::new(move |record| millis(gap(record))) })
    }

    /// One window for all of time; it needs a trigger, for by itself it never fires (WI-32).
    #[must_use]
    pub fn global() -> Self {
        Windows::of(Shape::Global)
    }

    /// The windows that `assign` makes of a record and its time. Empty ones are passed over.
    #[must_use]
    pub fn custom(assign: impl FnMut(&T, i64) -> Vec<Window> + 'static) -> Self {
        Windows::of(Shape::Custom { assign: Box::new(assign) })
    }

    /// Shifts where tumbling, sliding and cumulative windows begin, such as by a time zone; may be negative. Other
    /// windows have no offset but 0.
    #[must_use]
    pub fn offset_ms(self, offset_ms: i64) -> Self {
        Windows { offset_ms, ..self }
    }

    /// Windows by the wall clock at a record's arrival: no record is late (WI-09).
    #[must_use]
    pub fn processing_time(self) -> Self {
        Windows { domain: TimeDomain::Processing, ..self }
    }

    /// Whether windows of a key may merge.
    pub(crate) fn merges(&self) -> bool {
        matches!(self.shape, Shape::Session { .. } | Shape::DynamicSession { .. })
    }

    /// Whether all lengths are possible (WI-08).
    pub(crate) fn check(&self) -> Result<(), WindowError> {
        let length = |what, given_ms: i128| match i64::try_from(given_ms) {
            Ok(length_ms) if length_ms > 0 => Ok(length_ms),
            _ => Err(WindowError::Length { what, given_ms }),
        };
        let few = |size_ms: i64, step_ms: i64| match size_ms / step_ms + i64::from(size_ms % step_ms != 0) {
            windows if windows > MAX_WINDOWS => Err(WindowError::TooMany { size_ms, step_ms, windows }),
            _ => Ok(()),
        };
        let irregular = |what| match self.offset_ms {
            0 => Ok(()),
            offset_ms => Err(WindowError::NoOffset { what, offset_ms }),
        };
        let step_ms = match &self.shape {
            Shape::Tumbling { size_ms } => length("size", *size_ms)?,
            Shape::Sliding { size_ms, slide_ms } => {
                let (size_ms, slide_ms) = (length("size", *size_ms)?, length("slide", *slide_ms)?);
                few(size_ms, slide_ms)?;
                slide_ms
            }
            Shape::Cumulative { size_ms, step_ms } => {
                let (size_ms, step_ms) = (length("size", *size_ms)?, length("step", *step_ms)?);
                if size_ms % step_ms != 0 {
                    return Err(WindowError::Step { size_ms, step_ms });
                }
                few(size_ms, step_ms)?;
                size_ms
            }
            Shape::Session { gap_ms } => {
                length("gap", *gap_ms)?;
                return irregular("session");
            }
            Shape::DynamicSession { .. } => return irregular("session"),
            Shape::Global => return irregular("global"),
            Shape::Custom { .. } => return irregular("custom"),
        };
        if self.offset_ms.unsigned_abs() >= step_ms.unsigned_abs() {
            return Err(WindowError::Offset { offset_ms: self.offset_ms, step_ms });
        }
        Ok(())
    }

    /// At the end of a window; never, for all of time (WI-32).
    pub(crate) fn default_trigger(&self) -> Box<dyn Trigger<T>>
    where
        T: Data,
    {
        match self.shape {
            Shape::Global => Box::new(Triggers::never()),
            _ => Box::new(Triggers::at_end(self.domain)),
        }
    }

    /// Appends the windows of a record at `time_ms`.
    pub(crate) fn assign(&mut self, record: &T, time_ms: i64, into: &mut Vec<Window>) -> UserResult {
        let offset_ms = self.offset_ms;
        match &mut self.shape {
            Shape::Tumbling { size_ms } => {
                let size_ms = clamp(*size_ms);
                into.push(Window::clamped(floor(time_ms, size_ms, offset_ms), size_ms));
            }
            Shape::Sliding { size_ms, slide_ms } => {
                let (size_ms, slide_ms) = (clamp(*size_ms), clamp(*slide_ms));
                let mut start = floor(time_ms, slide_ms, offset_ms);
                while start > i128::from(time_ms) - i128::from(size_ms) {
                    into.push(Window::clamped(start, size_ms));
                    start -= i128::from(slide_ms);
                }
            }
            Shape::Cumulative { size_ms, step_ms } => {
                let (size_ms, step_ms) = (clamp(*size_ms), clamp(*step_ms));
                let start = floor(time_ms, size_ms, offset_ms);
                let mut length = (i128::from(time_ms) - start) / i128::from(step_ms) * i128::from(step_ms);
                while length < i128::from(size_ms) {
                    length += i128::from(step_ms);
                    into.push(Window { start: clamp(start), end: clamp(start + length) });
                }
            }
            Shape::Session { gap_ms } => into.push(Window::clamped(i128::from(time_ms), clamp(*gap_ms))),
            Shape::DynamicSession { gap } => {
                let given_ms = gap(record);
                match i64::try_from(given_ms) {
                    Ok(gap_ms) if gap_ms > 0 => into.push(Window::clamped(i128::from(time_ms), gap_ms)),
                    _ => return Err(WindowError::Length { what: "gap", given_ms }.into()),
                }
            }
            Shape::Global => into.push(Window::GLOBAL),
            Shape::Custom { assign } => into.extend(assign(record, time_ms).into_iter().filter(|w| w.start < w.end)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn windows(mut windows: Windows<i64>, time: i64) -> Vec<(i64, i64)> {
        let mut assigned = Vec::new();
        windows.check().unwrap();
        windows.assign(&time, time, &mut assigned).unwrap();
        assigned.iter().map(|window| (window.start, window.end)).collect()
    }

    #[test]
    fn wi_02_tumbling_wi_04_sliding_wi_05_gaps_and_cumulative() {
        assert_eq!(windows(Windows::tumbling(MS(5)), -1), [(-5, 0)]);
        assert_eq!(windows(Windows::tumbling(MS(5)).offset_ms(2), 1), [(-3, 2)]);
        assert_eq!(windows(Windows::sliding(MS(10), MS(5)), 7), [(5, 15), (0, 10)]);
        assert_eq!(windows(Windows::sliding(MS(10), MS(4)), 9), [(8, 18), (4, 14), (0, 10)]);
        assert_eq!(windows(Windows::sliding(MS(2), MS(5)), 1), [(0, 2)]);
        assert_eq!(windows(Windows::sliding(MS(2), MS(5)), 2), []);
        assert_eq!(windows(Windows::cumulative(MS(9), MS(3)), 4), [(0, 6), (0, 9)]);
        assert_eq!(windows(Windows::cumulative(MS(9), MS(3)), -1), [(-9, 0)]);
        assert_eq!(windows(Windows::session(MS(3)), -2), [(-2, 1)]);
    }

    #[test]
    fn wi_08_lengths_and_offsets_that_cannot_be_are_refused() {
        let zero = WindowError::Length { what: "size", given_ms: 0 };
        assert_eq!(Windows::<()>::tumbling(MS(0)).check(), Err(zero.clone()));
        assert_eq!(Windows::<()>::sliding(MS(0), MS(1)).check(), Err(zero));
        let slide = WindowError::Length { what: "slide", given_ms: 0 };
        assert_eq!(Windows::<()>::sliding(MS(1), MS(0)).check(), Err(slide));
        assert!(Windows::<()>::session(MS(0)).check().is_err());
        assert!(Windows::<()>::tumbling(Duration::MAX).check().is_err());
        for offset_ms in [5, -5, i64::MIN] {
            let refused = WindowError::Offset { offset_ms, step_ms: 5 };
            assert_eq!(Windows::<()>::tumbling(MS(5)).offset_ms(offset_ms).check(), Err(refused));
        }
        for (what, windows) in [("session", Windows::<()>::session(MS(5))), ("global", Windows::global())] {
            assert_eq!(windows.offset_ms(3).check(), Err(WindowError::NoOffset { what, offset_ms: 3 }));
        }
        let refused = WindowError::Step { size_ms: 10, step_ms: 3 };
        assert_eq!(Windows::<()>::cumulative(MS(10), MS(3)).check(), Err(refused));
    }

    #[test]
    fn wi_08_a_record_may_be_in_no_more_than_100_000_windows() {
        let year_ms = 365 * 24 * 3_600_000;
        let refused = WindowError::TooMany { size_ms: year_ms, step_ms: 1, windows: year_ms };
        let year = MS(year_ms.unsigned_abs());
        assert_eq!(Windows::<()>::sliding(year, MS(1)).check(), Err(refused.clone()));
        assert_eq!(Windows::<()>::cumulative(year, MS(1)).check(), Err(refused));
        assert_eq!(Windows::<()>::sliding(MS(200_000), MS(2)).check(), Ok(()));
        let refused = WindowError::TooMany { size_ms: 200_001, step_ms: 2, windows: 100_001 };
        assert_eq!(Windows::<()>::sliding(MS(200_001), MS(2)).check(), Err(refused));
    }

    #[test]
    fn wi_08_a_dynamic_gap_must_be_positive_for_each_record() {
        let mut sessions = Windows::dynamic_session(|gap: &u64| MS(*gap));
        let mut assigned = Vec::new();
        sessions.assign(&7, 1, &mut assigned).unwrap();
        assert_eq!(assigned, [Window::new(1, 8)]);
        assert!(sessions.assign(&0, 1, &mut assigned).is_err());
    }

    #[test]
    fn windows_of_times_at_the_ends_of_i64_end_there() {
        for time in [i64::MIN + 1, i64::MAX] {
            for shape in [Windows::tumbling(MS(7)), Windows::sliding(MS(7), MS(2)), Windows::session(MS(7))] {
                for (start, end) in windows(shape, time) {
                    assert!(Window::new(start, end).contains(time), "[{start}, {end}) at {time}");
                }
            }
        }
    }
}
