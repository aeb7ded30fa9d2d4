//! The engines of an attempt: that of this process, and those of all others, as one.
//!
//! Owns nothing but the way to them. What they say comes as messages.

use millpond_core::Epoch;
use millpond_engine::Engine;
use millpond_runtime::EndKind;

use crate::crew::CrewAttempt;
use crate::crew::says::{Stats, ToMember};

/// All engines of an attempt.
pub(crate) struct Fleet<'a> {
    engine: Engine,
    crew: Option<CrewAttempt<'a>>,
}

impl<'a> Fleet<'a> {
    pub(crate) fn new(engine: Engine, crew: Option<CrewAttempt<'a>>) -> Self {
        Fleet { engine, crew }
    }

    /// Number of processes.
    pub(crate) fn processes(&self) -> u32 {
        self.crew.as_ref().map_or(1, CrewAttempt::processes)
    }

    /// The address of a process.
    pub(crate) fn host(&self, process: u32) -> String {
        self.crew.as_ref().map_or(String::new(), |crew| crew.host(process))
    }

    fn tell(&self, message: &ToMember) {
        if let Some(crew) = &self.crew {
            crew.tell(message);
        }
    }

    /// Sources shall close every epoch up to `epoch`; with `end`, the stream ends there.
    pub(crate) fn trigger(&self, epoch: Epoch, end: Option<EndKind>) {
        self.tell(&ToMember::Trigger { epoch, end: end.map(Into::into) });
        self.engine.trigger(epoch, end);
    }

    /// `epoch` is durable.
    pub(crate) fn complete(&self, epoch: Epoch) {
        self.tell(&ToMember::Complete { epoch });
        self.engine.complete(epoch);
    }

    /// Counters of all processes together.
    pub(crate) fn stats(&self) -> Stats {
        let far = self.crew.as_ref().map(CrewAttempt::stats).unwrap_or_default();
        let (entries, bytes) = self.engine.state_size();
        Stats {
            source_records: self.engine.source_records() + far.source_records,
            state_entries: entries + far.state_entries,
            state_bytes: bytes + far.state_bytes,
        }
    }

    /// The last epoch is durable: waits until every subtask has committed it. Returns the last counters.
    pub(crate) fn finish(self) -> Stats {
        self.tell(&ToMember::Finish);
        let before = self.engine.source_records();
        let (entries, bytes) = self.engine.state_size();
        self.engine.finish();
        let far = self.crew.map(CrewAttempt::finish).unwrap_or_default();
        Stats {
            source_records: before + far.source_records,
            state_entries: entries + far.state_entries,
            state_bytes: bytes + far.state_bytes,
        }
    }

    /// Stops all workers as they stand; waits for those of this process.
    pub(crate) fn abort(self) {
        // First the others: the end of our own workers may take long.
        drop(self.crew);
        self.engine.abort();
    }
}
