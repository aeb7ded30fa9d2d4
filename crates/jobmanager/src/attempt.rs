//! One attempt: claims the job, starts the engine, and carries out what the coordinator decides.
//!
//! One thread (the caller's) takes messages in order and asks the coordinator; everything that may block
//! on storage runs on two threads of its own and answers with a message.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use millpond_checkpoint::{
    AbortReason, Action, Coordinator, DeclineReason, Event, Facts, FailReason, Manifest, ManifestKind, Publisher,
    Reason, RestoreFrom, Started, TriggerKind, WriterId,
};
use millpond_core::{Attempt, Epoch, ErrorKind, MaxParallelism};
use millpond_engine::{Engine, EngineEvent, EngineSpec, UploadLimits};
use millpond_runtime::{EndKind, FlowLimits, RestorePoint, RunSettings};
use millpond_storage::{Deadline, Interrupt, MemoryStorage, Retry, RetryPolicy, Storage};

use crate::cold::{self, Bounds};
use crate::copies;
use crate::error::JobError;
use crate::job::{Components, Job, JobOutcome};
use crate::keeper::{Errand, Keeper};
use crate::look;
use crate::patience::Patience;
use crate::requests::{Requests, SavepointSource};
use crate::settings::{JobSettings, StartFrom, StorageSettings};

/// How often time is told to the coordinator.
const TICK: Duration = Duration::from_millis(10);

/// How an attempt ended well.
pub(crate) struct AttemptEnd {
    pub(crate) outcome: JobOutcome,
    pub(crate) epoch: Epoch,
}

/// Runs one attempt to its end.
pub(crate) fn run_attempt(
    job: &Job,
    settings: &JobSettings,
    components: &Components,
    claims: &mut Claims,
) -> Result<AttemptEnd, JobError> {
    let claimed = claim(settings, components, claims)?;
    let (sender, messages) = channel();
    let bounds = cold::open(settings, components)?;
    let file_bytes = settings.uploads.file_bytes.min(bounds.file);
    let engine = start_engine(job, settings, components, &claimed, (bounds, &sender))?;
    let right = claimed.started.right.clone();
    let runs = RunSettings { target_file_bytes: file_bytes, ..RunSettings::default() };
    let keeper = Keeper::start(&claimed.publisher, right, runs, sender.clone()).map_err(JobError::Thread)?;
    let source = claimed.durable.then(|| SavepointSource {
        storage: Arc::clone(&claimed.storage),
        prefix: claimed.publisher.history().names().prefix().to_owned(),
        clock: Arc::clone(&components.clock),
    });
    let running = Running {
        publisher: claimed.publisher,
        requests: Requests::new(source),
        sender,
        claimed: &mut claims.savepoint,
        chains: &claims.chains,
        settings: claimed.checkpoint_settings,
        started: claimed.started,
        interrupt: claimed.interrupt,
        components,
        engine,
        keeper,
        coordinator: None,
        stop_asked: false,
        held_back: false,
        early: Vec::new(),
        started_ms: components.clock.now_ms(),
        since: Instant::now(),
        source_records_before: components.status.records.load(Ordering::Relaxed),
    };
    running.run(&messages)
}

/// What this process has claimed so far.
pub(crate) struct Claims {
    /// Tells this process from all others.
    pub(crate) writer: WriterId,
    /// Its newest attempt.
    pub(crate) last: Option<Attempt>,
    /// A savepoint that the job owns, as long as it has no checkpoint of its own.
    savepoint: Option<Arc<dyn Storage>>,
    /// The operators of each chain, for messages; empty when nobody knows.
    pub(crate) chains: Vec<String>,
}

impl Claims {
    pub(crate) fn new() -> Self {
        Claims {
            writer: WriterId(RandomState::new().build_hasher().finish()),
            last: None,
            savepoint: None,
            chains: Vec::new(),
        }
    }
}

/// The job as claimed by this attempt.
struct Claimed {
    publisher: Publisher<Arc<dyn Storage>>,
    storage: Arc<dyn Storage>,
    /// Ends the patience with storage.
    interrupt: Interrupt,
    durable: bool,
    started: Started,
    max_parallelism: MaxParallelism,
    checkpoint_settings: millpond_checkpoint::Settings,
}

/// Storage that tries again by itself, and whose calls end. Once `interrupt` is raised they end soon.
pub(crate) fn patient(
    storage: &Arc<dyn Storage>,
    settings: &StorageSettings,
    seed: WriterId,
    interrupt: &Interrupt,
) -> Arc<dyn Storage> {
    let policy = RetryPolicy { patience: Duration::from_millis(settings.patience_ms), ..RetryPolicy::default() };
    let mut bounded = Arc::clone(storage);
    if !bounded.ends_calls() {
        bounded = Arc::new(Deadline::new(bounded, Duration::from_millis(settings.timeout_ms), interrupt.clone()));
    }
    Arc::new(Retry::new(bounded, policy, seed.0, interrupt.clone()))
}

/// Fences every other attempt out.
fn claim(settings: &JobSettings, components: &Components, claims: &mut Claims) -> Result<Claimed, JobError> {
    let durable = components.storage.is_some();
    let interrupt = Interrupt::new();
    let storage: Arc<dyn Storage> = match &components.storage {
        Some(storage) => patient(storage, &settings.storage, claims.writer, &interrupt),
        None => Arc::new(MemoryStorage::new()),
    };
    let copies = match &components.copies_directory {
        Some(directory) if durable => Some(copies::wrap(Arc::clone(&storage), directory, &settings.name)?),
        _ => None,
    };
    let storage = copies.as_ref().map_or(storage, |copies| Arc::clone(copies) as Arc<dyn Storage>);
    let mut checkpoint_settings = settings.checkpoints.clone();
    checkpoint_settings.drop_undeclared |= settings.allow_dropped_state;
    if !durable {
        // Nothing to come back to: the only epoch is the last one, so that sinks show all or nothing.
        checkpoint_settings.interval_ms = None;
    }
    let publisher = Publisher::new(Arc::clone(&storage), &settings.name, claims.writer)?;
    let given = settings.max_parallelism.map(MaxParallelism::new).transpose()?;
    let fresh = look::fresh_max_parallelism(given);
    let now_ms = components.clock.now_ms();
    let started = match (claims.last, &settings.from) {
        // A restart goes on from the newest checkpoint, wherever the job began.
        (Some(last), _) if durable => publisher.fence(RestoreFrom::After(last), fresh, now_ms)?,
        (_, StartFrom::Foreign { object, claim }) => {
            let (origin, foreign) = look::foreign(object, components.origin.as_ref())?;
            tracing::info!(epoch = foreign.epoch.0, bytes = foreign.state_bytes(), "copying the state to start from");
            let started = publisher.fence_imported(origin, &foreign, now_ms)?;
            claims.savepoint = claim.then(|| Arc::clone(origin));
            started
        }
        (_, from) => {
            let from = look::restore_from(publisher.history(), from)?;
            if from == RestoreFrom::Latest && durable {
                publisher.check_log_end()?;
            }
            publisher.fence(from, fresh, now_ms)?
        }
    };
    claims.last = Some(started.right.attempt());
    if let Some(copies) = &copies {
        copies::keep(copies, started.base());
    }
    let stored = MaxParallelism::new(started.base().max_parallelism)?;
    let max_parallelism = if started.base().epoch == Epoch::ZERO { given.unwrap_or(stored) } else { stored };
    look::check_max_parallelism(max_parallelism, given)?;
    Ok(Claimed { publisher, storage, interrupt, durable, started, max_parallelism, checkpoint_settings })
}

fn start_engine(
    job: &Job,
    settings: &JobSettings,
    components: &Components,
    claimed: &Claimed,
    (bounds, sender): (Bounds, &Sender<Message>),
) -> Result<Engine, JobError> {
    let base = claimed.started.base();
    let attempt = claimed.started.right.attempt();
    components.status.attempt.store(attempt.0, Ordering::Relaxed);
    components.status.epoch.store(base.epoch.0, Ordering::Relaxed);
    tracing::info!(
        job = settings.name,
        attempt = attempt.0,
        workers = settings.workers,
        epoch = base.epoch.0,
        "starting"
    );
    let restore = (base.epoch > Epoch::ZERO)
        .then(|| RestorePoint::new(Arc::new(base.clone()), Arc::clone(&claimed.storage), settings.allow_dropped_state))
        .map(|restore| restore.reading_ahead(bounds.reads / u64::from(settings.workers.max(1))));
    let total_bytes = bounds.flight;
    let file_bytes = settings.uploads.file_bytes.min(bounds.file);
    let names = claimed.publisher.history().names().clone();
    let (events, engine_events) = channel();
    forward(engine_events, sender.clone()).map_err(JobError::Thread)?;
    Ok(Engine::start(EngineSpec {
        job: Arc::clone(job),
        workers: settings.workers,
        max_parallelism: claimed.max_parallelism,
        attempt,
        restore,
        storage: claimed.durable.then(|| (Arc::clone(&claimed.storage), names)),
        cold: bounds.cold,
        clock: Arc::clone(&components.clock),
        uploads: UploadLimits { file_bytes, ..settings.uploads.clone() },
        flow: FlowLimits { records: settings.channel_records, bytes: settings.channel_bytes, total_bytes },
        pauses: Arc::clone(&components.pauses),
        queries: Arc::clone(&components.queries),
        events,
    })?)
}

/// What the job manager hears.
#[derive(Debug)]
pub(crate) enum Message {
    Engine(EngineEvent),
    Checkpoint(Event),
}

/// Brings the engine's events into the one queue of messages.
fn forward(events: Receiver<EngineEvent>, sender: Sender<Message>) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name("engine-events".to_owned());
    thread.spawn(move || {
        for event in events {
            if sender.send(Message::Engine(event)).is_err() {
                break;
            }
        }
    })?;
    Ok(())
}

struct Running<'a> {
    publisher: Publisher<Arc<dyn Storage>>,
    requests: Requests,
    sender: Sender<Message>,
    /// A claimed savepoint that is to be disposed of after the first checkpoint.
    claimed: &'a mut Option<Arc<dyn Storage>>,
    chains: &'a [String],
    settings: millpond_checkpoint::Settings,
    started: Started,
    interrupt: Interrupt,
    components: &'a Components,
    engine: Engine,
    keeper: Keeper,
    /// Exists from the moment on when all subtasks run.
    coordinator: Option<Coordinator>,
    stop_asked: bool,
    /// Whether a checkpoint waits for merges.
    held_back: bool,
    /// What was heard before the coordinator existed.
    early: Vec<Event>,
    source_records_before: u64,
    started_ms: i64,
    since: Instant,
}

/// What an action leads to.
enum Verdict {
    GoOn,
    /// The job was at its end before this attempt.
    AlreadyFinished,
    Finished {
        epoch: Epoch,
        at_end: bool,
    },
}

impl Running<'_> {
    fn run(mut self, messages: &Receiver<Message>) -> Result<AttemptEnd, JobError> {
        let verdict = loop {
            let message = match messages.recv_timeout(TICK) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break Err(JobError::Silent),
            };
            self.show_status();
            match self.take(message) {
                Ok(Verdict::GoOn) => {}
                Ok(Verdict::AlreadyFinished) => break Ok(None),
                Ok(Verdict::Finished { epoch, at_end }) => break Ok(Some((epoch, at_end))),
                Err(error) => break Err(error),
            }
        };
        match verdict {
            Ok(Some((epoch, at_end))) => self.finish(messages, epoch, at_end),
            Ok(None) => {
                let epoch = self.started.base().epoch;
                self.engine.abort();
                self.keeper.stop();
                self.requests.finished(self.started.base())?;
                note_committed(&self.publisher, &self.started, self.started.base());
                Ok(AttemptEnd { outcome: JobOutcome::Finished, epoch })
            }
            Err(error) => {
                self.requests.failed(&millpond_core::error::chain(&error));
                let _patience = Patience::start(&error);
                // Nobody needs what is still to be stored; the next attempt is patient anew.
                self.interrupt.raise();
                self.engine.abort();
                self.keeper.stop();
                Err(error)
            }
        }
    }

    /// The last epoch is durable: every subtask commits it. What fails now is done by a restart, unless the
    /// job keeps no checkpoints: then a restart would write again what other subtasks have committed.
    fn finish(self, messages: &Receiver<Message>, epoch: Epoch, at_end: bool) -> Result<AttemptEnd, JobError> {
        let Running { engine, keeper, components, source_records_before, .. } = self;
        let Running { requests, publisher, started, coordinator, sender, .. } = self;
        let newest = coordinator.as_ref().and_then(|coordinator| coordinator.log().last());
        drop(sender);
        let records = engine.source_records();
        components.status.records.store(source_records_before + records, Ordering::Relaxed);
        engine.finish();
        keeper.stop();
        for message in messages.iter() {
            if let Message::Engine(EngineEvent::Failed(error)) = message {
                let durable = components.storage.is_some();
                return Err(if durable { error.into() } else { JobError::PartlyCommitted { source: error } });
            }
        }
        if let Some(newest) = newest {
            requests.finished(newest).map_err(|source| JobError::StopWithoutSavepoint { source })?;
            if at_end && components.storage.is_some() {
                note_committed(&publisher, &started, newest);
            }
        }
        let outcome = if at_end { JobOutcome::Finished } else { JobOutcome::Stopped };
        tracing::info!(epoch = epoch.0, ?outcome, "ended");
        Ok(AttemptEnd { outcome, epoch })
    }

    fn take(&mut self, message: Option<Message>) -> Result<Verdict, JobError> {
        let event = match message {
            None => Event::Tick,
            Some(Message::Checkpoint(event)) => event,
            // All subtasks are open, so all output of the last epoch is committed, and that is all.
            Some(Message::Engine(EngineEvent::Running { .. })) if self.started.base().finished => {
                return Ok(Verdict::AlreadyFinished);
            }
            Some(Message::Engine(EngineEvent::Running { subtasks })) => {
                let facts = Facts::new(&self.started, subtasks);
                self.coordinator = Some(Coordinator::new(self.settings.clone(), facts)?);
                self.keeper.send(Errand::Look);
                Event::Tick
            }
            Some(Message::Engine(EngineEvent::Acknowledged { subtask, epoch, pieces })) => {
                Event::Acknowledged { subtask, epoch, pieces }
            }
            Some(Message::Engine(EngineEvent::Declined { subtask, epoch, kind, reason })) => {
                if kind == ErrorKind::Fenced {
                    let ours = self.started.right.attempt();
                    return Err(JobError::Checkpointing(FailReason::Fenced { ours, theirs: None }));
                }
                Event::Declined { subtask, epoch, reason: DeclineReason::Failed(reason) }
            }
            Some(Message::Engine(EngineEvent::SourcesExhausted)) => Event::SourcesExhausted,
            Some(Message::Engine(EngineEvent::CheckpointWanted)) => Event::TriggerNow(Reason::Manual),
            Some(Message::Engine(EngineEvent::Failed(error))) => return Err(error.into()),
        };
        let mut events = std::mem::take(&mut self.early);
        events.push(event);
        if self.coordinator.is_some() {
            if self.components.stop.is_asked() && !self.stop_asked {
                self.stop_asked = true;
                events.push(Event::TriggerNow(Reason::Stop));
            }
            let asked = self.components.control.take().into_iter();
            events.extend(asked.filter_map(|asked| self.requests.add(asked)).map(Event::TriggerNow));
        }
        // The wall clock at the start, and monotonic from there: a clock that is set must neither expire
        // nor stop checkpoints.
        let since = i64::try_from(self.since.elapsed().as_millis()).unwrap_or(i64::MAX);
        let now_ms = self.started_ms.saturating_add(since);
        let Some(coordinator) = &mut self.coordinator else {
            // A short source on one worker may end before another worker is open.
            self.early = events.into_iter().filter(|event| *event != Event::Tick).collect();
            return Ok(Verdict::GoOn);
        };
        let actions: Vec<Action> = events.into_iter().flat_map(|event| coordinator.on(now_ms, event)).collect();
        let held_back = coordinator.is_held_back();
        if held_back && !self.held_back {
            tracing::warn!("merging is far behind: checkpoints wait for it (setting excess-limit)");
        }
        self.held_back = held_back;
        for action in actions {
            if let Verdict::Finished { epoch, at_end } = self.act(action)? {
                return Ok(Verdict::Finished { epoch, at_end });
            }
        }
        Ok(Verdict::GoOn)
    }

    fn act(&mut self, action: Action) -> Result<Verdict, JobError> {
        match action {
            Action::Trigger { epoch, kind } => {
                let end = match kind {
                    TriggerKind::Periodic | TriggerKind::Manual => None,
                    TriggerKind::Stop => Some(EndKind::Suspend),
                    TriggerKind::Drain | TriggerKind::Final => Some(EndKind::Drain),
                };
                tracing::debug!(epoch = epoch.0, ?kind, "closing");
                self.requests.triggered(epoch, kind.is_last());
                self.engine.trigger(epoch, end);
            }
            Action::Publish { manifest } => {
                let status = &self.components.status;
                status.checkpoint_ms.store(manifest.duration_ms, Ordering::Relaxed);
                let added: u64 = manifest
                    .operators
                    .iter()
                    .flat_map(|operator| &operator.runs)
                    .filter(|run| run.epoch == manifest.epoch && run.level == 0)
                    .map(|run| run.bytes)
                    .sum();
                status.checkpoint_bytes.store(added, Ordering::Relaxed);
                self.keeper.send(Errand::Publish(manifest));
            }
            Action::NotifyCompleted { epoch } => {
                tracing::debug!(epoch = epoch.0, "completed");
                self.components.status.epoch.store(epoch.0, Ordering::Relaxed);
                self.engine.complete(epoch);
                self.completed();
            }
            Action::NotifyAborted { epoch, reason } => {
                self.requests.aborted(epoch, &reason);
                let operators = match &reason {
                    AbortReason::Declined { subtask, .. } => self.chains.get(subtask.chain as usize),
                    _ => None,
                };
                tracing::warn!(epoch = epoch.0, %reason, operators = operators.map_or("", String::as_str), "checkpoint aborted");
            }
            Action::Delete { objects } => self.keeper.send(Errand::Delete(objects)),
            Action::Compact { plan } => self.keeper.send(Errand::Compact(plan)),
            Action::Fail { reason } => return Err(JobError::Checkpointing(reason)),
            Action::Finished { epoch, at_end } => return Ok(Verdict::Finished { epoch, at_end }),
        }
        Ok(Verdict::GoOn)
    }

    /// The newest manifest is in the log: savepoints are copies of it.
    fn completed(&mut self) {
        if let Some(claimed) = self.claimed.take() {
            self.keeper.send(Errand::Dispose(claimed));
        }
        let Some(coordinator) = &mut self.coordinator else { return };
        let Some(newest) = coordinator.log().last() else { return };
        // Pinned before anything else is decided: nothing that the copies need is deleted meanwhile.
        for _ in 0..self.requests.completed(newest, &self.sender) {
            coordinator.pin();
        }
    }

    fn show_status(&self) {
        let status = &self.components.status;
        let (entries, bytes) = self.engine.state_size();
        status.records.store(self.source_records_before + self.engine.source_records(), Ordering::Relaxed);
        status.state_entries.store(entries, Ordering::Relaxed);
        status.state_bytes.store(bytes, Ordering::Relaxed);
    }
}

/// Notes that a finished job has nothing left to do, so that it need not look for its output when it is
/// started again. Without the note it looks.
fn note_committed(publisher: &Publisher<Arc<dyn Storage>>, started: &Started, newest: &Manifest) {
    if newest.committed {
        return;
    }
    let sequence = newest.sequence + 1;
    let note = Manifest { sequence, kind: ManifestKind::Fence, duration_ms: 0, committed: true, ..newest.clone() };
    if let Err(error) = publisher.publish(&started.right, &note) {
        tracing::debug!(error = %millpond_core::error::chain(&error), "cannot note that all output is committed");
    }
}
