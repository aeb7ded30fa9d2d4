//! Records that came too late and went nowhere: counted for the log and for whoever watches event time.

use millpond_dataflow::{OperatorContext, TimeGauge};

/// Late records of an operator's subtask.
#[derive(Debug, Default)]
pub(crate) struct LateRecords {
    /// Since the gauge was told.
    untold: u64,
    /// Since the log said so.
    unlogged: u64,
}

impl LateRecords {
    /// A record was dropped.
    pub(crate) fn dropped(&mut self) {
        self.untold += 1;
    }

    /// Tells the gauge; after each batch.
    #[inline]
    pub(crate) fn tell(&mut self, gauge: &TimeGauge) {
        if self.untold > 0 {
            gauge.dropped_late(self.untold);
            self.unlogged += std::mem::take(&mut self.untold);
        }
    }

    /// Says in the log how many records were dropped since the last time.
    pub(crate) fn log(&mut self, context: &OperatorContext<'_>) {
        self.tell(context.gauge);
        let records = std::mem::take(&mut self.unlogged);
        if records > 0 {
            let info = context.info;
            tracing::warn!(operator = &*info.operator, subtask = info.index, records, "late records were dropped");
        }
    }
}
