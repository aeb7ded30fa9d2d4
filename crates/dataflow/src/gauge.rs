//! How far event time has come in each operator, and how many records came too late: for whoever watches a job.
//!
//! Owns the numbers. The runtime moves them on, operators count what they drop; nothing reads them back.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::time::MIN_WATERMARK;

/// The numbers of one operator's subtask.
#[derive(Debug)]
pub struct TimeGauge {
    watermark_ms: AtomicI64,
    late_dropped: AtomicU64,
}

impl Default for TimeGauge {
    fn default() -> Self {
        TimeGauge { watermark_ms: AtomicI64::new(MIN_WATERMARK), late_dropped: AtomicU64::new(0) }
    }
}

impl TimeGauge {
    /// The subtask has told those behind it that event time has come to `watermark` (milliseconds).
    pub fn reached(&self, watermark: i64) {
        self.watermark_ms.fetch_max(watermark, Ordering::Relaxed);
    }

    /// So many records came too late and were dropped.
    pub fn dropped_late(&self, records: u64) {
        self.late_dropped.fetch_add(records, Ordering::Relaxed);
    }
}

/// Event time in one operator at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorTime {
    /// Name of the operator.
    pub operator: Arc<str>,
    /// The watermark behind it, in milliseconds: the least of its subtasks in this process; `None` as long as one of
    /// them has none.
    pub watermark_ms: Option<i64>,
    /// Records that came too late and were dropped in this process since it began, repeats after a restart included.
    pub late_dropped: u64,
}

#[derive(Debug, Default)]
struct Board {
    gauges: BTreeMap<(Arc<str>, u32), Arc<TimeGauge>>,
    /// What earlier attempts have dropped.
    dropped_before: BTreeMap<Arc<str>, u64>,
}

/// The numbers of all operators of a job, as far as they run in this process. Cheap to share behind an `Arc`.
#[derive(Debug, Default)]
pub struct TimeBoard(Mutex<Board>);

impl TimeBoard {
    fn board(&self) -> MutexGuard<'_, Board> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new attempt begins: event time begins anew, with other subtasks perhaps.
    pub fn begin(&self) {
        let mut board = self.board();
        let Board { gauges, dropped_before } = &mut *board;
        for ((operator, _), gauge) in std::mem::take(gauges) {
            *dropped_before.entry(operator).or_default() += gauge.late_dropped.load(Ordering::Relaxed);
        }
    }

    /// The numbers of a subtask.
    #[must_use]
    pub fn gauge(&self, operator: &Arc<str>, subtask: u32) -> Arc<TimeGauge> {
        Arc::clone(self.board().gauges.entry((Arc::clone(operator), subtask)).or_default())
    }

    /// All operators by name, as of now.
    #[must_use]
    pub fn snapshot(&self) -> Vec<OperatorTime> {
        let board = self.board();
        let mut all: Vec<OperatorTime> = Vec::new();
        for ((operator, _), gauge) in &board.gauges {
            let watermark = gauge.watermark_ms.load(Ordering::Relaxed);
            let watermark_ms = (watermark > MIN_WATERMARK).then_some(watermark);
            let dropped = gauge.late_dropped.load(Ordering::Relaxed);
            match all.last_mut().filter(|last| last.operator == *operator) {
                Some(last) => {
                    last.watermark_ms = last.watermark_ms.zip(watermark_ms).map(|(one, other)| one.min(other));
                    last.late_dropped += dropped;
                }
                None => {
                    let before = board.dropped_before.get(operator).copied().unwrap_or(0);
                    let operator = Arc::clone(operator);
                    all.push(OperatorTime { operator, watermark_ms, late_dropped: before + dropped });
                }
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_subtask_counts_and_drops_add_up_over_attempts() {
        let (board, name) = (TimeBoard::default(), Arc::from("window"));
        let (one, other) = (board.gauge(&name, 0), board.gauge(&name, 1));
        one.reached(7);
        one.dropped_late(2);
        let expect =
            |watermark_ms, late_dropped| [OperatorTime { operator: Arc::clone(&name), watermark_ms, late_dropped }];
        assert_eq!(board.snapshot(), expect(None, 2));
        other.reached(5);
        other.reached(4);
        other.dropped_late(1);
        assert_eq!(board.snapshot(), expect(Some(5), 3));
        board.begin();
        assert_eq!(board.snapshot(), []);
        board.gauge(&name, 0).reached(1);
        assert_eq!(board.snapshot(), expect(Some(1), 3));
    }
}
