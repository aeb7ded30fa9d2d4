//! How a subtask closes an epoch: when, what its operators are told, and how its state is frozen and serialised.

use millpond_core::Epoch;

use super::{EndKind, PORTION_BYTES, Phase, Subtask};
use crate::error::SubtaskError;
use crate::snapshot::{SnapshotKind, SubtaskSnapshot};
use crate::step::{Gate, Progress, RunLimits};

impl Subtask {
    /// A source closes when told to, even when it is gated; the others when all inputs have closed and
    /// everything of the open epoch is processed.
    pub(super) fn must_close(&self) -> bool {
        if self.is_source() {
            return self.trigger.epoch >= self.open;
        }
        let inputs_closed = match self.frontier {
            Some(frontier) => frontier > self.open,
            // The inputs are gone: either the stream ends as announced, or the attempt is being torn
            // down, in which case nothing more happens here.
            None => self.trigger.end.is_some() && self.trigger.epoch >= self.open,
        };
        inputs_closed && !self.queue.has(self.open) && !self.chain.has_work() && !self.chain.is_blocked()
    }

    /// Closes the open epoch. At the end of the stream that takes until operators have done what they have under way
    /// elsewhere.
    pub(super) fn close(&mut self, gate: &mut dyn Gate) -> Result<Progress, SubtaskError> {
        let epoch = self.open;
        let end = self.trigger.end.filter(|_| self.trigger.epoch == epoch);
        self.chain.drain(epoch)?;
        if end == Some(EndKind::Drain) {
            if self.is_source() {
                self.chain.end_time(0, epoch);
                self.chain.drain(epoch)?;
            }
            if !self.end_operators(epoch)? {
                self.chain.flush(epoch);
                return Ok(Progress::Idle);
            }
        }
        gate.pause();
        self.chain.for_each_operator(epoch, "preparing a checkpoint", |operator, context| {
            operator.prepare_snapshot(epoch, context)
        })?;
        gate.resume();
        self.chain.flush(epoch);
        self.freeze(gate)?;
        if end.is_some() {
            self.phase = Phase::Ended;
        }
        Ok(Progress::Ready)
    }

    /// Tells the operators of the end in order; what one emits reaches the next before its turn. False when one has
    /// work under way elsewhere: its turn, or that of those behind it, comes later.
    fn end_operators(&mut self, epoch: Epoch) -> Result<bool, SubtaskError> {
        loop {
            self.chain.drain(epoch)?;
            if self.chain.is_waiting() {
                return Ok(false);
            }
            if self.ended_operators == self.chain.cells.len() {
                return Ok(true);
            }
            self.chain.end(self.ended_operators, epoch)?;
            self.ended_operators += 1;
        }
    }

    /// Captures the state as of the open epoch and opens the next one. After the end of the stream this
    /// alone is how an epoch is closed: when the last one was aborted, the same state answers for the
    /// next attempt at it.
    pub(super) fn freeze(&mut self, gate: &mut dyn Gate) -> Result<(), SubtaskError> {
        let epoch = self.open;
        gate.pause();
        if self.takes_snapshots {
            self.snapshots.freeze(&mut self.chain, epoch)?;
        } else {
            self.finished_snapshots.push(SubtaskSnapshot { epoch, kind: SnapshotKind::Whole, operators: Vec::new() });
        }
        gate.resume();
        self.open = epoch.next();
        Ok(())
    }

    pub(super) fn serialise_slice(&mut self, limits: &RunLimits, gate: &mut dyn Gate) -> Result<(), SubtaskError> {
        if self.snapshots.is_empty() && !self.memory.parts {
            return Ok(());
        }
        gate.pause();
        let mut left = limits.slice_bytes.max(1);
        let mut finished = None;
        while finished.is_none() && left > 0 {
            let portion = left.min(PORTION_BYTES);
            finished = self.snapshots.serialise_slice(&mut self.chain, portion, self.open)?;
            left -= portion;
            if gate.is_overdue() || self.snapshots.is_waiting() {
                break;
            }
        }
        self.memory.parts = self.memory.parts && self.chain.has_parts();
        gate.resume();
        self.finished_snapshots.extend(finished);
        Ok(())
    }

    /// Side effects of completed epochs become visible.
    pub(super) fn announce_completed(&mut self) -> Result<(), SubtaskError> {
        if self.completed <= self.notified {
            return Ok(());
        }
        let completed = self.completed;
        self.notified = completed;
        self.chain
            .for_each_operator(self.open, "committing", |operator, context| operator.on_completed(completed, context))
    }
}
