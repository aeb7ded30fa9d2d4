//! The job of `big-state` and `recover`: a payload per key; each record reads it, bumps the counter in its first
//! eight bytes and writes it back.

use std::sync::Arc;

use millpond_core::{UserResult, seed::mix64};
use millpond_dataflow::Dataflow;
use millpond_jobmanager::Job;
use millpond_operators::{KeyedStreamOperators, SinkOperators, SourceOperators, StreamOperators};

use serde_bytes::ByteBuf;

use crate::event::{Event, Input};
use crate::sink::{Checksum, ChecksumSink};

/// What a key holds at first: bytes that do not compress, like the peers'.
fn fresh(key: u64, bytes: usize) -> ByteBuf {
    let mut payload = vec![0; bytes.max(8)];
    for (word, place) in payload.chunks_exact_mut(8).enumerate().skip(1) {
        place.copy_from_slice(&mix64(key.wrapping_add(word as u64 * 8)).to_le_bytes());
    }
    ByteBuf::from(payload)
}

/// Counts one up in what a key holds, which begins with `bytes` fresh bytes; the new count.
pub(crate) fn bump(payload: &mut Option<ByteBuf>, key: u64, bytes: usize) -> u64 {
    let payload = payload.get_or_insert_with(|| fresh(key, bytes));
    let (counter, _) = payload.split_at_mut(8);
    let count = u64::from_le_bytes(counter.try_into().unwrap_or_default()) + 1;
    counter.copy_from_slice(&count.to_le_bytes());
    count
}

/// Builds the job.
pub(crate) fn payload_job(input: Input, bytes: usize, checksum: &Arc<Checksum>) -> Job {
    let checksum = Arc::clone(checksum);
    Arc::new(move |flow: &mut Dataflow| -> UserResult {
        let mut seen = false;
        flow.source("gen", input)
            .key_by(|event| event.key)
            .process_with(
                "payload",
                |states| states.value::<ByteBuf>("payload"),
                move |state, event, context, output| {
                    let count = state.modify(context, |payload| bump(payload, event.key, bytes))?;
                    if let Some(probe) = input.probe {
                        if !seen {
                            seen = true;
                            probe.first_record(context.subtask().index);
                        }
                        if input.timed && event.value != 0 {
                            probe.latencies.record(probe.now_ns().saturating_sub(event.value));
                        }
                    }
                    output.emit(Event { key: event.key, value: count });
                    Ok(())
                },
            )
            .sink("sink", ChecksumSink::new(&checksum));
        Ok(())
    })
}

/// The sum of the counts emitted for records from `starts` (by split) on, by a plain replay.
pub(crate) fn expected_from(input: &Input, starts: impl Fn(u64) -> u64) -> u64 {
    let (mut before, mut total) = (vec![0u64; input.keys as usize], vec![0u64; input.keys as usize]);
    for index in 0..input.records {
        let key = input.key(index) as usize;
        total[key] += 1;
        if index < starts(index % input.splits) {
            before[key] += 1;
        }
    }
    let sum_to = |count: &u64| count * (count + 1) / 2;
    total.iter().zip(&before).map(|(total, before)| sum_to(total) - sum_to(before)).fold(0, u64::wrapping_add)
}
