//! A logged sink as an operator.

use millpond_core::{Epoch, UserResult};
use millpond_dataflow::batch::NO_TIME;
use millpond_dataflow::{BoxBatch, OpenContext, Operator, OperatorContext, SinkContext};
use millpond_state::OperatorListState;

use super::applier::Work;
use super::log::{EpochLog, OpenLog, WriterLog, within};
use super::{Applier, LoggedSink};

/// See the module.
pub(super) struct LoggedOperator<S> {
    sink: S,
    state: Option<OperatorListState<WriterLog>>,
    /// Whether the state holds no log.
    stored_none: bool,
    limit_bytes: usize,
    writer: String,
    open: OpenLog,
    /// Logged in operator state and not known to be applied, in order of epochs.
    pending: Vec<EpochLog>,
    pending_bytes: usize,
    applier: Option<Applier>,
    /// Logs up to this epoch are being applied; up to none while the marker is set anew.
    applying: Option<Epoch>,
    completed: Epoch,
    /// When the marker is set anew unless there is output before, and how long after the last time that is.
    renewal: Option<Renewal>,
}

#[derive(Clone, Copy)]
struct Renewal {
    at_ms: i64,
    every_ms: i64,
}

impl<S: LoggedSink> LoggedOperator<S> {
    pub(super) fn new(sink: S) -> Self {
        LoggedOperator {
            sink,
            state: None,
            stored_none: true,
            limit_bytes: usize::MAX,
            writer: String::new(),
            open: OpenLog::default(),
            pending: Vec::new(),
            pending_bytes: 0,
            applier: None,
            applying: None,
            completed: Epoch::ZERO,
            renewal: None,
        }
    }

    /// Hears what became of the logs that are being applied, and hands over those of epochs completed since.
    fn go_on(&mut self, context: &OperatorContext<'_>) -> UserResult {
        let Some(applier) = &mut self.applier else { return Ok(()) };
        loop {
            if let Some(epoch) = self.applying {
                let Some(outcome) = applier.outcome() else { return Ok(()) };
                self.applying = None;
                outcome?;
                let applied = self.pending.partition_point(|log| log.epoch() <= epoch);
                self.pending_bytes -= self.pending.drain(..applied).map(|log| log.bytes()).sum::<usize>();
            }
            let due = self.pending.partition_point(|log| log.epoch() <= self.completed);
            let now = within(&self.pending[..due], self.sink.transaction_bytes());
            let now_ms = context.clock.now_ms();
            let work = match self.pending[..now].last() {
                Some(last) => {
                    self.applying = Some(last.epoch());
                    Work::Logs(self.pending[..now].to_vec())
                }
                None if self.renewal.is_some_and(|renewal| renewal.at_ms <= now_ms) => {
                    self.applying = Some(Epoch::ZERO);
                    Work::Marker
                }
                None => return Ok(()),
            };
            if let Some(renewal) = &mut self.renewal {
                renewal.at_ms = now_ms.saturating_add(renewal.every_ms);
            }
            applier.ask(work, context.waker);
        }
    }
}

impl<S: LoggedSink> Operator for LoggedOperator<S> {
    fn open(&mut self, context: &mut OpenContext<'_>) -> UserResult {
        let state = context.states.list::<WriterLog>("logs")?;
        let restored = state.get(context.states)?.to_vec();
        state.clear(context.states)?;
        self.state = Some(state);
        if context.takes_checkpoints {
            self.limit_bytes = self.sink.log_limit_bytes().max(1);
        }
        let sink_context = SinkContext { info: context.info, restored: context.restored, end: context.end };
        if context.finished && restored.is_empty() {
            return Ok(());
        }
        let mut applier = self.sink.open(&sink_context)?;
        applier.end_with(context.end);
        for log in &restored {
            applier.restore(log, (self.sink.lost_marker(), self.sink.transaction_bytes()))?;
        }
        if !context.finished {
            self.writer = self.sink.writer(&sink_context);
            applier.begin(self.writer.clone())?;
            self.applier = Some(applier);
            self.renewal = self.sink.renew_marker_every().map(|every| {
                let every_ms = i64::try_from(every.as_millis()).unwrap_or(i64::MAX).max(1);
                Renewal { at_ms: context.clock.now_ms().saturating_add(every_ms), every_ms }
            });
        }
        Ok(())
    }

    fn on_batch(
        &mut self,
        _input: usize,
        batch: BoxBatch,
        context: &mut OperatorContext<'_>,
    ) -> UserResult<Option<BoxBatch>> {
        self.go_on(context)?;
        for (record, time) in batch.downcast::<S::Record>().into_timed() {
            let (sink, time) = (&mut self.sink, (time != NO_TIME).then_some(time));
            self.open.add(|entry| sink.encode(record, time, entry))?;
        }
        Ok(None)
    }

    fn takes_input(&self) -> bool {
        self.pending_bytes + self.open.bytes() < self.limit_bytes
    }

    fn yields_to_epochs(&self) -> bool {
        true
    }

    fn wants_checkpoint(&self) -> bool {
        // A full log may hold an epoch that was aborted: then the next one is needed although it is empty. Where all of it is
        // completed another epoch would only let in more, which has nowhere to go.
        let waits = || self.pending.last().is_some_and(|log| log.epoch() > self.completed);
        self.open.bytes() >= self.limit_bytes.div_ceil(2).max(1) || !self.takes_input() && waits()
    }

    fn is_committing(&self) -> bool {
        self.applying.is_some()
    }

    fn wake_at(&self) -> Option<i64> {
        let done = self.applier.as_ref().is_some_and(Applier::is_done).then_some(i64::MIN);
        done.or_else(|| self.renewal.filter(|_| self.applying.is_none()).map(|renewal| renewal.at_ms))
    }

    fn on_clock(&mut self, context: &mut OperatorContext<'_>) -> UserResult {
        self.go_on(context)
    }

    fn prepare_snapshot(&mut self, epoch: Epoch, context: &mut OperatorContext<'_>) -> UserResult {
        self.go_on(context)?;
        if let Some(log) = self.open.close(epoch) {
            self.pending_bytes += log.bytes();
            self.pending.push(log);
        }
        let Some(state) = &self.state else { return Ok(()) };
        if self.pending.is_empty() && self.stored_none {
            return Ok(());
        }
        self.stored_none = self.pending.is_empty();
        let log = WriterLog { writer: self.writer.clone(), epochs: self.pending.clone() };
        state.update(context.states, (!self.stored_none).then_some(log))?;
        Ok(())
    }

    fn on_completed(&mut self, epoch: Epoch, context: &mut OperatorContext<'_>) -> UserResult {
        self.completed = epoch;
        self.go_on(context)
    }
}
