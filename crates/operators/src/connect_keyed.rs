//! `connect` on keyed streams: two streams into one function with shared keyed state.

use millpond_core::{Data, Key, UserResult};
use millpond_dataflow::{
    Advance, BoxBatch, Keyed, KeyedContext, KeyedStream, OpenContext, Operator, OperatorContext, Output, Stream, Timer,
};
use millpond_state::{KeyedBackendControl, StateDeclarer};

use crate::connect::{LEFT, join};
use crate::keyed_host::{KeyedHost, for_each_keyed};

/// A function over two streams with keys of one type; both sides see the same keyed state.
pub trait KeyedCoProcess: 'static {
    /// The key.
    type Key: Key;
    /// What comes from the first stream.
    type Left: Data;
    /// What comes from the second stream.
    type Right: Data;
    /// What it emits.
    type Output: Data;

    /// Declares keyed state. Called once per attempt, before the first record.
    ///
    /// # Errors
    /// Ends the attempt.
    fn open(&mut self, states: &mut StateDeclarer<'_, Self::Key>, context: &mut OpenContext<'_>) -> UserResult;

    /// Called for each record of the first stream, with its key as the current key.
    ///
    /// # Errors
    /// Ends the attempt.
    fn process_left(
        &mut self,
        record: Self::Left,
        context: &mut KeyedContext<'_, Self::Key>,
        output: &mut Output<Self::Output>,
    ) -> UserResult;

    /// Called for each record of the second stream, with its key as the current key.
    ///
    /// # Errors
    /// Ends the attempt.
    fn process_right(
        &mut self,
        record: Self::Right,
        context: &mut KeyedContext<'_, Self::Key>,
        output: &mut Output<Self::Output>,
    ) -> UserResult;

    /// Called when a timer fires, with its key as the current key (TM-30).
    ///
    /// # Errors
    /// Ends the attempt.
    fn on_timer(
        &mut self,
        timer: Timer,
        context: &mut KeyedContext<'_, Self::Key>,
        output: &mut Output<Self::Output>,
    ) -> UserResult {
        let _ = (timer, context, output);
        Ok(())
    }

    /// Called once when both inputs have ended. There is no current key.
    ///
    /// # Errors
    /// Ends the attempt.
    fn on_end(&mut self, context: &mut KeyedContext<'_, Self::Key>, output: &mut Output<Self::Output>) -> UserResult {
        let _ = (context, output);
        Ok(())
    }
}

/// Two connected keyed streams, waiting for their function.
pub struct KeyedConnected<K, T, U> {
    left: KeyedStream<K, T>,
    right: KeyedStream<K, U>,
}

impl<K: Key, T: Data, U: Data> KeyedConnected<K, T, U> {
    pub(crate) fn new(left: KeyedStream<K, T>, right: KeyedStream<K, U>) -> Self {
        KeyedConnected { left, right }
    }

    /// Processes both streams with one function that has keyed state.
    #[track_caller]
    pub fn process<P: KeyedCoProcess<Key = K, Left = T, Right = U>>(
        &self,
        name: &str,
        process: P,
    ) -> Stream<P::Output> {
        let operator = KeyedCoOperator { process, keyed: KeyedHost::default(), output: Output::new() };
        let inputs = [(self.left.dataflow(), self.left.input()), (self.right.dataflow(), self.right.input())];
        join(name, "connect", inputs, operator)
    }
}

struct KeyedCoOperator<P: KeyedCoProcess> {
    process: P,
    keyed: KeyedHost<P::Key>,
    output: Output<P::Output>,
}

impl<P: KeyedCoProcess> Operator for KeyedCoOperator<P> {
    fn open(&mut self, context: &mut OpenContext<'_>) -> UserResult {
        self.output.listen(context.sides);
        let process = &mut self.process;
        self.keyed.open(context, |states, context| process.open(states, context))
    }

    fn on_batch(
        &mut self,
        input: usize,
        batch: BoxBatch,
        context: &mut OperatorContext<'_>,
    ) -> UserResult<Option<BoxBatch>> {
        let KeyedCoOperator { process, keyed, output } = self;
        let OperatorContext { info, states, outputs, clock, watermark, .. } = context;
        let mut view = keyed.view(states, info, clock, *watermark);
        if input == LEFT {
            let batch = batch.downcast::<Keyed<P::Key, P::Left>>();
            for_each_keyed(batch, &mut view, output, outputs, |record, view, output| {
                process.process_left(record, view, output)
            })
        } else {
            let batch = batch.downcast::<Keyed<P::Key, P::Right>>();
            for_each_keyed(batch, &mut view, output, outputs, |record, view, output| {
                process.process_right(record, view, output)
            })
        }
    }

    fn on_watermark(&mut self, watermark: i64, context: &mut OperatorContext<'_>) -> UserResult<Advance> {
        let process = &mut self.process;
        self.keyed.on_watermark(watermark, context, &mut self.output, |timer, view, output| {
            process.on_timer(timer, view, output)
        })
    }

    fn wake_at(&self) -> Option<i64> {
        self.keyed.wake_at()
    }

    fn on_clock(&mut self, context: &mut OperatorContext<'_>) -> UserResult {
        let process = &mut self.process;
        self.keyed.on_clock(context, &mut self.output, |timer, view, output| process.on_timer(timer, view, output))
    }

    fn on_end(&mut self, context: &mut OperatorContext<'_>) -> UserResult {
        let mut view = self.keyed.view(context.states, context.info, context.clock, context.watermark);
        self.process.on_end(&mut view, &mut self.output)?;
        self.output.flush(context.outputs);
        Ok(())
    }

    fn keyed(&mut self) -> Option<&mut dyn KeyedBackendControl> {
        self.keyed.control()
    }
}
