//! The clock of one split.

use std::cell::RefCell;
use std::rc::Rc;

use millpond_core::{Data, UserResult};
use millpond_dataflow::Batch;
use millpond_dataflow::batch::NO_TIME;

use super::strategy::{Extract, Generate, WatermarkStrategy};

/// Event time in one split of a source, or in what reaches one subtask.
pub(crate) struct SplitClock<T> {
    extract: Option<Rc<RefCell<dyn Extract<T>>>>,
    generator: Box<dyn Generate<T>>,
    idle_after_ms: Option<i64>,
    quiet: Quiet,
}

/// Whether records come (WM-12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quiet {
    /// They do.
    No,
    /// None since the look at this time.
    Since(i64),
    /// For so long that the split is idle.
    Idle,
}

/// How several splits stand together (WM-13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The least watermark over those that take part.
    Active(i64),
    /// None takes part.
    Idle,
}

impl<T: Data> SplitClock<T> {
    pub(crate) fn new(strategy: &WatermarkStrategy<T>) -> Self {
        SplitClock {
            extract: strategy.extractor(),
            generator: strategy.generator(),
            idle_after_ms: strategy.idle_after_ms,
            quiet: Quiet::No,
        }
    }

    /// The records of `batch` from `from` on have come: finds their times, and sees what they say.
    pub(crate) fn observe(&mut self, from: usize, batch: &mut Batch<T>, now_ms: i64) -> UserResult {
        self.quiet = Quiet::No;
        let Batch { records, times } = batch;
        let records = records.get(from..).unwrap_or_default();
        if let Some(extract) = &self.extract {
            times.resize(from, NO_TIME);
            extract.borrow_mut().extract(records, times)?;
        }
        self.generator.observe(records, times.get(from..).unwrap_or_default(), now_ms);
        Ok(())
    }

    /// No record has come.
    pub(crate) fn quiet(&mut self, now_ms: i64) {
        let Some(idle_after_ms) = self.idle_after_ms else { return };
        self.quiet = match self.quiet {
            Quiet::No => Quiet::Since(now_ms),
            Quiet::Since(since) if now_ms.saturating_sub(since) > idle_after_ms => Quiet::Idle,
            as_before => as_before,
        };
    }

    /// When it becomes idle unless a record comes.
    pub(crate) fn idle_at(&self) -> Option<i64> {
        match (self.quiet, self.idle_after_ms) {
            (Quiet::Since(since), Some(after)) => Some(since.saturating_add(after).saturating_add(1)),
            _ => None,
        }
    }

    pub(crate) fn standing(&mut self) -> Standing {
        if self.quiet == Quiet::Idle { Standing::Idle } else { Standing::Active(self.generator.watermark()) }
    }
}

impl Standing {
    /// Several splits together; `None` of none at all.
    pub(crate) fn of_all(all: impl Iterator<Item = Standing>) -> Option<Standing> {
        all.reduce(|sum, one| match (sum, one) {
            (Standing::Active(a), Standing::Active(b)) => Standing::Active(a.min(b)),
            (Standing::Idle, other) | (other, Standing::Idle) => other,
        })
    }
}
