//! The operators of one subtask, and how batches pass between them.
//!
//! Batches wait per operator; the operator furthest downstream that has one goes first, so that little
//! waits inside a chain. One that takes none now is passed over, but when an epoch closes. Marks of event time wait among them, in order; an operator that has more to emit at a
//! watermark than downstream has room for is shown nothing else before it is done. User code runs behind a border: its errors and panics become a
//! [`SubtaskError`] that names operator and subtask.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

use millpond_core::error::panic_message;
use millpond_core::{Clock, Epoch, UserResult};
use millpond_dataflow::gauge::TimeGauge;
use millpond_dataflow::operator::Instance;
use millpond_dataflow::plan::{Destination, EdgeIndex};
use millpond_dataflow::time::{MAX_WATERMARK, TimeMark};
use millpond_dataflow::{
    Advance, BATCH_RECORDS, Element, Operator, OperatorContext, Outputs, Partition, SourceStatus, SubtaskInfo,
};
use millpond_state::{OperatorStates, Pressure};

use crate::error::{Cause, SubtaskError};
use crate::flow::ChannelCredits;
use crate::valve::OperatorClock;

/// One operator of the chain, with its state.
pub(crate) struct Cell {
    pub(crate) info: SubtaskInfo,
    pub(crate) instance: Instance,
    pub(crate) states: OperatorStates,
    /// Where each output port leads.
    pub(crate) destinations: Vec<Vec<Destination>>,
    /// What waits, with the input and the channel it came from.
    pub(crate) waiting: VecDeque<Waiting>,
    /// Event time here.
    pub(crate) clock: OperatorClock,
    /// Marks that the operator has not taken in yet, oldest first; they go before anything that waits.
    pub(crate) marks: VecDeque<TimeMark>,
    /// What the operator has told those behind it about event time.
    pub(crate) told: Told,
    /// Where that is shown.
    pub(crate) gauge: Arc<TimeGauge>,
}

/// What an operator has told those behind it about event time.
#[derive(Default)]
pub(crate) struct Told {
    idle: bool,
    last: bool,
}

/// A batch or a mark in front of an operator.
pub(crate) struct Waiting {
    input: usize,
    channel: usize,
    element: Element,
}

impl Cell {
    /// Whether there is something that it can do now.
    fn has_work(&self, closing: bool) -> bool {
        !self.marks.is_empty() || (!self.waiting.is_empty() && self.takes_input(closing))
    }

    /// Whether something waits that its operator does not take now.
    fn is_blocked(&self, closing: bool) -> bool {
        self.marks.is_empty() && !self.waiting.is_empty() && !self.takes_input(closing)
    }

    fn takes_input(&self, closing: bool) -> bool {
        let operator = self.instance.look();
        operator.takes_input() || (closing && operator.yields_to_epochs())
    }
}

/// An exchange that leads out of the chain.
pub(crate) struct Exchange {
    pub(crate) edge: EdgeIndex,
    pub(crate) partition: Box<dyn Partition>,
    /// The channel to each receiver.
    pub(crate) credits: Vec<Arc<ChannelCredits>>,
    /// The only receiver that ever gets anything, if there is but one.
    pub(crate) only: Option<u32>,
}

/// How it stands with the memory of the keyed state of a chain.
pub(crate) struct Memory {
    pub(crate) pressure: Pressure,
    /// Whether some operator has a frozen part.
    pub(crate) parts: bool,
    /// Whether some operator's state goes to its cold store.
    pub(crate) spills: bool,
}

impl Default for Memory {
    fn default() -> Self {
        Memory { pressure: Pressure::Fine, parts: false, spills: false }
    }
}

/// A batch or a mark on its way to another subtask.
#[derive(Debug)]
pub struct Shipment {
    /// Over which exchange.
    pub edge: EdgeIndex,
    /// To which subtask of the receiving chain.
    pub receiver: u32,
    /// The epoch it belongs to.
    pub epoch: Epoch,
    /// The records, or what is said about event time.
    pub element: Element,
}

/// The operators of one subtask.
pub(crate) struct Chain {
    pub(crate) cells: Vec<Cell>,
    pub(crate) exchanges: Vec<Exchange>,
    pub(crate) outbox: Vec<Shipment>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) outputs: Outputs,
    /// Makes the subtask run soon, from any thread.
    pub(crate) waker: Waker,
    /// Whether the open epoch is to close.
    pub(crate) closing: bool,
}

impl Chain {
    /// Records that may still be shipped before some channel is full.
    pub(crate) fn room(&self) -> u64 {
        let channels = self.exchanges.iter().flat_map(|exchange| &exchange.credits);
        channels.map(|channel| channel.room()).min().unwrap_or(u64::MAX)
    }

    /// Asks the full channels to wake us, and says how much room there is after that.
    pub(crate) fn wait_for_room(&self) -> u64 {
        let channels = self.exchanges.iter().flat_map(|exchange| &exchange.credits);
        channels.filter(|channel| channel.room() == 0).map(|channel| channel.wait()).min().unwrap_or(u64::MAX)
    }

    /// Gives a batch or a mark to the operator at `position`.
    pub(crate) fn offer(&mut self, position: usize, input: usize, channel: usize, element: Element) {
        self.cells[position].waiting.push_back(Waiting { input, channel, element });
    }

    /// Whether there is something to do for some operator.
    pub(crate) fn has_work(&self) -> bool {
        self.cells.iter().any(|cell| cell.has_work(self.closing))
    }

    /// Whether records wait at an operator that takes none now.
    pub(crate) fn is_blocked(&self) -> bool {
        self.cells.iter().any(|cell| cell.is_blocked(self.closing))
    }

    /// Whether some operator wants a checkpoint before its time.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        self.cells.iter().any(|cell| cell.instance.look().wants_checkpoint())
    }

    /// Whether some operator has work under way elsewhere.
    pub(crate) fn is_waiting(&self) -> bool {
        self.cells.iter().any(|cell| cell.instance.look().is_waiting())
    }

    /// Lets the operator furthest downstream that has something to do process it. False when none has.
    pub(crate) fn step(&mut self, epoch: Epoch) -> Result<bool, SubtaskError> {
        match self.cells.iter().rposition(|cell| cell.has_work(self.closing)) {
            Some(position) => self.step_at(position, epoch).map(|()| true),
            None => Ok(false),
        }
    }

    fn step_at(&mut self, position: usize, epoch: Epoch) -> Result<(), SubtaskError> {
        let cell = &mut self.cells[position];
        if let Some(mark) = cell.marks.front().copied() {
            return self.take_mark(position, mark, epoch);
        }
        let Some(Waiting { input, channel, element }) = cell.waiting.pop_front() else { return Ok(()) };
        match element {
            Element::Mark(mark) => {
                let mut heard = Vec::new();
                cell.clock.take(input, channel, mark, &mut heard);
                cell.marks.extend(heard);
            }
            Element::Batch(batch) => {
                let doing = "processing a batch";
                let rest = self.call(position, doing, |operator, context| operator.on_batch(input, batch, context))?;
                if let Some(rest) = rest {
                    let element = Element::Batch(rest);
                    self.cells[position].waiting.push_front(Waiting { input, channel, element });
                }
                self.dispatch(position, epoch);
            }
        }
        Ok(())
    }

    /// Shows a mark to an operator, and passes it on once the operator has done all that was due (WM-18).
    fn take_mark(&mut self, position: usize, mark: TimeMark, epoch: Epoch) -> Result<(), SubtaskError> {
        if self.cells[position].instance.look().carries_marks() {
            self.cells[position].marks.pop_front();
            self.call(position, "advancing event time", |operator, context| operator.on_mark(mark, context))?;
            self.dispatch(position, epoch);
            return Ok(());
        }
        let assigns_time = self.cells[position].instance.operator().assigns_time();
        if assigns_time && mark != TimeMark::Watermark(MAX_WATERMARK) {
            self.cells[position].marks.pop_front();
            return Ok(());
        }
        let mut advance = Advance::Done;
        if let TimeMark::Watermark(watermark) = mark {
            let doing = "advancing event time";
            advance = self.call(position, doing, |operator, context| {
                // Of several marks that wait, the operator hears one at a time.
                context.watermark = watermark;
                operator.on_watermark(watermark, context)
            })?;
        }
        if advance == Advance::More {
            self.dispatch(position, epoch);
            return Ok(());
        }
        self.cells[position].marks.pop_front();
        if assigns_time {
            self.dispatch(position, epoch);
            self.end_time(position, epoch);
        } else {
            self.outputs.mark(mark);
            self.dispatch(position, epoch);
        }
        Ok(())
    }

    /// The operator at `position` emits no record any more: its last watermark goes out, once (TM-15).
    pub(crate) fn end_time(&mut self, position: usize, epoch: Epoch) {
        let told = &self.cells[position].told;
        if told.last {
            return;
        }
        if told.idle {
            self.outputs.mark(TimeMark::Active);
        }
        self.outputs.mark(TimeMark::Watermark(MAX_WATERMARK));
        self.dispatch(position, epoch);
    }

    /// When the first of the operators wants to be called, in processing time.
    pub(crate) fn wake_at(&self) -> Option<i64> {
        self.cells.iter().filter_map(|cell| cell.instance.look().wake_at()).min()
    }

    /// Calls the operators whose time has come. What they emit waits in the chain.
    pub(crate) fn on_clock(&mut self, now_ms: i64, epoch: Epoch) -> Result<(), SubtaskError> {
        for position in 0..self.cells.len() {
            let wake_at = self.cells[position].instance.operator().wake_at();
            if wake_at.is_some_and(|at| at <= now_ms) {
                self.call(position, "firing timers", |operator, context| operator.on_clock(context))?;
                self.dispatch(position, epoch);
            }
        }
        Ok(())
    }

    /// After the end of the stream: lets operators whose side effects are on their way look after them. Whether there
    /// are any left.
    pub(crate) fn commit(&mut self, epoch: Epoch) -> Result<bool, SubtaskError> {
        let mut committing = false;
        for position in 0..self.cells.len() {
            if self.cells[position].instance.look().is_committing() {
                self.call(position, "committing", |operator, context| operator.on_clock(context))?;
                self.dispatch(position, epoch);
                committing |= self.cells[position].instance.look().is_committing();
            }
        }
        Ok(committing)
    }

    /// Tells every operator that nothing waits.
    pub(crate) fn on_lull(&mut self, epoch: Epoch) -> Result<(), SubtaskError> {
        for position in 0..self.cells.len() {
            self.call(position, "waiting", |operator, context| operator.on_lull(context))?;
            self.dispatch(position, epoch);
        }
        Ok(())
    }

    /// Processes everything that waits, whatever the room, and whether or not its operator takes input now.
    pub(crate) fn drain(&mut self, epoch: Epoch) -> Result<(), SubtaskError> {
        let has_any = |cell: &Cell| !cell.waiting.is_empty() || !cell.marks.is_empty();
        while let Some(position) = self.cells.iter().rposition(has_any) {
            self.step_at(position, epoch)?;
        }
        Ok(())
    }

    /// Tells the operator at `position` that its input has ended.
    pub(crate) fn end(&mut self, position: usize, epoch: Epoch) -> Result<(), SubtaskError> {
        self.call(position, "ending", |operator, context| operator.on_end(context))?;
        self.dispatch(position, epoch);
        Ok(())
    }

    /// Whether some receiver is so slow that batches should not be held back until they are full.
    pub(crate) fn has_short_queues(&self) -> bool {
        let mut channels = self.exchanges.iter().flat_map(|exchange| &exchange.credits);
        channels.any(|channel| channel.limit_records() < 4 * BATCH_RECORDS as u64)
    }

    /// Bytes that may still be shipped before some channel is full.
    pub(crate) fn room_bytes(&self) -> u64 {
        let channels = self.exchanges.iter().flat_map(|exchange| &exchange.credits);
        channels.map(|channel| channel.room_bytes()).min().unwrap_or(u64::MAX)
    }

    /// Asks the source at the head for records; says how many came, and roughly how many bytes.
    pub(crate) fn poll_source(&mut self, limit: usize, epoch: Epoch) -> Result<(SourceStatus, u64, u64), SubtaskError> {
        let Chain { cells, outputs, clock: time, waker, .. } = self;
        let Cell { info, instance, states, clock, gauge, .. } = &mut cells[0];
        let watermark = clock.watermark();
        let Instance::Source(source) = instance else { return Ok((SourceStatus::Exhausted, 0, 0)) };
        let mut context = OperatorContext { info, states, outputs, clock: time, watermark, gauge, waker };
        let status = guard(info, "reading", || source.poll(limit, &mut context))?;
        let (records, bytes) = (self.outputs.records() as u64, self.outputs.estimate_bytes() as u64);
        self.dispatch(0, epoch);
        Ok((status, records, bytes))
    }

    /// Calls `action` on every operator in order; what one emits reaches the next before its turn.
    pub(crate) fn for_each_operator(
        &mut self,
        epoch: Epoch,
        doing: &'static str,
        mut action: impl FnMut(&mut dyn Operator, &mut OperatorContext<'_>) -> UserResult,
    ) -> Result<(), SubtaskError> {
        for position in 0..self.cells.len() {
            self.call(position, doing, &mut action)?;
            self.dispatch(position, epoch);
            self.drain(epoch)?;
        }
        Ok(())
    }

    /// Ships what the exchanges hold back to fill batches.
    pub(crate) fn flush(&mut self, epoch: Epoch) {
        let Chain { exchanges, outbox, .. } = self;
        for exchange in exchanges {
            let Exchange { edge, partition, credits, .. } = exchange;
            partition.flush(&mut |receiver, batch| ship(outbox, credits, *edge, receiver, epoch, batch.into()));
        }
    }

    fn call<R>(
        &mut self,
        position: usize,
        doing: &'static str,
        action: impl FnOnce(&mut dyn Operator, &mut OperatorContext<'_>) -> UserResult<R>,
    ) -> Result<R, SubtaskError> {
        let Chain { cells, outputs, clock: time, waker, .. } = self;
        let Cell { info, instance, states, clock, gauge, .. } = &mut cells[position];
        let watermark = clock.watermark();
        let mut context = OperatorContext { info, states, outputs, clock: time, watermark, gauge, waker };
        guard(info, doing, || action(instance.operator(), &mut context))
    }

    /// Keeps keyed state within its share of the memory.
    pub(crate) fn keep_budget(&mut self) -> Result<Memory, SubtaskError> {
        let Memory { mut pressure, mut parts, mut spills } = Memory::default();
        for Cell { info, instance, .. } in &mut self.cells {
            let Some(keyed) = instance.operator().keyed() else { continue };
            let own = guard(info, "keeping state within memory", || Ok(keyed.keep_budget()?))?;
            parts |= keyed.frozen_parts() > 0;
            spills |= keyed.spills();
            pressure = match (pressure, own) {
                (Pressure::Busy, _) | (_, Pressure::Busy) => Pressure::Busy,
                (Pressure::Full, _) | (_, Pressure::Full) => Pressure::Full,
                (Pressure::Fine, Pressure::Fine) => Pressure::Fine,
            };
        }
        Ok(Memory { pressure, parts, spills })
    }

    /// Whether some operator has a frozen part.
    pub(crate) fn has_parts(&mut self) -> bool {
        self.cells.iter_mut().filter_map(|cell| cell.instance.operator().keyed()).any(|keyed| keyed.frozen_parts() > 0)
    }

    /// Moves what the operator at `position` has produced to where its ports lead.
    fn dispatch(&mut self, position: usize, epoch: Epoch) {
        let Chain { cells, exchanges, outbox, outputs, .. } = self;
        for (port, element) in outputs.drain() {
            if let Element::Mark(mark) = element {
                cells[position].told.hear(mark);
                if let TimeMark::Watermark(watermark) = mark {
                    cells[position].gauge.reached(watermark);
                }
                let ports = std::mem::take(&mut cells[position].destinations);
                for destination in ports.iter().flatten() {
                    deliver(*destination, Element::Mark(mark), cells, exchanges, outbox, epoch);
                }
                cells[position].destinations = ports;
                continue;
            }
            let destinations = cells[position].destinations.get(port).cloned().unwrap_or_default();
            let Some((last, others)) = destinations.split_last() else { continue };
            for destination in others {
                deliver(*destination, element.clone(), cells, exchanges, outbox, epoch);
            }
            deliver(*last, element, cells, exchanges, outbox, epoch);
        }
    }
}

impl Told {
    fn hear(&mut self, mark: TimeMark) {
        match mark {
            TimeMark::Watermark(watermark) => self.last |= watermark == MAX_WATERMARK,
            TimeMark::Idle => self.idle = true,
            TimeMark::Active => self.idle = false,
        }
    }
}

fn deliver(
    destination: Destination,
    element: Element,
    cells: &mut [Cell],
    exchanges: &mut [Exchange],
    outbox: &mut Vec<Shipment>,
    epoch: Epoch,
) {
    match (destination, element) {
        (Destination::Local { position, input }, element) => {
            cells[position].waiting.push_back(Waiting { input, channel: 0, element });
        }
        (Destination::Exchange(edge), element) => {
            let exchange = exchanges.iter_mut().find(|exchange| exchange.edge == edge);
            let Some(exchange) = exchange else { return };
            exchange.send(element, epoch, outbox);
        }
    }
}

impl Exchange {
    /// Sends a batch to whom it belongs, and a mark to all, behind the records that are held back.
    fn send(&mut self, element: Element, epoch: Epoch, outbox: &mut Vec<Shipment>) {
        let Exchange { edge, partition, credits, only } = self;
        let mut ship = |receiver, element| ship(outbox, credits, *edge, receiver, epoch, element);
        match element {
            Element::Batch(batch) => partition.route(batch, &mut |receiver, batch| ship(receiver, batch.into())),
            Element::Mark(mark) => {
                partition.flush(&mut |receiver, batch| ship(receiver, batch.into()));
                let receivers = match only {
                    Some(only) => *only..*only + 1,
                    None => 0..credits.len() as u32,
                };
                receivers.for_each(|receiver| ship(receiver, Element::Mark(mark)));
            }
        }
    }
}

fn ship(
    outbox: &mut Vec<Shipment>,
    credits: &[Arc<ChannelCredits>],
    edge: EdgeIndex,
    receiver: u32,
    epoch: Epoch,
    element: Element,
) {
    if !element.is_empty() {
        credits[receiver as usize].sent(element.len() as u64, element.estimate_bytes() as u64);
    }
    outbox.push(Shipment { edge, receiver, epoch, element });
}

/// The border of user code.
pub(crate) fn guard<R>(
    info: &SubtaskInfo,
    doing: &'static str,
    action: impl FnOnce() -> UserResult<R>,
) -> Result<R, SubtaskError> {
    let cause = match catch_unwind(AssertUnwindSafe(action)) {
        Ok(Ok(result)) => return Ok(result),
        Ok(Err(error)) => Cause::Error(error),
        Err(payload) => Cause::Panic(panic_message(payload.as_ref())),
    };
    Err(SubtaskError {
        operator: info.operator.to_string(),
        index: info.index,
        parallelism: info.parallelism,
        doing,
        cause,
    })
}
