//! `increments`: a payload per key; after the fill, epoch after epoch in each of which one part of a hundred of the keys
//! (drawn anew) is updated, exactly, whatever the time; the next one begins `interval_ms` after it, or at once. What is uploaded must follow what changed, the directory must
//! stay near the size of the live state, and a restore at the end be as fast as one after the fill.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millpond_checkpoint::{History, Manifest};
use millpond_core::{SplitMix64, UserResult, error::chain};
use millpond_dataflow::{Dataflow, Output, ReadStatus, Source, Split, SplitReader};
use millpond_jobmanager::{Job, StopRequest};
use millpond_operators::{KeyedStreamOperators, SinkOperators, SourceOperators, StreamOperators};
use millpond_storage::{ObjectName, Storage};
use serde::{Deserialize, Serialize};

use crate::event::Event;
use crate::measure::peak_rss_mb;
use crate::parameters::Parameters;
use crate::payload::bump;
use crate::recover::fresh;
use crate::setup::Setup;
use crate::sink::{Checksum, ChecksumSink};

/// Number of splits: more than there are ever workers.
const SPLITS: u64 = 12;
/// How often a restore is timed.
const RESTORES: usize = 3;
/// Time within which a gate is reached, or the job hangs.
const PATIENCE: Duration = Duration::from_secs(1_800);

/// A source that goes as far as it is let.
#[derive(Clone)]
struct Gated {
    keys: u64,
    /// Records from this one on wait.
    gate: Arc<AtomicU64>,
    /// The next record of each split.
    next: Arc<Vec<AtomicU64>>,
    created: Instant,
    /// Microseconds from `created` until the first split was read; 0 before.
    reading_us: Arc<AtomicU64>,
}

impl Gated {
    fn new(keys: u64, gate: u64) -> Gated {
        Gated {
            keys,
            gate: Arc::new(AtomicU64::new(gate)),
            next: Arc::new((0..SPLITS).map(|_| AtomicU64::new(0)).collect()),
            created: Instant::now(),
            reading_us: Arc::default(),
        }
    }

    fn key(&self, index: u64) -> u64 {
        if index < self.keys { index } else { SplitMix64::nth(index) % self.keys }
    }

    /// Waits until every record before the gate was read.
    fn wait(&self, ended: impl Fn() -> bool) -> Result<(), String> {
        let (gate, since) = (self.gate.load(Ordering::SeqCst), Instant::now());
        while self.next.iter().any(|next| next.load(Ordering::SeqCst) < gate) {
            if ended() || since.elapsed() > PATIENCE {
                return Err(format!("the job does not come to record {gate}"));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct GatedSplit {
    number: u64,
    next: u64,
}

impl Split for GatedSplit {
    fn id(&self) -> String {
        self.number.to_string()
    }
}

struct GatedReader {
    source: Gated,
    split: GatedSplit,
}

impl Source for Gated {
    type Record = Event;
    type Split = GatedSplit;
    type Reader = GatedReader;

    fn enumerate(&mut self) -> UserResult<Vec<GatedSplit>> {
        Ok((0..SPLITS).map(|number| GatedSplit { number, next: number }).collect())
    }

    fn open_split(&mut self, split: GatedSplit) -> UserResult<GatedReader> {
        Ok(GatedReader { source: self.clone(), split })
    }
}

impl SplitReader for GatedReader {
    type Record = Event;
    type Split = GatedSplit;

    fn read(&mut self, limit: usize, output: &mut Output<Event>) -> UserResult<ReadStatus> {
        let source = &self.source;
        if source.reading_us.load(Ordering::Relaxed) == 0 {
            source.reading_us.store((source.created.elapsed().as_micros() as u64).max(1), Ordering::Relaxed);
        }
        let gate = source.gate.load(Ordering::SeqCst);
        let mut status = ReadStatus::Ready;
        for _ in 0..limit {
            if self.split.next >= gate {
                status = ReadStatus::Idle;
                break;
            }
            output.emit(Event { key: source.key(self.split.next), value: self.split.next });
            self.split.next += SPLITS;
        }
        source.next[self.split.number as usize].store(self.split.next, Ordering::SeqCst);
        Ok(status)
    }

    fn split(&self) -> GatedSplit {
        self.split.clone()
    }
}

fn job(source: &Gated, payload: usize, checksum: &Arc<Checksum>) -> Job {
    let (source, checksum) = (source.clone(), Arc::clone(checksum));
    Arc::new(move |flow: &mut Dataflow| -> UserResult {
        flow.source("gen", source.clone())
            .key_by(|event| event.key)
            .process_with(
                "payload",
                |states| states.value::<serde_bytes::ByteBuf>("payload"),
                move |state, event, context, output| {
                    let count = state.modify(context, |held| bump(held, event.key, payload))?;
                    output.emit(Event { key: event.key, value: count });
                    Ok(())
                },
            )
            .sink("sink", ChecksumSink::new(&checksum));
        Ok(())
    })
}

/// Runs the job up to gate after gate on a thread of its own; `drive` says what happens meanwhile. The job is stopped
/// afterwards. Returns what `drive` did.
fn with_job<T>(
    setup: &mut Setup,
    source: &Gated,
    payload: usize,
    checksum: &Arc<Checksum>,
    drive: impl FnOnce(&Setup, &dyn Fn() -> bool) -> Result<T, String>,
) -> Result<T, String> {
    setup.components = fresh(setup);
    let setup = &*setup;
    let job = job(source, payload, checksum);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| setup.run(&job));
        let driven = drive(setup, &|| running.is_finished());
        let stopped = setup.components.control.stop(StopRequest::default());
        let ran = running.join().map_err(|_| "the job panicked".to_owned())?;
        let driven = driven?;
        ran?;
        stopped.map_err(|error| chain(&error))?;
        Ok(driven)
    })
}

/// Milliseconds until a job that is started from the newest checkpoint reads its first record; the median of some.
fn time_restores(setup: &mut Setup, keys: u64, payload: usize, gate: u64) -> Result<(f64, Vec<f64>), String> {
    let mut times = Vec::new();
    for _ in 0..RESTORES {
        let source = Gated::new(keys, gate);
        with_job(setup, &source, payload, &Arc::default(), |_, ended| {
            while source.reading_us.load(Ordering::Relaxed) == 0 && !ended() {
                std::thread::sleep(Duration::from_micros(200));
            }
            Ok(())
        })?;
        times.push(source.reading_us.load(Ordering::Relaxed) as f64 / 1e3);
    }
    let mut sorted = times.clone();
    sorted.sort_by(f64::total_cmp);
    Ok((sorted[RESTORES / 2], times))
}

fn newest(setup: &Setup) -> Result<Manifest, String> {
    let storage = setup.components.storage.clone().ok_or("there is a checkpoint storage")?;
    let history = History::new(storage, &setup.settings.name).map_err(|error| chain(&error))?;
    history.latest().map_err(|error| chain(&error))?.ok_or_else(|| "there is no checkpoint".to_owned())
}

/// Bytes that subtasks have written for the epoch of `manifest` itself: its runs before any merge, and operator state.
fn own_bytes(manifest: &Manifest) -> u64 {
    let runs = manifest.operators.iter().flat_map(|operator| &operator.runs);
    let own = runs.filter(|run| run.epoch == manifest.epoch && run.level == 0).map(|run| run.bytes);
    let blobs = manifest.operators.iter().flat_map(|operator| operator.subtasks.iter().flatten());
    own.chain(blobs.map(millpond_checkpoint::Blob::bytes)).sum()
}

fn stored_bytes(setup: &Setup) -> Result<(u64, usize), String> {
    let storage = setup.components.storage.clone().ok_or("there is a checkpoint storage")?;
    let listed = storage.list("").map_err(|error| chain(&error))?;
    let names: Vec<&ObjectName> = listed.iter().map(|info| &info.name).collect();
    Ok((listed.iter().map(|info| info.bytes).sum(), names.len()))
}

/// What the epochs came to.
#[derive(Default)]
struct Epochs {
    own: Vec<u64>,
    written: Vec<u64>,
    directory: Vec<u64>,
}

/// Runs the workload; returns the fields of its line.
pub(crate) fn run(parameters: &Parameters) -> Result<serde_json::Value, String> {
    let keys = parameters.number("keys", 10_000_000)?.max(100);
    let payload = parameters.number("payload", 100)? as usize;
    let epochs = parameters.number("epochs", 200)?;
    let changed = keys * parameters.number("changed", 1)? / 100;
    let interval = Duration::from_millis(parameters.number("interval_ms", 0)?);
    let mut setup = Setup::with_checkpoints(parameters, None, true)?;
    let checksum = Arc::new(Checksum::default());

    let source = Gated::new(keys, keys);
    with_job(&mut setup, &source, payload, &checksum, |_, ended| source.wait(ended))?;
    let (live_bytes, (full_directory, _)) = (newest(&setup)?.state_bytes(), stored_bytes(&setup)?);
    let (restore_first_ms, restores_first) = time_restores(&mut setup, keys, payload, keys)?;

    let source = Gated::new(keys, keys);
    let began = Instant::now();
    let measured = with_job(&mut setup, &source, payload, &checksum, |setup, ended| {
        let mut measured = Epochs::default();
        let mut before = written(setup);
        for _ in 0..epochs {
            let began = Instant::now();
            source.gate.fetch_add(changed, Ordering::SeqCst);
            source.wait(ended)?;
            setup.components.control.checkpoint().map_err(|error| chain(&error))?;
            let now = written(setup);
            measured.own.push(own_bytes(&newest(setup)?));
            measured.written.push(now - before);
            measured.directory.push(stored_bytes(setup)?.0);
            before = now;
            std::thread::sleep(interval.saturating_sub(began.elapsed()));
        }
        Ok(measured)
    })?;
    let wall_s = began.elapsed().as_secs_f64();
    let last = newest(&setup)?;
    let (directory_bytes, objects) = stored_bytes(&setup)?;
    let gate = source.gate.load(Ordering::SeqCst);
    let (restore_last_ms, restores_last) = time_restores(&mut setup, keys, payload, gate)?;

    let percent = |bytes: u64| (bytes as f64 / live_bytes.max(1) as f64 * 1e5).round() / 1e3;
    let mean = measured.written.iter().sum::<u64>() / epochs.max(1);
    Ok(serde_json::json!({
        "engine": "millpond", "workload": "increments", "backend": setup.settings.backend.name(),
        "parallelism": setup.settings.workers, "keys": keys, "payload": payload, "epochs": epochs,
        "changed_per_epoch": changed, "interval_ms": interval.as_millis() as u64, "wall_s": wall_s,
        "live_bytes": live_bytes, "directory_after_fill_bytes": full_directory,
        "uploaded_max_bytes": measured.own.iter().max(), "uploaded_max_percent": measured.own.iter().max().map(|max| percent(*max)),
        "written_with_merges_mean_bytes": mean, "written_with_merges_mean_percent": percent(mean),
        "directory_bytes": directory_bytes, "directory_objects": objects,
        "directory_ratio": directory_bytes as f64 / live_bytes.max(1) as f64,
        "directory_max_ratio": measured.directory.iter().max().map(|max| *max as f64 / live_bytes.max(1) as f64),
        "directory_ratios": measured.directory.iter().map(|bytes| percent(*bytes).round() / 1e2).collect::<Vec<_>>(),
        "state_ratio": last.state_bytes() as f64 / live_bytes.max(1) as f64,
        "runs": last.operators.iter().map(|operator| operator.runs.len()).sum::<usize>(),
        "restore_first_ms": restore_first_ms, "restore_last_ms": restore_last_ms,
        "restores_first_ms": restores_first, "restores_last_ms": restores_last,
        "checksum": checksum.sum.load(Ordering::Relaxed).to_string(),
        "checksum_expected": expected(&source, gate).to_string(),
        "peak_rss_mb": peak_rss_mb(),
    }))
}

fn written(setup: &Setup) -> u64 {
    setup.meter.as_ref().map_or(0, |meter| meter.snapshot().bytes_written())
}

/// The sum of all counts, by a plain replay.
fn expected(source: &Gated, gate: u64) -> u64 {
    let mut counts = vec![0u64; source.keys as usize];
    (0..gate).fold(0, |sum: u64, index| {
        let count = &mut counts[source.key(index) as usize];
        *count += 1;
        sum.wrapping_add(*count)
    })
}
