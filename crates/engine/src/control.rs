//! What all workers of an attempt share: the wishes of the job manager, credits, and ways to wake.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use millpond_core::{Epoch, UserResult};
use millpond_dataflow::AttemptEnd;
use millpond_dataflow::align::{AlignmentGroup, AlignmentGroups};
use millpond_dataflow::context::OncePerAttempt;
use millpond_dataflow::plan::{EdgeIndex, EdgePlan, Plan};
use millpond_runtime::{ChannelCredits, EndKind, FlowLimits, Trigger};
use timely::scheduling::SyncActivator;

use crate::mesh::Geography;

const END_DRAIN: u8 = 1;
const END_SUSPEND: u8 = 2;

/// The wishes of the job manager, read by every subtask at every step.
#[derive(Debug, Default)]
pub(crate) struct Control {
    trigger: AtomicU64,
    end: AtomicU8,
    end_epoch: AtomicU64,
    completed: AtomicU64,
    finished: AtomicBool,
    abort: AttemptEnd,
    wakers: Mutex<HashMap<(usize, u32), SyncActivator>>,
}

impl Control {
    /// Sources shall close every epoch up to `epoch`; with `end`, the stream ends there.
    pub(crate) fn trigger(&self, epoch: Epoch, end: Option<EndKind>) {
        if let Some(end) = end {
            self.end_epoch.store(epoch.0, Ordering::Release);
            let end = match end {
                EndKind::Drain => END_DRAIN,
                EndKind::Suspend => END_SUSPEND,
            };
            self.end.store(end, Ordering::Release);
        }
        self.trigger.fetch_max(epoch.0, Ordering::AcqRel);
        self.wake_all();
    }

    /// The trigger as of now.
    pub(crate) fn current_trigger(&self) -> Trigger {
        let epoch = self.trigger.load(Ordering::Acquire);
        let end = match self.end.load(Ordering::Acquire) {
            END_DRAIN => Some(EndKind::Drain),
            END_SUSPEND => Some(EndKind::Suspend),
            _ => None,
        };
        let end = end.filter(|_| self.end_epoch.load(Ordering::Acquire) == epoch);
        Trigger { epoch: Epoch(epoch), end }
    }

    /// `epoch` is durable.
    pub(crate) fn complete(&self, epoch: Epoch) {
        self.completed.fetch_max(epoch.0, Ordering::AcqRel);
        self.wake_all();
    }

    /// The newest durable epoch.
    pub(crate) fn completed(&self) -> Epoch {
        Epoch(self.completed.load(Ordering::Acquire))
    }

    /// The last epoch is durable: subtasks commit it and are done.
    pub(crate) fn finish(&self) {
        self.finished.store(true, Ordering::Release);
        self.wake_all();
    }

    /// Whether nothing but the last commit is left.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    /// Everybody stops as soon as they look.
    pub(crate) fn abort(&self) {
        self.abort.set();
        self.wake_all();
    }

    /// Set when everybody should stop, for threads of operators.
    pub(crate) fn attempt_end(&self) -> &AttemptEnd {
        &self.abort
    }

    /// Whether everybody should stop.
    pub(crate) fn is_aborted(&self) -> bool {
        self.abort.is_over()
    }

    /// How subtask `index` of chain `chain` is woken from another thread.
    pub(crate) fn register(&self, chain: usize, index: u32, waker: SyncActivator) {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner).insert((chain, index), waker);
    }

    /// Wakes one subtask.
    pub(crate) fn wake(&self, chain: usize, index: u32) {
        let wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waker) = wakers.get(&(chain, index)) {
            // A worker that is gone cannot be woken and need not be.
            let _ = waker.activate();
        }
    }

    fn wake_all(&self) {
        let wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        for waker in wakers.values() {
            let _ = waker.activate();
        }
    }
}

/// The credits of all channels of an attempt: by exchange, sender and receiver.
pub(crate) struct Channels {
    edges: Vec<Vec<Vec<Arc<ChannelCredits>>>>,
}

impl Channels {
    pub(crate) fn new(plan: &Plan, limits: FlowLimits, geography: Geography) -> Self {
        let ends = |edge: &EdgePlan| (plan.chains[edge.from.0].parallelism, plan.chains[edge.to.0].parallelism);
        let channels = plan.edges.iter().map(ends).map(|(senders, receivers)| senders as usize * receivers as usize);
        let limits = limits.shared_by(channels.sum());
        let edges = plan.edges.iter().map(|edge| {
            let (senders, receivers) = ends(edge);
            let channel = |sender, receiver| match geography.is_here(receiver) && !geography.is_here(sender) {
                true => Arc::new(ChannelCredits::from_far(limits)),
                false => Arc::new(ChannelCredits::new(limits)),
            };
            (0..senders).map(|sender| (0..receivers).map(|receiver| channel(sender, receiver)).collect()).collect()
        });
        Channels { edges: edges.collect() }
    }

    /// The channels from `sender` over `edge`, by receiver.
    pub(crate) fn from(&self, edge: EdgeIndex, sender: u32) -> Vec<Arc<ChannelCredits>> {
        self.edges[edge.0][sender as usize].clone()
    }

    /// One channel; `None` when the plan has no such.
    pub(crate) fn get(&self, edge: EdgeIndex, sender: u32, receiver: u32) -> Option<&ChannelCredits> {
        Some(self.edges.get(edge.0)?.get(sender as usize)?.get(receiver as usize)?)
    }

    /// The channels to `receiver` over `edge`, by sender.
    pub(crate) fn to(&self, edge: EdgeIndex, receiver: u32) -> Vec<Arc<ChannelCredits>> {
        self.edges[edge.0].iter().map(|receivers| Arc::clone(&receivers[receiver as usize])).collect()
    }
}

/// Values that all processes of an attempt must see alike, such as the splits of a source.
pub trait SharedValues: Send + Sync {
    /// The bytes that the first caller of any process with this `name` computed. Blocks while another one computes, and ends
    /// when the attempt does.
    ///
    /// # Errors
    /// When the computation fails (the next caller tries again), or the other processes cannot be asked.
    fn get_or_compute(&self, name: &str, compute: &mut dyn FnMut() -> UserResult<Vec<u8>>) -> UserResult<Vec<u8>>;
}

/// Values that the first subtask to ask computes for all.
#[derive(Default)]
pub(crate) struct Shared {
    values: Mutex<HashMap<String, Arc<OnceLock<Vec<u8>>>>>,
    computing: Mutex<()>,
    /// Of all processes, if there are several.
    everywhere: Option<Arc<dyn SharedValues>>,
    alignment: AlignmentGroups,
}

impl Shared {
    pub(crate) fn new(everywhere: Option<Arc<dyn SharedValues>>) -> Self {
        Shared { everywhere, ..Shared::default() }
    }
}

impl OncePerAttempt for Shared {
    fn get_or_compute(&self, name: &str, compute: &mut dyn FnMut() -> UserResult<Vec<u8>>) -> UserResult<Vec<u8>> {
        let value = {
            let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(values.entry(name.to_owned()).or_default())
        };
        // One computation at a time: whoever comes second finds the value of the first.
        let _computing = self.computing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = value.get() {
            return Ok(bytes.clone());
        }
        let bytes = match &self.everywhere {
            Some(everywhere) => everywhere.get_or_compute(name, compute)?,
            None => compute()?,
        };
        Ok(value.get_or_init(|| bytes).clone())
    }

    fn alignment(&self, group: &str) -> Arc<AlignmentGroup> {
        self.alignment.group(group)
    }
}
