//! `timers`: one pending timer for each of many keys, all of which fire in order of time at the end of the input.
//!
//! Record i sets a timer of the key `mix(i)`, so that keys are distinct and come in no order, at a time below `span_ms`.
//! No time passes before the last record. Not in the peers.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use millpond_core::UserResult;
use millpond_core::seed::mix64;
use millpond_dataflow::{Dataflow, KeyedContext, OpenContext, Output, Timer};
use millpond_jobmanager::Job;
use millpond_operators::{
    KeyedProcess, KeyedStreamOperators, SinkOperators, SourceOperators, StreamOperators, WatermarkStrategy,
};
use millpond_state::StateDeclarer;

use crate::event::{Event, Input};
use crate::measure::{Span, peak_rss_mb, rss_mb};
use crate::parameters::Parameters;
use crate::probe::Probe;
use crate::setup::{Setup, add_pauses, add_rates, input};
use crate::sink::{Checksum, ChecksumSink};

/// What was measured when the first timer fired.
#[derive(Debug)]
struct Turn {
    /// Of setting: wall seconds, CPU seconds of this process and of everybody else.
    set: (f64, f64, f64),
    rss_mb: f64,
    firing: Span,
}

struct SetAndFire {
    span_ms: u64,
    probe: &'static Probe,
    turn: Arc<OnceLock<Turn>>,
}

/// When the timer of a key fires, in milliseconds.
fn time_of(key: u64, span_ms: u64) -> i64 {
    1 + (mix64(!key) % span_ms) as i64
}

impl KeyedProcess for SetAndFire {
    type Key = u64;
    type Input = Event;
    type Output = Event;

    fn open(&mut self, _: &mut StateDeclarer<'_, u64>, _: &mut OpenContext<'_>) -> UserResult {
        Ok(())
    }

    fn process(&mut self, _: Event, context: &mut KeyedContext<'_, u64>, _: &mut Output<Event>) -> UserResult {
        let time_ms = time_of(*context.key()?, self.span_ms);
        Ok(context.set_event_timer(time_ms)?)
    }

    fn on_timer(
        &mut self,
        timer: Timer,
        context: &mut KeyedContext<'_, u64>,
        output: &mut Output<Event>,
    ) -> UserResult {
        let key = *context.key()?;
        self.turn.get_or_init(|| Turn { set: self.probe.stop(), rss_mb: rss_mb(), firing: Span::start() });
        output.emit(Event { key, value: mix64(key ^ mix64(timer.time_ms as u64)) });
        Ok(())
    }
}

fn job(input: Input, span_ms: u64, probe: &'static Probe, turn: &Arc<OnceLock<Turn>>, sum: &Arc<Checksum>) -> Job {
    let (turn, sum) = (Arc::clone(turn), Arc::clone(sum));
    Arc::new(move |flow: &mut Dataflow| -> UserResult {
        let strategy = WatermarkStrategy::monotonous().timestamps(|_: &Event| 0);
        flow.timed_source("gen", input, strategy)
            .key_by(|event| mix64(event.value))
            .process("timers", SetAndFire { span_ms, probe, turn: Arc::clone(&turn) })
            .sink("sink", ChecksumSink::new(&sum));
        Ok(())
    })
}

/// Runs the workload; returns the fields of its line.
pub(crate) fn run(parameters: &Parameters) -> Result<serde_json::Value, String> {
    let keys = parameters.number("keys", 10_000_000)?;
    let span_ms = parameters.number("span_ms", 3_600_000)?.max(1);
    let probe = Probe::leaked();
    let input = Input { records: keys, keys, probe: Some(probe), ..input(parameters)? };
    let (turn, checksum) = (Arc::new(OnceLock::new()), Arc::new(Checksum::default()));
    let setup = Setup::new(parameters)?;
    setup.run(&job(input, span_ms, probe, &turn, &checksum))?;
    let turn = turn.get().ok_or("no timer has fired")?;
    let mut line = setup.describe("timers", &input);
    add_rates(&mut line, keys, turn.set);
    let (wall_s, cpu_s, _) = turn.firing.stop();
    line["span_ms"] = span_ms.into();
    line["fired_per_s"] = (keys as f64 / wall_s.max(1e-9)).round().into();
    line["fired_per_cpu_s"] = (keys as f64 / cpu_s.max(0.01)).round().into();
    line["firing_wall_s"] = wall_s.into();
    line["pending_rss_mb"] = turn.rss_mb.into();
    line["peak_rss_mb"] = peak_rss_mb().into();
    line["outputs"] = checksum.outputs.load(Ordering::Relaxed).into();
    line["checksum"] = checksum.sum.load(Ordering::Relaxed).to_string().into();
    let hashes = (0..keys).map(mix64).map(|key| mix64(key ^ mix64(time_of(key, span_ms) as u64)));
    line["checksum_expected"] = hashes.fold(0, u64::wrapping_add).to_string().into();
    if setup.meter.is_some() {
        add_pauses(&mut line, &setup.components.pauses);
    }
    Ok(line)
}
