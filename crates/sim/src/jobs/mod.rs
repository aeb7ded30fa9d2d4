//! Jobs for the simulator, each with its sequential oracle.
//!
//! A job knows what it must have written at its end, whatever happened on the way, and what its state
//! must be at any cut of its input: replay the input up to the cut, one record after the other.

mod amplify;
mod branches;
mod broadcast;
mod counts;
mod expiring;
mod windows;

use std::collections::BTreeMap;
use std::rc::Rc;

use millpond_core::{Key, SplitMix64, UserResult};
use millpond_dataflow::Dataflow;
use millpond_state::{KeyedBackend, OperatorStateSnapshot};

use crate::execution::Execution;
use crate::outside::{Line, Site};
use crate::source::Script;

/// Which job to simulate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKind {
    /// Counts, last values and a map per key, over two exchanges.
    Counts,
    /// A keyed stream connected with broadcast rules.
    Broadcast,
    /// Union, rebalance, branches and a side output, with list and raw operator state.
    Branches,
    /// Flat map with amplification; aggregate, fold and reduce side by side.
    Amplify,
    /// Windows in event time over records out of order.
    Windows,
    /// State with a time to live.
    Expiring,
    /// The job [`JobKind::Counts`] with a logged sink.
    Logged,
}

impl JobKind {
    /// All jobs.
    pub const ALL: [JobKind; 7] = [
        JobKind::Counts,
        JobKind::Broadcast,
        JobKind::Branches,
        JobKind::Amplify,
        JobKind::Windows,
        JobKind::Expiring,
        JobKind::Logged,
    ];

    /// The job with the input that `random` chooses.
    #[must_use]
    pub fn make(self, random: &mut SplitMix64) -> Box<dyn SimJob> {
        match self {
            JobKind::Counts => Box::new(counts::Counts::new(random)),
            JobKind::Broadcast => Box::new(broadcast::Broadcast::new(random)),
            JobKind::Branches => Box::new(branches::Branches::new(random)),
            JobKind::Amplify => Box::new(amplify::Amplify::new(random)),
            JobKind::Windows => Box::new(windows::WindowJob::new(random)),
            JobKind::Expiring => Box::new(expiring::Expiring::new(random)),
            JobKind::Logged => Box::new(counts::Counts::logged(random)),
        }
    }
}

/// What the lines of a key must be at the end: the value of the n-th line, where it is known.
pub type Expected = BTreeMap<u64, Vec<Option<u64>>>;

/// A cut of the input: positions of all splits, by the name of the source.
pub type Cut = BTreeMap<&'static str, Vec<u64>>;

/// A job with its oracle.
pub trait SimJob {
    /// Describes the job.
    ///
    /// # Errors
    /// As any job.
    fn build(&self, flow: &mut Dataflow, site: &Site) -> UserResult;

    /// Names of its sources, and what they read.
    fn sources(&self) -> Vec<(&'static str, Rc<Script>)>;

    /// All output of a run to the end.
    fn expected(&self) -> Expected;

    /// Whether the output is right where [`SimJob::expected`] leaves it open. `lines` are those of one
    /// key, in order.
    ///
    /// # Errors
    /// What is wrong.
    fn check_lines(&self, key: u64, lines: &[Line]) -> Result<(), String> {
        let _ = (key, lines);
        Ok(())
    }

    /// Whether restored state is that of a sequential run up to `cut`.
    ///
    /// # Errors
    /// What is wrong.
    fn check_state(&self, cut: &Cut, states: &mut States<'_>) -> Result<(), String>;
}

/// State of all subtasks of a freshly restored job.
pub struct States<'a> {
    pub(crate) execution: &'a mut Execution,
}

impl States<'_> {
    /// Reads every key that has something in `state` of `operator`, over all subtasks.
    ///
    /// # Errors
    /// When a key is found twice, or outside the key groups of its subtask, or `read` fails.
    pub fn keyed<K: Key + Ord, R>(
        &mut self,
        operator: &str,
        state: &str,
        mut read: impl FnMut(&mut KeyedBackend<K>) -> UserResult<R>,
    ) -> Result<BTreeMap<K, R>, String> {
        let mut all = BTreeMap::new();
        for place in &mut self.execution.places {
            let Some(keyed) = place.subtask.keyed(operator) else { continue };
            let Some(backend) = keyed.as_any_mut().downcast_mut::<KeyedBackend<K>>() else {
                return Err(format!("operator {operator:?} has another key"));
            };
            for key in backend.keys(state).map_err(|error| error.to_string())? {
                backend.set_current_key_of(key.clone()).map_err(|error| error.to_string())?;
                let value = read(backend).map_err(|error| error.to_string())?;
                if all.insert(key, value).is_some() {
                    return Err(format!("a key of operator {operator:?} has two owners"));
                }
            }
            backend.clear_current_key();
        }
        Ok(all)
    }

    /// Operator state of every subtask.
    #[must_use]
    pub fn operator(&self, operator: &str) -> Vec<OperatorStateSnapshot> {
        let places = self.execution.places.iter();
        places.filter_map(|place| place.subtask.operator_states(operator)).map(|states| states.freeze()).collect()
    }
}

/// Says how two things differ.
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, expected: &T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what} is {found:?}, expected {expected:?}")) }
}

/// Lengths of splits.
pub(crate) fn lengths(random: &mut SplitMix64, splits: u64, most: u64) -> Vec<u64> {
    (0..1 + random.below(splits)).map(|_| random.below(most + 1)).collect()
}
