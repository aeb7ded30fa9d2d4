//! Decides when an epoch begins, when it exists, and what follows from that.
//!
//! Owns the life of every epoch of one attempt: trigger, acknowledgements, publication, abort,
//! retention. Does *not* do anything: [`Coordinator::on`] takes an [`Event`] and the time and
//! returns [`Action`]s for the edge to carry out, in order. No I/O, no clock, no threads, no chance.
//!
//! Invariants:
//! * epochs are numbered consecutively, failed ones included (CT-07), and complete in order;
//! * at most one publication is under way, always for the slot after the newest known manifest;
//! * an epoch whose publication has an unknown outcome is never aborted: it is published again until
//!   the outcome is known, or the attempt ends;
//! * after `Fail`, `Finished` or `Shutdown` nothing more is decided.

mod building;
mod epochs;
pub mod protocol;
#[cfg(test)]
mod tests;
mod upkeep;

use std::collections::{BTreeMap, BTreeSet};

use millpond_core::{Attempt, Epoch};
use millpond_storage::ObjectName;

use crate::compaction::CompactionPlan;
use crate::error::CheckpointError;
use crate::manifest::{Manifest, OperatorPiece, RunRef};
use crate::names::Names;
use protocol::{Action, Event, Facts, FailReason, Reason, Settings, SubtaskId, TriggerKind};

/// Coordinates the checkpoints of one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Coordinator {
    settings: Settings,
    names: Names,
    subtasks: BTreeSet<SubtaskId>,
    /// What is retained, oldest first; the last one is what the next manifest builds on.
    log: Vec<Manifest>,
    unreadable: BTreeSet<u64>,
    phase: Phase,
    clock: Times,
    next_epoch: Epoch,
    pending: BTreeMap<Epoch, PendingEpoch>,
    publishing: Option<Publishing>,
    /// An epoch that was asked for and is not triggered yet; the weightier request wins.
    wanted: Option<Reason>,
    failures: u32,
    /// Runs that the newest completed epoch's acknowledgements carried.
    acknowledged_runs: BTreeSet<ObjectName>,
    /// Keyed states that they declare, by operator.
    declared: BTreeMap<String, BTreeSet<String>>,
    upkeep: Upkeep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Running,
    /// A stop or final epoch is in flight: no other is triggered.
    Ending(Epoch),
    /// A final epoch failed; the next tick may try again.
    Holding,
    Ended,
}

/// All in milliseconds since 1970 UTC; time that goes back counts as standing still.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Times {
    now_ms: Option<i64>,
    last_trigger_ms: i64,
    last_completion_ms: Option<i64>,
}

/// An epoch that is triggered and not acknowledged by everybody.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PendingEpoch {
    kind: TriggerKind,
    triggered_ms: i64,
    acknowledged: BTreeMap<SubtaskId, Vec<OperatorPiece>>,
}

/// An epoch that everybody acknowledged, on its way into the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Publishing {
    manifest: Manifest,
    kind: TriggerKind,
    /// Runs that its acknowledgements carry.
    runs: BTreeSet<ObjectName>,
    /// Keyed states that they declare, by operator.
    declared: BTreeMap<String, BTreeSet<String>>,
    /// How many of the finished compactions it contains.
    merges: usize,
    /// Runs that it would name, and their newer ones have made superfluous.
    superseded: Vec<ObjectName>,
    since_ms: i64,
    /// Some outcome was unknown.
    in_doubt: bool,
    /// When to publish again; `None` while a publication is under way.
    again_ms: Option<i64>,
}

/// Compaction and deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Upkeep {
    next_plan: u64,
    running: BTreeMap<u64, CompactionPlan>,
    /// Finished, and not yet in a manifest, in order of finishing.
    finished: Vec<(CompactionPlan, Vec<RunRef>)>,
    /// Objects that no manifest will name.
    discarded: BTreeSet<ObjectName>,
    cleanups: u32,
    /// Much more than live state is stored.
    far_behind: bool,
    /// Copies under way, by the sequence number of the manifest: how many, and what they need.
    pinned: BTreeMap<u64, (u32, Vec<ObjectName>)>,
}

impl Coordinator {
    /// Coordinates the attempt whose fence is the last manifest of `facts.log`.
    ///
    /// # Errors
    /// [`CheckpointError::Name`] when the job's name cannot stand in an object name;
    /// [`CheckpointError::NotStarted`] when the log is empty.
    pub fn new(settings: Settings, facts: Facts) -> Result<Coordinator, CheckpointError> {
        let missing = || CheckpointError::NotStarted { job: String::new(), reason: "there is no fence".to_owned() };
        let fence = facts.log.last().ok_or_else(missing)?;
        Ok(Coordinator {
            names: Names::new(&fence.job)?,
            next_epoch: fence.epoch.next(),
            settings,
            subtasks: facts.subtasks,
            log: facts.log,
            unreadable: facts.unreadable,
            phase: Phase::Running,
            clock: Times::default(),
            pending: BTreeMap::new(),
            publishing: None,
            wanted: None,
            failures: 0,
            acknowledged_runs: BTreeSet::new(),
            declared: BTreeMap::new(),
            upkeep: Upkeep::default(),
        })
    }

    /// Takes in what happened at `now_ms` and decides what to do, in order.
    pub fn on(&mut self, now_ms: i64, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.phase == Phase::Ended {
            return actions;
        }
        self.advance_clock(now_ms);
        match event {
            Event::Tick if self.phase == Phase::Holding => self.phase = Phase::Running,
            Event::Tick => {}
            Event::TriggerNow(reason) => self.wanted = self.wanted.max(Some(reason)),
            Event::SourcesExhausted => self.wanted = Some(Reason::Final),
            Event::Acknowledged { subtask, epoch, pieces } => self.acknowledge(subtask, epoch, pieces),
            Event::Declined { subtask, epoch, reason } => self.decline(subtask, epoch, reason, &mut actions),
            Event::PublishFinished { epoch, outcome } => self.publish_finished(epoch, outcome, &mut actions),
            Event::Compacted { plan, outcome } => self.compacted(plan, outcome, &mut actions),
            Event::Found { existing } => self.found(&existing, &mut actions),
            Event::Unpin { sequence } => self.unpin(sequence, &mut actions),
            Event::CleanupFinished => self.upkeep.cleanups = self.upkeep.cleanups.saturating_sub(1),
            Event::Shutdown => self.shut_down(&mut actions),
        }
        self.expire(&mut actions);
        self.publish_next(&mut actions);
        self.trigger_next(&mut actions);
        actions
    }

    /// The attempt that is coordinated.
    #[must_use]
    pub fn attempt(&self) -> Attempt {
        self.base().attempt
    }

    /// The newest completed epoch; [`Epoch::ZERO`] before the first.
    #[must_use]
    pub fn completed(&self) -> Epoch {
        self.base().epoch
    }

    /// The epoch that the next trigger will open.
    #[must_use]
    pub fn next_epoch(&self) -> Epoch {
        self.next_epoch
    }

    /// Epochs in flight, ascending: triggered, and neither completed nor aborted.
    #[must_use]
    pub fn in_flight(&self) -> Vec<Epoch> {
        let publishing = self.publishing.iter().map(|publishing| publishing.manifest.epoch);
        let mut epochs: Vec<Epoch> = self.pending.keys().copied().chain(publishing).collect();
        epochs.sort_unstable();
        epochs
    }

    /// The retained manifests, oldest first; the last one is the newest known.
    #[must_use]
    pub fn log(&self) -> &[Manifest] {
        &self.log
    }

    /// Whether a periodic trigger is due and waits for merges, because so much more than live state is stored.
    #[must_use]
    pub fn is_held_back(&self) -> bool {
        self.phase == Phase::Running
            && self.settings.interval_ms.is_some_and(|interval_ms| {
                self.elapsed_ms(self.clock.last_trigger_ms) >= interval_ms && self.waits_for_merges(interval_ms)
            })
    }

    /// Whether nothing more is decided.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    fn base(&self) -> &Manifest {
        self.log.last().expect("new refuses an empty log and retention keeps the newest manifest")
    }

    fn fail(&mut self, reason: FailReason, actions: &mut Vec<Action>) {
        if self.phase != Phase::Ended {
            self.phase = Phase::Ended;
            actions.push(Action::Fail { reason });
        }
    }

    fn advance_clock(&mut self, now_ms: i64) {
        match self.clock.now_ms {
            None => {
                self.clock.now_ms = Some(now_ms);
                self.clock.last_trigger_ms = now_ms;
            }
            Some(before) => self.clock.now_ms = Some(before.max(now_ms)),
        }
    }

    fn now_ms(&self) -> i64 {
        self.clock.now_ms.unwrap_or(i64::MIN)
    }

    fn elapsed_ms(&self, since_ms: i64) -> u64 {
        u64::try_from(self.now_ms().saturating_sub(since_ms)).unwrap_or(0)
    }
}
