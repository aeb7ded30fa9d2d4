//! `connect`: two streams without keys into one function.

use std::panic::Location;

use millpond_core::{Data, UserResult};
use millpond_dataflow::graph::{Input, Naming, NewOperator};
use millpond_dataflow::output::MAIN_PORT;
use millpond_dataflow::{BoxBatch, Dataflow, OpenContext, Operator, OperatorContext, Output, ProcessContext, Stream};

use crate::record::for_each_record;

/// The first input of a two-input operator.
pub(crate) const LEFT: usize = 0;

/// Adds an operator that reads two streams, which must belong to one job, and returns the stream of its
/// main output.
#[track_caller]
pub(crate) fn join<T: Data>(
    name: &str,
    kind: &'static str,
    inputs: [(&Dataflow, Input); 2],
    operator: impl Operator + 'static,
) -> Stream<T> {
    join_at(name, kind, Location::caller(), inputs, operator)
}

/// As [`join`], of a place in the user's code that is known already.
pub(crate) fn join_at<T: Data>(
    name: &str,
    kind: &'static str,
    location: &'static Location<'static>,
    inputs: [(&Dataflow, Input); 2],
    operator: impl Operator + 'static,
) -> Stream<T> {
    let [(dataflow, left), (other, right)] = inputs;
    dataflow.check_same(other, name, location);
    let added = NewOperator { naming: Naming::Given(name), kind, location, inputs: vec![left, right] };
    let handle = dataflow.add_operator(added, operator);
    Stream::new(dataflow.clone(), handle.output(MAIN_PORT))
}

/// A function over two streams without keys. It may keep operator state.
pub trait CoProcess: 'static {
    /// What comes from the first stream.
    type Left: Data;
    /// What comes from the second stream.
    type Right: Data;
    /// What it emits.
    type Output: Data;

    /// Called once per attempt, before the first record.
    ///
    /// # Errors
    /// Ends the attempt.
    fn open(&mut self, context: &mut OpenContext<'_>) -> UserResult {
        let _ = context;
        Ok(())
    }

    /// Called for each record of the first stream.
    ///
    /// # Errors
    /// Ends the attempt.
    fn process_left(
        &mut self,
        record: Self::Left,
        context: &mut ProcessContext<'_>,
        output: &mut Output<Self::Output>,
    ) -> UserResult;

    /// Called for each record of the second stream.
    ///
    /// # Errors
    /// Ends the attempt.
    fn process_right(
        &mut self,
        record: Self::Right,
        context: &mut ProcessContext<'_>,
        output: &mut Output<Self::Output>,
    ) -> UserResult;

    /// Called once when both inputs have ended.
    ///
    /// # Errors
    /// Ends the attempt.
    fn on_end(&mut self, context: &mut ProcessContext<'_>, output: &mut Output<Self::Output>) -> UserResult {
        let _ = (context, output);
        Ok(())
    }
}

/// Two connected streams, waiting for their function.
pub struct Connected<T, U> {
    left: Stream<T>,
    right: Stream<U>,
}

impl<T: Data, U: Data> Connected<T, U> {
    pub(crate) fn new(left: Stream<T>, right: Stream<U>) -> Self {
        Connected { left, right }
    }

    /// Processes both streams with one function.
    #[track_caller]
    pub fn process<P: CoProcess<Left = T, Right = U>>(&self, name: &str, process: P) -> Stream<P::Output> {
        let operator = CoOperator { process, output: Output::new() };
        let inputs = [(self.left.dataflow(), self.left.input()), (self.right.dataflow(), self.right.input())];
        join(name, "connect", inputs, operator)
    }
}

struct CoOperator<P: CoProcess> {
    process: P,
    output: Output<P::Output>,
}

impl<P: CoProcess> Operator for CoOperator<P> {
    fn open(&mut self, context: &mut OpenContext<'_>) -> UserResult {
        self.output.listen(context.sides);
        self.process.open(context)
    }

    fn on_end(&mut self, context: &mut OperatorContext<'_>) -> UserResult {
        let mut view = ProcessContext::new(context.states, context.info, context.clock, context.watermark);
        self.process.on_end(&mut view, &mut self.output)?;
        self.output.flush(context.outputs);
        Ok(())
    }

    fn on_batch(
        &mut self,
        input: usize,
        batch: BoxBatch,
        context: &mut OperatorContext<'_>,
    ) -> UserResult<Option<BoxBatch>> {
        let CoOperator { process, output } = self;
        let mut view = ProcessContext::new(context.states, context.info, context.clock, context.watermark);
        if input == LEFT {
            for_each_record(batch.downcast::<P::Left>(), output, context.outputs, |record, time, output| {
                view.set_time(time);
                process.process_left(record, &mut view, output)
            })
        } else {
            for_each_record(batch.downcast::<P::Right>(), output, context.outputs, |record, time, output| {
                view.set_time(time);
                process.process_right(record, &mut view, output)
            })
        }
    }
}
