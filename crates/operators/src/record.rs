//! The loop over a batch that all operators share.

use millpond_core::{Data, UserResult};
use millpond_dataflow::batch::{Batch, BoxBatch, NO_TIME};
use millpond_dataflow::{BATCH_RECORDS, Output, Outputs};

/// An operator hands back the rest of its input when more than this many records wait behind one batch.
pub(crate) const YIELD_RECORDS: usize = 16 * BATCH_RECORDS;

/// Calls `process` for each record with its event time, and flushes what it emits. Returns the rest of
/// the batch when the output has grown so much that downstream must catch up first.
pub(crate) fn for_each_record<T: Data, U: Data>(
    batch: Batch<T>,
    output: &mut Output<U>,
    outputs: &mut Outputs,
    mut process: impl FnMut(T, i64, &mut Output<U>) -> UserResult,
) -> UserResult<Option<BoxBatch>> {
    let Batch { records, times } = batch;
    let mut records = records.into_iter();
    let mut done = 0;
    output.set_time(NO_TIME);
    while let Some(record) = records.next() {
        let time = if times.is_empty() { NO_TIME } else { times[done] };
        if !times.is_empty() {
            output.set_time(time);
        }
        process(record, time, output)?;
        done += 1;
        if output.pending() > YIELD_RECORDS && records.len() > 0 {
            output.flush(outputs);
            let times = times.get(done..).unwrap_or_default().to_vec();
            return Ok(Some(Batch { records: records.collect(), times }.boxed()));
        }
    }
    output.flush(outputs);
    Ok(None)
}
