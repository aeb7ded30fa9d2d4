//! Bounded out-of-orderness, with a guard against times that are far ahead of all others.

use std::cell::Cell;
use std::rc::Rc;

use millpond_dataflow::batch::NO_TIME;
use millpond_dataflow::time::MIN_WATERMARK;

use super::strategy::Generate;

/// So many records in a row beyond the bound are believed.
pub(super) const CONFIRMATIONS: u32 = 32;
/// So many are when there is nothing to compare them with but the wall clock.
const FIRST_CONFIRMATIONS: u32 = 2;

/// The newest time seen less a delay.
pub(super) struct Bounded {
    delay_ms: i64,
    jump_ms: Option<i64>,
    newest: i64,
    /// The newest time that was believed in any split of the subtask.
    believed: Rc<Cell<i64>>,
    /// Records in a row that were too far ahead, and the least of their times.
    ahead: u32,
    least_ahead: i64,
    disbelieved: u64,
}

impl Bounded {
    pub(super) fn new(delay_ms: i64, jump_ms: Option<i64>, believed: Rc<Cell<i64>>) -> Self {
        let (ahead, least_ahead) = (0, i64::MAX);
        Bounded { delay_ms, jump_ms, newest: NO_TIME, believed, ahead, least_ahead, disbelieved: 0 }
    }

    /// Looks at each time, since some are too far ahead.
    #[cold]
    fn guard(&mut self, times: &[i64], jump_ms: i64, now_ms: i64) {
        for &time in times.iter().filter(|time| **time != NO_TIME) {
            let is_first = self.newest == NO_TIME;
            let known = if is_first { self.believed.get().max(now_ms) } else { self.newest };
            if time <= known.saturating_add(jump_ms) {
                self.newest = self.newest.max(time);
                (self.ahead, self.least_ahead) = (0, i64::MAX);
                continue;
            }
            let is_alone = is_first && self.believed.get() == NO_TIME;
            let agrees = self.ahead == 0 || !is_alone || time.abs_diff(self.least_ahead) <= jump_ms.unsigned_abs();
            self.ahead = if agrees { self.ahead + 1 } else { 1 };
            self.least_ahead = self.least_ahead.min(time);
            if self.ahead >= if is_alone { FIRST_CONFIRMATIONS } else { CONFIRMATIONS } {
                self.newest = self.least_ahead;
                (self.ahead, self.least_ahead) = (0, i64::MAX);
                continue;
            }
            self.disbelieved += 1;
            if self.disbelieved.is_power_of_two() {
                tracing::warn!(
                    time_ms = time,
                    newest_ms = known,
                    max_jump_ms = jump_ms,
                    disbelieved = self.disbelieved,
                    "the event time of a record is too far ahead to be believed: it does not move the watermark"
                );
            }
        }
    }
}

impl<T> Generate<T> for Bounded {
    fn observe(&mut self, _records: &[T], times: &[i64], now_ms: i64) {
        let newest = times.iter().copied().max().unwrap_or(NO_TIME);
        match self.jump_ms {
            // A first record, one that is too far ahead, or one that puts an end to those that were.
            Some(jump_ms)
                if self.newest == NO_TIME || newest > self.newest.saturating_add(jump_ms) || self.ahead > 0 =>
            {
                self.guard(times, jump_ms, now_ms);
            }
            _ => self.newest = self.newest.max(newest),
        }
        self.believed.set(self.believed.get().max(self.newest));
    }

    fn watermark(&mut self) -> i64 {
        if self.newest == NO_TIME {
            return MIN_WATERMARK;
        }
        self.newest.saturating_sub(self.delay_ms).saturating_sub(1)
    }
}
