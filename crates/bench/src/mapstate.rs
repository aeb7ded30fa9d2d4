//! `mapstate`: per record one entry (`touch=1`) or all entries (`touch=16`) of a `MapState` of 16.

use std::sync::Arc;

use millpond_core::{SplitMix64, UserResult};
use millpond_dataflow::{Dataflow, KeyedContext};
use millpond_jobmanager::Job;
use millpond_operators::{KeyedStreamOperators, SinkOperators, SourceOperators, StreamOperators};
use millpond_state::MapState;

use crate::count::run_keyed;
use crate::event::{Event, Input};
use crate::parameters::Parameters;
use crate::sink::{Checksum, ChecksumSink};

/// Entries of a map.
const ENTRIES: u64 = 16;

/// The entry that a record touches.
fn entry_of(value: u64) -> u64 {
    SplitMix64::nth(value) >> 60
}

fn bump(map: &MapState<u64, u64>, context: &mut KeyedContext<'_, u64>, entry: u64) -> UserResult<u64> {
    let count = map.get(context, &entry)?.copied().unwrap_or(0) + 1;
    map.put(context, entry, count)?;
    Ok(count)
}

fn job(input: Input, every: bool, checksum: &Arc<Checksum>) -> Job {
    let checksum = Arc::clone(checksum);
    Arc::new(move |flow: &mut Dataflow| -> UserResult {
        flow.source("gen", input)
            .key_by(|event| event.key)
            .process_with(
                "mapstate",
                |states| states.map::<u64, u64>("map"),
                move |map, event, context, output| {
                    let mut sum = 0u64;
                    if every {
                        for entry in 0..ENTRIES {
                            sum += bump(map, context, entry)?;
                        }
                    } else {
                        sum = bump(map, context, entry_of(event.value))?;
                    }
                    output.emit(Event { key: event.key, value: sum });
                    Ok(())
                },
            )
            .sink("sink", ChecksumSink::new(&checksum));
        Ok(())
    })
}

/// The checksum by a plain replay.
fn expected(input: &Input, every: bool) -> u64 {
    let mut counts = vec![0u32; (input.keys * ENTRIES) as usize];
    let mut sum = 0u64;
    for index in 0..input.records {
        let of_key = &mut counts[(input.key(index) * ENTRIES) as usize..][..ENTRIES as usize];
        let one = entry_of(index) as usize;
        let touched = if every { &mut of_key[..] } else { &mut of_key[one..=one] };
        for count in touched {
            *count += 1;
            sum = sum.wrapping_add(u64::from(*count));
        }
    }
    sum
}

/// Runs the workload; returns the fields of its line.
pub(crate) fn run(parameters: &Parameters) -> Result<serde_json::Value, String> {
    let touch = parameters.number("touch", 1)?;
    let every = match touch {
        1 => false,
        ENTRIES => true,
        _ => return Err(format!("touch is 1 or {ENTRIES}, not {touch}")),
    };
    let job = |input, checksum: &Arc<Checksum>| job(input, every, checksum);
    let mut line = run_keyed(parameters, "mapstate", &job, &|input| expected(input, every))?;
    line["touch"] = touch.into();
    Ok(line)
}
