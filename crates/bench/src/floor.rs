//! `timely-floor`: the same count in a bare timely loop with a hash map: what the engine underneath
//! allows without state handling, checkpoints, flow control or names.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use timely::container::CapacityContainerBuilder;
use timely::dataflow::InputHandle;
use timely::dataflow::channels::pact::{Exchange, Pipeline};
use timely::dataflow::operators::Input as _;
use timely::dataflow::operators::generic::Operator as _;
use timely::dataflow::operators::probe::{Handle, Probe};

use crate::event::{Event, Input};
use crate::measure::{Span, peak_rss_mb};
use crate::parameters::Parameters;

/// Records between two steps of the worker.
const BATCH: u64 = 1 << 16;

/// Runs the workload; returns the fields of its line.
pub(crate) fn run(parameters: &Parameters) -> Result<serde_json::Value, String> {
    let input = crate::setup::input(parameters)?;
    let workers = parameters.number("parallelism", 1)?;
    let checksum = Arc::new(AtomicU64::new(0));
    let shared = Arc::clone(&checksum);
    let span = Span::start();
    let guards = timely::execute(timely::Config::process(workers as usize), move |worker| {
        count(worker, input, workers, &shared);
    })?;
    drop(guards);
    let (wall_s, cpu_s, other_cpu_s) = span.stop();
    let mut line = serde_json::json!({
        "engine": "timely",
        "workload": "timely-floor",
        "records": input.records,
        "keys": input.keys,
        "dist": parameters.text("dist", "uniform"),
        "parallelism": workers,
        "records_per_s": (input.records as f64 / wall_s).round(),
        "records_per_cpu_s": (input.records as f64 / cpu_s.max(0.01)).round(),
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "other_cpu_s": other_cpu_s,
        "checksum": checksum.load(Ordering::Relaxed).to_string(),
        "peak_rss_mb": peak_rss_mb(),
    });
    if parameters.text("check", "off") == "on" {
        line["checksum_expected"] = crate::count::expected(&input).to_string().into();
    }
    Ok(line)
}

fn count(worker: &mut timely::worker::Worker, input: Input, workers: u64, checksum: &Arc<AtomicU64>) {
    let index = worker.index() as u64;
    let mut handle = InputHandle::<u64, CapacityContainerBuilder<Vec<Event>>>::new();
    let probe = Handle::new();
    let sum = Arc::clone(checksum);
    worker.dataflow(|scope| {
        let stream = scope.input_from(&mut handle);
        let exchange = Exchange::new(|event: &Event| millpond_core::seed::mix64(event.key));
        let mut counts: HashMap<u64, u64> = HashMap::new();
        let counted = stream.unary::<CapacityContainerBuilder<Vec<Event>>, _, _, _>(exchange, "count", |_, _| {
            move |input, output| {
                input.for_each(|capability, events| {
                    let capability = capability.retain_least(0).expect("messages carry a time");
                    let mut session = output.session(&capability);
                    for event in events.drain(..) {
                        let count = counts.entry(event.key).or_insert(0);
                        *count += 1;
                        session.give(Event { key: event.key, value: *count });
                    }
                });
            }
        });
        counted
            .unary::<CapacityContainerBuilder<Vec<Event>>, _, _, _>(Pipeline, "sum", |_, _| {
                move |input, _output| {
                    input.for_each(|_, events| {
                        let total = events.drain(..).fold(0u64, |total, event| total.wrapping_add(event.value));
                        sum.fetch_add(total, Ordering::Relaxed);
                    });
                }
            })
            .probe_with(&probe);
    });
    let mut next = index;
    let mut epoch = 0;
    while next < input.records {
        for _ in 0..BATCH {
            if next >= input.records {
                break;
            }
            handle.send(Event { key: input.key(next), value: next });
            next += workers;
        }
        epoch += 1;
        handle.advance_to(epoch);
        while probe.less_than(&epoch) {
            worker.step();
        }
    }
}
