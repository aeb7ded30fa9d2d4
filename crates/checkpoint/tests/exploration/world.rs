//! The world of the exploration: storage, executions, mail; and every step it can take.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use millpond_checkpoint::log::{Answer, FenceSteps, Publication, PublishSteps, Request, Start, StartFrom, Starter};
use millpond_checkpoint::{
    Action, Blob, CompactionPlan, CompactionPolicy, Coordinator, DataObject, DeclineReason, Event, Facts, JobObject,
    Manifest, Names, OperatorPiece, PublishOutcome, Reason, RunRef, Settings, SubtaskId, Whole, Writer, WriterId,
};
use millpond_core::{Attempt, Epoch, KeyGroupRange, SubtaskIndex};
use millpond_storage::ObjectName;

use crate::shared::Shared;
use crate::steps::{Fault, Step};

pub(crate) const TIMEOUT_MS: u64 = 1_000;
pub(crate) const SUBTASKS: u32 = 2;

/// How much may go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Limits {
    pub(crate) epochs: u64,
    pub(crate) concurrent: u32,
    pub(crate) retained: u32,
    pub(crate) starts: u8,
    pub(crate) crashes: u8,
    pub(crate) storage_faults: u8,
    pub(crate) losses: u8,
    pub(crate) doubles: u8,
    pub(crate) declines: u8,
    pub(crate) timeouts: u8,
    pub(crate) listings: u8,
    pub(crate) merges: bool,
    /// An execution may start while an older one is still alive.
    pub(crate) zombies: bool,
    /// An execution may start while another one is starting.
    pub(crate) races: bool,
    /// Mail is delivered at once and in order: only storage interleaves.
    pub(crate) prompt_mail: bool,
}

#[derive(Clone, Debug, Hash)]
pub(crate) struct World {
    pub(crate) limits: Limits,
    pub(crate) slots: Shared<BTreeMap<u64, Rc<Manifest>>>,
    pub(crate) objects: Shared<BTreeSet<ObjectName>>,
    /// Creates whose outcome was reported as unknown and that may still land.
    pub(crate) delayed: BTreeSet<(u64, Delayed)>,
    pub(crate) executions: Vec<Shared<Execution>>,
    pub(crate) ghost: Shared<crate::checks::Ghost>,
}

/// A manifest on its way, ordered by its writer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Delayed(pub(crate) Rc<Manifest>);

impl Delayed {
    fn order(&self) -> (WriterId, Attempt, Epoch) {
        (self.0.writer, self.0.attempt, self.0.epoch)
    }
}

impl PartialOrd for Delayed {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Delayed {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Execution {
    pub(crate) alive: bool,
    pub(crate) now_ms: i64,
    pub(crate) starting: Option<FenceSteps>,
    pub(crate) coordinator: Option<Coordinator>,
    pub(crate) publishing: Option<PublishSteps>,
    pub(crate) mail: Vec<Mail>,
    pub(crate) subtasks: Vec<Subtask>,
    pub(crate) deletions: Vec<ObjectName>,
    pub(crate) merges: Vec<CompactionPlan>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Subtask {
    pub(crate) newest_trigger: Epoch,
    pub(crate) known_completed: Epoch,
    /// Epochs of all runs since the newest one known to be completed.
    pub(crate) runs: Vec<Epoch>,
    /// Epochs of all runs ever made in this attempt.
    pub(crate) made: Vec<Epoch>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mail {
    Trigger(u32, Epoch),
    Completed(u32, Epoch),
    Acknowledgement(u32, Epoch, Vec<OperatorPiece>),
}

pub(crate) fn names() -> Names {
    Names::new("j").unwrap()
}

impl World {
    pub(crate) fn new(limits: Limits) -> World {
        World {
            limits,
            slots: Shared::default(),
            objects: Shared::default(),
            delayed: BTreeSet::new(),
            executions: Vec::new(),
            ghost: Shared::default(),
        }
    }

    /// Takes one step; prompt mail that cannot be lost is part of it.
    pub(crate) fn take(&mut self, step: Step) {
        self.take_one(step);
        if self.limits.prompt_mail && self.limits.losses == 0 {
            for x in 0..self.executions.len() {
                while !self.executions[x].mail.is_empty() {
                    let mail = self.executions[x].mail.remove(0);
                    self.deliver(x, mail);
                }
            }
        }
    }

    fn take_one(&mut self, step: Step) {
        match step {
            Step::Start => {
                self.limits.starts = self.limits.starts.saturating_sub(1);
                self.start();
            }
            Step::Crash(x) => {
                self.limits.crashes -= 1;
                self.executions[x].die();
            }
            Step::Storage(x, fault) => {
                if fault != Fault::None {
                    self.limits.storage_faults -= 1;
                }
                self.storage(x, fault);
            }
            Step::Land(d) => {
                if let Some((sequence, Delayed(manifest))) = self.delayed.iter().nth(d).cloned() {
                    self.delayed.remove(&(sequence, Delayed(manifest.clone())));
                    self.create(&manifest);
                }
            }
            Step::Deliver(x, m) => {
                let mail = self.executions[x].mail.remove(m);
                self.deliver(x, mail);
            }
            Step::Double(x, m) => {
                self.limits.doubles -= 1;
                let mail = self.executions[x].mail[m].clone();
                self.deliver(x, mail);
            }
            Step::Lose(x, m) => {
                self.limits.losses -= 1;
                self.executions[x].mail.remove(m);
            }
            Step::Decline(x, m) => {
                self.limits.declines -= 1;
                if let Mail::Trigger(to, epoch) = self.executions[x].mail.remove(m) {
                    let reason = DeclineReason::Failed("disk full".to_owned());
                    self.tell(x, Event::Declined { subtask: id(to), epoch, reason });
                }
            }
            Step::Trigger(x) => self.tell(x, Event::TriggerNow(Reason::Manual)),
            Step::TimeOut(x) => {
                self.limits.timeouts = self.limits.timeouts.saturating_sub(1);
                self.executions[x].now_ms += TIMEOUT_MS as i64;
                self.tell(x, Event::Tick);
            }
            Step::Delete(x) => self.delete(x),
            Step::Merge(x) => self.merge(x),
            Step::List(x) => {
                self.limits.listings -= 1;
                let manifests = self.slots.keys().map(|sequence| names().manifest(*sequence));
                let existing = manifests.chain(self.objects.iter().cloned()).collect();
                self.tell(x, Event::Found { existing });
            }
        }
    }

    fn start(&mut self) {
        let starter = Starter {
            job: "j".to_owned(),
            writer: WriterId(self.executions.len() as u64 + 1),
            max_parallelism: 4 * SUBTASKS,
            now_ms: 0,
            from: StartFrom::Latest,
            imported: None,
        };
        self.executions.push(Shared::new(Execution {
            alive: true,
            now_ms: 0,
            starting: Some(FenceSteps::new(starter)),
            coordinator: None,
            publishing: None,
            mail: Vec::new(),
            subtasks: vec![Subtask::default(); SUBTASKS as usize],
            deletions: Vec::new(),
            merges: Vec::new(),
        }));
    }

    fn storage(&mut self, x: usize, fault: Fault) {
        let Some(request) = self.executions[x].request() else {
            return;
        };
        let manifest = self.executions[x].manifest().cloned();
        let answer = match (request, fault) {
            (_, Fault::Before) => Answer::NotDone("unavailable".to_owned()),
            (Request::List, _) => Answer::Listed(self.slots.keys().copied().collect()),
            (Request::Read(sequence), _) => match self.slots.get(&sequence) {
                Some(manifest) => Answer::Found(Box::new(Manifest::clone(manifest))),
                None => Answer::Absent,
            },
            (Request::Create, fault) => {
                let manifest = Rc::new(manifest.expect("a create has a manifest"));
                match fault {
                    Fault::Delayed => {
                        self.delayed.insert((manifest.sequence, Delayed(manifest)));
                        Answer::Unknown("timed out".to_owned())
                    }
                    Fault::After => {
                        self.create(&manifest);
                        Answer::Unknown("connection reset".to_owned())
                    }
                    _ if self.create(&manifest) => Answer::Created,
                    _ => Answer::Taken,
                }
            }
        };
        self.answered(x, answer);
    }

    fn create(&mut self, manifest: &Rc<Manifest>) -> bool {
        if self.slots.contains_key(&manifest.sequence) {
            return false;
        }
        self.slots.insert(manifest.sequence, manifest.clone());
        self.check_created(manifest);
        true
    }

    fn answered(&mut self, x: usize, answer: Answer) {
        let execution = &mut *self.executions[x];
        if let Some(steps) = &mut execution.starting {
            match steps.answer(answer) {
                None => {}
                Some(Start::Fenced(fence)) => self.started(x, &fence),
                Some(Start::NewestUnreadable { .. } | Start::NoSuchEpoch(_)) => panic!("nothing is damaged here"),
                Some(Start::NotStarted(_) | Start::Superseded { .. } | Start::Contended) => execution.die(),
            }
        } else if let Some(steps) = &mut execution.publishing
            && let Some(publication) = steps.answer(answer)
        {
            let manifest = steps.manifest().clone();
            execution.publishing = None;
            let outcome = match publication {
                Publication::Published => PublishOutcome::Ok,
                Publication::Fenced { theirs, .. } => PublishOutcome::Fenced { theirs },
                Publication::NotDone(reason) => PublishOutcome::Failed(reason),
                Publication::Unknown(reason) => PublishOutcome::Uncertain(reason),
            };
            if outcome == PublishOutcome::Ok {
                self.check_published(&manifest);
            }
            self.tell(x, Event::PublishFinished { epoch: manifest.epoch, outcome });
        }
    }

    fn started(&mut self, x: usize, fence: &Manifest) {
        let log = self.slots.range(fence.retained_from..=fence.sequence).map(|(_, m)| Manifest::clone(m)).collect();
        let subtasks = (0..SUBTASKS).map(id).collect();
        let settings = Settings {
            timeout_ms: TIMEOUT_MS,
            max_concurrent: self.limits.concurrent,
            tolerable_failures: 100,
            retained: self.limits.retained,
            publish_retry_ms: 0,
            compaction: CompactionPolicy {
                fan_in: 2,
                excess_percent: 60,
                min_bytes: 0,
                min_piece_bytes: 50,
                max_running: u32::from(self.limits.merges),
                ..CompactionPolicy::default()
            },
            ..Settings::default()
        };
        let coordinator = Coordinator::new(settings, Facts { subtasks, log, unreadable: BTreeSet::new() }).unwrap();
        let execution = &mut *self.executions[x];
        execution.starting = None;
        execution.coordinator = Some(coordinator);
        for subtask in &mut execution.subtasks {
            subtask.known_completed = fence.epoch;
            subtask.newest_trigger = fence.epoch;
        }
    }

    /// Tells the coordinator and carries out what it says.
    fn tell(&mut self, x: usize, event: Event) {
        let execution = &mut *self.executions[x];
        let Some(coordinator) = &mut execution.coordinator else {
            return;
        };
        let everybody = 0..SUBTASKS;
        for action in coordinator.on(execution.now_ms, event) {
            match action {
                Action::Trigger { epoch, .. } => {
                    execution.mail.extend(everybody.clone().map(|i| Mail::Trigger(i, epoch)))
                }
                Action::Publish { manifest } => execution.publishing = Some(PublishSteps::new(*manifest)),
                Action::NotifyCompleted { epoch } => {
                    execution.mail.extend(everybody.clone().map(|i| Mail::Completed(i, epoch)));
                }
                // Changes nothing at a subtask: an aborted epoch's run stays in its list, because its
                // changes are in no other run.
                Action::NotifyAborted { .. } => {}
                Action::Delete { objects } => execution.deletions.extend(objects),
                Action::Compact { plan } => execution.merges.push(plan),
                Action::Fail { reason } => {
                    crate::checks::check_failure(&reason);
                    execution.die();
                }
                Action::Finished { .. } => panic!("nobody asked for an end"),
            }
        }
    }

    fn deliver(&mut self, x: usize, mail: Mail) {
        let attempt = self.executions[x].attempt();
        match mail {
            Mail::Trigger(to, epoch) => self.freeze(x, to, epoch),
            Mail::Acknowledgement(from, epoch, pieces) => {
                self.tell(x, Event::Acknowledged { subtask: id(from), epoch, pieces });
            }
            Mail::Completed(to, epoch) => {
                self.check_commit(attempt, epoch);
                let subtask = &mut self.executions[x].subtasks[to as usize];
                subtask.known_completed = subtask.known_completed.max(epoch);
                let known = subtask.known_completed;
                subtask.runs.retain(|run| *run > known);
            }
        }
    }

    /// The subtask stores its run and its blob and acknowledges; late triggers are ignored.
    fn freeze(&mut self, x: usize, to: u32, epoch: Epoch) {
        let attempt = self.executions[x].attempt();
        let subtask = &mut self.executions[x].subtasks[to as usize];
        if epoch <= subtask.newest_trigger {
            return;
        }
        subtask.newest_trigger = epoch;
        subtask.runs.push(epoch);
        subtask.made.push(epoch);
        let runs: Vec<RunRef> = subtask.runs.iter().map(|run| run_of(attempt, to, *run)).collect();
        let object = names().blob(&data(attempt, Writer::Subtask(SubtaskIndex(to)), epoch)).unwrap();
        self.objects.insert(runs.last().expect("just pushed").object.clone());
        self.objects.insert(object.clone());
        let blob = Some(Blob::Object { object, bytes: 10, checksum: 0, hash: None });
        let since = subtask.runs.iter().rev().copied().find(|epoch| is_whole(to, *epoch));
        let whole = since.map(|since| Whole { since, groups: groups_of(to) });
        let pieces = vec![OperatorPiece { operator: "o".to_owned(), states: Vec::new(), runs, blob, whole }];
        self.executions[x].mail.push(Mail::Acknowledgement(to, epoch, pieces));
    }

    /// Carries out the deletions up to the next change between manifests and data. Stopping within
    /// such a stretch would show no more than stopping before or after it.
    fn delete(&mut self, x: usize) {
        let sequence_of = |object: &ObjectName| match names().parse(object) {
            Some(JobObject::Manifest(sequence)) => Some(sequence),
            _ => None,
        };
        let deletions = &mut self.executions[x].deletions;
        let first = sequence_of(&deletions[0]).is_some();
        let stretch = deletions.iter().take_while(|object| sequence_of(object).is_some() == first).count();
        for object in deletions.drain(..stretch) {
            match sequence_of(&object) {
                Some(sequence) => drop(self.slots.remove(&sequence)),
                None => drop(self.objects.remove(&object)),
            }
        }
        self.check_retained();
    }

    fn merge(&mut self, x: usize) {
        let attempt = self.executions[x].attempt();
        let plan = self.executions[x].merges.remove(0);
        let start = plan.inputs.iter().map(|run| run.groups.start).min().expect("plans have inputs");
        let end = plan.inputs.iter().map(|run| run.groups.end).max().expect("plans have inputs");
        let starts = std::iter::once(start).chain(plan.cuts.iter().copied());
        let ends = plan.cuts.iter().copied().chain([end]);
        let mut outputs = Vec::new();
        for (counter, (start, end)) in starts.zip(ends).enumerate() {
            let object = names().run(&plan.output(attempt, counter as u32)).unwrap();
            self.objects.insert(object.clone());
            let groups = KeyGroupRange::new(start, end);
            let bytes = 25 * u64::from(groups.len());
            let output =
                RunRef { object, groups, bytes, epoch: plan.epoch, level: plan.level, ..plan.inputs[0].clone() };
            self.ghost.merged(&output, &plan.inputs);
            outputs.push(output);
        }
        self.tell(x, Event::Compacted { plan: plan.id, outcome: Ok(outputs) });
    }
}

impl Execution {
    pub(crate) fn attempt(&self) -> Attempt {
        self.coordinator.as_ref().map_or(Attempt(0), Coordinator::attempt)
    }

    pub(crate) fn request(&self) -> Option<Request> {
        let starting = self.starting.as_ref().map(FenceSteps::request);
        starting.or_else(|| self.publishing.as_ref().map(PublishSteps::request))
    }

    fn manifest(&self) -> Option<&Manifest> {
        let publishing = self.publishing.as_ref().map(PublishSteps::manifest);
        self.starting.as_ref().and_then(FenceSteps::manifest).or(publishing)
    }

    /// Only deletions that are on their way to storage outlive an execution.
    pub(crate) fn die(&mut self) {
        self.alive = false;
        self.starting = None;
        self.publishing = None;
        self.mail.clear();
        self.merges.clear();
    }
}

pub(crate) fn id(index: u32) -> SubtaskId {
    SubtaskId { chain: 0, index }
}

fn data(attempt: Attempt, writer: Writer, epoch: Epoch) -> DataObject {
    DataObject { operator: "o".to_owned(), attempt, writer, epoch, counter: 0 }
}

/// Whether everything has changed in an epoch, so that the subtask's run of it supersedes all that is older.
pub(crate) fn is_whole(index: u32, epoch: Epoch) -> bool {
    (epoch.0 + u64::from(index)).is_multiple_of(2)
}

fn groups_of(index: u32) -> KeyGroupRange {
    KeyGroupRange::new(4 * index, 4 * index + 4)
}

pub(crate) fn run_of(attempt: Attempt, index: u32, epoch: Epoch) -> RunRef {
    RunRef {
        object: names().run(&data(attempt, Writer::Subtask(SubtaskIndex(index)), epoch)).unwrap(),
        bytes: 100,
        raw_bytes: 100,
        rows: 1,
        tombstones: 0,
        groups: groups_of(index),
        checksum: 0,
        epoch,
        level: 0,
    }
}
