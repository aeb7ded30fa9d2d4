//! Checkpoint storage that fails, is slow, lies or hangs under a running job.
//!
//! Times are scaled down: patience and outages of a minute become patience and outages of seconds.

#![expect(clippy::unwrap_used, reason = "outside of test functions, but only called by them")]

mod faulty;
#[cfg(feature = "s3")]
mod server;
#[cfg(feature = "s3")]
#[path = "../../../storage-object/tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use millpond::prelude::*;
use millpond::storage::Storage;
use millpond::{Clock, Components, JobError, JobReport, JobSettings, ManualClock, RestartPolicy};

/// Counts per carrier over a stream of flights, of which `clock` says how many have come.
fn flights(
    out: &Collector<(u64, u64)>,
    clock: &Arc<ManualClock>,
) -> impl Fn(&mut Dataflow) -> UserResult + Send + Sync + use<> {
    let (out, clock) = (out.clone(), Arc::clone(clock));
    move |flow| {
        let flights = GeneratorSource::new(RECORDS, 2, |index| index);
        let flights = flights.rate_by(1_000, Arc::clone(&clock) as Arc<dyn Clock>);
        flow.source("flights", flights).key_by(|index| index % CARRIERS).count("counts").collect("out", &out);
        Ok(())
    }
}

pub(crate) const RECORDS: u64 = 30_000;
pub(crate) const CARRIERS: u64 = 11;

/// What takes longer than this never ends; the slowest machine needs far less.
const HUNG: Duration = Duration::from_secs(120);

/// All counts that a run without trouble gives, sorted.
pub(crate) fn expected() -> Vec<(u64, u64)> {
    let mut all: Vec<_> = (0..RECORDS).map(|index| (index % CARRIERS, index / CARRIERS + 1)).collect();
    all.sort_unstable();
    all
}

pub(crate) fn sorted(out: &Collector<(u64, u64)>) -> Vec<(u64, u64)> {
    let mut all = out.snapshot();
    all.sort_unstable();
    all
}

/// A checkpoint every 50 ms; a call has half a second and is repeated for `patience_ms`.
pub(crate) fn settings(patience_ms: u64) -> JobSettings {
    let restart = RestartPolicy::Never;
    let mut settings = JobSettings { name: "flights".to_owned(), workers: 2, restart, ..JobSettings::default() };
    settings.checkpoints.interval_ms = Some(50);
    settings.storage.patience_ms = patience_ms;
    settings.storage.timeout_ms = 500;
    settings
}

/// A job that runs on a thread of its own.
pub(crate) struct Running {
    components: Components,
    clock: Arc<ManualClock>,
    thread: std::thread::JoinHandle<Result<JobReport, JobError>>,
}

impl Running {
    pub(crate) fn start(storage: Arc<dyn Storage>, settings: JobSettings, out: &Collector<(u64, u64)>) -> Running {
        let (components, clock) = (Components::new(Some(storage)), Arc::new(ManualClock::new(0)));
        let (job, own) = (flights(out, &clock), components.clone());
        let thread = std::thread::spawn(move || millpond::run_with(job, &settings, &own));
        Running { components, clock, thread }
    }

    /// Waits until so many epochs are completed, while some records come.
    pub(crate) fn wait_for_epoch(&self, epoch: u64) {
        let since = Instant::now();
        while self.epoch() < epoch {
            assert!(!self.thread.is_finished(), "the job ended before epoch {epoch}");
            assert!(since.elapsed() < HUNG, "epoch {epoch} does not come, {} is the last one", self.epoch());
            self.flow();
        }
    }

    /// Lets records come for a while.
    pub(crate) fn flow_for(&self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.flow();
        }
    }

    fn flow(&self) {
        // Most of the input is for the end.
        if self.clock.now_ms() < 10_000 {
            self.clock.advance(5);
        }
        std::thread::sleep(Duration::from_millis(5));
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.components.status.snapshot().epoch
    }

    /// Waits until the job ends by itself, while some records come.
    pub(crate) fn fail(self) -> JobError {
        let since = Instant::now();
        while !self.thread.is_finished() {
            assert!(since.elapsed() < HUNG, "the job does not fail, epoch {} is the last one", self.epoch());
            self.flow();
        }
        self.thread.join().unwrap().unwrap_err()
    }

    /// Lets all records come, and waits for the end.
    pub(crate) fn finish(self) -> Result<JobReport, JobError> {
        let since = Instant::now();
        while !self.thread.is_finished() {
            assert!(since.elapsed() < HUNG, "the job does not end, epoch {} is the last one", self.epoch());
            // Again and again: a source counts from the time at which it opens, which may be still to come.
            self.clock.advance(1_000_000);
            std::thread::sleep(Duration::from_millis(5));
        }
        self.thread.join().unwrap()
    }
}

/// An error with all its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
