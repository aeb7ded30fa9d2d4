//! Decides which departures are late, record by record.

use std::time::Duration;

use millpond::prelude::*;

use crate::records::Departure;

/// Lets through what comes at most a bound after the newest departure so far; the rest goes to a side output.
pub(crate) struct Punctual {
    bound_ms: i64,
    late: SideTag<Departure>,
    newest_ms: i64,
    state: Option<OperatorListState<i64>>,
}

impl Punctual {
    pub(crate) fn new(bound: Duration, late: SideTag<Departure>) -> Self {
        Punctual { bound_ms: bound.as_millis() as i64, late, newest_ms: i64::MIN, state: None }
    }
}

impl Process for Punctual {
    type Input = Departure;
    type Output = Departure;

    fn open(&mut self, context: &mut OpenContext<'_>) -> UserResult {
        let state = context.states.list("newest")?;
        self.newest_ms = state.get(context.states)?.iter().copied().max().unwrap_or(i64::MIN);
        self.state = Some(state);
        Ok(())
    }

    fn process(
        &mut self,
        departure: Departure,
        _context: &mut ProcessContext<'_>,
        output: &mut Output<Departure>,
    ) -> UserResult {
        if departure.departed_ms < self.newest_ms.saturating_sub(self.bound_ms) {
            output.emit_side(self.late, departure);
            return Ok(());
        }
        self.newest_ms = self.newest_ms.max(departure.departed_ms);
        output.emit(departure);
        Ok(())
    }

    fn snapshot(&mut self, _epoch: Epoch, context: &mut ProcessContext<'_>) -> UserResult {
        if let Some(state) = &self.state {
            state.update(context.operator_states_mut(), [self.newest_ms])?;
        }
        Ok(())
    }
}
