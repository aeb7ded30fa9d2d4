//! Looking at a subtask from outside: for counters, logs, tests and tools.

use millpond_core::UserError;
use millpond_state::{KeyedBackendControl, OperatorStates};

use super::Subtask;
use crate::error::{Cause, SubtaskError};

impl Subtask {
    /// Names of the operators, for logs.
    #[must_use]
    pub fn name(&self) -> String {
        let names: Vec<&str> = self.chain.cells.iter().map(|cell| &*cell.info.operator).collect();
        names.join(" → ")
    }

    /// Live keyed entries and bytes of memory of all state in this subtask, estimated.
    pub fn state_size(&mut self) -> (u64, u64) {
        let keyed = self.chain.cells.iter_mut().filter_map(|cell| cell.instance.operator().keyed());
        keyed.fold((0, 0), |(entries, bytes), keyed| {
            (entries + keyed.live_entries() as u64, bytes + keyed.memory_bytes() as u64)
        })
    }

    /// The keyed state of one of its operators, to look at; `None` when it has no such operator, or that
    /// has no keyed state.
    pub fn keyed(&mut self, operator: &str) -> Option<&mut dyn KeyedBackendControl> {
        let cell = self.chain.cells.iter_mut().find(|cell| &*cell.info.operator == operator)?;
        cell.instance.operator().keyed()
    }

    /// How far event time has come at one of its operators, to look at.
    #[must_use]
    pub fn watermark(&self, operator: &str) -> Option<i64> {
        let cell = self.chain.cells.iter().find(|cell| &*cell.info.operator == operator)?;
        Some(cell.clock.watermark())
    }

    /// The operator state of one of its operators, to look at.
    #[must_use]
    pub fn operator_states(&self, operator: &str) -> Option<&OperatorStates> {
        let cell = self.chain.cells.iter().find(|cell| &*cell.info.operator == operator)?;
        Some(&cell.states)
    }

    /// An error outside the operators, told as one of the first operator of the chain.
    #[must_use]
    pub fn error(&self, doing: &'static str, error: UserError) -> SubtaskError {
        let info = &self.chain.cells[0].info;
        SubtaskError {
            operator: info.operator.to_string(),
            index: info.index,
            parallelism: info.parallelism,
            doing,
            cause: Cause::Error(error),
        }
    }
}
