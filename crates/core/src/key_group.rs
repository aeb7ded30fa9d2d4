//! Key groups: the pieces into which the key space is cut, and who owns them.
//!
//! A key's group never changes during the life of a job; the number of groups is the maximum
//! parallelism. The formulas are those of the semantics list, items KG-01 to KG-09.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::ErrorKind;

/// Largest allowed number of key groups.
pub const MAX_PARALLELISM_LIMIT: u32 = 32_768;
/// Number of key groups of a job that does not say otherwise.
pub const DEFAULT_MAX_PARALLELISM: u32 = 1_024;

/// A piece of the key space, `0..max_parallelism`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyGroup(pub u16);

impl fmt::Display for KeyGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key group {}", self.0)
    }
}

/// A parallelism or maximum parallelism outside what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParallelismError {
    /// The number of key groups is not in `1..=32768`.
    #[error("max parallelism {given} is not in 1..={MAX_PARALLELISM_LIMIT}")]
    MaxParallelism {
        /// What was asked for.
        given: u64,
    },
    /// The parallelism is zero or above the number of key groups.
    #[error("parallelism {given} is not in 1..={max} (the max parallelism)")]
    Parallelism {
        /// What was asked for.
        given: u64,
        /// The number of key groups of the job.
        max: u32,
    },
}

impl ParallelismError {
    /// Always [`ErrorKind::Invalid`].
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }
}

/// The number of key groups of a job, `1..=32768`. Fixed when the job first starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MaxParallelism(u32);

impl Default for MaxParallelism {
    fn default() -> Self {
        MaxParallelism(DEFAULT_MAX_PARALLELISM)
    }
}

impl fmt::Display for MaxParallelism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl MaxParallelism {
    /// Checks the bounds.
    ///
    /// # Errors
    /// When `given` is not in `1..=32768`.
    pub fn new(given: u32) -> Result<Self, ParallelismError> {
        if (1..=MAX_PARALLELISM_LIMIT).contains(&given) {
            Ok(MaxParallelism(given))
        } else {
            Err(ParallelismError::MaxParallelism { given: u64::from(given) })
        }
    }

    /// As a number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Every group of the job.
    #[must_use]
    pub const fn all(self) -> KeyGroupRange {
        KeyGroupRange { start: 0, end: self.0 }
    }

    /// Checks that `parallelism` subtasks can share the groups (KG-07).
    ///
    /// # Errors
    /// When `parallelism` is zero or above the number of groups.
    pub fn check(self, parallelism: u32) -> Result<(), ParallelismError> {
        if parallelism >= 1 && parallelism <= self.0 {
            Ok(())
        } else {
            Err(ParallelismError::Parallelism { given: u64::from(parallelism), max: self.0 })
        }
    }

    /// The group of a 32-bit hash: `spread(hash32) mod max_parallelism` (KG-01).
    #[inline]
    #[must_use]
    pub const fn group_of(self, hash32: u32) -> KeyGroup {
        let spread = spread(hash32);
        let group = if self.0.is_power_of_two() { spread & (self.0 - 1) } else { spread % self.0 };
        KeyGroup(group as u16)
    }

    /// The groups that subtask `index` of `parallelism` owns (KG-04), as a half-open range.
    #[must_use]
    pub const fn range_of(self, index: u32, parallelism: u32) -> KeyGroupRange {
        let (i, m, p) = (index as u64, self.0 as u64, parallelism as u64);
        KeyGroupRange { start: (i * m).div_ceil(p) as u32, end: ((i + 1) * m).div_ceil(p) as u32 }
    }

    /// The subtask that owns `group` (KG-05).
    #[inline]
    #[must_use]
    pub const fn owner_of(self, group: KeyGroup, parallelism: u32) -> u32 {
        if self.0.is_power_of_two() {
            (group.0 as u32 * parallelism) >> self.0.trailing_zeros()
        } else {
            group.0 as u32 * parallelism / self.0
        }
    }
}

/// One murmur3 round and finaliser over 32 bits, made non-negative (KG-02).
#[inline]
#[must_use]
pub const fn spread(hash32: u32) -> u32 {
    let mut x = hash32.wrapping_mul(0xcc9e_2d51);
    x = x.rotate_left(15).wrapping_mul(0x1b87_3593);
    x = x.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    x ^= 4;
    x ^= x >> 16;
    x = x.wrapping_mul(0x85eb_ca6b);
    x ^= x >> 13;
    x = x.wrapping_mul(0xc2b2_ae35);
    x ^= x >> 16;
    let signed = x as i32;
    if signed == i32::MIN { 0 } else { signed.unsigned_abs() }
}

/// A half-open range of key groups, `[start, end)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyGroupRange {
    /// First group of the range.
    pub start: u32,
    /// One past the last group.
    pub end: u32,
}

impl KeyGroupRange {
    /// A range from `start` up to but not including `end`.
    #[must_use]
    pub const fn new(start: u32, end: u32) -> Self {
        KeyGroupRange { start, end }
    }

    /// Whether there is no group in the range.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// Number of groups.
    #[must_use]
    pub const fn len(self) -> u32 {
        self.end.saturating_sub(self.start)
    }

    /// Whether `group` lies in the range.
    #[inline]
    #[must_use]
    pub const fn contains(self, group: KeyGroup) -> bool {
        (group.0 as u32) >= self.start && (group.0 as u32) < self.end
    }

    /// The groups that are in both ranges, possibly none (KG-09).
    #[must_use]
    pub fn intersection(self, other: KeyGroupRange) -> KeyGroupRange {
        let start = self.start.max(other.start);
        let end = self.end.min(other.end);
        if start < end { KeyGroupRange { start, end } } else { KeyGroupRange { start, end: start } }
    }

    /// Whether any group is in both ranges.
    #[must_use]
    pub fn intersects(self, other: KeyGroupRange) -> bool {
        !self.intersection(other).is_empty()
    }
}

impl fmt::Display for KeyGroupRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key groups {}..{}", self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kg_02_spread_matches_the_published_values() {
        assert_eq!(spread(0), 593_689_054);
        assert_eq!(spread(u32::MAX), 1_982_413_648);
    }

    #[test]
    fn kg_04_and_kg_05_agree_for_every_group() {
        for max in [1, 2, 7, 10, 128, 1000, 1024, 32_768] {
            let m = MaxParallelism::new(max).unwrap();
            for p in [1, 2, 3, 4, 5, 7, 10, 128, 1000].into_iter().filter(|p| *p <= max) {
                let mut next = 0;
                for i in 0..p {
                    let range = m.range_of(i, p);
                    assert_eq!(range.start, next, "no gap, no overlap");
                    next = range.end;
                    assert!(range.len() == max / p || range.len() == max / p + 1);
                    for g in range.start..range.end {
                        assert_eq!(m.owner_of(KeyGroup(g as u16), p), i);
                    }
                }
                assert_eq!(next, max);
            }
        }
    }

    #[test]
    fn kg_07_bounds_are_refused_before_running() {
        assert!(MaxParallelism::new(0).is_err());
        assert!(MaxParallelism::new(32_769).is_err());
        let m = MaxParallelism::new(4).unwrap();
        assert!(m.check(0).is_err());
        assert!(m.check(4).is_ok());
        assert_eq!(m.check(5).unwrap_err().to_string(), "parallelism 5 is not in 1..=4 (the max parallelism)");
    }

    #[test]
    fn kg_09_intersection_is_empty_when_ranges_do_not_meet() {
        let a = KeyGroupRange::new(0, 5);
        assert_eq!(a.intersection(KeyGroupRange::new(3, 9)), KeyGroupRange::new(3, 5));
        assert!(a.intersection(KeyGroupRange::new(5, 9)).is_empty());
        assert!(!a.intersects(KeyGroupRange::new(7, 9)));
    }
}
