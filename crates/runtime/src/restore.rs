//! From a checkpoint back to running operators. The mirror of `snapshot` and `upload`.
//!
//! Every subtask reads for itself: of keyed state the rows of its own key groups ([`keyed`]); of operator state its
//! share of the redistribution over all old subtasks.

mod keyed;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::Waker;

use millpond_checkpoint::{Blob, Manifest, OperatorManifest};
use millpond_core::Epoch;
use millpond_dataflow::graph::OperatorEntry;
use millpond_dataflow::partition::{
    BroadcastPartition, ForwardPartition, Partition, PartitionFacts, RebalancePartition, Routing,
};
use millpond_dataflow::plan::{Destination, Plan};
use millpond_dataflow::{OpenContext, Outputs, SubtaskInfo};
use millpond_runs::SectionInfo;
use millpond_state::{ColdBacking, OperatorStateSnapshot, OperatorStates, redistribute};
use millpond_storage::{ObjectName, Storage};

use crate::chain::{Cell, Chain, Exchange, guard};
use crate::error::{RestoreError, SubtaskError};
use crate::subtask::{Inlet, SubtaskSpec};
use crate::valve::OperatorClock;

/// A checkpoint to start from.
#[derive(Clone)]
pub struct RestorePoint {
    manifest: Arc<Manifest>,
    storage: Arc<dyn Storage>,
    allow_dropped_state: bool,
    read_bytes: u64,
    in_order: bool,
}

/// What a checkpoint holds of one operator, redistributed to one subtask.
pub struct RestoredOperator {
    /// Its operator state.
    pub states: OperatorStateSnapshot,
    /// Its keyed states.
    pub sections: Vec<SectionInfo>,
}

impl RestorePoint {
    /// A start from `manifest`, whose objects are in `storage`.
    #[must_use]
    pub fn new(manifest: Arc<Manifest>, storage: Arc<dyn Storage>, allow_dropped_state: bool) -> Self {
        RestorePoint { manifest, storage, allow_dropped_state, read_bytes: u64::MAX, in_order: false }
    }

    /// The same, where what a subtask reads ahead takes about `bytes` of memory at most.
    #[must_use]
    pub fn reading_ahead(self, bytes: u64) -> Self {
        RestorePoint { read_bytes: bytes, ..self }
    }

    /// The same, with one read after the other, all on the thread that restores: what a simulation does is then the same each time.
    #[must_use]
    pub fn reading_in_order(self) -> Self {
        RestorePoint { in_order: true, ..self }
    }

    /// Of which epoch the checkpoint is.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.manifest.epoch
    }

    /// The checkpoint.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Checks, before anything runs, that a job with this plan can start here.
    ///
    /// # Errors
    /// When the number of key groups differs, the parallelism is above it, or the checkpoint holds state
    /// of an operator that the job does not have and dropping state is not allowed.
    pub fn check(&self, plan: &Plan) -> Result<(), RestoreError> {
        let stored = self.manifest.max_parallelism;
        if stored != plan.max_parallelism.get() {
            return Err(RestoreError::MaxParallelism { stored, given: plan.max_parallelism.get() });
        }
        if plan.workers > stored {
            return Err(RestoreError::Parallelism { stored, given: plan.workers });
        }
        let chains = plan.chains.iter();
        let names: BTreeSet<&str> =
            chains.flat_map(|chain| &chain.operators).map(|operator| operator.name.as_str()).collect();
        let unknown = self
            .manifest
            .operators
            .iter()
            .find(|operator| !names.contains(operator.name.as_str()) && holds_state(operator));
        match unknown {
            Some(operator) if !self.allow_dropped_state => {
                Err(RestoreError::UnknownOperator { operator: operator.name.clone(), epoch: self.epoch() })
            }
            _ => Ok(()),
        }
    }

    /// What the checkpoint holds for `subtask`; `None` when it holds nothing of the operator.
    ///
    /// # Errors
    /// When an object cannot be read or is damaged.
    pub fn operator(&self, subtask: &SubtaskInfo) -> Result<Option<RestoredOperator>, RestoreError> {
        let Some(operator) = self.manifest.operator(&subtask.operator) else { return Ok(None) };
        let mut old = Vec::with_capacity(operator.subtasks.len());
        for blob in &operator.subtasks {
            old.push(match blob {
                Some(blob) => self.load_states(operator, blob)?,
                None => OperatorStateSnapshot::default(),
            });
        }
        let mut shares = redistribute(&old, subtask.max_parallelism, subtask.parallelism)
            .map_err(|source| RestoreError::State { operator: operator.name.clone(), source })?;
        let states = shares.swap_remove(subtask.index as usize);
        let sections = operator
            .states
            .iter()
            .map(|state| SectionInfo { name: state.name.clone(), description: state.description.clone() });
        Ok(Some(RestoredOperator { states, sections: sections.collect() }))
    }

    fn load_states(&self, operator: &OperatorManifest, blob: &Blob) -> Result<OperatorStateSnapshot, RestoreError> {
        let decode = |bytes: &[u8]| {
            OperatorStateSnapshot::decode(bytes)
                .map_err(|source| RestoreError::State { operator: operator.name.clone(), source })
        };
        let object = match blob {
            Blob::Inline(bytes) => return decode(bytes),
            Blob::Object { object, .. } => object,
        };
        let bytes = self.read(operator, object)?;
        blob.check(&bytes).map_err(|reason| RestoreError::OtherObject {
            operator: operator.name.clone(),
            object: object.to_string(),
            reason,
        })?;
        decode(&bytes)
    }

    fn read(&self, operator: &OperatorManifest, object: &ObjectName) -> Result<Vec<u8>, RestoreError> {
        self.storage.read(object).map_err(|source| RestoreError::Storage {
            operator: operator.name.clone(),
            object: object.to_string(),
            source,
        })
    }

    /// Checks that the operator declares every keyed state that the checkpoint holds of it.
    fn check_declared(&self, subtask: &SubtaskInfo, declared: &BTreeSet<String>) -> Result<(), RestoreError> {
        let Some(operator) = self.manifest.operator(&subtask.operator) else { return Ok(()) };
        match operator.states.iter().find(|state| !declared.contains(&state.name)) {
            Some(state) if !self.allow_dropped_state => {
                let (operator, state) = (operator.name.clone(), state.name.clone());
                Err(RestoreError::UnknownState { operator, state })
            }
            _ => Ok(()),
        }
    }

    /// Refuses, or drops, operator state that the operator has not declared when it was opened.
    fn drop_undeclared(&self, subtask: &SubtaskInfo, states: &mut OperatorStates) -> Result<(), RestoreError> {
        match states.first_undeclared() {
            Some(state) if !self.allow_dropped_state => {
                Err(RestoreError::UnknownState { operator: subtask.operator.to_string(), state: state.to_owned() })
            }
            Some(_) => {
                states.empty_undeclared();
                Ok(())
            }
            None => Ok(()),
        }
    }
}

fn holds_state(operator: &OperatorManifest) -> bool {
    !operator.runs.is_empty() || operator.subtasks.iter().any(Option::is_some)
}

/// Opens the operators of a chain, with their state restored.
pub(crate) fn open_chain(spec: SubtaskSpec<'_>) -> Result<(Chain, Vec<Inlet>), SubtaskError> {
    let chain_plan = &spec.plan.chains[spec.chain.0];
    let mut partitions = make_partitions(&spec);
    let exchanges = chain_plan.outputs.iter().zip(spec.outgoing).filter_map(|(edge, credits)| {
        let only = (spec.plan.edges[edge.0].routing == Routing::Forward).then_some(spec.index);
        Some(Exchange { edge: *edge, partition: partitions.remove(&edge.0)?, credits, only })
    });
    let exchanges = exchanges.collect();
    let inlets = chain_plan.inputs.iter().zip(spec.incoming).map(|(edge, credits)| {
        let plan = &spec.plan.edges[edge.0];
        let forward = plan.routing == Routing::Forward;
        Inlet { edge: *edge, position: plan.position, input: plan.input, credits, forward }
    });
    let inlets: Vec<Inlet> = inlets.collect();
    let mut cells = Vec::with_capacity(spec.operators.len());
    for (position, (entry, chained)) in spec.operators.into_iter().zip(&chain_plan.operators).enumerate() {
        let clock = clock_of(position, entry.inputs.len(), &inlets);
        let info = SubtaskInfo {
            operator: Arc::from(entry.name.as_str()),
            index: spec.index,
            parallelism: chain_plan.parallelism,
            max_parallelism: spec.plan.max_parallelism,
            attempt: spec.attempt,
        };
        let opening = Opening {
            restore: spec.restore,
            once: spec.once,
            clock: &spec.clock,
            snapshots: spec.snapshots,
            cold: spec.cold,
            end: spec.end,
        };
        cells.push(open_cell(entry, info, by_port(&chained.destinations), clock, &opening)?);
    }
    let (outbox, outputs, waker) = (Vec::new(), Outputs::default(), Waker::noop().clone());
    let chain = Chain { cells, exchanges, outbox, clock: spec.clock, outputs, waker, closing: false };
    Ok((chain, inlets))
}

struct Opening<'a> {
    restore: Option<&'a RestorePoint>,
    once: &'a dyn millpond_dataflow::context::OncePerAttempt,
    clock: &'a Arc<dyn millpond_core::Clock>,
    snapshots: bool,
    cold: Option<&'a ColdBacking>,
    end: &'a millpond_dataflow::AttemptEnd,
}

fn open_cell(
    entry: OperatorEntry,
    info: SubtaskInfo,
    destinations: Vec<Vec<Destination>>,
    clock: OperatorClock,
    opening: &Opening<'_>,
) -> Result<Cell, SubtaskError> {
    let OperatorEntry { instance, sides, .. } = entry;
    let mut instance = instance.expect("a graph is taken apart once");
    let restored = guard(&info, "restoring operator state", || {
        Ok(opening.restore.map(|restore| restore.operator(&info)).transpose()?.flatten())
    })?;
    let has_stored_state = restored.is_some();
    let (mut states, sections) = match restored {
        Some(RestoredOperator { states, sections }) => (OperatorStates::restore([states]), sections),
        None => (OperatorStates::new(), Vec::new()),
    };
    guard(&info, "opening", || {
        instance.operator().open(&mut OpenContext {
            info: &info,
            states: &mut states,
            stored_sections: &sections,
            restored: opening.restore.is_some(),
            finished: opening.restore.is_some_and(|restore| restore.manifest().finished),
            takes_checkpoints: opening.snapshots,
            has_stored_state,
            sides: &sides,
            cold: opening.cold,
            once: opening.once,
            clock: opening.clock,
            end: opening.end,
        })
    })?;
    if let Some(keyed) = instance.operator().keyed()
        && !opening.snapshots
    {
        keyed.stop_tracking();
    }
    let waiting = Default::default();
    let (marks, told, gauge) = Default::default();
    let Some(restore) = opening.restore else {
        return Ok(Cell { info, instance, states, destinations, waiting, clock, marks, told, gauge });
    };
    guard(&info, "restoring operator state", || Ok(restore.drop_undeclared(&info, &mut states)?))?;
    guard(&info, "restoring keyed state", || match instance.operator().keyed() {
        Some(keyed) => Ok(restore.load_keyed(&info, keyed)?),
        None => Ok(restore.check_declared(&info, &BTreeSet::new())?),
    })?;
    Ok(Cell { info, instance, states, destinations, waiting, clock, marks, told, gauge })
}

/// The clock of the operator at `position`: each input has a channel for each subtask that may send to it.
fn clock_of(position: usize, inputs: usize, inlets: &[Inlet]) -> OperatorClock {
    let channels = (0..inputs).map(|input| {
        let inlet = inlets.iter().find(|inlet| inlet.position == position && inlet.input == input);
        inlet.map_or(1, Inlet::channels)
    });
    OperatorClock::new(&channels.collect::<Vec<_>>())
}

fn by_port(destinations: &[(usize, Destination)]) -> Vec<Vec<Destination>> {
    let ports = destinations.iter().map(|(port, _)| port + 1).max().unwrap_or(0);
    let mut by_port = vec![Vec::new(); ports];
    for (port, destination) in destinations {
        by_port[*port].push(*destination);
    }
    by_port
}

/// The distributors of the exchanges that lead out of the chain, by exchange.
fn make_partitions(spec: &SubtaskSpec<'_>) -> BTreeMap<usize, Box<dyn Partition>> {
    let plan = spec.plan;
    let outputs = plan.chains[spec.chain.0].outputs.iter();
    let made = outputs.map(|edge_index| {
        let edge = &plan.edges[edge_index.0];
        let facts = PartitionFacts {
            sender: spec.index,
            receivers: plan.chains[edge.to.0].parallelism,
            max_parallelism: plan.max_parallelism,
        };
        let partition: Box<dyn Partition> = match (edge.routing, &edge.hash) {
            (Routing::Hash, Some(make)) => make(facts),
            (Routing::Broadcast, _) => Box::new(BroadcastPartition { receivers: facts.receivers }),
            (Routing::Rebalance, _) => Box::new(RebalancePartition::new(facts)),
            _ => Box::new(ForwardPartition { receiver: spec.index }),
        };
        (edge_index.0, partition)
    });
    made.collect()
}
