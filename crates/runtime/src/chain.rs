//! The operators of one subtask, and how batches pass between them.
//!
//! Batches wait per operator; the operator furthest downstream that has one goes first, so that little
//! waits inside a chain. User code runs behind a border: its errors and panics become a
//! [`SubtaskError`] that names operator and subtask.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use millpond_core::error::panic_message;
use millpond_core::{Clock, Epoch, UserResult};
use millpond_dataflow::operator::Instance;
use millpond_dataflow::plan::{Destination, EdgeIndex};
use millpond_dataflow::{
    BATCH_RECORDS, BoxBatch, Operator, OperatorContext, Outputs, Partition, SourceStatus, SubtaskInfo,
};
use millpond_state::{OperatorStates, Pressure};

use crate::error::{Cause, SubtaskError};
use crate::flow::ChannelCredits;

/// One operator of the chain, with its state.
pub(crate) struct Cell {
    pub(crate) info: SubtaskInfo,
    pub(crate) instance: Instance,
    pub(crate) states: OperatorStates,
    /// Where each output port leads.
    pub(crate) destinations: Vec<Vec<Destination>>,
    /// Batches that wait, with the input they came from.
    pub(crate) waiting: VecDeque<(usize, BoxBatch)>,
}

/// An exchange that leads out of the chain.
pub(crate) struct Exchange {
    pub(crate) edge: EdgeIndex,
    pub(crate) partition: Box<dyn Partition>,
    /// The channel to each receiver.
    pub(crate) credits: Vec<Arc<ChannelCredits>>,
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

/// A batch on its way to another subtask.
#[derive(Debug)]
pub struct Shipment {
    /// Over which exchange.
    pub edge: EdgeIndex,
    /// To which subtask of the receiving chain.
    pub receiver: u32,
    /// The epoch it belongs to.
    pub epoch: Epoch,
    /// The records.
    pub batch: BoxBatch,
}

/// The operators of one subtask.
pub(crate) struct Chain {
    pub(crate) cells: Vec<Cell>,
    pub(crate) exchanges: Vec<Exchange>,
    pub(crate) outbox: Vec<Shipment>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) outputs: Outputs,
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

    /// Gives a batch to the operator at `position`.
    pub(crate) fn offer(&mut self, position: usize, input: usize, batch: BoxBatch) {
        self.cells[position].waiting.push_back((input, batch));
    }

    /// Whether a batch waits at some operator.
    pub(crate) fn has_work(&self) -> bool {
        self.cells.iter().any(|cell| !cell.waiting.is_empty())
    }

    /// Lets the operator furthest downstream that has a batch process it. False when none has.
    pub(crate) fn step(&mut self, epoch: Epoch) -> Result<bool, SubtaskError> {
        let Some(position) = self.cells.iter().rposition(|cell| !cell.waiting.is_empty()) else {
            return Ok(false);
        };
        if let Some((input, batch)) = self.cells[position].waiting.pop_front() {
            let rest = self
                .call(position, "processing a batch", |operator, context| operator.on_batch(input, batch, context))?;
            if let Some(rest) = rest {
                self.cells[position].waiting.push_front((input, rest));
            }
            self.dispatch(position, epoch);
        }
        Ok(true)
    }

    /// Processes everything that waits, whatever the room.
    pub(crate) fn drain(&mut self, epoch: Epoch) -> Result<(), SubtaskError> {
        while self.step(epoch)? {}
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
        let Cell { info, instance, states, .. } = &mut self.cells[0];
        let Instance::Source(source) = instance else { return Ok((SourceStatus::Exhausted, 0, 0)) };
        let mut context = OperatorContext { info, states, outputs: &mut self.outputs, clock: &self.clock };
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
            let Exchange { edge, partition, credits } = exchange;
            partition.flush(&mut |receiver, batch| ship(outbox, credits, *edge, receiver, epoch, batch));
        }
    }

    fn call<R>(
        &mut self,
        position: usize,
        doing: &'static str,
        action: impl FnOnce(&mut dyn Operator, &mut OperatorContext<'_>) -> UserResult<R>,
    ) -> Result<R, SubtaskError> {
        let Cell { info, instance, states, .. } = &mut self.cells[position];
        let mut context = OperatorContext { info, states, outputs: &mut self.outputs, clock: &self.clock };
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
        for (port, batch) in outputs.drain() {
            let destinations = cells[position].destinations.get(port).cloned().unwrap_or_default();
            let Some((last, others)) = destinations.split_last() else { continue };
            for destination in others {
                deliver(*destination, batch.clone(), cells, exchanges, outbox, epoch);
            }
            deliver(*last, batch, cells, exchanges, outbox, epoch);
        }
    }
}

fn deliver(
    destination: Destination,
    batch: BoxBatch,
    cells: &mut [Cell],
    exchanges: &mut [Exchange],
    outbox: &mut Vec<Shipment>,
    epoch: Epoch,
) {
    match destination {
        Destination::Local { position, input } => cells[position].waiting.push_back((input, batch)),
        Destination::Exchange(edge) => {
            let exchange = exchanges.iter_mut().find(|exchange| exchange.edge == edge);
            let Some(Exchange { partition, credits, .. }) = exchange else { return };
            partition.route(batch, &mut |receiver, batch| ship(outbox, credits, edge, receiver, epoch, batch));
        }
    }
}

fn ship(
    outbox: &mut Vec<Shipment>,
    credits: &[Arc<ChannelCredits>],
    edge: EdgeIndex,
    receiver: u32,
    epoch: Epoch,
    batch: BoxBatch,
) {
    credits[receiver as usize].sent(batch.len() as u64, batch.estimate_bytes() as u64);
    outbox.push(Shipment { edge, receiver, epoch, batch });
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
