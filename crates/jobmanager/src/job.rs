//! A job from its first attempt to its end.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millpond_checkpoint::History;
use millpond_cluster::{ClusterError, ClusterSettings};
use millpond_core::{Clock, Epoch, ErrorKind, SystemClock, UserResult};
use millpond_dataflow::{Dataflow, TimeBoard};
use millpond_engine::PauseHistogram;
use millpond_runtime::{QueryBoard, StateQuery};
use millpond_state::{ColdBackend, ColdBacking};
use millpond_storage::{Interrupt, Storage};

use crate::attempt::{AttemptEnd, run_attempt};
use crate::claim::{Claims, patient};
use crate::cold;
use crate::control::JobControl;
use crate::crew::Crew;
use crate::crew::says::JobEnd;
use crate::error::JobError;
use crate::launch::Given;
use crate::look;
use crate::member;
use crate::restart::RestartBudget;
use crate::settings::JobSettings;
use crate::status::{JobStatus, StopSignal};

/// A job: the function that describes it, called once to look at it, and once per worker and attempt.
pub type Job = Arc<dyn Fn(&mut Dataflow) -> UserResult + Send + Sync>;

/// What a job is given from outside.
#[derive(Clone)]
pub struct Components {
    /// Where checkpoints live; `None` for a job without checkpoints, which starts anew when it fails.
    pub storage: Option<Arc<dyn Storage>>,
    /// Where keyed state goes that does not fit into memory, with [`Backend::Heap`](crate::Backend::Heap): stores
    /// and a budget of the caller's own. `None` to keep all of it there.
    pub cold: Option<ColdBacking>,
    /// What opens such stores for [`Backend::Rocksdb`](crate::Backend::Rocksdb).
    pub cold_backend: Option<Arc<dyn ColdBackend>>,
    /// A directory for state that memory does not hold, emptied at the start of each attempt; `None` for a
    /// temporary one.
    pub local_directory: Option<PathBuf>,
    /// A directory for copies of what checkpoints hold, from which the job is restored as far as they are intact (local
    /// recovery); `None` to read checkpoint storage alone. One process at a time may use it.
    pub copies_directory: Option<PathBuf>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Where the job shows its counters.
    pub status: Arc<JobStatus>,
    /// How it is asked to stop.
    pub stop: Arc<StopSignal>,
    /// How it is asked for checkpoints, savepoints and its end, with an answer.
    pub control: Arc<JobControl>,
    /// Where [`StartFrom::Foreign`](crate::StartFrom::Foreign) is found.
    pub origin: Option<Arc<dyn Storage>>,
    /// Where the pauses that checkpoints cause are counted.
    pub pauses: Arc<PauseHistogram>,
    /// Where it is shown how far event time has come in each operator, and how many records came too late.
    pub times: Arc<TimeBoard>,
    /// Where the running job can be asked about its keyed state (see [`millpond_runtime::StateQuery`]).
    pub queries: Arc<QueryBoard>,
}

impl Components {
    /// The system's clock and fresh counters, with checkpoints in `storage`.
    #[must_use]
    pub fn new(storage: Option<Arc<dyn Storage>>) -> Self {
        Components {
            storage,
            cold: None,
            cold_backend: None,
            local_directory: None,
            copies_directory: None,
            clock: Arc::new(SystemClock),
            status: Arc::default(),
            stop: Arc::default(),
            control: Arc::default(),
            origin: None,
            pauses: Arc::default(),
            times: Arc::default(),
            queries: Arc::default(),
        }
    }

    /// For asking the running job about its live keyed state, from any thread.
    #[must_use]
    pub fn query(&self) -> StateQuery {
        StateQuery::new(Arc::clone(&self.queries))
    }
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobOutcome {
    /// All input was processed.
    Finished,
    /// It was asked to stop, and can be resumed.
    Stopped,
}

/// What a job leaves behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobReport {
    /// How it ended.
    pub outcome: JobOutcome,
    /// Its last epoch.
    pub epoch: Epoch,
    /// How often it was restarted.
    pub restarts: u32,
}

/// Runs a job until it finishes, is stopped, or fails for good.
///
/// # Errors
/// When the job cannot be built or started, when somebody else runs it (fenced), or when its restart
/// budget is used up.
pub fn run(job: &Job, settings: &JobSettings, components: &Components) -> Result<JobReport, JobError> {
    components.control.begin();
    let outcome = run_attempts(job, settings, components);
    components.control.end();
    outcome
}

fn run_attempts(job: &Job, settings: &JobSettings, components: &Components) -> Result<JobReport, JobError> {
    let mut claims = Claims::new();
    cold::check(settings, components)?;
    let cluster = settings.cluster.as_ref();
    let security = cluster.map(ClusterSettings::security).transpose()?.unwrap_or_default();
    let storage = components.storage.as_ref();
    let storage = storage.map(|storage| patient(storage, &settings.storage, claims.writer, &Interrupt::new()));
    match look::check_start(job, settings, components.origin.as_ref(), storage.as_ref()) {
        Ok(look::Looked { finished: Some(epoch), .. }) => {
            tracing::info!(job = settings.name, epoch = epoch.0, "the job has finished already");
            components.status.epoch.store(epoch.0, std::sync::atomic::Ordering::Relaxed);
            return Ok(JobReport { outcome: JobOutcome::Finished, epoch, restarts: 0 });
        }
        Ok(looked) => claims.chains = looked.chains,
        // What is unavailable now may be there for an attempt.
        Err(error) if !error.is_restartable() => return Err(error),
        Err(_) => {}
    }
    let given = Given { job, settings, components };
    match cluster {
        Some(cluster) if cluster.process > 0 => member::run(given, cluster, &security, storage.as_ref()),
        Some(cluster) => {
            cluster.check()?;
            let crew = Crew::open(given, cluster, &security, Arc::clone(&components.stop))?;
            let outcome = lead(given, &mut claims, storage.as_ref(), Some(&crew));
            crew.end(job_end(&outcome));
            outcome
        }
        None => lead(given, &mut claims, storage.as_ref(), None),
    }
}

/// Attempt after attempt, until one ends well or no other may follow.
fn lead(
    given: Given<'_>,
    claims: &mut Claims,
    storage: Option<&Arc<dyn Storage>>,
    crew: Option<&Crew>,
) -> Result<JobReport, JobError> {
    let Given { job, components, .. } = given;
    let mut settings = given.settings.clone();
    let mut budget = RestartBudget::new(settings.restart.clone());
    let mut restarts = 0;
    loop {
        let started_ms = components.clock.now_ms();
        let gathered = crew.map_or(Ok(true), |crew| crew.gather(&|| is_stop_asked(components)));
        let ended = match gathered {
            Ok(false) => return Ok(stopped(components, restarts)),
            Ok(true) => run_attempt(Given { job, settings: &settings, components }, claims, crew),
            Err(error) => Err(error),
        };
        let error = match ended {
            Ok(AttemptEnd { outcome: JobOutcome::Stopped, .. }) if claims.rescaled.is_some() => {
                settings.workers = claims.rescaled.as_ref().map_or(settings.workers, |rescaled| rescaled.workers);
                continue;
            }
            Ok(AttemptEnd { outcome, epoch }) => return Ok(JobReport { outcome, epoch, restarts }),
            // No record has flowed since the last checkpoint.
            Err(JobError::Cluster(ClusterError::Cancelled)) if is_stop_asked(components) => {
                return Ok(stopped(components, restarts));
            }
            Err(error) => after_succession(error, &settings, storage, claims),
        };
        if !error.is_restartable() {
            return Err(error);
        }
        let ran_ms = components.clock.now_ms().saturating_sub(started_ms).max(0);
        let Some(delay_ms) = budget.next_delay_ms(u64::try_from(ran_ms).unwrap_or(0)) else {
            return Err(if restarts == 0 { error } else { JobError::Exhausted { restarts, last: Box::new(error) } });
        };
        tracing::warn!(error = %millpond_core::error::chain(&error), delay_ms, "the attempt failed, restarting");
        pause(delay_ms, components);
        if is_stop_asked(components) {
            return Ok(stopped(components, restarts));
        }
        restarts += 1;
        components.status.restarts.store(u64::from(restarts), Ordering::Relaxed);
    }
}

/// Nothing runs, and what the last checkpoint holds can be resumed: the stop is done.
fn stopped(components: &Components, restarts: u32) -> JobReport {
    let epoch = Epoch(components.status.epoch.load(Ordering::Relaxed));
    components.control.stopped(epoch);
    tracing::warn!(epoch = epoch.0, "stopped instead of restarting");
    JobReport { outcome: JobOutcome::Stopped, epoch, restarts }
}

/// What the other processes are told of the end.
fn job_end(outcome: &Result<JobReport, JobError>) -> JobEnd {
    match outcome {
        Ok(JobReport { outcome: JobOutcome::Finished, epoch, .. }) => JobEnd::Finished { epoch: *epoch },
        Ok(JobReport { epoch, .. }) => JobEnd::Stopped { epoch: *epoch },
        Err(error) => JobEnd::Failed { kind: error.kind(), reason: millpond_core::error::chain(error) },
    }
}

/// An attempt whose job somebody else has claimed fails in many ways, for instance because its files
/// are gone. Whatever it says, the reason is the other one, and the job is left to it.
fn after_succession(
    error: JobError,
    settings: &JobSettings,
    storage: Option<&Arc<dyn Storage>>,
    claims: &Claims,
) -> JobError {
    let (Some(storage), Some(ours)) = (storage, claims.last) else { return error };
    if error.kind() == ErrorKind::Fenced {
        return error;
    }
    let history = History::new(Arc::clone(storage), &settings.name);
    match history.ok().and_then(|history| look::successor(&history, ours, claims.writer)) {
        Some(fenced) => {
            tracing::warn!(error = %millpond_core::error::chain(&error), "failed after being fenced");
            fenced.into()
        }
        None => error,
    }
}

pub(crate) fn is_stop_asked(components: &Components) -> bool {
    components.stop.is_asked() || components.control.is_stop_waiting()
}

/// Waits, but not longer than somebody wants to stop.
fn pause(delay_ms: u64, components: &Components) {
    let mut left_ms = delay_ms;
    while left_ms > 0 && !is_stop_asked(components) {
        let step_ms = left_ms.min(50);
        std::thread::sleep(std::time::Duration::from_millis(step_ms));
        left_ms -= step_ms;
    }
}
