//! The life of an epoch: triggered, acknowledged, published; or aborted.

use std::collections::BTreeMap;

use millpond_core::Epoch;

use super::building::all_declared;
use super::protocol::{AbortReason, Action, DeclineReason, FailReason, PublishOutcome, Reason, SubtaskId, TriggerKind};
use super::{Coordinator, PendingEpoch, Phase, Publishing};
use crate::manifest::OperatorPiece;

impl Coordinator {
    /// Opens the next epoch if one is due and nothing prevents it.
    pub(super) fn trigger_next(&mut self, actions: &mut Vec<Action>) {
        if self.phase != Phase::Running || self.flying() >= self.settings.max_concurrent.max(1) as usize {
            return;
        }
        let kind = match self.wanted.take() {
            Some(Reason::Final) => TriggerKind::Final,
            Some(Reason::Drain) => TriggerKind::Drain,
            Some(Reason::Stop) => TriggerKind::Stop,
            Some(Reason::Manual) => TriggerKind::Manual,
            None if self.periodic_is_due() => TriggerKind::Periodic,
            None => return,
        };
        let epoch = self.next_epoch;
        self.next_epoch = epoch.next();
        let triggered_ms = self.now_ms();
        self.clock.last_trigger_ms = triggered_ms;
        self.pending.insert(epoch, PendingEpoch { kind, triggered_ms, acknowledged: BTreeMap::new() });
        if kind.is_last() {
            self.phase = Phase::Ending(epoch);
        }
        actions.push(Action::Trigger { epoch, kind });
    }

    fn flying(&self) -> usize {
        self.pending.len() + usize::from(self.publishing.is_some())
    }

    /// Interval since the last trigger, pause since the last completion (CT-03), clean-up (CR-06), merges.
    fn periodic_is_due(&self) -> bool {
        let Some(interval_ms) = self.settings.interval_ms else {
            return false;
        };
        let paused = self.clock.last_completion_ms.is_none_or(|at| self.elapsed_ms(at) >= self.settings.min_pause_ms);
        let cleaned = self.upkeep.cleanups <= self.settings.max_cleanups;
        let is_due = self.elapsed_ms(self.clock.last_trigger_ms) >= interval_ms;
        is_due && paused && cleaned && !self.waits_for_merges(interval_ms)
    }

    /// Notes a part; one that is unknown, late or doubled is discarded (CT-08).
    pub(super) fn acknowledge(&mut self, subtask: SubtaskId, epoch: Epoch, pieces: Vec<OperatorPiece>) {
        let known = self.subtasks.contains(&subtask);
        match self.pending.get_mut(&epoch) {
            Some(pending) if known && !pending.acknowledged.contains_key(&subtask) => {
                pending.acknowledged.insert(subtask, pieces);
            }
            _ => self.discard(&pieces),
        }
    }

    /// One refusal aborts the whole epoch (CT-15). An epoch being published has all it needs.
    pub(super) fn decline(
        &mut self,
        subtask: SubtaskId,
        epoch: Epoch,
        reason: DeclineReason,
        actions: &mut Vec<Action>,
    ) {
        if self.subtasks.contains(&subtask)
            && let Some(pending) = self.pending.remove(&epoch)
        {
            self.abort(epoch, pending, AbortReason::Declined { subtask, reason }, actions);
        }
    }

    /// Aborts what took too long (CT-09) and gives up on a publication that stays unresolved.
    pub(super) fn expire(&mut self, actions: &mut Vec<Action>) {
        let timeout_ms = self.settings.timeout_ms;
        let late = |since_ms: i64| self.elapsed_ms(since_ms) >= timeout_ms;
        let is_complete = |pending: &PendingEpoch| pending.acknowledged.len() == self.subtasks.len();
        let overdue = self.pending.iter().filter(|(_, pending)| late(pending.triggered_ms) && !is_complete(pending));
        let overdue: Vec<Epoch> = overdue.map(|(epoch, _)| *epoch).collect();
        let unresolved = self.publishing.as_ref().filter(|publishing| late(publishing.since_ms));
        let unresolved = unresolved.map(|publishing| publishing.manifest.epoch);
        for epoch in overdue {
            if self.phase != Phase::Ended
                && let Some(pending) = self.pending.remove(&epoch)
            {
                let missing = self.subtasks.len() - pending.acknowledged.len();
                self.abort(epoch, pending, AbortReason::Expired { timeout_ms, missing }, actions);
            }
        }
        if let Some(epoch) = unresolved {
            self.fail(FailReason::PublishUnresolved { epoch, waited_ms: timeout_ms }, actions);
        }
    }

    /// Publishes the oldest epoch that everybody acknowledged, or repeats what is in doubt.
    pub(super) fn publish_next(&mut self, actions: &mut Vec<Action>) {
        if self.phase == Phase::Ended {
            return;
        }
        let now_ms = self.now_ms();
        if let Some(publishing) = &mut self.publishing {
            if publishing.again_ms.is_some_and(|again_ms| again_ms <= now_ms) {
                publishing.again_ms = None;
                actions.push(Action::Publish { manifest: Box::new(publishing.manifest.clone()) });
            }
            return;
        }
        let complete = |(_, pending): &(&Epoch, &PendingEpoch)| pending.acknowledged.len() == self.subtasks.len();
        let Some(epoch) = self.pending.iter().find(complete).map(|(epoch, _)| *epoch) else {
            return;
        };
        let Some(pending) = self.pending.remove(&epoch) else {
            return;
        };
        match self.build(epoch, &pending) {
            Err(reason) => self.fail(reason, actions),
            Ok((manifest, superseded)) => {
                let pieces = pending.acknowledged.values().flatten();
                let runs = pieces.flat_map(|piece| piece.runs.iter().map(|run| run.object.clone())).collect();
                actions.push(Action::Publish { manifest: Box::new(manifest.clone()) });
                self.publishing = Some(Publishing {
                    manifest,
                    kind: pending.kind,
                    runs,
                    declared: all_declared(&pending),
                    merges: self.upkeep.finished.len(),
                    superseded,
                    since_ms: now_ms,
                    in_doubt: false,
                    again_ms: None,
                });
            }
        }
    }

    /// The outcome of the one publication under way.
    pub(super) fn publish_finished(&mut self, epoch: Epoch, outcome: PublishOutcome, actions: &mut Vec<Action>) {
        let Some(mut publishing) = self.publishing.take_if(|publishing| publishing.manifest.epoch == epoch) else {
            return;
        };
        match outcome {
            PublishOutcome::Ok => self.complete(publishing, actions),
            PublishOutcome::Fenced { theirs } => {
                let ours = self.attempt();
                self.fail(FailReason::Fenced { ours, theirs }, actions);
            }
            PublishOutcome::Failed(reason) if !publishing.in_doubt => {
                let Publishing { manifest, kind, .. } = publishing;
                let blobs = manifest.operators.iter().flat_map(|operator| operator.subtasks.iter().flatten());
                self.upkeep.discarded.extend(blobs.filter_map(|blob| blob.object().cloned()));
                self.abort_discarded(epoch, kind, AbortReason::PublishFailed(reason), actions);
            }
            // What was in doubt once can still land: even a certain failure leaves the doubt (CT-14).
            PublishOutcome::Failed(_) | PublishOutcome::Uncertain(_) => {
                let pause_ms = i64::try_from(self.settings.publish_retry_ms).unwrap_or(i64::MAX);
                publishing.in_doubt = true;
                publishing.again_ms = Some(self.now_ms().saturating_add(pause_ms));
                self.publishing = Some(publishing);
            }
        }
    }

    /// The epoch exists: subsume older ones, then tell everybody, then clean up (CT-11).
    fn complete(&mut self, publishing: Publishing, actions: &mut Vec<Action>) {
        let Publishing { manifest, kind, runs, declared, merges, superseded, .. } = publishing;
        let epoch = manifest.epoch;
        self.upkeep.finished.drain(..merges);
        self.upkeep.discarded.extend(superseded);
        self.acknowledged_runs = runs;
        self.declared = declared;
        self.failures = 0;
        self.clock.last_completion_ms = Some(self.now_ms());
        while let Some(older) = self.pending.first_entry().filter(|older| *older.key() < epoch) {
            let (older, pending) = older.remove_entry();
            self.abort(older, pending, AbortReason::Subsumed(epoch), actions);
        }
        let dropped = self.retain(manifest);
        self.forget_merges_in_vain();
        actions.push(Action::NotifyCompleted { epoch });
        self.clean_up(&dropped, actions);
        if self.phase == Phase::Ending(epoch) {
            self.phase = Phase::Ended;
            actions.push(Action::Finished { epoch, at_end: kind == TriggerKind::Final });
        } else {
            self.plan_compactions(actions);
        }
    }

    fn abort(&mut self, epoch: Epoch, pending: PendingEpoch, reason: AbortReason, actions: &mut Vec<Action>) {
        for pieces in pending.acknowledged.values() {
            self.discard(pieces);
        }
        self.abort_discarded(epoch, pending.kind, reason, actions);
    }

    /// Tells everybody, counts the failure (CF-01), and decides what becomes of the end of the job.
    fn abort_discarded(&mut self, epoch: Epoch, kind: TriggerKind, reason: AbortReason, actions: &mut Vec<Action>) {
        actions.push(Action::NotifyAborted { epoch, reason: reason.clone() });
        if reason == AbortReason::Shutdown {
            return;
        }
        if self.phase == Phase::Ending(epoch) {
            if kind != TriggerKind::Final {
                return self.fail(FailReason::StopFailed { epoch, reason }, actions);
            }
            self.phase = Phase::Holding;
            self.wanted = Some(Reason::Final);
        }
        if reason.is_counted() {
            self.failures += 1;
            if self.failures > self.settings.tolerable_failures {
                let (failures, tolerated) = (self.failures, self.settings.tolerable_failures);
                self.fail(FailReason::TooManyFailures { failures, tolerated, last: reason }, actions);
            }
        }
    }

    /// The attempt ends (CT-17). What is being published is not aborted: it may yet exist.
    pub(super) fn shut_down(&mut self, actions: &mut Vec<Action>) {
        for (epoch, pending) in std::mem::take(&mut self.pending) {
            self.abort(epoch, pending, AbortReason::Shutdown, actions);
        }
        self.phase = Phase::Ended;
    }
}
