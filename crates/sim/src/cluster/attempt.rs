//! One attempt: claims the job, runs its subtasks, uploads, publishes, compacts, deletes.
//!
//! The mirror of what `jobmanager` and `engine` do on threads. Every step is one call that no other
//! process can interrupt; between two steps anything may happen to anybody else.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use millpond_checkpoint::{
    Action, CompactionPlan, Coordinator, DeclineReason, Event, Facts, FailReason, Manifest, PublishOutcome,
    PublishRight, Publisher, Reason, RestoreFrom, TriggerKind, WriterId,
};
use millpond_core::{Attempt as AttemptNumber, Clock, Epoch, ErrorKind, SubtaskIndex, error::chain};
use millpond_runtime::{
    EndKind, RestorePoint, RunLimits, SnapshotKind, SubtaskUploads, UploadSettings, compact, panic_message,
};
use millpond_storage::{ObjectName, Storage};

use super::copies::Copies;
use super::mailbox::{Mailbox, Sender};
use super::{JOB, World};
use crate::execution::{Execution, ExecutionSpec};
use crate::outside::{Fault, Site, Trap};

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// All input is processed, all output committed.
    Finished,
    /// It was asked to stop, and has.
    Stopped,
    /// A newer attempt owns the job.
    Fenced,
    /// Something went wrong.
    Failed(String),
}

/// How a start came out.
pub(crate) enum Start {
    /// It runs.
    Running(Box<Attempt>),
    /// There is nothing left to run; all output is committed.
    AlreadyFinished,
    /// It does not.
    Failed(String),
}

/// Something to do on storage.
enum Errand {
    Look,
    Publish(Box<Manifest>),
    Delete(Vec<ObjectName>),
}

/// An attempt that runs.
pub(crate) struct Attempt {
    publisher: Publisher<Arc<dyn Storage>>,
    right: PublishRight,
    execution: Execution,
    coordinator: Coordinator,
    /// By place: the uploads, and when the next may be made.
    uploads: Vec<(SubtaskUploads, i64)>,
    errands: VecDeque<Errand>,
    compactions: VecDeque<CompactionPlan>,
    mailbox: Mailbox,
    trap: Trap,
    told_exhausted: bool,
    copies: Copies,
    /// The last epoch is durable: whether the job is at its end, rather than stopped.
    finishing: Option<bool>,
}

impl Attempt {
    /// Claims the job and opens all subtasks.
    pub(crate) fn start(
        world: &mut World,
        workers: u32,
        writer: WriterId,
        fail_after: Option<u64>,
    ) -> Result<Start, String> {
        let failed = |error: &dyn std::error::Error| Start::Failed(chain(error));
        let publisher = match Publisher::new(Arc::clone(&world.storage), JOB, writer) {
            Ok(publisher) => publisher,
            Err(error) => return Err(error.to_string()),
        };
        let now_ms = world.clock.now_ms();
        let fenced = publisher.fence(RestoreFrom::Latest, world.conditions.max_parallelism.get(), now_ms);
        world.checker.observe(&world.memory)?;
        let started = match fenced {
            Ok(started) => started,
            Err(error) => return Ok(failed(&error)),
        };
        let number = started.right.attempt();
        let base = started.base().clone();
        world.trace.add(|| format!("{number} starts with {workers} workers from {}", base.epoch));
        let trap = Trap::default();
        if let Some(calls) = fail_after {
            trap.arm(calls, Fault::Error);
        }
        let site = Site { outside: world.outside.clone(), trap: trap.clone(), attempt: number };
        let restore = (base.epoch > Epoch::ZERO)
            .then(|| RestorePoint::new(Arc::new(base.clone()), Arc::clone(&world.storage), false).reading_in_order());
        let job = std::rc::Rc::clone(&world.job);
        let execution = Execution::build(&ExecutionSpec {
            job: &|flow| job.build(flow, &site),
            workers: workers.min(world.conditions.max_parallelism.get()),
            max_parallelism: world.conditions.max_parallelism,
            attempt: number,
            clock: Arc::clone(&world.clock) as Arc<dyn Clock>,
            restore: restore.as_ref(),
            flow: world.conditions.flow,
            cold: world.conditions.cold(),
            wire: world.conditions.wire,
        });
        let execution = match execution {
            Ok(execution) => execution,
            Err(error) => return Ok(failed(&error)),
        };
        if base.finished {
            return Ok(Start::AlreadyFinished);
        }
        let facts = Facts::new(&started, execution.subtasks());
        let mut checkpoints = world.conditions.checkpoints.clone();
        if world.is_calm() {
            // However few steps a millisecond has: who is patient must see the end.
            checkpoints.timeout_ms = 3_600_000;
        }
        let coordinator = Coordinator::new(checkpoints, facts);
        let coordinator = coordinator.map_err(|error| error.to_string())?;
        let settings = UploadSettings {
            names: publisher.history().names().clone(),
            attempt: number,
            runs: world.conditions.runs.clone(),
        };
        let uploads = execution
            .places
            .iter()
            .map(|place| (SubtaskUploads::new(settings.clone(), SubtaskIndex(place.id.index)), 0));
        Ok(Start::Running(Box::new(Attempt {
            uploads: uploads.collect(),
            publisher,
            right: started.right,
            execution,
            coordinator,
            errands: VecDeque::from([Errand::Look]),
            compactions: VecDeque::new(),
            mailbox: Mailbox::default(),
            trap,
            told_exhausted: false,
            copies: Copies::default(),
            finishing: None,
        })))
    }

    pub(crate) fn number(&self) -> AttemptNumber {
        self.right.attempt()
    }

    /// Whether nothing but the last commit is left.
    pub(crate) fn is_finishing(&self) -> bool {
        self.finishing.is_some()
    }

    pub(crate) fn trap(&self) -> &Trap {
        &self.trap
    }

    /// Somebody wants an epoch.
    pub(crate) fn ask(&mut self, now_ms: i64, reason: Reason) {
        self.mailbox.send(Sender::Outside, now_ms, Event::TriggerNow(reason));
    }

    /// For messages about a job that hangs.
    pub(crate) fn describe(&self) -> String {
        let places = self
            .execution
            .places
            .iter()
            .map(|place| format!("{} {:?} at {}", place.id, place.progress, place.subtask.open_epoch()));
        let places: Vec<String> = places.collect();
        let (flying, in_flight) = (self.coordinator.in_flight(), self.execution.network.in_flight_records());
        format!("{} with {flying:?} in flight, {in_flight} records in flight; {}", self.number(), places.join("; "))
    }

    /// Does one thing. Says how the attempt ended, if it did.
    pub(crate) fn step(&mut self, world: &mut World) -> Result<Option<Ended>, String> {
        let owns = world.checker.owner() == Some(self.number());
        if let Some(event) = self.copies.step(world, owns)?
            && let Some(ended) = self.hear(world, event)?
        {
            return Ok(Some(ended));
        }
        if world.random.chance(40) {
            return self.tick(world);
        }
        let mut choice = world.random.below(100);
        // What was chosen may have nothing to do: then the next in turn does.
        for _ in 0..6 {
            let done = match choice {
                0..45 => self.run_subtask(world)?,
                45..72 => self.deliver(world)?,
                72..82 => self.upload(world),
                82..88 => self.run_errand(world)?,
                88..92 => self.compact(world)?,
                _ => self.take_event(world)?,
            };
            match done {
                Did::Something => return self.has_finished(),
                Did::End(ended) => return Ok(Some(ended)),
                Did::Nothing => choice = [45, 72, 82, 88, 92, 0][section(choice)],
            }
        }
        self.tick(world)
    }

    /// The end, once every subtask has committed the last epoch; then all credit has been returned.
    fn has_finished(&self) -> Result<Option<Ended>, String> {
        let Some(at_end) = self.finishing.filter(|_| self.execution.has_ended() && self.errands.is_empty()) else {
            return Ok(None);
        };
        match self.execution.network.in_flight_records() {
            0 => Ok(Some(if at_end { Ended::Finished } else { Ended::Stopped })),
            lost => Err(format!("{} has ended, and {lost} records are still in flight", self.number())),
        }
    }

    fn run_subtask(&mut self, world: &mut World) -> Result<Did, String> {
        let awake: Vec<usize> =
            (0..self.execution.places.len()).filter(|at| self.execution.places[*at].awake).collect();
        let Some(&at) = awake.get(world.random.below(awake.len() as u64) as usize) else { return Ok(Did::Nothing) };
        let most = if world.conditions.quiet { 1 } else { 8 };
        let limits = RunLimits {
            batches: 1 + world.random.below(most.min(4)) as usize,
            slice_bytes: [1, 100, 1_000, 64 << 10][world.random.below(4) as usize],
            poll_records: 1 + world.random.below(most) as usize,
        };
        let snapshots = self.execution.places[at].snapshots.len();
        let progress = match self.execution.step(at, &limits) {
            Ok(progress) => progress,
            Err(crate::SimError::Network(reason)) => return Err(reason),
            Err(error) => return Ok(Did::End(Ended::Failed(chain(&error)))),
        };
        let (number, place) = (self.number(), &self.execution.places[at]);
        let open = place.subtask.open_epoch();
        world.trace.add(|| format!("{number}: {} runs, {progress:?} at {open}", place.id));
        if place.snapshots.len() > snapshots && self.uploads[at].1 < world.now_ms() {
            let slow_ms = if world.is_calm() { 0 } else { world.random.below(world.conditions.slow_ms + 1) };
            self.uploads[at].1 = world.now_ms() + slow_ms as i64;
        }
        if self.execution.wants_checkpoint(at) {
            self.mailbox.send(Sender::Engine, world.now_ms(), Event::TriggerNow(Reason::Manual));
        }
        if self.execution.sources_exhausted() && !self.told_exhausted {
            self.told_exhausted = true;
            self.mailbox.send(Sender::Engine, world.now_ms(), Event::SourcesExhausted);
        }
        Ok(Did::Something)
    }

    fn deliver(&mut self, world: &mut World) -> Result<Did, String> {
        let busy: Vec<usize> = self.execution.network.busy().collect();
        let Some(&channel) = busy.get(world.random.below(busy.len() as u64) as usize) else { return Ok(Did::Nothing) };
        let delivered = self.execution.deliver(channel).map_err(|error| error.to_string())?;
        if let Some((edge, sender, receiver)) = delivered {
            let number = self.number();
            world.trace.add(|| format!("{number}: exchange {} brings {sender} to {receiver}", edge.0));
        }
        Ok(Did::Something)
    }

    fn upload(&mut self, world: &mut World) -> Did {
        let now_ms = world.now_ms();
        let ready = |at: &usize| !self.execution.places[*at].snapshots.is_empty() && self.uploads[*at].1 <= now_ms;
        let ready: Vec<usize> = (0..self.uploads.len()).filter(ready).collect();
        let Some(&at) = ready.get(world.random.below(ready.len() as u64) as usize) else { return Did::Nothing };
        let Some(snapshot) = self.execution.places[at].snapshots.pop_front() else { return Did::Nothing };
        let (subtask, epoch, kind) = (self.execution.places[at].id, snapshot.epoch, snapshot.kind);
        let uploads = &mut self.uploads[at].0;
        uploads.completed(self.execution.completed());
        let outcome = uploads.upload(snapshot, &world.storage);
        let (number, ok) = (self.number(), outcome.is_ok());
        world.trace.add(|| format!("{number}: {subtask} uploads {epoch}, {kind:?}, ok: {ok}"));
        if kind == SnapshotKind::Part {
            return Did::Something;
        }
        let event = match outcome {
            Ok(pieces) => Event::Acknowledged { subtask, epoch, pieces },
            Err(error) if error.kind() == ErrorKind::Fenced => return Did::End(Ended::Fenced),
            Err(error) => Event::Declined { subtask, epoch, reason: DeclineReason::Failed(chain(&error)) },
        };
        self.send(world, Sender::Upload(at), event);
        Did::Something
    }

    fn send(&mut self, world: &mut World, sender: Sender, event: Event) {
        let late_ms = if world.random.chance(100) { world.random.below(50) } else { 0 };
        self.mailbox.send(sender, world.now_ms() + late_ms as i64, event);
    }

    fn run_errand(&mut self, world: &mut World) -> Result<Did, String> {
        let number = self.number();
        let event = match self.errands.pop_front() {
            None => return Ok(Did::Nothing),
            Some(Errand::Look) => {
                let found = self.publisher.objects();
                world.trace.add(|| format!("{number} looks, ok: {}", found.is_ok()));
                let Ok(existing) = found else { return Ok(Did::Something) };
                Event::Found { existing }
            }
            Some(Errand::Publish(manifest)) => {
                let published = self.publisher.publish(&self.right, &manifest);
                let outcome = PublishOutcome::of(&published);
                world.checker.observe(&world.memory)?;
                if published.is_ok() {
                    world.checker.must_be_published(&manifest)?;
                }
                world.trace.add(|| format!("{number} publishes {}: {outcome:?}", manifest.epoch));
                Event::PublishFinished { epoch: manifest.epoch, outcome }
            }
            Some(Errand::Delete(objects)) => {
                let ok = self.publisher.delete(&objects).is_ok();
                world.counters.deleted += objects.len() as u64;
                world.trace.add(|| format!("{number} deletes {}, ok: {ok}", objects.len()));
                world.checker.check_reachable(&world.memory)?;
                Event::CleanupFinished
            }
        };
        self.send(world, Sender::Keeper, event);
        Ok(Did::Something)
    }

    fn compact(&mut self, world: &mut World) -> Result<Did, String> {
        let Some(plan) = self.compactions.pop_front() else { return Ok(Did::Nothing) };
        let names = self.publisher.history().names();
        let runs = &world.conditions.runs;
        let work = AssertUnwindSafe(|| compact(&plan, self.right.attempt(), names, runs, &world.storage));
        let outcome = catch_unwind(work).map_err(|payload| panic_message(payload.as_ref()))?;
        world.counters.compactions += u64::from(outcome.is_ok());
        let number = self.number();
        world.trace.add(|| {
            let inputs = plan.inputs.len();
            format!("{number} merges {inputs} runs of {:?} (plan {}), ok: {}", plan.operator, plan.id, outcome.is_ok())
        });
        self.send(world, Sender::Compaction, Event::Compacted { plan: plan.id, outcome });
        Ok(Did::Something)
    }

    fn take_event(&mut self, world: &mut World) -> Result<Did, String> {
        let Some(event) = self.mailbox.take(world.now_ms(), &mut world.random) else { return Ok(Did::Nothing) };
        Ok(self.hear(world, event)?.map_or(Did::Something, Did::End))
    }

    /// Time passes.
    fn tick(&mut self, world: &mut World) -> Result<Option<Ended>, String> {
        world.clock.advance(1 + world.random.below(20) as i64);
        self.execution.wake_pollers(world.now_ms());
        self.hear(world, Event::Tick)
    }

    fn hear(&mut self, world: &mut World, event: Event) -> Result<Option<Ended>, String> {
        if self.finishing.is_some() {
            return Ok(None);
        }
        for action in self.coordinator.on(world.now_ms(), event) {
            if let Some(ended) = self.act(world, action) {
                return Ok(Some(ended));
            }
        }
        Ok(None)
    }

    fn act(&mut self, world: &mut World, action: Action) -> Option<Ended> {
        let number = self.number();
        match action {
            Action::Trigger { epoch, kind } => {
                world.trace.add(|| format!("{number} triggers {epoch}, {kind:?}"));
                let end = match kind {
                    TriggerKind::Periodic | TriggerKind::Manual => None,
                    TriggerKind::Stop => Some(EndKind::Suspend),
                    TriggerKind::Drain | TriggerKind::Final => Some(EndKind::Drain),
                };
                self.execution.trigger(epoch, end);
            }
            Action::Publish { manifest } => self.errands.push_back(Errand::Publish(manifest)),
            Action::NotifyCompleted { epoch } => {
                world.trace.add(|| format!("{number} has completed {epoch}"));
                self.execution.complete(epoch);
                self.copies.completed(world, &mut self.coordinator);
            }
            Action::NotifyAborted { epoch, reason } => {
                world.trace.add(|| format!("{number} has aborted {epoch}: {reason}"));
            }
            Action::Delete { objects } => self.errands.push_back(Errand::Delete(objects)),
            Action::Compact { plan } => self.compactions.push_back(plan),
            Action::Fail { reason: FailReason::Fenced { .. } } => return Some(Ended::Fenced),
            Action::Fail { reason } => return Some(Ended::Failed(reason.to_string())),
            Action::Finished { at_end, .. } => {
                self.finishing = Some(at_end);
                self.execution.wake_all();
            }
        }
        None
    }
}

/// What became of a step.
enum Did {
    Something,
    Nothing,
    End(Ended),
}

/// The number of the section of [`Attempt::step`] that `choice` lies in.
fn section(choice: u64) -> usize {
    [45, 72, 82, 88, 92, 100].iter().position(|end| choice < *end).unwrap_or(0)
}
