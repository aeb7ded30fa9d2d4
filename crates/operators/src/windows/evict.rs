//! Which records of a window are left out.

use std::time::Duration;

use millpond_core::Data;

use super::window::Window;

/// A record in a window, with its event time ([`i64::MIN`] when it has none).
pub type InWindow<T> = (T, i64);

/// Removes records of a window when it fires. A window with an evictor keeps all its records.
pub trait Evictor<T>: 'static {
    /// Before the function sees them: limits what it sees, and what stays.
    fn before(&mut self, records: &mut Vec<InWindow<T>>, window: Window) {
        let _ = (records, window);
    }

    /// After the function has seen them: limits what stays.
    fn after(&mut self, records: &mut Vec<InWindow<T>>, window: Window) {
        let _ = (records, window);
    }
}

/// When a standard evictor works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictWhen {
    /// Before the function sees the records.
    Before,
    /// After it has seen them.
    After,
}

/// The evictors that come with the library.
#[derive(Clone, Copy, Debug)]
pub struct Evictors {
    keep: Keep,
    when: EvictWhen,
}

#[derive(Clone, Copy, Debug)]
enum Keep {
    Last(usize),
    YoungerThan(i64),
}

impl Evictors {
    /// Keeps the last `count` records (WI-35).
    #[must_use]
    pub fn count(count: usize, when: EvictWhen) -> Self {
        Evictors { keep: Keep::Last(count), when }
    }

    /// Keeps the records with a time later than that of the newest less `age` (WI-36).
    #[must_use]
    pub fn time(age: Duration, when: EvictWhen) -> Self {
        Evictors { keep: Keep::YoungerThan(i64::try_from(age.as_millis()).unwrap_or(i64::MAX)), when }
    }

    fn evict<T>(self, records: &mut Vec<InWindow<T>>) {
        match self.keep {
            Keep::Last(count) => {
                records.drain(..records.len().saturating_sub(count));
            }
            Keep::YoungerThan(age_ms) => {
                let Some(newest) = records.iter().map(|(_, time)| *time).max() else { return };
                records.retain(|(_, time)| *time > newest.saturating_sub(age_ms));
            }
        }
    }
}

impl<T: Data> Evictor<T> for Evictors {
    fn before(&mut self, records: &mut Vec<InWindow<T>>, _: Window) {
        if self.when == EvictWhen::Before {
            self.evict(records);
        }
    }

    fn after(&mut self, records: &mut Vec<InWindow<T>>, _: Window) {
        if self.when == EvictWhen::After {
            self.evict(records);
        }
    }
}
