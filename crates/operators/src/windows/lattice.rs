//! The slices and windows of tumbling, sliding and cumulative windows. Pure.
//!
//! A slice is the largest piece of time that no window cuts: what is aggregated per slice can be put together for
//! each window that holds it. Ends of windows are exact, and may lie outside of `i64`; starts of slices are clamped,
//! which only the very first slice can be.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::assign::{Shape, Windows};
use super::window::{Window, clamp, floor};

/// Windows that begin at regular times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lattice {
    size_ms: i64,
    /// From the start of one window to that of the next.
    slide_ms: i64,
    /// The width of a slice.
    slice_ms: i64,
    offset_ms: i64,
    cumulative: bool,
}

impl Lattice {
    /// The lattice of these windows, if they have one.
    pub(crate) fn of<T>(windows: &Windows<T>) -> Option<Lattice> {
        let offset_ms = windows.offset_ms;
        let (size_ms, slide_ms, slice_ms, cumulative) = match windows.shape {
            Shape::Tumbling { size_ms } => (size_ms, size_ms, size_ms, false),
            Shape::Sliding { size_ms, slide_ms } => (size_ms, slide_ms, gcd(size_ms, slide_ms), false),
            Shape::Cumulative { size_ms, step_ms } => (size_ms, size_ms, step_ms, true),
            _ => return None,
        };
        let [size_ms, slide_ms, slice_ms] = [size_ms, slide_ms, slice_ms].map(clamp);
        (size_ms > 0 && slide_ms > 0 && slice_ms > 0).then_some(Lattice {
            size_ms,
            slide_ms,
            slice_ms,
            offset_ms,
            cumulative,
        })
    }

    /// Whether every window is one slice, and the other way round.
    pub(crate) fn is_tumbling(&self) -> bool {
        self.size_ms == self.slide_ms && !self.cumulative
    }

    /// The slice that `time_ms` lies in.
    #[inline]
    pub(crate) fn slice_of(&self, time_ms: i64) -> i64 {
        clamp(floor(time_ms, self.slice_ms, self.offset_ms))
    }

    /// Some time inside a slice.
    fn inside(slice: i64) -> i64 {
        // The least time is none, so it is inside no slice.
        slice.max(i64::MIN + 1)
    }

    /// The end of the last window that holds `time_ms`; `None` when it lies in a gap (WI-05).
    #[inline]
    pub(crate) fn last_end(&self, time_ms: i64) -> Option<i128> {
        let end = floor(time_ms, self.slide_ms, self.offset_ms) + i128::from(self.size_ms);
        (end > i128::from(time_ms)).then_some(end)
    }

    /// The end of the last window that holds a slice.
    pub(crate) fn last_end_of(&self, slice: i64) -> Option<i128> {
        self.last_end(Lattice::inside(slice))
    }

    /// The ends of all windows that hold a slice, in order.
    pub(crate) fn ends_of(&self, slice: i64) -> Vec<i128> {
        let time = i128::from(Lattice::inside(slice));
        let Some(last) = self.last_end_of(slice) else { return Vec::new() };
        let step = i128::from(if self.cumulative { self.slice_ms } else { self.slide_ms });
        let mut ends = Vec::new();
        let mut end = last;
        while end > time && end > last - i128::from(self.size_ms) {
            ends.push(end);
            end -= step;
        }
        ends.reverse();
        ends
    }

    /// The window that ends there.
    pub(crate) fn window(&self, end: i128) -> Window {
        let start = if self.cumulative {
            // Ends are above all starts of their own window.
            let inside = clamp(end - 1);
            floor(inside, self.size_ms, self.offset_ms)
        } else {
            end - i128::from(self.size_ms)
        };
        Window { start: clamp(start), end: clamp(end) }
    }

    /// The slices of the window that ends there, in order, of those in `slices`, which are in order.
    pub(crate) fn slices_in(&self, end: i128, slices: impl Iterator<Item = i64>) -> Vec<i64> {
        let window = self.window(end);
        slices.filter(|slice| window.contains(Lattice::inside(*slice))).collect()
    }
}

impl fmt::Display for Lattice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lattice { size_ms, slide_ms, slice_ms, offset_ms, cumulative } = self;
        match (cumulative, self.is_tumbling()) {
            (true, _) => write!(f, "cumulative windows of {size_ms} ms in steps of {slice_ms} ms")?,
            (false, true) => write!(f, "tumbling windows of {size_ms} ms")?,
            (false, false) => write!(f, "sliding windows of {size_ms} ms every {slide_ms} ms")?,
        }
        write!(f, " with an offset of {offset_ms} ms")
    }
}

fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const MS: fn(i64) -> Duration = |ms| Duration::from_millis(ms.unsigned_abs());

    fn shapes() -> impl Strategy<Value = (i64, i64, i64, u8)> {
        (1i64..40, 1i64..40, -20i64..20, 0u8..3)
    }

    fn build(size: i64, step: i64, offset: i64, kind: u8) -> Option<Windows<()>> {
        let windows = match kind {
            0 => Windows::tumbling(MS(size)),
            1 => Windows::sliding(MS(size), MS(step)),
            _ => Windows::cumulative(MS(size * step), MS(step)),
        };
        Some(windows.offset_ms(offset)).filter(|windows| windows.check().is_ok())
    }

    proptest! {
        #[test]
        fn slices_hold_what_windows_are_assigned((size, step, offset, kind) in shapes(), times in prop::collection::vec(prop_oneof![-100i64..100, Just(i64::MAX), Just(i64::MIN + 1)], 1..20)) {
            let Some(mut windows) = build(size, step, offset, kind) else { return Ok(()) };
            let lattice = Lattice::of(&windows).unwrap();
            let mut slices: Vec<i64> = times.iter().map(|time| lattice.slice_of(*time)).collect();
            slices.sort_unstable();
            slices.dedup();
            for time in times {
                let mut assigned = Vec::new();
                windows.assign(&(), time, &mut assigned).unwrap();
                assigned.sort_unstable();
                let slice = lattice.slice_of(time);
                let ends = lattice.ends_of(slice);
                let from_slice: Vec<Window> = ends.iter().map(|end| lattice.window(*end)).collect();
                prop_assert_eq!(&from_slice, &assigned);
                prop_assert_eq!(lattice.last_end(time), ends.last().copied());
                prop_assert_eq!(lattice.last_end_of(slice), ends.last().copied());
                for end in ends {
                    prop_assert!(lattice.slices_in(end, slices.iter().copied()).contains(&slice));
                }
            }
        }
    }
}
