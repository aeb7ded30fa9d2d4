//! The step machine of one subtask.

use std::sync::Arc;
use std::task::Waker;

use millpond_checkpoint::SubtaskId;
use millpond_core::{Attempt, Clock, Epoch};
use millpond_dataflow::context::OncePerAttempt;
use millpond_dataflow::gauge::TimeBoard;
use millpond_dataflow::graph::OperatorEntry;
use millpond_dataflow::plan::{ChainIndex, EdgeIndex, Plan};
use millpond_dataflow::{AttemptEnd, Element, SourceStatus};
use millpond_state::{ColdBacking, Pressure};

mod epochs;
mod look;

pub use crate::chain::Shipment;
use crate::chain::{Chain, Memory};
use crate::error::SubtaskError;
use crate::flow::ChannelCredits;
use crate::query::{Inboxes, QueryBoard};
use crate::queue::{Arrival, InputQueue};
use crate::restore::RestorePoint;
use crate::snapshot::{Snapshots, SubtaskSnapshot};
pub use crate::step::{Gate, Progress, RunLimits};

/// How the stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndKind {
    /// The input is at its end: operators emit what they hold back (`on_end`).
    Drain,
    /// The job stops and will go on from here: nothing is emitted that a longer run would not emit.
    Suspend,
}

/// Which epochs are to be closed, as the coordinator says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trigger {
    /// Sources close every epoch up to this one.
    pub epoch: Epoch,
    /// With the closing of `epoch`, the stream ends like this.
    pub end: Option<EndKind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Ended,
}

/// Everything from which a subtask is made.
pub struct SubtaskSpec<'a> {
    /// The plan of the job.
    pub plan: &'a Plan,
    /// Which chain.
    pub chain: ChainIndex,
    /// Which parallel instance.
    pub index: u32,
    /// The chain's operators, taken out of this worker's graph, in order.
    pub operators: Vec<OperatorEntry>,
    /// Which execution.
    pub attempt: Attempt,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Where to start from; `None` for an empty state.
    pub restore: Option<&'a RestorePoint>,
    /// Things that all subtasks must see alike.
    pub once: &'a dyn OncePerAttempt,
    /// Channels out, by exchange in the order of the plan, then by receiver.
    pub outgoing: Vec<Vec<Arc<ChannelCredits>>>,
    /// Channels in, by exchange in the order of the plan, then by sender.
    pub incoming: Vec<Vec<Arc<ChannelCredits>>>,
    /// Whether snapshots are taken; off for a job without checkpoints.
    pub snapshots: bool,
    /// Where keyed state goes that does not fit into memory; `None` to keep all of it there.
    pub cold: Option<&'a ColdBacking>,
    /// Whether the attempt is over.
    pub end: &'a AttemptEnd,
}

/// An exchange that leads into the chain.
pub(crate) struct Inlet {
    pub(crate) edge: EdgeIndex,
    pub(crate) position: usize,
    pub(crate) input: usize,
    pub(crate) credits: Vec<Arc<ChannelCredits>>,
    /// Whether only one subtask sends over it.
    pub(crate) forward: bool,
}

impl Inlet {
    /// Number of subtasks that may send over it.
    pub(crate) fn channels(&self) -> usize {
        if self.forward { 1 } else { self.credits.len() }
    }
}

/// Bytes of state serialised between two looks at the time.
const PORTION_BYTES: usize = 8 << 10;
/// Asked of a source before the size of its records is known.
const FIRST_POLL_RECORDS: u64 = 64;
/// Records above this size are not held back to fill batches.
const LARGE_RECORD_BYTES: u64 = 16 << 10;

/// One parallel instance of a chain of operators.
pub struct Subtask {
    id: SubtaskId,
    chain: Chain,
    inlets: Vec<Inlet>,
    queue: InputQueue,
    open: Epoch,
    /// Lowest epoch of which something may still arrive; `None` when all inputs have ended.
    frontier: Option<Epoch>,
    trigger: Trigger,
    phase: Phase,
    /// How many operators have been told that the stream has ended.
    ended_operators: usize,
    exhausted: bool,
    snapshots: Snapshots,
    takes_snapshots: bool,
    /// How it stood with the memory of keyed state after the last batch.
    memory: Memory,
    finished_snapshots: Vec<SubtaskSnapshot>,
    completed: Epoch,
    notified: Epoch,
    wakes: Vec<(EdgeIndex, u32)>,
    records_in: u64,
    /// Size of the source's last records; 0 before the first.
    record_bytes: u64,
    inboxes: Inboxes,
    /// When the first of the operators wants to be called, in processing time.
    wake_at: Option<i64>,
}

impl Subtask {
    /// Makes a subtask and restores its state.
    ///
    /// # Errors
    /// When an operator cannot open, or its state cannot be restored.
    pub fn build(spec: SubtaskSpec<'_>) -> Result<Subtask, SubtaskError> {
        let takes_snapshots = spec.snapshots;
        let restored = spec.restore.map_or(Epoch::ZERO, RestorePoint::epoch);
        let id = SubtaskId { chain: spec.chain.0 as u32, index: spec.index };
        let (chain, inlets) = crate::restore::open_chain(spec)?;
        let frontier = (!inlets.is_empty()).then(|| restored.next());
        Ok(Subtask {
            id,
            chain,
            inlets,
            queue: InputQueue::default(),
            open: restored.next(),
            frontier,
            trigger: Trigger::default(),
            phase: Phase::Running,
            ended_operators: 0,
            exhausted: false,
            snapshots: Snapshots::default(),
            takes_snapshots,
            memory: Memory::default(),
            finished_snapshots: Vec::new(),
            completed: restored,
            notified: restored,
            wakes: Vec::new(),
            records_in: 0,
            record_bytes: 0,
            inboxes: Inboxes::default(),
            // Restored timers may be due.
            wake_at: Some(i64::MIN),
        })
    }

    /// Who it is.
    #[must_use]
    pub fn id(&self) -> SubtaskId {
        self.id
    }

    /// The epoch whose records are being processed; everything shipped from now on belongs to it or to
    /// a later one.
    #[must_use]
    pub fn open_epoch(&self) -> Epoch {
        self.open
    }

    /// Whether the stream has ended here.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// Whether the chain begins with a source.
    #[must_use]
    pub fn is_source(&self) -> bool {
        self.inlets.is_empty()
    }

    /// Whether it is a source that has nothing more to give, ever.
    #[must_use]
    pub fn source_exhausted(&self) -> bool {
        self.exhausted
    }

    /// Records taken from the inputs, or out of the source, since the start.
    #[must_use]
    pub fn records_in(&self) -> u64 {
        self.records_in
    }

    /// Lets others ask about the keyed state of its operators; `wake` makes that it is run soon.
    pub fn open_to_queries(&mut self, board: &QueryBoard, wake: &Arc<dyn Fn() + Send + Sync>) {
        self.inboxes.open(&mut self.chain.cells, board, wake);
    }

    /// Shows how far event time has come in its operators.
    pub fn show_time(&mut self, board: &TimeBoard) {
        for cell in &mut self.chain.cells {
            cell.gauge = board.gauge(&cell.info.operator, cell.info.index);
        }
    }

    /// How its operators make that it is run soon.
    pub fn set_waker(&mut self, waker: Waker) {
        self.chain.waker = waker;
    }

    /// A batch or a mark has arrived.
    pub fn receive(&mut self, edge: EdgeIndex, sender: u32, epoch: Epoch, element: Element) {
        self.queue.push(epoch, Arrival { edge, sender, element });
    }

    /// Whether there is a subtask `sender` that sends to this one over `edge`.
    #[must_use]
    pub fn hears(&self, edge: EdgeIndex, sender: u32) -> bool {
        self.inlets.iter().any(|inlet| inlet.edge == edge && (sender as usize) < inlet.credits.len())
    }

    /// Nothing of an epoch below `frontier` will arrive any more; nothing at all when `None`.
    pub fn set_frontier(&mut self, frontier: Option<Epoch>) {
        if !self.inlets.is_empty() {
            self.frontier = frontier;
        }
    }

    /// What the coordinator wants: epochs to close, and which epoch is completed.
    pub fn control(&mut self, trigger: Trigger, completed: Epoch) {
        self.trigger = trigger;
        self.completed = self.completed.max(completed);
    }

    /// Batches on their way out, oldest first.
    pub fn take_shipments(&mut self) -> std::vec::Drain<'_, Shipment> {
        self.chain.outbox.drain(..)
    }

    /// Snapshots that are serialised and ready to be stored, oldest first.
    pub fn take_snapshots(&mut self) -> std::vec::Drain<'_, SubtaskSnapshot> {
        self.finished_snapshots.drain(..)
    }

    /// Senders that waited for credit and can go on: exchange and sending subtask.
    pub fn take_wakes(&mut self) -> std::vec::Drain<'_, (EdgeIndex, u32)> {
        self.wakes.drain(..)
    }

    /// Whether state waits to be serialised, or a completed epoch to be announced.
    #[must_use]
    pub fn has_background_work(&self) -> bool {
        self.completed > self.notified
            || !self.snapshots.is_empty()
            || self.memory.parts
            || self.inboxes.has_questions()
    }

    /// When it should be run again although nothing arrives, in processing time (milliseconds).
    #[must_use]
    pub fn wake_at(&self) -> Option<i64> {
        self.wake_at
    }

    /// Whether an operator has work of its own under way elsewhere, for which the end of the stream waits.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.chain.is_waiting()
    }

    /// Whether it processes nothing because an operator takes no records before work of its own is done elsewhere.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.chain.is_blocked()
    }

    /// Whether an operator wants a checkpoint before its time.
    #[must_use]
    pub fn wants_checkpoint(&self) -> bool {
        self.phase == Phase::Running && self.chain.wants_checkpoint()
    }

    /// Whether it processes nothing because rows of its keyed state are on their way out of memory: it should be
    /// run again soon.
    #[must_use]
    pub fn waits_for_memory(&self) -> bool {
        self.memory.pressure == Pressure::Full || self.snapshots.is_waiting()
    }

    /// Does a bounded amount of work.
    ///
    /// # Errors
    /// When an operator fails or panics. The subtask must not be run again.
    pub fn run(&mut self, limits: &RunLimits, gate: &mut dyn Gate) -> Result<Progress, SubtaskError> {
        self.announce_completed()?;
        self.inboxes.answer(&mut self.chain.cells);
        self.serialise_slice(limits, gate)?;
        if self.phase == Phase::Ended {
            while self.trigger.end.is_some() && self.trigger.epoch >= self.open {
                self.freeze(gate)?;
            }
            let committing = self.chain.commit(self.open)?;
            self.wake_at = self.chain.wake_at().filter(|_| committing);
            return Ok(match (self.has_background_work(), committing) {
                (true, _) if self.waits_for_memory() => Progress::Gated,
                (true, _) => Progress::Ready,
                (false, true) => Progress::Idle,
                (false, false) => Progress::Ended,
            });
        }
        self.chain.closing = self.trigger.epoch >= self.open;
        // Asked anew: what an operator waits for may have come meanwhile.
        let first_wake = if self.wake_at == Some(i64::MIN) { self.wake_at } else { self.chain.wake_at() };
        if let Some(at) = first_wake.filter(|_| self.chain.room() > 0) {
            let now_ms = self.chain.clock.now_ms();
            if at <= now_ms {
                self.chain.on_clock(now_ms, self.open)?;
                self.memory = self.chain.keep_budget()?;
            }
        }
        let mut progress = self.run_records(limits, gate)?;
        self.wake_at = self.chain.wake_at();
        if progress == Progress::Idle && self.wake_at == Some(i64::MIN) {
            progress = Progress::Ready;
        }
        let waits = matches!(progress, Progress::Idle | Progress::Gated);
        Ok(match (waits && self.has_background_work(), self.waits_for_memory()) {
            (false, _) => progress,
            // Serialising more would not help: rows that are on their way have to arrive first.
            (true, true) => Progress::Gated,
            (true, false) => Progress::Ready,
        })
    }

    fn run_records(&mut self, limits: &RunLimits, gate: &mut dyn Gate) -> Result<Progress, SubtaskError> {
        let mut batches = limits.batches;
        loop {
            if self.must_close() {
                return self.close(gate);
            }
            let mut room = self.chain.room();
            if room == 0 {
                room = self.chain.wait_for_room();
            }
            if room == 0 {
                self.chain.flush(self.open);
                return Ok(Progress::Gated);
            }
            if self.memory.pressure != Pressure::Fine
                && let Some(progress) = self.relieve(limits, gate)?
            {
                return Ok(progress);
            }
            if self.chain.step(self.open)? {
                if self.chain.has_short_queues() {
                    self.chain.flush(self.open);
                }
                if let Some(progress) = self.relieve(limits, gate)? {
                    return Ok(progress);
                }
                continue;
            }
            if self.chain.is_blocked() {
                self.chain.flush(self.open);
                return Ok(Progress::Idle);
            }
            if batches == 0 {
                return Ok(Progress::Ready);
            }
            batches -= 1;
            let idle = if self.is_source() { self.poll(limits, room)? } else { !self.take_arrival() };
            if idle {
                self.chain.on_lull(self.open)?;
                if self.chain.has_work() {
                    continue;
                }
                self.chain.flush(self.open);
                return Ok(Progress::Idle);
            }
        }
    }

    /// Keeps keyed state within its share of the memory. What the subtask wants, when it shall not go on with
    /// records.
    fn relieve(&mut self, limits: &RunLimits, gate: &mut dyn Gate) -> Result<Option<Progress>, SubtaskError> {
        // While everything fits, looking costs less than measuring it would.
        if self.memory.spills {
            gate.pause();
        }
        self.memory = self.chain.keep_budget()?;
        gate.resume();
        if self.memory.parts {
            self.serialise_slice(limits, gate)?;
        }
        let progress = match self.memory.pressure {
            Pressure::Fine => return Ok(None),
            Pressure::Busy => Progress::Ready,
            Pressure::Full => Progress::Gated,
        };
        self.chain.flush(self.open);
        Ok(Some(progress))
    }

    /// Takes the next batch of the open epoch into the chain; its credit goes back to the sender.
    fn take_arrival(&mut self) -> bool {
        let Some(Arrival { edge, sender, element }) = self.queue.pop(self.open) else { return false };
        let Some(inlet) = self.inlets.iter().find(|inlet| inlet.edge == edge) else { return true };
        let (records, bytes) = (element.len() as u64, element.estimate_bytes() as u64);
        self.records_in += records;
        if records > 0 && inlet.credits[sender as usize].returned(records, bytes) {
            self.wakes.push((edge, sender));
        }
        let channel = if inlet.forward { 0 } else { sender as usize };
        let (position, input) = (inlet.position, inlet.input);
        self.chain.offer(position, input, channel, element);
        true
    }

    /// True when the source has nothing now.
    fn poll(&mut self, limits: &RunLimits, room: u64) -> Result<bool, SubtaskError> {
        // Records as large as the last ones must fit the bytes that may still be shipped.
        let fitting = match self.record_bytes {
            0 => FIRST_POLL_RECORDS,
            bytes => (self.chain.room_bytes() / bytes).max(1),
        };
        let limit = limits.poll_records.min(usize::try_from(room.min(fitting)).unwrap_or(usize::MAX));
        let (status, records, bytes) = self.chain.poll_source(limit, self.open)?;
        self.records_in += records;
        if let Some(bytes) = bytes.checked_div(records) {
            self.record_bytes = bytes.max(1);
        }
        if self.record_bytes > LARGE_RECORD_BYTES {
            self.chain.drain(self.open)?;
            self.chain.flush(self.open);
        }
        match status {
            SourceStatus::Ready => Ok(false),
            SourceStatus::Idle => Ok(!self.chain.has_work()),
            SourceStatus::Exhausted => {
                self.exhausted = true;
                self.chain.end_time(0, self.open);
                Ok(!self.chain.has_work())
            }
        }
    }

    /// At most `records` records shall wait in front of this subtask, over all senders.
    pub fn set_queue_limit(&self, records: u64) {
        for inlet in &self.inlets {
            let share = (records / inlet.credits.len().max(1) as u64).max(1);
            inlet.credits.iter().for_each(|channel| channel.set_limit_records(share));
        }
    }
}
