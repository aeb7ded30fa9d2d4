//! Sources that wait for each other in event time (WM-20).
//!
//! Owns how far each member of a group has come. Members are the subtasks of sources within one process; each says how
//! far the slowest of its splits is, and asks how far the slowest member is.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::time::{MAX_WATERMARK, MIN_WATERMARK};

/// The groups of one attempt, by name.
#[derive(Debug, Default)]
pub struct AlignmentGroups {
    groups: Mutex<HashMap<String, Arc<AlignmentGroup>>>,
}

impl AlignmentGroups {
    /// The group called `name`, which is made when it is not there.
    #[must_use]
    pub fn group(&self, name: &str) -> Arc<AlignmentGroup> {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(groups.entry(name.to_owned()).or_default())
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct AlignmentGroup {
    members: Mutex<Members>,
}

#[derive(Debug, Default)]
struct Members {
    /// Where the subtasks of an operator begin in `reached`.
    operators: HashMap<Arc<str>, usize>,
    reached: Vec<i64>,
}

impl AlignmentGroup {
    /// Joins as subtask `index` of `parallelism` of an operator. The others of the operator are waited for from now
    /// on, also before they have joined.
    #[must_use]
    pub fn join(self: &Arc<Self>, operator: &Arc<str>, index: u32, parallelism: u32) -> AlignmentMember {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        let next = members.reached.len();
        let first = *members.operators.entry(Arc::clone(operator)).or_insert(next);
        if first == next {
            members.reached.resize(next + parallelism as usize, MIN_WATERMARK);
        }
        AlignmentMember { group: Arc::clone(self), at: first + index as usize }
    }
}

/// One subtask of a source in a group.
#[derive(Debug)]
pub struct AlignmentMember {
    group: Arc<AlignmentGroup>,
    at: usize,
}

impl AlignmentMember {
    /// Says how far this member has come, `None` while it takes no part; returns how far the slowest member has.
    #[must_use]
    pub fn report(&self, watermark: Option<i64>) -> i64 {
        let mut members = self.group.members.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reached) = members.reached.get_mut(self.at) {
            *reached = watermark.unwrap_or(MAX_WATERMARK);
        }
        members.reached.iter().copied().min().unwrap_or(MAX_WATERMARK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wm_20_the_slowest_member_counts_and_those_that_have_not_joined_are_waited_for() {
        let groups = AlignmentGroups::default();
        let (clicks, views): (Arc<str>, Arc<str>) = ("clicks".into(), "views".into());
        let first = groups.group("all").join(&clicks, 0, 2);
        assert_eq!(first.report(Some(10)), MIN_WATERMARK);
        let second = groups.group("all").join(&clicks, 1, 2);
        assert_eq!(second.report(Some(7)), 7);
        let other = groups.group("all").join(&views, 0, 1);
        assert_eq!(first.report(Some(12)), MIN_WATERMARK);
        assert_eq!(other.report(None), 7, "who takes no part holds nobody up");
        assert_eq!(second.report(None), 12);
        assert_eq!(groups.group("another").join(&views, 0, 1).report(Some(1)), 1);
    }
}
