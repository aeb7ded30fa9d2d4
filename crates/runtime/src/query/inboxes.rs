//! A subtask's side: takes questions out and lets them look.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::board::{QueryBoard, QueryInbox};
use crate::chain::Cell;

/// Questions answered between two rounds of records, at each operator.
const QUESTIONS_AT_ONCE: usize = 64;

/// The inboxes of the operators of one subtask that have keyed state, by place in the chain.
#[derive(Default)]
pub(crate) struct Inboxes(Vec<(usize, Arc<QueryInbox>)>);

impl Inboxes {
    /// Opens an inbox for each operator with keyed state.
    pub(crate) fn open(&mut self, cells: &mut [Cell], board: &QueryBoard, wake: &Arc<dyn Fn() + Send + Sync>) {
        for (position, cell) in cells.iter_mut().enumerate() {
            if cell.instance.operator().keyed().is_some() {
                self.0.push((position, board.open(&cell.info, Arc::clone(wake))));
            }
        }
    }

    /// Answers what waits; a question that panics is only not answered.
    pub(crate) fn answer(&self, cells: &mut [Cell]) {
        for (position, inbox) in &self.0 {
            let Some(cell) = cells.get_mut(*position) else { continue };
            for _ in 0..QUESTIONS_AT_ONCE {
                let Some(visit) = inbox.take() else { break };
                if let Some(keyed) = cell.instance.operator().keyed() {
                    let _ = catch_unwind(AssertUnwindSafe(|| visit(keyed)));
                }
            }
        }
    }

    /// Whether a question waits, or has waited just now.
    pub(crate) fn has_questions(&self) -> bool {
        self.0.iter().any(|(_, inbox)| inbox.has_questions())
    }
}
