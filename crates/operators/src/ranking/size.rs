//! How many rows a ranking keeps, in the checkpoint: another number needs rows that nobody kept.

use millpond_core::{Key, UserResult};
use millpond_dataflow::{KeyedContext, OpenContext};
use millpond_state::OperatorListState;

use crate::changelog::ChangelogError;

/// The operator state of the number of rows.
const SIZE: &str = "rows of the ranking";

/// The number of rows of a ranking.
pub(crate) struct RankingSize {
    pub(crate) rows: usize,
    /// Where it is stored; none when it is stored already.
    state: Option<OperatorListState<u64>>,
}

impl RankingSize {
    pub(crate) fn new(rows: usize) -> Self {
        RankingSize { rows, state: None }
    }

    /// Compares it with what the checkpoint says.
    pub(crate) fn open(&mut self, context: &mut OpenContext<'_>) -> UserResult {
        let state = context.states.union_list::<u64>(SIZE)?;
        let given = self.rows as u64;
        if let Some(stored) = state.get(context.states)?.iter().copied().find(|stored| *stored != given) {
            let operator = context.info.operator.to_string();
            return Err(ChangelogError::OtherRows { operator, stored, given }.into());
        }
        self.state = Some(state);
        Ok(())
    }

    /// One subtask writes it for all, once per attempt.
    pub(crate) fn store<K: Key>(&mut self, context: &mut KeyedContext<'_, K>) -> UserResult {
        if let Some(state) = self.state.take() {
            let own = (context.subtask().index == 0).then_some(self.rows as u64);
            state.update(context.operator_states_mut(), own)?;
        }
        Ok(())
    }
}
