//! One worker thread of an attempt.

use std::collections::BTreeSet;
use std::iter::repeat;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use millpond_checkpoint::SubtaskId;
use millpond_core::Epoch;
use millpond_dataflow::Dataflow;
use millpond_dataflow::graph::Graph;
use millpond_dataflow::plan::{ChainIndex, EdgeIndex, Plan};
use millpond_runtime::{ChannelCredits, RestorePoint, Subtask, SubtaskSnapshot, SubtaskSpec};
use timely::worker::Worker;

use crate::control::{Channels, Control, Shared};
use crate::dataflow::build_dataflow;
use crate::error::EngineError;
use crate::event::EngineEvent;
use crate::handle::EngineSpec;
use crate::mesh::{FarCredit, Geography};
use crate::upload::UploadQueue;

/// How long a worker that has nothing to do waits before it looks again at the abort flag.
const PARK: Duration = Duration::from_millis(20);

/// What all workers of an attempt share.
pub(crate) struct Execution {
    pub(crate) spec: EngineSpec,
    pub(crate) control: Arc<Control>,
    pub(crate) geography: Geography,
    /// Where credit for senders in other processes goes, by process; empty before and after.
    far: Mutex<Vec<Option<Sender<FarCredit>>>>,
    uploads: Mutex<Option<UploadQueue>>,
    once: Shared,
    first_plan: OnceLock<String>,
    channels: OnceLock<Channels>,
    /// The sending chain of each exchange.
    senders: OnceLock<Vec<usize>>,
    opened: AtomicU32,
    exhausted: AtomicU32,
    records: AtomicU64,
    entries: AtomicU64,
    bytes: AtomicU64,
}

impl Execution {
    pub(crate) fn new(
        spec: EngineSpec,
        geography: Geography,
        control: Arc<Control>,
        uploads: Option<UploadQueue>,
    ) -> Self {
        control.complete(spec.restore.as_ref().map_or(Epoch::ZERO, RestorePoint::epoch));
        let once = Shared::new(spec.shared.clone());
        Execution {
            spec,
            control,
            geography,
            far: Mutex::default(),
            uploads: Mutex::new(uploads),
            once,
            first_plan: OnceLock::new(),
            channels: OnceLock::new(),
            senders: OnceLock::new(),
            opened: AtomicU32::new(0),
            exhausted: AtomicU32::new(0),
            records: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    pub(crate) fn source_records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    pub(crate) fn add_source_records(&self, records: u64) {
        self.records.fetch_add(records, Ordering::Relaxed);
    }

    pub(crate) fn state_size(&self) -> (u64, u64) {
        (self.entries.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// A subtask's state has grown or shrunk from `before` to `after`.
    pub(crate) fn resize_state(&self, before: (u64, u64), after: (u64, u64)) {
        self.entries.fetch_add(after.0.wrapping_sub(before.0), Ordering::Relaxed);
        self.bytes.fetch_add(after.1.wrapping_sub(before.1), Ordering::Relaxed);
    }

    /// Tells the job manager; after the attempt has ended nobody listens, and that is fine.
    pub(crate) fn tell(&self, event: EngineEvent) {
        let _ = self.spec.events.send(event);
    }

    /// Ends the attempt.
    pub(crate) fn fail(&self, error: EngineError) {
        if !self.control.is_aborted() {
            self.tell(EngineEvent::Failed(error));
        }
        self.control.abort();
    }

    /// Sends a snapshot on its way to storage; without storage it is acknowledged as it is.
    pub(crate) fn store(&self, queue: Option<&UploadQueue>, subtask: SubtaskId, snapshot: SubtaskSnapshot) {
        match queue {
            Some(queue) => {
                if let Err(error) = queue.send(subtask, snapshot) {
                    self.fail(error);
                }
            }
            None => self.tell(EngineEvent::Acknowledged { subtask, epoch: snapshot.epoch, pieces: Vec::new() }),
        }
    }

    pub(crate) fn upload_queue(&self) -> Option<UploadQueue> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// No worker sends snapshots any more.
    pub(crate) fn close_uploads(&self) {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// One more source subtask has nothing more to give.
    pub(crate) fn source_exhausted(&self, plan: &Plan) {
        if self.exhausted.fetch_add(1, Ordering::AcqRel) + 1 == self.sources_here(plan) {
            self.tell(EngineEvent::SourcesExhausted);
        }
    }

    /// Credit that goes to other processes takes these ways from now on.
    pub(crate) fn connect_far(&self, far: Vec<Option<Sender<FarCredit>>>) {
        *self.far.lock().unwrap_or_else(PoisonError::into_inner) = far;
    }

    /// The sender of a channel can go on, as far as it waits: it is woken here, or told where it is.
    pub(crate) fn wake_sender(&self, plan: &Plan, edge: EdgeIndex, sender: u32, receiver: u32) {
        if self.geography.is_here(sender) {
            self.control.wake(plan.edges[edge.0].from.0, sender);
            return;
        }
        let channel = self.channels.get().and_then(|channels| channels.get(edge, sender, receiver));
        let Some(credit) = channel.and_then(ChannelCredits::take_returned) else { return };
        let far = self.far.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Some(way)) = far.get(self.geography.process_of(sender) as usize) {
            // A connection that is broken has ended the attempt.
            let _ = way.send(FarCredit { edge: edge.0 as u32, sender, receiver, credit });
        }
    }

    /// Another process has given credit.
    ///
    /// # Errors
    /// When it is for a channel that is not there, or more than is under way there, in words.
    pub(crate) fn take_far_credit(&self, far: FarCredit) -> Result<(), String> {
        let FarCredit { edge, sender, receiver, credit } = far;
        // Before the plan is built nothing is under way.
        let channel = self.channels.get().and_then(|channels| channels.get(EdgeIndex(edge as usize), sender, receiver));
        let channel = channel.ok_or_else(|| {
            format!("it gave credit for exchange {edge} from {sender} to {receiver}, which is not there")
        })?;
        let wakes = channel.take_in(credit).ok_or_else(|| {
            let (returned, out) = (credit.records, channel.in_flight_records());
            format!("it gave credit for {returned} records of exchange {edge} from {sender} to {receiver}, {out} are under way")
        })?;
        if wakes && let Some(chain) = self.senders.get().and_then(|senders| senders.get(edge as usize)) {
            self.control.wake(*chain, sender);
        }
        Ok(())
    }

    fn sources_here(&self, plan: &Plan) -> u32 {
        let sources = plan.chains.iter().filter(|chain| chain.inputs.is_empty());
        sources.map(|chain| self.geography.here_of(chain.parallelism)).sum()
    }

    fn worker_opened(&self, plan: &Plan) {
        if self.opened.fetch_add(1, Ordering::AcqRel) + 1 == self.spec.workers {
            self.tell(EngineEvent::Running { subtasks: all_subtasks(plan) });
            if self.geography.processes > 1 && self.sources_here(plan) == 0 {
                self.tell(EngineEvent::SourcesExhausted);
            }
        }
    }
}

fn all_subtasks(plan: &Plan) -> BTreeSet<SubtaskId> {
    let chains = plan.chains.iter().enumerate();
    let subtasks = chains
        .flat_map(|(chain, plan)| (0..plan.parallelism).map(move |index| SubtaskId { chain: chain as u32, index }));
    subtasks.collect()
}

/// The whole life of one worker thread.
pub(crate) fn run_worker(worker: &mut Worker, execution: &Arc<Execution>) {
    let outcome = catch_unwind(AssertUnwindSafe(|| work(worker, execution)));
    match outcome {
        Ok(Ok(())) => {}
        Ok(Err(error)) => execution.fail(error),
        Err(payload) => {
            let message = millpond_runtime::panic_message(payload.as_ref());
            execution.fail(EngineError::Worker { worker: worker.index(), message });
        }
    }
    if execution.control.is_aborted() {
        for dataflow in worker.installed_dataflows() {
            worker.drop_dataflow(dataflow);
        }
    }
}

fn work(worker: &mut Worker, execution: &Arc<Execution>) -> Result<(), EngineError> {
    let job = &execution.spec.job;
    let graph = Dataflow::build(|dataflow| job(dataflow))?;
    let plan = Arc::new(Plan::new(&graph, execution.geography.total_workers(), execution.spec.max_parallelism));
    check_plan(worker.index(), &plan, execution)?;
    if let Some(restore) = &execution.spec.restore {
        restore.check(&plan)?;
    }
    let subtasks = build_subtasks(worker.index() as u32, graph, &plan, execution)?;
    build_dataflow(worker, &plan, subtasks, execution);
    execution.worker_opened(&plan);
    while worker.has_dataflows() && !execution.control.is_aborted() {
        worker.step_or_park(Some(PARK));
    }
    Ok(())
}

/// All workers must have built the same graph.
fn check_plan(index: usize, plan: &Plan, execution: &Execution) -> Result<(), EngineError> {
    let text = plan.to_text();
    let first = execution.first_plan.get_or_init(|| text.clone());
    if *first == text {
        return Ok(());
    }
    let mut lines = first.lines().map(Some).chain(repeat(None)).zip(text.lines().map(Some).chain(repeat(None)));
    let (first, other) = lines.find(|(first, other)| first != other).unwrap_or_default();
    let shown = |line: Option<&str>| line.unwrap_or("nothing more").trim().to_owned();
    Err(EngineError::Plan { worker: index, first: shown(first), other: shown(other) })
}

/// The subtasks that live on this worker, by chain.
fn build_subtasks(
    index: u32,
    graph: Graph,
    plan: &Plan,
    execution: &Execution,
) -> Result<Vec<Option<Subtask>>, EngineError> {
    let channels = execution.channels.get_or_init(|| Channels::new(plan, execution.spec.flow, execution.geography));
    execution.senders.get_or_init(|| plan.edges.iter().map(|edge| edge.from.0).collect());
    let mut operators: Vec<_> = graph.operators.into_iter().map(Some).collect();
    let mut subtasks = Vec::with_capacity(plan.chains.len());
    for (chain_index, chain) in plan.chains.iter().enumerate() {
        if execution.control.is_aborted() || index >= chain.parallelism {
            subtasks.push(None);
            continue;
        }
        let own = chain.operators.iter().filter_map(|chained| operators[chained.operator.0].take());
        subtasks.push(Some(Subtask::build(SubtaskSpec {
            plan,
            chain: ChainIndex(chain_index),
            index,
            operators: own.collect(),
            attempt: execution.spec.attempt,
            clock: Arc::clone(&execution.spec.clock),
            restore: execution.spec.restore.as_ref(),
            once: &execution.once,
            outgoing: chain.outputs.iter().map(|edge| channels.from(*edge, index)).collect(),
            incoming: chain.inputs.iter().map(|edge| channels.to(*edge, index)).collect(),
            snapshots: execution.spec.storage.is_some(),
            cold: execution.spec.cold.as_ref(),
            end: execution.control.attempt_end(),
        })?));
    }
    Ok(subtasks)
}
