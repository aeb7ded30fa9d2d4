//! How far windows have fired, as operator state.
//!
//! Watermarks are not stored (TM-08), but windows that have fired must not fire again after a restore, and a record
//! that was late stays late: with this, what windows emit does not depend on failures. Marks reach all subtasks of
//! an operator in the same epoch, so all of them have come equally far at a checkpoint, and the least is taken.

use millpond_core::UserResult;
use millpond_dataflow::time::{MAX_WATERMARK, MIN_WATERMARK};
use millpond_dataflow::{OpenContext, OperatorContext};
use millpond_state::OperatorListState;

/// The state's name.
const FIRED: &str = "fired";

/// See the module.
pub(crate) struct Fired {
    state: Option<OperatorListState<i64>>,
    restored: i64,
    /// What the state holds, as far as this attempt has written it.
    written: Option<i64>,
}

impl Default for Fired {
    fn default() -> Self {
        Fired { state: None, restored: MIN_WATERMARK, written: Some(MIN_WATERMARK) }
    }
}

impl Fired {
    pub(crate) fn open(&mut self, context: &mut OpenContext<'_>) -> UserResult {
        let state = context.states.union_list::<i64>(FIRED)?;
        let stored = state.get(context.states)?.iter().copied().min();
        // A job that goes on after its end has new input: nothing of it is late before it comes.
        self.restored = stored.filter(|fired| *fired != MAX_WATERMARK).unwrap_or(MIN_WATERMARK);
        // A restored list holds the shares of all subtasks: the first snapshot writes the own share again.
        self.written = stored.is_none().then_some(MIN_WATERMARK);
        self.state = Some(state);
        Ok(())
    }

    /// The watermark, or how far windows had fired before the restore.
    #[inline]
    pub(crate) fn clock(&self, watermark: i64) -> i64 {
        watermark.max(self.restored)
    }

    /// How far windows had fired before the restore.
    pub(crate) fn restored(&self) -> i64 {
        self.restored
    }

    pub(crate) fn snapshot(&mut self, context: &mut OperatorContext<'_>) -> UserResult {
        let clock = self.clock(context.watermark);
        if let Some(state) = &self.state
            && self.written != Some(clock)
        {
            state.update(context.states, (clock > MIN_WATERMARK).then_some(clock))?;
            self.written = Some(clock);
        }
        Ok(())
    }
}
