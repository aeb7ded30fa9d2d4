//! `connect_broadcast` on a keyed stream: keyed state beside broadcast state.

use millpond_core::{Data, Key, UserResult};
use millpond_dataflow::{
    Advance, BoxBatch, Keyed, KeyedContext, KeyedStream, OpenContext, Operator, OperatorContext, Output, Stream, Timer,
};
use millpond_state::{KeyedBackendControl, StateDeclarer};

use crate::connect::{LEFT, join};
use crate::keyed_host::{KeyedHost, for_each_keyed};
use crate::record::for_each_record;

/// A function over a keyed stream and a broadcast stream (BS-01).
pub trait KeyedBroadcastProcess: 'static {
    /// The key.
    type Key: Key;
    /// What comes from the keyed stream.
    type Input: Data;
    /// What every subtask receives.
    type Broadcast: Data;
    /// What it emits.
    type Output: Data;

    /// Declares keyed state, and broadcast state through the context.
    ///
    /// # Errors
    /// Ends the attempt.
    fn open(&mut self, states: &mut StateDeclarer<'_, Self::Key>, context: &mut OpenContext<'_>) -> UserResult;

    /// Called for each record of the keyed stream; broadcast state can only be read, through
    /// [`KeyedContext::operator_states`] (BS-02).
    ///
    /// # Errors
    /// Ends the attempt.
    fn process(
        &mut self,
        record: Self::Input,
        context: &mut KeyedContext<'_, Self::Key>,
        output: &mut Output<Self::Output>,
    ) -> UserResult;

    /// Called on every subtask for each record of the broadcast stream. There is no current key; the
    /// state of all keys of this subtask can be visited with `for_each_key` (BS-03).
    ///
    /// # Errors
    /// Ends the attempt.
    fn process_broadcast(
        &mut self,
        record: Self::Broadcast,
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

/// A keyed stream connected to a broadcast stream, waiting for their function.
pub struct KeyedBroadcastConnected<K, T, U> {
    main: KeyedStream<K, T>,
    broadcast: Stream<U>,
}

impl<K: Key, T: Data, U: Data> KeyedBroadcastConnected<K, T, U> {
    pub(crate) fn new(main: KeyedStream<K, T>, broadcast: Stream<U>) -> Self {
        KeyedBroadcastConnected { main, broadcast }
    }

    /// Processes both streams with one function that has keyed state and broadcast state.
    #[track_caller]
    pub fn process<P: KeyedBroadcastProcess<Key = K, Input = T, Broadcast = U>>(
        &self,
        name: &str,
        process: P,
    ) -> Stream<P::Output> {
        let operator = KeyedBroadcastOperator { process, keyed: KeyedHost::default(), output: Output::new() };
        let inputs = [(self.main.dataflow(), self.main.input()), (self.broadcast.dataflow(), self.broadcast.input())];
        join(name, "connect_broadcast", inputs, operator)
    }
}

struct KeyedBroadcastOperator<P: KeyedBroadcastProcess> {
    process: P,
    keyed: KeyedHost<P::Key>,
    output: Output<P::Output>,
}

impl<P: KeyedBroadcastProcess> Operator for KeyedBroadcastOperator<P> {
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
        let KeyedBroadcastOperator { process, keyed, output } = self;
        let OperatorContext { info, states, outputs, clock, watermark, .. } = context;
        let mut view = keyed.view(states, info, clock, *watermark);
        if input == LEFT {
            let batch = batch.downcast::<Keyed<P::Key, P::Input>>();
            for_each_keyed(batch, &mut view, output, outputs, |record, view, output| {
                process.process(record, view, output)
            })
        } else {
            for_each_record(batch.downcast::<P::Broadcast>(), output, outputs, |record, time, output| {
                view.set_time(time);
                process.process_broadcast(record, &mut view, output)
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
