//! What happened, in order.

use millpond_core::hash::hash_bytes;

/// How much of a trace a failure shows.
const TAIL: usize = 120;

/// All events of a seed.
#[derive(Default)]
pub(crate) struct Trace {
    events: Vec<String>,
}

impl Trace {
    pub(crate) fn add(&mut self, event: impl FnOnce() -> String) {
        self.events.push(event());
    }

    /// Equal for equal traces.
    pub(crate) fn hash(&self) -> u64 {
        self.events.iter().fold(0, |hash, event| hash.rotate_left(7) ^ hash_bytes(event.as_bytes()))
    }

    /// The last events.
    pub(crate) fn tail(&self) -> Vec<String> {
        self.events[self.events.len().saturating_sub(TAIL)..].to_vec()
    }
}
