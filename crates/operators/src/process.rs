//! `process` on a stream without keys: a function with operator state.

use millpond_core::{Data, Epoch, UserResult};
use millpond_dataflow::{BoxBatch, OpenContext, Operator, OperatorContext, Output, ProcessContext};

use crate::record::for_each_record;

/// A function over a stream without keys. It may keep operator state (lists, broadcast maps, raw bytes),
/// which it declares in `open`.
pub trait Process: 'static {
    /// What it takes.
    type Input: Data;
    /// What it emits.
    type Output: Data;

    /// Called once per attempt, before the first record; operator state is restored already.
    ///
    /// # Errors
    /// Ends the attempt.
    fn open(&mut self, context: &mut OpenContext<'_>) -> UserResult {
        let _ = context;
        Ok(())
    }

    /// Called for each record.
    ///
    /// # Errors
    /// Ends the attempt.
    fn process(
        &mut self,
        record: Self::Input,
        context: &mut ProcessContext<'_>,
        output: &mut Output<Self::Output>,
    ) -> UserResult;

    /// Called right before operator state is captured for the checkpoint of `epoch`.
    ///
    /// # Errors
    /// Ends the attempt.
    fn snapshot(&mut self, epoch: Epoch, context: &mut ProcessContext<'_>) -> UserResult {
        let _ = (epoch, context);
        Ok(())
    }

    /// Called once when the input has ended.
    ///
    /// # Errors
    /// Ends the attempt.
    fn on_end(&mut self, context: &mut ProcessContext<'_>, output: &mut Output<Self::Output>) -> UserResult {
        let _ = (context, output);
        Ok(())
    }
}

/// Runs a [`Process`].
pub(crate) struct ProcessOperator<P: Process> {
    process: P,
    output: Output<P::Output>,
}

impl<P: Process> ProcessOperator<P> {
    pub(crate) fn new(process: P) -> Self {
        ProcessOperator { process, output: Output::new() }
    }
}

impl<P: Process> Operator for ProcessOperator<P> {
    fn open(&mut self, context: &mut OpenContext<'_>) -> UserResult {
        self.output.listen(context.sides);
        self.process.open(context)
    }

    fn on_batch(
        &mut self,
        _input: usize,
        batch: BoxBatch,
        context: &mut OperatorContext<'_>,
    ) -> UserResult<Option<BoxBatch>> {
        let mut view = ProcessContext::new(context.states, context.info, context.clock, context.watermark);
        let process = &mut self.process;
        for_each_record(batch.downcast::<P::Input>(), &mut self.output, context.outputs, |record, time, output| {
            view.set_time(time);
            process.process(record, &mut view, output)
        })
    }

    fn on_end(&mut self, context: &mut OperatorContext<'_>) -> UserResult {
        let mut view = ProcessContext::new(context.states, context.info, context.clock, context.watermark);
        self.process.on_end(&mut view, &mut self.output)?;
        self.output.flush(context.outputs);
        Ok(())
    }

    fn prepare_snapshot(&mut self, epoch: Epoch, context: &mut OperatorContext<'_>) -> UserResult {
        let mut view = ProcessContext::new(context.states, context.info, context.clock, context.watermark);
        self.process.snapshot(epoch, &mut view)
    }
}
