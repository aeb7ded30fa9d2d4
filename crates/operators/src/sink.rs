//! A sink as an operator: prepares at the epoch's end, commits after the checkpoint is durable.

use std::panic::Location;

use millpond_core::{Data, Epoch, UserError, UserResult};
use millpond_dataflow::graph::{Naming, NewOperator};
use millpond_dataflow::{BoxBatch, OpenContext, Operator, OperatorContext, Sink, SinkContext, SinkStream, Stream};
use millpond_state::OperatorListState;

/// Methods of a stream that end it.
pub trait SinkOperators<T: Data> {
    /// Sends the stream to a sink. `name` identifies its prepared output in checkpoints.
    #[track_caller]
    fn sink<S: Sink<Record = T>>(&self, name: &str, sink: S) -> SinkStream;
}

impl<T: Data> SinkOperators<T> for Stream<T> {
    #[track_caller]
    fn sink<S: Sink<Record = T>>(&self, name: &str, sink: S) -> SinkStream {
        let added = NewOperator {
            naming: Naming::Given(name),
            kind: "sink",
            location: Location::caller(),
            inputs: vec![self.input()],
        };
        SinkStream::new(self.dataflow().add_operator(added, SinkOperator::new(sink)))
    }
}

/// Prepared output of an epoch that waits for its checkpoint.
type Pending<C> = (Epoch, C);

struct SinkOperator<S: Sink> {
    sink: S,
    state: Option<OperatorListState<Pending<S::Committable>>>,
    pending: Vec<Pending<S::Committable>>,
    cleaned_up: bool,
}

impl<S: Sink> SinkOperator<S> {
    fn new(sink: S) -> Self {
        SinkOperator { sink, state: None, pending: Vec::new(), cleaned_up: false }
    }

    /// Commits everything prepared in epochs up to `epoch`, in order. A commit that fails does not keep
    /// the others back; it stays pending and its error is reported after (TP-04, TP-08).
    fn commit_up_to(&mut self, epoch: Epoch) -> UserResult {
        self.commit_each(epoch, S::commit)
    }

    fn commit_each(
        &mut self,
        epoch: Epoch,
        mut commit: impl FnMut(&mut S, S::Committable) -> UserResult,
    ) -> UserResult {
        let mut failure: Option<UserError> = None;
        for (prepared_in, committable) in std::mem::take(&mut self.pending) {
            if prepared_in > epoch {
                self.pending.push((prepared_in, committable));
            } else if let Err(error) = commit(&mut self.sink, committable.clone()) {
                self.pending.push((prepared_in, committable));
                failure.get_or_insert(error);
            }
        }
        failure.map_or(Ok(()), Err)
    }
}

impl<S: Sink> Operator for SinkOperator<S> {
    fn open(&mut self, context: &mut OpenContext<'_>) -> UserResult {
        let state = context.states.list::<Pending<S::Committable>>("committables")?;
        self.pending = state.get(context.states)?.to_vec();
        self.pending.sort_by_key(|(epoch, _)| *epoch);
        self.state = Some(state);
        // What a restored checkpoint holds is durable by definition: commit it before anything else.
        let finished = context.finished;
        self.commit_each(Epoch(u64::MAX), |sink, committable| sink.commit_restored(committable, finished))?;
        self.sink.open(&SinkContext { info: context.info, restored: context.restored, end: context.end })
    }

    fn on_batch(
        &mut self,
        _input: usize,
        batch: BoxBatch,
        _context: &mut OperatorContext<'_>,
    ) -> UserResult<Option<BoxBatch>> {
        for record in batch.downcast::<S::Record>().records {
            self.sink.write(record)?;
        }
        Ok(None)
    }

    fn prepare_snapshot(&mut self, epoch: Epoch, context: &mut OperatorContext<'_>) -> UserResult {
        let prepared = self.sink.prepare(epoch)?;
        self.pending.extend(prepared.into_iter().map(|committable| (epoch, committable)));
        if let Some(state) = &self.state {
            state.update(context.states, self.pending.clone())?;
        }
        Ok(())
    }

    fn on_completed(&mut self, epoch: Epoch, context: &mut OperatorContext<'_>) -> UserResult {
        self.commit_up_to(epoch)?;
        if !self.cleaned_up && context.info.index == 0 {
            self.sink.clean_up()?;
        }
        self.cleaned_up = true;
        Ok(())
    }
}
