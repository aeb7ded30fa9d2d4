//! A sink that discards, but sums the values, so that equal work can be shown.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millpond_core::{Epoch, UserResult};
use millpond_dataflow::{Sink, SinkContext};

use crate::event::Event;

/// What all subtasks of the sink have seen.
#[derive(Debug, Default)]
pub(crate) struct Checksum {
    pub(crate) sum: AtomicU64,
    pub(crate) outputs: AtomicU64,
}

/// Sums values; the sum is added up at every epoch.
pub(crate) struct ChecksumSink {
    shared: Arc<Checksum>,
    sum: u64,
    outputs: u64,
    delay: std::time::Duration,
}

impl ChecksumSink {
    pub(crate) fn new(shared: &Arc<Checksum>) -> Self {
        ChecksumSink { shared: Arc::clone(shared), sum: 0, outputs: 0, delay: std::time::Duration::ZERO }
    }

    /// Sleeps this long before every 64th record.
    pub(crate) fn slow(mut self, delay: std::time::Duration) -> Self {
        self.delay = delay;
        self
    }
}

impl Sink for ChecksumSink {
    type Record = Event;
    type Committable = ();

    fn open(&mut self, _context: &SinkContext<'_>) -> UserResult {
        Ok(())
    }

    fn write(&mut self, record: Event) -> UserResult {
        self.sum = self.sum.wrapping_add(record.value);
        self.outputs += 1;
        if !self.delay.is_zero() && self.outputs.is_multiple_of(64) {
            std::thread::sleep(self.delay);
        }
        Ok(())
    }

    fn prepare(&mut self, _epoch: Epoch) -> UserResult<Vec<()>> {
        self.shared.sum.fetch_add(std::mem::take(&mut self.sum), Ordering::Relaxed);
        self.shared.outputs.fetch_add(std::mem::take(&mut self.outputs), Ordering::Relaxed);
        Ok(Vec::new())
    }

    fn commit(&mut self, (): ()) -> UserResult {
        Ok(())
    }
}
