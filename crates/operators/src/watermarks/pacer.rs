//! When marks are sent: seldom enough to cost nothing, often enough that nobody waits for them.

use millpond_dataflow::Outputs;
use millpond_dataflow::time::{MIN_WATERMARK, TimeMark};

/// A mark is sent after so many records, however short the time: behind it, batches are sent half full.
const MARK_RECORDS: usize = 16 * 1_024;

/// Sends the marks of one subtask, each once.
#[derive(Debug)]
pub(crate) struct Pacer {
    interval_ms: i64,
    immediate: bool,
    sent: i64,
    idle: bool,
    records: usize,
    sent_at_ms: Option<i64>,
    /// The newest watermark that waits to be sent.
    due: i64,
}

impl Pacer {
    pub(crate) fn new(interval_ms: i64, immediate: bool) -> Self {
        let (sent, due) = (MIN_WATERMARK, MIN_WATERMARK);
        Pacer { interval_ms, immediate, sent, idle: false, records: 0, sent_at_ms: None, due }
    }

    /// Records come: whoever was idle says first that it is not any more.
    pub(crate) fn wake(&mut self, outputs: &mut Outputs) {
        if std::mem::take(&mut self.idle) {
            outputs.mark(TimeMark::Active);
        }
    }

    /// So many records were emitted, and event time has come to `watermark`.
    pub(crate) fn offer(&mut self, records: usize, watermark: i64, now_ms: i64, outputs: &mut Outputs) {
        self.records += records;
        self.due = self.due.max(watermark);
        let since = *self.sent_at_ms.get_or_insert(now_ms);
        let is_time =
            self.immediate || self.records >= MARK_RECORDS || now_ms.saturating_sub(since) >= self.interval_ms;
        if is_time {
            self.send(now_ms, outputs);
        }
    }

    /// Sends what waits, whether it is time or not.
    pub(crate) fn send(&mut self, now_ms: i64, outputs: &mut Outputs) {
        (self.records, self.sent_at_ms) = (0, Some(now_ms));
        if self.due > self.sent && !self.idle {
            self.sent = self.due;
            outputs.mark(TimeMark::Watermark(self.due));
        }
    }

    /// Takes no part in event time until [`Pacer::wake`].
    pub(crate) fn rest(&mut self, now_ms: i64, outputs: &mut Outputs) {
        if !self.idle {
            self.send(now_ms, outputs);
            self.idle = true;
            outputs.mark(TimeMark::Idle);
        }
    }

    /// When the interval is over for a watermark that waits.
    pub(crate) fn due_at(&self) -> Option<i64> {
        let since = self.sent_at_ms.filter(|_| self.due > self.sent && !self.idle)?;
        Some(since.saturating_add(self.interval_ms))
    }
}
