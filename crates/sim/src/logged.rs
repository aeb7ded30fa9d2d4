//! A logged sink to the world outside, whose target fails and is left in the middle of things.

use std::time::Duration;

use millpond_core::codec::{decode, encode_into};
use millpond_core::error::Classified;
use millpond_core::{Attempt, Epoch, ErrorKind, UserResult};
use millpond_dataflow::SinkContext;
use millpond_operators::{Applier, EpochLog, LoggedSink, LoggedTarget};

use crate::outside::{Line, Site};

/// Logs lines, and writes them to the world outside once their epoch is completed.
pub struct LoggedLines {
    site: Site,
    limit_bytes: usize,
}

impl LoggedLines {
    /// A sink to `site`'s outside, whose log holds so many bytes.
    #[must_use]
    pub fn new(site: &Site, limit_bytes: usize) -> Self {
        LoggedLines { site: site.clone(), limit_bytes }
    }
}

impl LoggedSink for LoggedLines {
    type Record = Line;

    fn open(&mut self, _context: &SinkContext<'_>) -> UserResult<Applier> {
        self.site.trap.spring()?;
        Ok(Applier::here(Target { site: self.site.clone(), held: None }))
    }

    fn writer(&self, context: &SinkContext<'_>) -> String {
        format!("{}-{}", self.site.attempt.0, context.info.index)
    }

    fn encode(&mut self, record: Line, _time: Option<i64>, entry: &mut Vec<u8>) -> UserResult {
        Ok(encode_into(&record, entry)?)
    }

    fn log_limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    fn transaction_bytes(&self) -> usize {
        self.limit_bytes / 5
    }

    fn renew_marker_every(&self) -> Option<Duration> {
        Some(Duration::from_secs(2))
    }
}

/// The name of a writer in somebody's hands, and what makes it his.
struct Held {
    writer: String,
    token: u64,
}

struct Target {
    site: Site,
    held: Option<Held>,
}

impl LoggedTarget for Target {
    fn claim(&mut self, writer: &str) -> UserResult<Option<Epoch>> {
        self.site.trap.spring()?;
        let (token, marker) = self.site.outside.claim(writer);
        self.held = Some(Held { writer: writer.to_owned(), token });
        self.site.trap.spring()?;
        // Who looks at checkpoints only is told that all was applied, but what it would write itself.
        let looks = self.site.attempt == Attempt(u64::MAX) && who(writer).0 == self.site.attempt;
        Ok(marker.filter(|_| !looks))
    }

    /// Fails before, in the middle of the transaction, or after it was committed.
    fn apply(&mut self, epoch: Epoch, logs: &[EpochLog]) -> UserResult {
        self.site.trap.spring()?;
        let Some(Held { writer, token }) = &self.held else { return Ok(()) };
        let (attempt, subtask) = who(writer);
        for log in logs {
            let lines = log.entries().map(decode::<Line>).collect::<Result<Vec<Line>, _>>()?;
            self.site.outside.add_to_open(writer, *token, (attempt, log.epoch(), subtask), lines);
        }
        self.site.trap.spring()?;
        let fenced = |error| Classified::new(ErrorKind::Fenced, error);
        self.site.outside.commit_open(writer, *token, epoch).map_err(fenced)?;
        self.site.trap.spring()
    }
}

/// Attempt and subtask in the name of a writer.
fn who(writer: &str) -> (Attempt, u32) {
    let (attempt, index) = writer.split_once('-').unwrap_or_default();
    (Attempt(attempt.parse().unwrap_or_default()), index.parse().unwrap_or_default())
}
