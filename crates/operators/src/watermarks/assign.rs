//! `assign_timestamps`: event time begins anew in mid-stream.

use millpond_core::{Data, UserResult};
use millpond_dataflow::output::MAIN_PORT;
use millpond_dataflow::{Advance, BoxBatch, OpenContext, Operator, OperatorContext};

use super::pacer::Pacer;
use super::split::{SplitClock, Standing};
use super::strategy::WatermarkStrategy;

/// Finds the event times of records, and sends watermarks of its own; those from upstream end here, but for the
/// last (WM-15).
pub(crate) struct AssignTimestamps<T> {
    clock: SplitClock<T>,
    pacer: Pacer,
}

impl<T: Data> AssignTimestamps<T> {
    pub(crate) fn new(strategy: &WatermarkStrategy<T>) -> Self {
        let pacer = Pacer::new(strategy.interval_ms, strategy.is_immediate());
        AssignTimestamps { clock: SplitClock::new(strategy), pacer }
    }

    fn quiet(&mut self, context: &mut OperatorContext<'_>) {
        let now_ms = context.clock.now_ms();
        self.clock.quiet(now_ms);
        if self.clock.standing() == Standing::Idle {
            self.pacer.rest(now_ms, context.outputs);
        } else {
            self.pacer.send(now_ms, context.outputs);
        }
    }
}

impl<T: Data> Operator for AssignTimestamps<T> {
    fn open(&mut self, _context: &mut OpenContext<'_>) -> UserResult {
        Ok(())
    }

    fn on_batch(
        &mut self,
        _input: usize,
        batch: BoxBatch,
        context: &mut OperatorContext<'_>,
    ) -> UserResult<Option<BoxBatch>> {
        let mut batch = batch.downcast::<T>();
        self.clock.observe(0, &mut batch, context.clock.now_ms())?;
        self.pacer.wake(context.outputs);
        let records = batch.len();
        context.outputs.push(MAIN_PORT, batch.boxed());
        if let Standing::Active(watermark) = self.clock.standing() {
            self.pacer.offer(records, watermark, context.clock.now_ms(), context.outputs);
        }
        Ok(None)
    }

    fn on_watermark(&mut self, _last: i64, _context: &mut OperatorContext<'_>) -> UserResult<Advance> {
        Ok(Advance::Done)
    }

    fn assigns_time(&self) -> bool {
        true
    }

    fn wake_at(&self) -> Option<i64> {
        [self.pacer.due_at(), self.clock.idle_at()].into_iter().flatten().min()
    }

    fn on_clock(&mut self, context: &mut OperatorContext<'_>) -> UserResult {
        self.quiet(context);
        Ok(())
    }

    fn on_lull(&mut self, context: &mut OperatorContext<'_>) -> UserResult {
        self.quiet(context);
        Ok(())
    }
}
