//! `connect_broadcast`: a stream without keys and one that every subtask receives, to keep as broadcast
//! state.

use millpond_core::{Data, UserResult};
use millpond_dataflow::{BoxBatch, OpenContext, Operator, OperatorContext, Output, ProcessContext, Stream};
use millpond_state::BroadcastReader;

use crate::connect::{LEFT, join};
use crate::record::for_each_record;

/// A function over a stream without keys and a broadcast stream (BS-01).
pub trait BroadcastProcess: 'static {
    /// What comes from the main stream.
    type Input: Data;
    /// What every subtask receives.
    type Broadcast: Data;
    /// What it emits.
    type Output: Data;

    /// Declares broadcast state. Called once per attempt, before the first record.
    ///
    /// # Errors
    /// Ends the attempt.
    fn open(&mut self, context: &mut OpenContext<'_>) -> UserResult;

    /// Called for each record of the main stream; broadcast state can only be read (BS-02).
    ///
    /// # Errors
    /// Ends the attempt.
    fn process(
        &mut self,
        record: Self::Input,
        broadcast: BroadcastReader<'_>,
        output: &mut Output<Self::Output>,
    ) -> UserResult;

    /// Called on every subtask for each record of the broadcast stream. What it does to the state must
    /// not depend on the subtask, or the copies differ (BS-07).
    ///
    /// # Errors
    /// Ends the attempt.
    fn process_broadcast(
        &mut self,
        record: Self::Broadcast,
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

/// A stream connected to a broadcast stream, waiting for their function.
pub struct BroadcastConnected<T, U> {
    main: Stream<T>,
    broadcast: Stream<U>,
}

impl<T: Data, U: Data> BroadcastConnected<T, U> {
    pub(crate) fn new(main: Stream<T>, broadcast: Stream<U>) -> Self {
        BroadcastConnected { main, broadcast }
    }

    /// Processes both streams with one function that has broadcast state.
    #[track_caller]
    pub fn process<P: BroadcastProcess<Input = T, Broadcast = U>>(&self, name: &str, process: P) -> Stream<P::Output> {
        let operator = BroadcastOperator { process, output: Output::new() };
        let inputs = [(self.main.dataflow(), self.main.input()), (self.broadcast.dataflow(), self.broadcast.input())];
        join(name, "connect_broadcast", inputs, operator)
    }
}

struct BroadcastOperator<P: BroadcastProcess> {
    process: P,
    output: Output<P::Output>,
}

impl<P: BroadcastProcess> Operator for BroadcastOperator<P> {
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
        let BroadcastOperator { process, output } = self;
        if input == LEFT {
            let broadcast = context.states.reader();
            for_each_record(batch.downcast::<P::Input>(), output, context.outputs, |record, _, output| {
                process.process(record, broadcast, output)
            })
        } else {
            let mut view = ProcessContext::new(context.states, context.info, context.clock, context.watermark);
            for_each_record(batch.downcast::<P::Broadcast>(), output, context.outputs, |record, time, output| {
                view.set_time(time);
                process.process_broadcast(record, &mut view, output)
            })
        }
    }
}
