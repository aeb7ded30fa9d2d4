//! The subtasks of one attempt, stepped one at a time. What the engine does on threads, done by hand.
//!
//! Owns subtasks, channels between them and the wishes of the coordinator. Does *not* decide who steps
//! next, and knows nothing of storage: snapshots are handed out as they come from the subtasks.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use millpond_checkpoint::SubtaskId;
use millpond_core::{Attempt, Clock, Epoch, MaxParallelism, UserResult};
use millpond_dataflow::align::{AlignmentGroup, AlignmentGroups};
use millpond_dataflow::context::OncePerAttempt;
use millpond_dataflow::plan::{ChainIndex, EdgeIndex, Plan};
use millpond_dataflow::{AttemptEnd, Dataflow, Element, Graph};
use millpond_runtime::{
    EndKind, FlowLimits, Gate, Progress, RestorePoint, RunLimits, Subtask, SubtaskSnapshot, SubtaskSpec, Trigger,
};

use millpond_state::ColdBacking;

use crate::bell::Bell;
use crate::error::SimError;
use crate::network::{Message, Network};

/// The function that describes a job.
pub(crate) type Job<'a> = &'a dyn Fn(&mut Dataflow) -> UserResult;

/// Everything from which an execution is made.
pub(crate) struct ExecutionSpec<'a> {
    pub(crate) job: Job<'a>,
    pub(crate) workers: u32,
    pub(crate) max_parallelism: MaxParallelism,
    pub(crate) attempt: Attempt,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) restore: Option<&'a RestorePoint>,
    pub(crate) flow: FlowLimits,
    /// Where keyed state goes that does not fit into memory.
    pub(crate) cold: Option<ColdBacking>,
    /// Whether batches are encoded and decoded on their way, as between processes.
    pub(crate) wire: bool,
}

/// One subtask with what is known about it.
pub(crate) struct Place {
    pub(crate) id: SubtaskId,
    pub(crate) subtask: Subtask,
    /// Snapshots on their way to storage, oldest first.
    pub(crate) snapshots: VecDeque<SubtaskSnapshot>,
    /// What it wanted after its last step.
    pub(crate) progress: Progress,
    /// Whether something has happened since that it should look at.
    pub(crate) awake: bool,
    /// The epoch in which it wanted a checkpoint last.
    wanted_in: Epoch,
}

/// The subtasks of one attempt.
pub(crate) struct Execution {
    pub(crate) plan: Plan,
    pub(crate) places: Vec<Place>,
    pub(crate) network: Network,
    trigger: Epoch,
    end: Option<(Epoch, EndKind)>,
    completed: Epoch,
    wire: bool,
    /// Rings when work that operators have elsewhere is done.
    pub(crate) bell: Arc<Bell>,
}

impl Execution {
    /// Builds the job once per worker and opens all subtasks.
    pub(crate) fn build(spec: &ExecutionSpec<'_>) -> Result<Execution, SimError> {
        spec.max_parallelism.check(spec.workers)?;
        let first = Dataflow::build(|flow| (spec.job)(flow))?;
        let plan = Plan::new(&first, spec.workers, spec.max_parallelism);
        if let Some(restore) = spec.restore {
            restore.check(&plan)?;
        }
        let restored = spec.restore.map_or(Epoch::ZERO, RestorePoint::epoch);
        let network = Network::new(&plan, spec.flow, restored.next());
        let once = Once::default();
        let mut places = Vec::new();
        let mut graph = Some(first);
        for worker in 0..spec.workers {
            let graph = match graph.take() {
                Some(graph) => graph,
                None => Dataflow::build(|flow| (spec.job)(flow))?,
            };
            if Plan::new(&graph, spec.workers, spec.max_parallelism).to_text() != plan.to_text() {
                return Err(SimError::Plan { worker });
            }
            open_worker(worker, graph, &plan, &network, spec, &once, &mut places)?;
        }
        places.sort_by_key(|place: &Place| place.id);
        let bell = Arc::new(Bell::default());
        places.iter_mut().for_each(|place| place.subtask.set_waker(Waker::from(Arc::clone(&bell))));
        let (trigger, end, wire) = (Epoch::ZERO, None, spec.wire);
        Ok(Execution { plan, places, network, trigger, end, completed: restored, wire, bell })
    }

    /// Everybody who acknowledges.
    pub(crate) fn subtasks(&self) -> BTreeSet<SubtaskId> {
        self.places.iter().map(|place| place.id).collect()
    }

    /// Sources shall close every epoch up to `epoch`; with `end`, the stream ends there.
    pub(crate) fn trigger(&mut self, epoch: Epoch, end: Option<EndKind>) {
        self.trigger = self.trigger.max(epoch);
        if let Some(end) = end {
            self.end = Some((epoch, end));
        }
        self.wake_all();
    }

    /// `epoch` is durable.
    pub(crate) fn complete(&mut self, epoch: Epoch) {
        self.completed = self.completed.max(epoch);
        self.wake_all();
    }

    /// The newest durable epoch, as the subtasks are told.
    pub(crate) fn completed(&self) -> Epoch {
        self.completed
    }

    /// Everybody looks again.
    pub(crate) fn wake_all(&mut self) {
        self.places.iter_mut().for_each(|place| place.awake = true);
    }

    /// What the engine's timers do: idle sources, subtasks without room, and those whose time has come look again.
    pub(crate) fn wake_pollers(&mut self, now_ms: i64) {
        for place in &mut self.places {
            let idle = place.progress == Progress::Idle;
            let due = idle && place.subtask.wake_at().is_some_and(|at| at <= now_ms);
            let polls = due || place.progress == Progress::Gated || (idle && place.is_source());
            place.awake |= polls;
        }
    }

    /// Lets one subtask work.
    pub(crate) fn step(&mut self, at: usize, limits: &RunLimits) -> Result<Progress, SimError> {
        let trigger = Trigger {
            epoch: self.trigger,
            end: self.end.filter(|(epoch, _)| *epoch == self.trigger).map(|(_, end)| end),
        };
        let place = &mut self.places[at];
        let chain = &self.plan.chains[place.id.chain as usize];
        let subtask = &mut place.subtask;
        if !subtask.is_source() {
            subtask.set_frontier(self.network.frontier(&chain.inputs, place.id.index));
        }
        subtask.control(trigger, self.completed);
        place.progress = subtask.run(limits, &mut NoGate)?;
        place.awake = place.progress == Progress::Ready;
        let sender = place.id.index;
        for shipment in subtask.take_shipments() {
            self.network.send(shipment.edge, sender, shipment.receiver, shipment.epoch, shipment.element)?;
        }
        let frontier = (!subtask.has_ended()).then(|| subtask.open_epoch());
        for edge in &chain.outputs {
            self.network.announce(*edge, sender, frontier);
        }
        place.snapshots.extend(subtask.take_snapshots());
        let progress = place.progress;
        let wakes: Vec<_> = subtask.take_wakes().collect();
        for (edge, sender) in wakes {
            self.wake(self.plan.edges[edge.0].from, sender);
        }
        Ok(progress)
    }

    fn wake(&mut self, chain: ChainIndex, index: u32) {
        let id = SubtaskId { chain: chain.0 as u32, index };
        if let Ok(at) = self.places.binary_search_by_key(&id, |place| place.id) {
            self.places[at].awake = true;
        }
    }

    /// Brings the oldest message of a channel to its receiver. Says who got what.
    pub(crate) fn deliver(&mut self, channel: usize) -> Result<Option<(EdgeIndex, u32, u32)>, SimError> {
        let Some((edge, sender, receiver, message)) = self.network.pop(channel) else { return Ok(None) };
        let plan = &self.plan.edges[edge.0];
        let id = SubtaskId { chain: plan.to.0 as u32, index: receiver };
        let lost =
            |error: millpond_core::CodecError| SimError::Network(format!("a batch is lost on the wire: {error}"));
        if let Ok(at) = self.places.binary_search_by_key(&id, |place| place.id) {
            let place = &mut self.places[at];
            place.awake = true;
            if let Message::Element(epoch, mut element) = message {
                if self.wire {
                    element = Element::decode(&element.encode().map_err(lost)?, plan.decode).map_err(lost)?;
                }
                place.subtask.receive(edge, sender, epoch, element);
            }
        }
        Ok(Some((edge, sender, receiver)))
    }

    /// Whether a subtask wants a checkpoint before its time; said once per epoch.
    pub(crate) fn wants_checkpoint(&mut self, at: usize) -> bool {
        let place = &mut self.places[at];
        let open = place.subtask.open_epoch();
        let wants = place.wanted_in < open && place.subtask.wants_checkpoint();
        if wants {
            place.wanted_in = open;
        }
        wants
    }

    /// Whether all sources have nothing more to give.
    pub(crate) fn sources_exhausted(&self) -> bool {
        let mut sources = self.places.iter().filter(|place| place.is_source());
        sources.all(|place| place.subtask.source_exhausted())
    }

    /// Whether some operator has work under way elsewhere.
    pub(crate) fn is_waiting(&self) -> bool {
        self.places.iter().any(|place| place.subtask.is_waiting())
    }

    /// Whether every subtask has ended and done all it had to, with everything it was told.
    pub(crate) fn has_ended(&self) -> bool {
        self.places.iter().all(|place| place.progress == Progress::Ended && !place.awake)
    }
}

impl Place {
    fn is_source(&self) -> bool {
        self.subtask.is_source()
    }
}

fn open_worker(
    worker: u32,
    graph: Graph,
    plan: &Plan,
    network: &Network,
    spec: &ExecutionSpec<'_>,
    once: &Once,
    places: &mut Vec<Place>,
) -> Result<(), SimError> {
    let mut operators: Vec<_> = graph.operators.into_iter().map(Some).collect();
    for (chain_index, chain) in plan.chains.iter().enumerate() {
        if worker >= chain.parallelism {
            continue;
        }
        let own = chain.operators.iter().filter_map(|chained| operators[chained.operator.0].take());
        let subtask = Subtask::build(SubtaskSpec {
            plan,
            chain: ChainIndex(chain_index),
            index: worker,
            operators: own.collect(),
            attempt: spec.attempt,
            clock: Arc::clone(&spec.clock),
            restore: spec.restore,
            once,
            outgoing: chain.outputs.iter().map(|edge| network.from(*edge, worker)).collect(),
            incoming: chain.inputs.iter().map(|edge| network.to(*edge, worker)).collect(),
            snapshots: true,
            cold: spec.cold.as_ref(),
            end: &AttemptEnd::default(),
        })?;
        let id = subtask.id();
        places.push(Place {
            id,
            subtask,
            snapshots: VecDeque::new(),
            progress: Progress::Ready,
            awake: true,
            wanted_in: Epoch::ZERO,
        });
    }
    Ok(())
}

/// Nobody measures pauses here.
struct NoGate;

impl Gate for NoGate {
    fn pause(&mut self) {}

    fn resume(&mut self) {}
}

/// Values that the first subtask to ask computes for all.
#[derive(Default)]
struct Once {
    values: RefCell<BTreeMap<String, Vec<u8>>>,
    alignment: AlignmentGroups,
}

impl OncePerAttempt for Once {
    fn get_or_compute(&self, name: &str, compute: &mut dyn FnMut() -> UserResult<Vec<u8>>) -> UserResult<Vec<u8>> {
        if let Some(bytes) = self.values.borrow().get(name) {
            return Ok(bytes.clone());
        }
        let bytes = compute()?;
        self.values.borrow_mut().insert(name.to_owned(), bytes.clone());
        Ok(bytes)
    }

    fn alignment(&self, group: &str) -> Arc<AlignmentGroup> {
        self.alignment.group(group)
    }
}
