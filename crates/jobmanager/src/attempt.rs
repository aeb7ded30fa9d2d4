//! One attempt: claims the job, starts the engine, and carries out what the coordinator decides.
//!
//! One thread (the caller's) takes messages in order and asks the coordinator; everything that may block
//! on storage runs on two threads of its own and answers with a message.

use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use millpond_checkpoint::{
    AbortReason, Action, Coordinator, DeclineReason, Event, Facts, FailReason, Manifest, ManifestKind, Publisher,
    Reason, Started, SubtaskId, TriggerKind, format,
};
use millpond_core::{Epoch, ErrorKind, MaxParallelism};
use millpond_engine::EngineEvent;
use millpond_runtime::{EndKind, RunSettings};
use millpond_storage::{Interrupt, Storage};

use crate::cause::{why_apart, why_gone};
use crate::claim::{Claimed, Claims, Rescaled, claim};
use crate::cold;
use crate::control::{Asked, Done, Wish};
use crate::crew::says::{MemberEvent, StartOrder};
use crate::crew::{Crew, CrewAttempt};
use crate::error::JobError;
use crate::fleet::Fleet;
use crate::job::{Components, JobOutcome};
use crate::keeper::{Errand, Keeper};
use crate::launch::{Given, Ground, start_engine};
use crate::patience::Patience;
use crate::requests::{Requests, SavepointSource};

/// How often time is told to the coordinator.
const TICK: Duration = Duration::from_millis(10);

/// How an attempt ended well.
pub(crate) struct AttemptEnd {
    pub(crate) outcome: JobOutcome,
    pub(crate) epoch: Epoch,
}

/// Runs one attempt to its end; with the other processes, where there are some.
pub(crate) fn run_attempt(given: Given<'_>, claims: &mut Claims, crew: Option<&Crew>) -> Result<AttemptEnd, JobError> {
    let Given { settings, components, .. } = given;
    let claimed = claim(settings, components, claims)?;
    let (sender, messages) = channel();
    let bounds = cold::open(settings, components)?;
    let file_bytes = settings.uploads.file_bytes.min(bounds.file);
    let crew = crew.map(|crew| begin(crew, &claimed, settings.workers, &sender)).transpose()?;
    let ties = crew.as_ref().map(CrewAttempt::connect).transpose();
    let ties = ties.map_err(|error| why_apart(error, &messages, settings))?;
    let ground = Ground {
        attempt: claimed.started.right.attempt(),
        base: claimed.started.base(),
        storage: &claimed.storage,
        names: claimed.publisher.history().names().clone(),
        durable: claimed.durable,
        max_parallelism: claimed.max_parallelism,
    };
    let (events, engine_events) = channel();
    forward(engine_events, sender.clone()).map_err(JobError::Thread)?;
    let engine = Fleet::new(start_engine(given, &ground, ties, bounds, events)?, crew);
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
        rescaled: &mut claims.rescaled,
        max_parallelism: claimed.max_parallelism,
        workers: settings.workers,
        last_since: None,
        settings: claimed.checkpoint_settings,
        started: claimed.started,
        interrupt: claimed.interrupt,
        components,
        engine,
        keeper,
        coordinator: None,
        opened: Opened::default(),
        stop_asked: false,
        held_back: false,
        early: Vec::new(),
        started_ms: components.clock.now_ms(),
        since: Instant::now(),
        source_records_before: components.status.records.load(Ordering::Relaxed),
    };
    running.run(&messages)
}

/// Begins the attempt in the other processes.
fn begin<'a>(
    crew: &'a Crew,
    claimed: &Claimed,
    workers: u32,
    sender: &Sender<Message>,
) -> Result<CrewAttempt<'a>, JobError> {
    let order = StartOrder {
        attempt: claimed.started.right.attempt().0,
        token: RandomState::new().build_hasher().finish(),
        manifest: format::encode(claimed.started.base())?,
        max_parallelism: claimed.max_parallelism.get(),
        durable: claimed.durable,
        workers,
    };
    Ok(crew.begin(order, sender.clone()))
}

/// What the job manager hears.
#[derive(Debug)]
pub(crate) enum Message {
    Engine(EngineEvent),
    /// From the engine of another process.
    Member {
        process: u32,
        event: MemberEvent,
    },
    /// Another process is lost.
    Lost {
        process: u32,
        reason: String,
    },
    Checkpoint(Event),
}

/// Brings the engine's events into the one queue of messages.
pub(crate) fn forward(events: Receiver<EngineEvent>, sender: Sender<Message>) -> std::io::Result<()> {
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

/// How far the processes are.
#[derive(Default)]
struct Opened {
    processes: u32,
    exhausted: u32,
    subtasks: BTreeSet<SubtaskId>,
    all: bool,
}

struct Running<'a> {
    publisher: Publisher<Arc<dyn Storage>>,
    requests: Requests,
    sender: Sender<Message>,
    /// A claimed savepoint that is to be disposed of after the first checkpoint.
    claimed: &'a mut Option<Arc<dyn Storage>>,
    chains: &'a [String],
    /// Who waits for this attempt to run, and afterwards for the next one.
    rescaled: &'a mut Option<Rescaled>,
    max_parallelism: MaxParallelism,
    /// Workers of each process.
    workers: u32,
    /// When sources were closed for the last time.
    last_since: Option<Instant>,
    settings: millpond_checkpoint::Settings,
    started: Started,
    interrupt: Interrupt,
    components: &'a Components,
    engine: Fleet<'a>,
    keeper: Keeper,
    /// Exists from the moment on when all subtasks run.
    coordinator: Option<Coordinator>,
    opened: Opened,
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
                let error = why_gone(error, messages);
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
        let Running { mut requests, publisher, started, coordinator, sender, rescaled, last_since, .. } = self;
        let newest = coordinator.as_ref().and_then(|coordinator| coordinator.log().last());
        drop(sender);
        let hosts: Vec<String> = (0..engine.processes()).map(|process| engine.host(process)).collect();
        let stats = engine.finish();
        components.status.records.store(source_records_before + stats.source_records, Ordering::Relaxed);
        keeper.stop();
        for message in messages.iter() {
            let error = match message {
                Message::Engine(EngineEvent::Failed(error)) => error.into(),
                Message::Member { process, event: MemberEvent::Failed { kind, reason } } => {
                    JobError::Member { process, kind, reason }
                }
                Message::Lost { process, reason } => {
                    let address = hosts.get(process as usize).cloned().unwrap_or_default();
                    JobError::Lost { process, address, reason }
                }
                _ => continue,
            };
            let durable = components.storage.is_some();
            return Err(if durable { error } else { JobError::PartlyCommitted { source: Box::new(error) } });
        }
        if !at_end && let Some((asked, workers)) = requests.take_rescale() {
            *rescaled = Some(Rescaled { asked, workers, since: last_since.unwrap_or_else(Instant::now) });
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
            Some(Message::Lost { process, reason }) => {
                return Err(JobError::Lost { process, address: self.engine.host(process), reason });
            }
            Some(Message::Member { event: MemberEvent::Running, .. }) => self.opened(BTreeSet::new())?,
            Some(Message::Engine(EngineEvent::Running { subtasks })) => self.opened(subtasks)?,
            Some(
                Message::Engine(EngineEvent::Acknowledged { subtask, epoch, pieces })
                | Message::Member { event: MemberEvent::Acknowledged { subtask, epoch, pieces }, .. },
            ) => Event::Acknowledged { subtask, epoch, pieces },
            Some(
                Message::Engine(EngineEvent::Declined { subtask, epoch, kind, reason })
                | Message::Member { event: MemberEvent::Declined { subtask, epoch, kind, reason }, .. },
            ) => {
                if kind == ErrorKind::Fenced {
                    let ours = self.started.right.attempt();
                    return Err(JobError::Checkpointing(FailReason::Fenced { ours, theirs: None }));
                }
                Event::Declined { subtask, epoch, reason: DeclineReason::Failed(reason) }
            }
            Some(
                Message::Engine(EngineEvent::CheckpointWanted)
                | Message::Member { event: MemberEvent::CheckpointWanted, .. },
            ) => Event::TriggerNow(Reason::Manual),
            Some(
                Message::Engine(EngineEvent::SourcesExhausted)
                | Message::Member { event: MemberEvent::SourcesExhausted, .. },
            ) => {
                self.opened.exhausted += 1;
                if self.opened.exhausted < self.engine.processes() { Event::Tick } else { Event::SourcesExhausted }
            }
            Some(Message::Engine(EngineEvent::Failed(error))) => return Err(error.into()),
            Some(Message::Member { process, event: MemberEvent::Failed { kind, reason } }) => {
                return Err(JobError::Member { process, kind, reason });
            }
        };
        if self.opened.all && self.started.base().finished {
            // All subtasks are open, so all output of the last epoch is committed, and that is all.
            return Ok(Verdict::AlreadyFinished);
        }
        let mut events = std::mem::take(&mut self.early);
        events.push(event);
        if self.coordinator.is_some() {
            if self.components.stop.is_asked() && !self.stop_asked {
                self.stop_asked = true;
                events.push(Event::TriggerNow(Reason::Stop));
            }
            let asked = self.components.control.take().into_iter();
            for asked in asked.collect::<Vec<_>>() {
                events.extend(self.admit(asked).map(Event::TriggerNow));
            }
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

    /// Takes in a request, unless it cannot be.
    fn admit(&mut self, asked: Asked) -> Option<Reason> {
        if let Wish::Rescale(workers) = asked.wish
            && let Err(error) = self.max_parallelism.check(workers.saturating_mul(self.engine.processes()))
        {
            asked.answer(Err(error.into()));
            return None;
        }
        self.requests.add(asked)
    }

    /// One more process has opened its subtasks; with the last one, the coordinator begins.
    fn opened(&mut self, subtasks: BTreeSet<SubtaskId>) -> Result<Event, JobError> {
        self.opened.processes += 1;
        self.opened.subtasks.extend(subtasks);
        self.opened.all = self.opened.processes == self.engine.processes();
        if self.opened.all
            && let Some(Rescaled { asked, since, .. }) = self.rescaled.take()
        {
            let still_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
            tracing::info!(workers = self.workers, still_ms, "goes on with another number of workers");
            let epoch = self.started.base().epoch;
            asked.answer(Ok(Done { epoch, savepoint: None, still_ms: Some(still_ms) }));
        }
        if self.opened.all && !self.started.base().finished {
            let facts = Facts::new(&self.started, std::mem::take(&mut self.opened.subtasks));
            self.coordinator = Some(Coordinator::new(self.settings.clone(), facts)?);
            self.keeper.send(Errand::Look);
        }
        Ok(Event::Tick)
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
                if kind.is_last() {
                    self.last_since = Some(Instant::now());
                }
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
        let stats = self.engine.stats();
        status.records.store(self.source_records_before + stats.source_records, Ordering::Relaxed);
        status.state_entries.store(stats.state_entries, Ordering::Relaxed);
        status.state_bytes.store(stats.state_bytes, Ordering::Relaxed);
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
