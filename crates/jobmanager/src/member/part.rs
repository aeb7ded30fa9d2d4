//! The part of this process in one attempt.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millpond_checkpoint::{History, Manifest, WriterId, format};
use millpond_cluster::{ClusterSettings, Door, MeshPlace, Wire, connect_mesh};
use millpond_core::error::chain;
use millpond_core::{Attempt, MaxParallelism};
use millpond_engine::{Engine, EngineEvent};
use millpond_storage::{Interrupt, ObjectName, Storage};

use super::TICK;
use super::values::{Asked, FarValues};
use crate::claim::{AttemptStorage, attempt_storage};
use crate::cold;
use crate::copies;
use crate::crew::mesh;
use crate::crew::says::{FromMember, JobEnd, MemberEvent, StartOrder, Stats, ToMember};
use crate::error::JobError;
use crate::job::is_stop_asked;
use crate::launch::{Given, Ground, Ties, start_engine};
use crate::patience::Patience;
use crate::settings::JobSettings;

/// How often counters are told.
const STATS_PAUSE: Duration = Duration::from_millis(200);
/// How often a manifest is looked for that process 0 has just written.
const LOOKS: u32 = 5;

/// What comes over the wire.
pub(super) type Heard = millpond_cluster::Heard<ToMember>;

/// What this process hears, in one queue.
#[derive(Debug)]
pub(super) enum Inbox {
    Heard(ToMember),
    /// Process 0 is lost.
    Lost(String),
    /// From the own engine of this attempt.
    Engine(u64, EngineEvent),
}

/// What is heard at once, whatever this process is doing.
pub(super) struct Presence {
    inbox: Mutex<Sender<Inbox>>,
    aborted: AtomicU64,
    lost: AtomicBool,
    asked: Mutex<(u64, Arc<Asked>)>,
}

impl Presence {
    pub(super) fn new(inbox: Sender<Inbox>) -> Self {
        Presence {
            inbox: Mutex::new(inbox),
            aborted: AtomicU64::new(0),
            lost: AtomicBool::new(false),
            asked: Mutex::default(),
        }
    }

    /// Takes in what comes over the wire.
    pub(super) fn hear(&self, heard: Heard) {
        let said = match heard {
            Heard::Message(ToMember::Value { attempt, name, answer }) => {
                let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
                if asked.0 == attempt {
                    asked.1.answer(name, answer);
                }
                return;
            }
            Heard::Message(said) => {
                match &said {
                    ToMember::Abort { attempt } => self.abort(*attempt),
                    ToMember::End(_) => self.abort(u64::MAX),
                    _ => {}
                }
                Inbox::Heard(said)
            }
            Heard::Lost(reason) => {
                self.lost.store(true, Ordering::Release);
                self.abort(u64::MAX);
                Inbox::Lost(reason)
            }
        };
        // Nobody listens any more when the process is about to end.
        let _ = self.sender().send(said);
    }

    fn sender(&self) -> Sender<Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn abort(&self, attempt: u64) {
        self.aborted.fetch_max(attempt, Ordering::AcqRel);
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).1.cancel();
    }

    fn is_aborted(&self, attempt: u64) -> bool {
        self.aborted.load(Ordering::Acquire) >= attempt
    }

    /// Values of this attempt are asked for from now on.
    fn ask_for(&self, attempt: u64) -> Arc<Asked> {
        let asked = Arc::<Asked>::default();
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = (attempt, Arc::clone(&asked));
        if self.is_aborted(attempt) {
            asked.cancel();
        }
        asked
    }
}

/// The part of this process in one attempt.
pub(super) struct Part<'a> {
    pub(super) given: Given<'a>,
    pub(super) cluster: &'a ClusterSettings,
    pub(super) door: &'a Door,
    pub(super) wire: &'a Arc<Wire>,
    pub(super) presence: &'a Arc<Presence>,
    pub(super) order: &'a StartOrder,
    pub(super) has_storage: bool,
}

/// How it ended.
pub(super) enum PartEnd {
    /// The engine is gone; the job goes on, or its end is about to be told.
    Gone,
    Ended(JobEnd),
    Lost(String),
}

/// An engine and the thread that brings its events.
struct Running {
    engine: Engine,
    events: JoinHandle<()>,
}

impl Part<'_> {
    /// Runs the part to its end.
    pub(super) fn run(&self, inbox: &Receiver<Inbox>, stop_told: &Cell<bool>) -> PartEnd {
        let interrupt = Interrupt::new();
        let running = match self.start(&interrupt, stop_told) {
            Ok(running) => running,
            Err(error) => {
                let (kind, reason) = (error.kind(), chain(&error));
                if !self.presence.is_aborted(self.order.attempt) {
                    tracing::warn!(error = reason, attempt = self.order.attempt, "this process cannot take part");
                }
                self.tell(MemberEvent::Failed { kind, reason });
                self.gone(Stats::default());
                return PartEnd::Gone;
            }
        };
        let mut told = Instant::now();
        loop {
            if !stop_told.get() && is_stop_asked(self.given.components) {
                stop_told.set(true);
                self.wire.send(&FromMember::Stop);
            }
            if told.elapsed() >= STATS_PAUSE {
                told = Instant::now();
                let stats = self.stats(&running.engine);
                self.wire.send(&FromMember::Stats { attempt: self.order.attempt, stats });
            }
            let message = match inbox.recv_timeout(TICK) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => Inbox::Lost("its wire has ended".to_owned()),
            };
            match message {
                Inbox::Engine(attempt, event) if attempt == self.order.attempt => self.tell(event.into()),
                Inbox::Engine(..) => {}
                Inbox::Heard(ToMember::Trigger { epoch, end }) => running.engine.trigger(epoch, end.map(Into::into)),
                Inbox::Heard(ToMember::Complete { epoch }) => {
                    self.given.components.status.epoch.store(epoch.0, Ordering::Relaxed);
                    running.engine.complete(epoch);
                }
                Inbox::Heard(ToMember::Finish) => {
                    self.finish(running, inbox);
                    return PartEnd::Gone;
                }
                Inbox::Heard(ToMember::Abort { attempt }) if attempt != self.order.attempt => {}
                Inbox::Heard(ToMember::Abort { .. }) => {
                    self.abort(running, &interrupt, "process 0 has ended the attempt".to_owned());
                    return PartEnd::Gone;
                }
                Inbox::Heard(ToMember::End(end)) => {
                    self.abort(running, &interrupt, "process 0 has ended the job".to_owned());
                    return PartEnd::Ended(end);
                }
                Inbox::Lost(reason) => {
                    self.abort(running, &interrupt, format!("process 0 is lost: {reason}"));
                    return PartEnd::Lost(reason);
                }
                Inbox::Heard(ToMember::Start(_) | ToMember::Value { .. }) => {}
            }
        }
    }

    fn tell(&self, event: MemberEvent) {
        self.wire.send(&FromMember::Event { attempt: self.order.attempt, event });
    }

    fn gone(&self, stats: Stats) {
        self.wire.send(&FromMember::Gone { attempt: self.order.attempt, stats });
    }

    fn stats(&self, engine: &Engine) -> Stats {
        let (state_entries, state_bytes) = engine.state_size();
        let stats = Stats { source_records: engine.source_records(), state_entries, state_bytes };
        let status = &self.given.components.status;
        status.records.store(stats.source_records, Ordering::Relaxed);
        status.state_entries.store(state_entries, Ordering::Relaxed);
        status.state_bytes.store(state_bytes, Ordering::Relaxed);
        stats
    }

    /// The last epoch is durable: every subtask commits it.
    fn finish(&self, running: Running, inbox: &Receiver<Inbox>) {
        let stats = self.stats(&running.engine);
        running.engine.finish();
        let _ = running.events.join();
        // What is heard meanwhile, of the end or of a loss, is heard again: here only what the engine said last counts.
        let mut later = Vec::new();
        for message in inbox.try_iter() {
            match message {
                Inbox::Engine(attempt, event) if attempt == self.order.attempt => self.tell(event.into()),
                Inbox::Engine(..) => {}
                heard => later.push(heard),
            }
        }
        let sender = self.presence.sender();
        later.into_iter().for_each(|heard| drop(sender.send(heard)));
        self.gone(stats);
    }

    fn abort(&self, running: Running, interrupt: &Interrupt, reason: String) {
        let _patience = Patience::with_cause(reason);
        self.presence.abort(self.order.attempt);
        interrupt.raise();
        running.engine.abort();
        let _ = running.events.join();
        self.gone(Stats::default());
    }

    fn start(&self, interrupt: &Interrupt, stop_told: &Cell<bool>) -> Result<Running, JobError> {
        let Given { settings, components, .. } = self.given;
        let order = self.order;
        let name = ObjectName::new("manifest").map_err(millpond_checkpoint::CheckpointError::from)?;
        let base = format::decode(&name, &order.manifest)?;
        let seed = WriterId(order.token ^ u64::from(self.cluster.process));
        let AttemptStorage { storage, copies } = attempt_storage(settings, components, seed, interrupt)?;
        let history = History::new(Arc::clone(&storage), &settings.name)?;
        if order.durable && self.has_storage {
            self.check_shared(&history, &base)?;
        }
        if let Some(copies) = &copies {
            copies::keep(copies, &base);
        }
        let ground = Ground {
            attempt: Attempt(order.attempt),
            base: &base,
            storage: &storage,
            names: history.names().clone(),
            durable: order.durable,
            max_parallelism: MaxParallelism::new(order.max_parallelism)?,
        };
        let bounds = cold::open(settings, components)?;
        let asked = self.presence.ask_for(order.attempt);
        let place = MeshPlace { job: &settings.name, attempt: order.attempt, token: order.token };
        let cancelled = || {
            if !stop_told.get() && is_stop_asked(components) {
                stop_told.set(true);
                self.wire.send(&FromMember::Stop);
            }
            self.presence.is_aborted(order.attempt)
        };
        let peers = connect_mesh(self.door, self.cluster, &place, &cancelled)?;
        let shared = FarValues { attempt: order.attempt, wire: Arc::clone(self.wire), asked };
        let ties = Ties { mesh: mesh(self.cluster, peers), shared: Arc::new(shared) };
        let (events, engine_events) = channel();
        let events_thread = forward(order.attempt, engine_events, self.presence.sender())?;
        // The number may have been changed since this process was started.
        let settings = JobSettings { workers: order.workers, ..settings.clone() };
        let given = Given { settings: &settings, ..self.given };
        let engine = start_engine(given, &ground, Some(ties), bounds, events)?;
        Ok(Running { engine, events: events_thread })
    }

    /// Whether this process sees the checkpoints of process 0.
    fn check_shared(&self, history: &History<Arc<dyn Storage>>, base: &Manifest) -> Result<(), JobError> {
        for look in 1..=LOOKS {
            let found = history.read(base.sequence)?;
            if found.is_some_and(|found| (found.attempt, found.writer) == (base.attempt, base.writer)) {
                return Ok(());
            }
            // A file system over the network may be a little behind.
            if look < LOOKS && !self.presence.is_aborted(self.order.attempt) {
                std::thread::sleep(Duration::from_millis(200));
            }
        }
        Err(JobError::NotShared { location: history.storage().location() })
    }
}

fn forward(attempt: u64, events: Receiver<EngineEvent>, inbox: Sender<Inbox>) -> Result<JoinHandle<()>, JobError> {
    let thread = std::thread::Builder::new().name("engine-events".to_owned());
    let forward = move || {
        for event in events {
            if inbox.send(Inbox::Engine(attempt, event)).is_err() {
                break;
            }
        }
    };
    thread.spawn(forward).map_err(JobError::Thread)
}
