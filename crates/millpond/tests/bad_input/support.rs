//! A job that counts, stopped half-way: what the tests of this folder damage, misuse and resume.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use millpond::checkpoint::{History, Manifest};
use millpond::prelude::*;
use millpond::state::StateError;
use millpond::storage::{MemoryStorage, ObjectName, Storage};
use millpond::{Components, JobError, JobOutcome, JobReport, JobSettings, RestartPolicy, StopSignal};

/// Records of the whole job; a slow machine may have read more before the stop.
pub(crate) const RECORDS: u64 = 600;
/// Keys among them.
const KEYS: u64 = 7;
/// The record at which somebody asks for the stop, and the rate at which records come.
const STOP_AT: u64 = 100;
const RECORDS_PER_SECOND: u64 = 1_500;
/// Elements of operator state: enough for an object of their own.
const BALLAST: u64 = 20_000;
/// Long enough for the slowest machine; nothing is decided by it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// What the counting operator declares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shape {
    /// A count per key.
    Number,
    /// A count per key and a second state.
    NumberAndMore,
    /// The count as text.
    Text,
    /// A list instead of a value.
    List,
    /// A record of two numbers.
    Pair,
    /// The same record with a field of another type.
    OtherPair,
}

/// How the job differs from the one that took the checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    pub(crate) keyed: bool,
    pub(crate) ballast: Option<&'static str>,
}

impl Default for Variant {
    fn default() -> Self {
        Variant { name: "counts", shape: Shape::Number, keyed: true, ballast: Some("ballast") }
    }
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(crate = "millpond::serde")]
struct Pair {
    count: u64,
    more: u32,
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(crate = "millpond::serde")]
struct OtherPair {
    count: u64,
    more: String,
}

enum Count {
    Number(ValueState<u64>),
    Text(ValueState<String>),
    List(ListState<u64>),
    Pair(ValueState<Pair>),
    OtherPair(ValueState<OtherPair>),
}

struct Counter {
    shape: Shape,
    count: Option<Count>,
    more: Option<ValueState<u64>>,
}

impl Counter {
    fn declare(&self, states: &mut StateDeclarer<'_, u64>) -> Result<Count, StateError> {
        Ok(match self.shape {
            Shape::Number | Shape::NumberAndMore => Count::Number(states.value("count")?),
            Shape::Text => Count::Text(states.value("count")?),
            Shape::List => Count::List(states.list("count")?),
            Shape::Pair => Count::Pair(states.value("count")?),
            Shape::OtherPair => Count::OtherPair(states.value("count")?),
        })
    }
}

impl KeyedProcess for Counter {
    type Key = u64;
    type Input = u64;
    type Output = (u64, u64);

    fn open(&mut self, states: &mut StateDeclarer<'_, u64>, _: &mut OpenContext<'_>) -> UserResult {
        self.count = Some(self.declare(states)?);
        if self.shape == Shape::NumberAndMore {
            self.more = Some(states.value("more")?);
        }
        Ok(())
    }

    fn process(
        &mut self,
        number: u64,
        context: &mut KeyedContext<'_, u64>,
        output: &mut Output<(u64, u64)>,
    ) -> UserResult {
        let seen = match self.count.as_ref().ok_or("not open")? {
            Count::Number(count) => {
                let seen = count.get(context)?.copied().unwrap_or(0) + 1;
                count.set(context, seen)?;
                seen
            }
            Count::Text(count) => {
                let seen = count.get(context)?.map_or(Ok(0), |text| text.parse::<u64>())? + 1;
                count.set(context, seen.to_string())?;
                seen
            }
            Count::List(count) => {
                count.add(context, number)?;
                count.len(context)? as u64
            }
            Count::Pair(count) => {
                let seen = count.get(context)?.map_or(0, |pair| pair.count) + 1;
                count.set(context, Pair { count: seen, more: 0 })?;
                seen
            }
            Count::OtherPair(count) => {
                let seen = count.get(context)?.map_or(0, |pair| pair.count) + 1;
                count.set(context, OtherPair { count: seen, more: String::new() })?;
                seen
            }
        };
        if let Some(more) = &self.more {
            more.set(context, seen)?;
        }
        output.emit((number % KEYS, seen));
        Ok(())
    }
}

/// Passes records on, and keeps a list that is too long to stand in a manifest.
struct Ballast(&'static str);

impl Process for Ballast {
    type Input = u64;
    type Output = u64;

    fn open(&mut self, context: &mut OpenContext<'_>) -> UserResult {
        let list = context.states.list::<u64>(self.0)?;
        if !context.restored {
            list.add_all(context.states, (0..BALLAST).map(|number| number << 32))?;
        }
        Ok(())
    }

    fn process(&mut self, number: u64, _: &mut ProcessContext<'_>, output: &mut Output<u64>) -> UserResult {
        output.emit(number);
        Ok(())
    }
}

/// The same without the list.
struct PassOn;

impl Process for PassOn {
    type Input = u64;
    type Output = u64;

    fn process(&mut self, number: u64, _: &mut ProcessContext<'_>, output: &mut Output<u64>) -> UserResult {
        output.emit(number);
        Ok(())
    }
}

/// Where a stopped job left off, and what it has made visible.
pub(crate) struct World {
    pub(crate) storage: Arc<MemoryStorage>,
    pub(crate) out: Collector<(u64, u64)>,
}

impl World {
    /// A job of this shape that was stopped, with one epoch.
    pub(crate) fn stopped(shape: Shape) -> World {
        let world = World { storage: Arc::default(), out: Collector::new() };
        world.go_on_and_stop(shape);
        world
    }

    /// Runs the job for one more epoch. Its input has no end, so that however slow the machine is, the
    /// stop comes before it.
    pub(crate) fn go_on_and_stop(&self, shape: Shape) {
        let components = self.components();
        let variant = Variant { shape, ..Variant::default() };
        let job = self.job(variant, Some(Arc::clone(&components.stop)));
        let report = run(job, settings(2), &components).unwrap();
        assert_eq!(report.outcome, JobOutcome::Stopped);
    }

    pub(crate) fn components(&self) -> Components {
        Components::new(Some(Arc::clone(&self.storage) as Arc<dyn Storage>))
    }

    fn job(
        &self,
        variant: Variant,
        stop: Option<Arc<StopSignal>>,
    ) -> impl Fn(&mut Dataflow) -> UserResult + Send + Sync + use<> {
        let out = self.out.clone();
        move |flow| {
            let records = if stop.is_some() { u64::MAX } else { RECORDS };
            let source = GeneratorSource::new(records, 4, |index| index).rate(RECORDS_PER_SECOND);
            let stop = stop.clone();
            let numbers = flow.source("numbers", source).inspect(move |number| {
                if *number >= STOP_AT
                    && let Some(stop) = &stop
                {
                    stop.stop();
                }
            });
            let numbers = match variant.ballast {
                Some(list) => numbers.process("passed on", Ballast(list)),
                None => numbers.process("passed on", PassOn),
            };
            if !variant.keyed {
                numbers.process(variant.name, PassOn).map(|number| (number, 0)).collect("out", &out);
                return Ok(());
            }
            let counter = Counter { shape: variant.shape, count: None, more: None };
            numbers.key_by(|number| number % KEYS).process(variant.name, counter).collect("out", &out);
            Ok(())
        }
    }

    /// Starts the job as `variant` and runs it to its end.
    pub(crate) fn start(&self, variant: Variant, settings: JobSettings) -> Result<JobReport, JobError> {
        run(self.job(variant, None), settings, &self.components())
    }

    /// The error of a start that must fail without making anything visible.
    pub(crate) fn refused(&self, variant: Variant, settings: JobSettings) -> JobError {
        let before = self.out.snapshot().len();
        let error = self.start(variant, settings).unwrap_err();
        assert_eq!(self.out.snapshot().len(), before, "{error}");
        error
    }

    /// Runs the job as it was and checks that all results appeared exactly once.
    pub(crate) fn resumes_exactly_once(&self, shape: Shape) {
        let report = self.start(Variant { shape, ..Variant::default() }, settings(3)).unwrap();
        assert_eq!(report.outcome, JobOutcome::Finished);
        let mut counts: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (key, count) in self.out.snapshot() {
            counts.entry(key).or_default().push(count);
        }
        let mut records = 0;
        for (key, mut seen) in counts {
            seen.sort_unstable();
            records += seen.len() as u64;
            assert!(seen.iter().copied().eq(1..=seen.len() as u64), "key {key}: {seen:?}");
        }
        assert!(records >= RECORDS, "{records} records");
    }

    pub(crate) fn history(&self) -> History<Arc<MemoryStorage>> {
        History::new(Arc::clone(&self.storage), "job").unwrap()
    }

    /// Name and content of the newest manifest.
    pub(crate) fn newest(&self) -> (ObjectName, Manifest) {
        let entry = self.history().entries().unwrap().pop().unwrap();
        (entry.object, entry.manifest.unwrap())
    }

    pub(crate) fn read(&self, object: &ObjectName) -> Vec<u8> {
        self.storage.read(object).unwrap()
    }
}

/// Few key groups and no restarts: a failure shows at once.
pub(crate) fn settings(workers: u32) -> JobSettings {
    JobSettings { workers, max_parallelism: Some(16), restart: RestartPolicy::Never, ..JobSettings::default() }
}

/// Runs a job under a watchdog.
pub(crate) fn run(
    job: impl Fn(&mut Dataflow) -> UserResult + Send + Sync + 'static,
    settings: JobSettings,
    components: &Components,
) -> Result<JobReport, JobError> {
    let (sender, outcome) = channel();
    let components = components.clone();
    std::thread::spawn(move || sender.send(millpond::run_with(job, &settings, &components)));
    outcome.recv_timeout(PATIENCE).expect("the job ends")
}

/// An error as people read it: no cause may stand in it twice.
pub(crate) fn words(error: &JobError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    println!("{} | {text}", error.kind());
    for part in text.split(": ").filter(|part| part.len() > 20) {
        assert_eq!(text.matches(part).count(), 1, "twice {part:?} in {text}");
    }
    text
}

/// Checks that an error says all of this.
pub(crate) fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in: {text}");
    }
}
