//! The timely dataflow of one worker: one timely operator per chain.

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use millpond_checkpoint::SubtaskId;
use millpond_core::{CodecError, Epoch};
use millpond_dataflow::Element;
use millpond_dataflow::batch::DecodeBatch;
use millpond_dataflow::plan::{ChainPlan, EdgeIndex, Plan};
use millpond_runtime::{Progress, RunLimits, Subtask, SubtaskError};
use timely::dataflow::channels::pact::{DistributorPact, ParallelizationContract};
use timely::dataflow::channels::pushers::Output;
use timely::dataflow::operators::Capability;
use timely::dataflow::operators::generic::InputHandleCore;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::dataflow::{Scope, Stream};
use timely::progress::frontier::MutableAntichain;
use timely::scheduling::activate::Activator;
use timely::worker::Worker;

use crate::error::EngineError;
use crate::event::EngineEvent;
use crate::parcel::{ByReceiver, Content, Parcel};
use crate::pause::PauseGate;
use crate::upload::UploadQueue;
use crate::worker::Execution;

/// How soon a source that had nothing is asked again.
const IDLE_POLL: Duration = Duration::from_millis(2);
/// How soon a subtask looks again that waits for rows to leave memory.
const MEMORY_POLL: Duration = Duration::from_millis(1);
/// How soon a subtask without room looks again, should a wake-up be lost.
const GATED_POLL: Duration = Duration::from_millis(50);

/// The longest wait for a time that an operator has asked for.
const LONGEST_WAIT_MS: i64 = 1_000;

type Pact = DistributorPact<fn(usize) -> ByReceiver>;
type Puller = <Pact as ParallelizationContract<u64, Parcel>>::Puller;

/// Builds the dataflow: every worker builds the same operators, with or without a subtask in them.
pub(crate) fn build_dataflow(
    worker: &mut Worker,
    plan: &Arc<Plan>,
    subtasks: Vec<Option<Subtask>>,
    execution: &Arc<Execution>,
) {
    let index = worker.index() as u32;
    worker.dataflow::<u64, _, _>(|scope| {
        let mut streams: Vec<Option<Stream<'_, u64, Parcel>>> = plan.edges.iter().map(|_| None).collect();
        for (chain_index, subtask) in subtasks.into_iter().enumerate() {
            let chain = &plan.chains[chain_index];
            build_chain(scope, chain_index, chain, index, subtask, plan, &mut streams, execution);
        }
    });
}

#[expect(clippy::too_many_arguments, reason = "one call site; a struct would only rename the arguments")]
fn build_chain<'scope>(
    scope: Scope<'scope, u64>,
    chain_index: usize,
    chain: &ChainPlan,
    index: u32,
    mut subtask: Option<Subtask>,
    plan: &Arc<Plan>,
    streams: &mut [Option<Stream<'scope, u64, Parcel>>],
    execution: &Arc<Execution>,
) {
    let mut builder = OperatorBuilder::new(format!("chain-{chain_index}"), scope);
    let mut inputs = Vec::new();
    for edge in &chain.inputs {
        if let Some(stream) = streams[edge.0].take() {
            let pact: Pact = DistributorPact(|_| ByReceiver);
            let decode = plan.edges[edge.0].decode;
            inputs.push(Inlet { edge: *edge, decode, handle: builder.new_input(stream, pact) });
        }
    }
    let mut outputs = Vec::new();
    for edge in &chain.outputs {
        let (output, stream) = builder.new_output::<Parcel>();
        streams[edge.0] = Some(stream);
        outputs.push((*edge, output));
    }
    let address = builder.operator_info().address;
    let activator = scope.activator_for(std::rc::Rc::clone(&address));
    if let Some(subtask) = &mut subtask {
        let waker = scope.worker().sync_activator_for(address.to_vec());
        execution.control.register(chain_index, index, waker);
        let control = Arc::clone(&execution.control);
        let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(move || control.wake(chain_index, index));
        subtask.open_to_queries(&execution.spec.queries, &wake);
        subtask.show_time(&execution.spec.times);
        subtask.set_waker(Waker::from(Arc::new(WakeSubtask(wake))));
    }
    let (plan, execution) = (Arc::clone(plan), Arc::clone(execution));
    builder.build_reschedule(move |capabilities| {
        let mut vertex = subtask.map(|subtask| Vertex {
            id: subtask.id(),
            subtask,
            inputs,
            outputs: outputs
                .into_iter()
                .zip(capabilities)
                .map(|((edge, output), capability)| Outlet { edge, output, capability: Some(capability) })
                .collect(),
            uploads: execution.upload_queue(),
            activator,
            plan,
            execution: Arc::clone(&execution),
            // Few records until it is known how long one takes.
            limits: RunLimits { batches: 1, poll_records: 16, ..RunLimits::default() },
            told_exhausted: false,
            records_seen: 0,
            state_size: (0, 0),
            pace: Pace::default(),
            timer: None,
            blocked: None,
            wanted_in: Epoch::ZERO,
        });
        move |frontiers: &[MutableAntichain<u64>]| {
            let Some(running) = &mut vertex else { return false };
            if execution.control.is_aborted() {
                vertex = None;
                return false;
            }
            match running.step(frontiers) {
                Ok(alive) => alive,
                Err(error) => {
                    execution.fail(EngineError::Subtask(error));
                    vertex = None;
                    false
                }
            }
        }
    });
}

/// Wakes a subtask from another thread.
struct WakeSubtask(Arc<dyn Fn() + Send + Sync>);

impl Wake for WakeSubtask {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

struct Inlet {
    edge: EdgeIndex,
    decode: DecodeBatch,
    handle: InputHandleCore<u64, Parcel, Puller>,
}

struct Outlet {
    edge: EdgeIndex,
    output: Output<u64, Parcel>,
    /// At the open epoch or below; gone when the stream has ended.
    capability: Option<Capability<u64>>,
}

/// A subtask inside its timely operator.
struct Vertex {
    id: SubtaskId,
    subtask: Subtask,
    inputs: Vec<Inlet>,
    outputs: Vec<Outlet>,
    uploads: Option<UploadQueue>,
    activator: Activator,
    plan: Arc<Plan>,
    execution: Arc<Execution>,
    limits: RunLimits,
    told_exhausted: bool,
    records_seen: u64,
    state_size: (u64, u64),
    pace: Pace,
    /// When the timer that was set last is due.
    timer: Option<Instant>,
    /// Since when an operator has waited for work of its own, and taken no records.
    blocked: Option<Instant>,
    /// The epoch in which a checkpoint was asked for last.
    wanted_in: Epoch,
}

impl Vertex {
    /// One activation. False when the subtask is done for good.
    fn step(&mut self, frontiers: &[MutableAntichain<u64>]) -> Result<bool, SubtaskError> {
        self.receive()?;
        if !frontiers.is_empty() {
            let open = frontiers.iter().filter_map(|frontier| frontier.frontier().first().copied());
            self.subtask.set_frontier(open.min().map(Epoch));
        }
        let control = Arc::clone(&self.execution.control);
        // Read first: whoever sees the end also sees the last completed epoch, and commits it.
        let is_finished = control.is_finished();
        self.subtask.control(control.current_trigger(), control.completed());
        let before = self.subtask.open_epoch();
        let execution = Arc::clone(&self.execution);
        let mut gate = PauseGate::new(&execution.spec.pauses);
        let started = Instant::now();
        let progress = self.subtask.run(&self.limits, &mut gate)?;
        self.ship()?;
        self.account(started, before);
        match progress {
            Progress::Ready => self.activator.activate(),
            Progress::Gated if self.subtask.waits_for_memory() => self.look_again_after(MEMORY_POLL),
            Progress::Gated => self.look_again_after(GATED_POLL),
            Progress::Idle if self.subtask.is_source() && !self.subtask.source_exhausted() => {
                self.look_again_after(IDLE_POLL);
            }
            Progress::Idle => self.look_again_at_wake_time(),
            Progress::Ended => return Ok(!is_finished),
        }
        Ok(true)
    }

    /// Looks again when an operator wants to be called.
    fn look_again_at_wake_time(&mut self) {
        if let Some(at) = self.subtask.wake_at() {
            let ms = at.saturating_sub(self.execution.spec.clock.now_ms());
            // At most so long: the clock may be set.
            self.look_again_after(Duration::from_millis(ms.clamp(1, LONGEST_WAIT_MS) as u64));
        }
    }

    /// Sets a timer, unless one that is soon enough is running: timers cannot be taken back, and each wake-up
    /// from elsewhere would add one for good.
    fn look_again_after(&mut self, delay: Duration) {
        let now = Instant::now();
        let due = now + delay;
        if self.timer.is_none_or(|timer| timer <= now || timer > due) {
            self.timer = Some(due);
            self.activator.activate_after(delay);
        }
    }

    fn receive(&mut self) -> Result<(), SubtaskError> {
        let mut failure = None;
        let subtask = &mut self.subtask;
        for inlet in &mut self.inputs {
            let (edge, decode) = (inlet.edge, inlet.decode);
            inlet.handle.for_each(|capability, parcel| {
                let epoch = Epoch(capability.least().copied().unwrap_or(0));
                let Parcel { sender, content, .. } = std::mem::take(parcel);
                match content {
                    Content::Element(element) => subtask.receive(edge, sender, epoch, element),
                    Content::Encoded(bytes) => match Element::decode(&bytes, decode) {
                        Ok(_) if !subtask.hears(edge, sender) => {
                            let reason = format!("there is no sender {sender}");
                            failure = Some(CodecError::Decode { type_name: "a parcel", bytes: bytes.len(), reason });
                        }
                        Ok(element) => subtask.receive(edge, sender, epoch, element),
                        Err(error) => failure = Some(error),
                    },
                    Content::Empty => {}
                }
            });
        }
        match failure {
            None => Ok(()),
            Some(error) => Err(self.subtask.error("reading a batch from the wire", error.into())),
        }
    }

    /// Sends what the subtask has produced, then moves the capabilities to the open epoch.
    fn ship(&mut self) -> Result<(), SubtaskError> {
        let sender = self.id.index;
        let mut failure = None;
        let geography = self.execution.geography;
        for shipment in self.subtask.take_shipments() {
            let outlet = self.outputs.iter_mut().find(|outlet| outlet.edge == shipment.edge);
            let Some(Outlet { output, capability: Some(capability), .. }) = outlet else { continue };
            let content = if geography.is_here(shipment.receiver) {
                Content::Element(shipment.element)
            } else {
                match shipment.element.encode() {
                    Ok(bytes) => Content::Encoded(bytes.into()),
                    Err(error) => {
                        failure = Some(error);
                        break;
                    }
                }
            };
            let mut parcel = Parcel { sender, receiver: shipment.receiver, content };
            if *capability.time() == shipment.epoch.0 {
                output.activate().give(capability, &mut parcel);
            } else {
                let at_epoch = capability.delayed(&shipment.epoch.0);
                output.activate().give(&at_epoch, &mut parcel);
            }
        }
        if let Some(error) = failure {
            // At once: the epoch must not look whole to anybody.
            return Err(self.subtask.error("writing a batch for another process", error.into()));
        }
        let (open, ended) = (self.subtask.open_epoch(), self.subtask.has_ended());
        for outlet in &mut self.outputs {
            if ended {
                outlet.capability = None;
            } else if let Some(capability) = &mut outlet.capability
                && *capability.time() < open.0
            {
                capability.downgrade(&open.0);
            }
        }
        for snapshot in self.subtask.take_snapshots() {
            self.execution.store(self.uploads.as_ref(), self.id, snapshot);
        }
        for (edge, far) in self.subtask.take_wakes() {
            self.execution.wake_sender(&self.plan, edge, far, sender);
        }
        Ok(())
    }

    /// Counters, and how much may lie in the queue.
    fn account(&mut self, started: Instant, before: Epoch) {
        let records = self.subtask.records_in();
        let new_records = records - self.records_seen;
        self.records_seen = records;
        // Waiting for work done elsewhere makes a subtask slow as well.
        let busy = self.blocked.take().unwrap_or(started).elapsed();
        if self.subtask.is_blocked() {
            self.blocked = Some(Instant::now());
        }
        if new_records > 0 {
            self.limits = limits_for(new_records, busy);
        }
        if self.subtask.is_source() {
            self.execution.add_source_records(new_records);
            if self.subtask.source_exhausted() && !self.told_exhausted {
                self.told_exhausted = true;
                self.execution.source_exhausted(&self.plan);
            }
        } else if let Some(limit) = self.pace.limit(new_records, busy, &self.execution) {
            self.subtask.set_queue_limit(limit);
        }
        // Asked once per epoch: what was asked for may be given up.
        if self.subtask.wants_checkpoint() && self.wanted_in < self.subtask.open_epoch() {
            self.wanted_in = self.subtask.open_epoch();
            self.execution.tell(EngineEvent::CheckpointWanted);
        }
        if self.subtask.open_epoch() != before || (new_records > 0 && self.state_size == (0, 0)) {
            let size = self.subtask.state_size();
            self.execution.resize_state(self.state_size, size);
            self.state_size = size;
        }
    }
}

/// One activation of a subtask shall take about this long at most: triggers and the abort flag are looked at
/// in between.
const STEP_TIME: Duration = Duration::from_millis(10);

/// How much to do in the next activation, after `records` took `busy`.
fn limits_for(records: u64, busy: Duration) -> RunLimits {
    let most = RunLimits::default();
    let per_step = records as f64 * STEP_TIME.as_secs_f64() / busy.as_secs_f64().max(1e-9);
    let per_step = (per_step as usize).clamp(1, most.batches * most.poll_records);
    let poll_records = per_step.min(most.poll_records);
    RunLimits { batches: (per_step / poll_records).max(1), poll_records, ..most }
}

/// How fast a subtask processes records, to bound the time that records wait in front of it.
///
/// A slow subtask gets a short queue, so that a barrier reaches it soon; this is what Flink calls buffer
/// debloating.
#[derive(Default)]
struct Pace {
    records: u64,
    busy: Duration,
    limit: u64,
}

/// Records may wait about this long in front of a subtask.
const QUEUE_TIME: Duration = Duration::from_millis(100);
/// The shortest queue.
const MIN_QUEUE_RECORDS: u64 = 32;
/// Busy time over which the pace is measured.
const PACE_WINDOW: Duration = Duration::from_millis(20);

impl Pace {
    /// The new queue limit in records, when it has changed much.
    fn limit(&mut self, records: u64, busy: Duration, execution: &Execution) -> Option<u64> {
        self.records += records;
        self.busy += busy;
        if self.busy < PACE_WINDOW || self.records == 0 {
            return None;
        }
        let per_queue_time = self.records as f64 * QUEUE_TIME.as_secs_f64() / self.busy.as_secs_f64();
        (self.records, self.busy) = (0, Duration::ZERO);
        let most = execution.spec.flow.records;
        let limit = (per_queue_time as u64).clamp(MIN_QUEUE_RECORDS.min(most), most);
        let before = if self.limit == 0 { most } else { self.limit };
        let changed = limit > before.saturating_mul(5) / 4 || limit < before.saturating_mul(4) / 5;
        if changed || (limit == most && before != most) {
            self.limit = limit;
            return Some(limit);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_subtask_takes_few_records_at_a_time_and_a_fast_one_all_it_may() {
        let slow = limits_for(10, Duration::from_secs(1));
        assert_eq!((slow.batches, slow.poll_records), (1, 1));
        let middling = limits_for(1_000, Duration::from_millis(100));
        assert_eq!((middling.batches, middling.poll_records), (1, 100));
        let fast = limits_for(8_192, Duration::from_micros(500));
        assert_eq!((fast.batches, fast.poll_records), (8, 1_024));
    }
}
