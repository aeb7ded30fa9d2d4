//! Two streams into one function: `connect` (with or without keys) and `connect_broadcast`.

use std::panic::Location;

use millpond_core::{Data, Key, UserResult};
use millpond_dataflow::graph::{Naming, NewOperator};
use millpond_dataflow::output::MAIN_PORT;
use millpond_dataflow::{
    BoxBatch, Keyed, KeyedContext, KeyedStream, OpenContext, Operator, OperatorContext, Output, ProcessContext, Stream,
};
use millpond_state::{BroadcastReader, KeyedBackend, KeyedBackendControl, StateDeclarer};

use crate::keyed_process::{for_each_keyed, open_backend};
use crate::record::for_each_record;

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

    /// Called once when both inputs have ended. There is no current key.
    ///
    /// # Errors
    /// Ends the attempt.
    fn on_end(&mut self, context: &mut KeyedContext<'_, Self::Key>, output: &mut Output<Self::Output>) -> UserResult {
        let _ = (context, output);
        Ok(())
    }
}

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

    /// Called once when both inputs have ended. There is no current key.
    ///
    /// # Errors
    /// Ends the attempt.
    fn on_end(&mut self, context: &mut KeyedContext<'_, Self::Key>, output: &mut Output<Self::Output>) -> UserResult {
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
        let location = Location::caller();
        self.left.dataflow().check_same(self.right.dataflow(), name, location);
        let inputs = vec![self.left.input(), self.right.input()];
        let added = NewOperator { naming: Naming::Given(name), kind: "connect", location, inputs };
        let operator = CoOperator { process, output: Output::new() };
        let handle = self.left.dataflow().add_operator(added, operator);
        Stream::new(self.left.dataflow().clone(), handle.output(MAIN_PORT))
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
        let location = Location::caller();
        self.left.dataflow().check_same(self.right.dataflow(), name, location);
        let inputs = vec![self.left.input(), self.right.input()];
        let added = NewOperator { naming: Naming::Given(name), kind: "connect", location, inputs };
        let operator = KeyedCoOperator { process, backend: None, output: Output::new() };
        let handle = self.left.dataflow().add_operator(added, operator);
        Stream::new(self.left.dataflow().clone(), handle.output(MAIN_PORT))
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
        let location = Location::caller();
        self.main.dataflow().check_same(self.broadcast.dataflow(), name, location);
        let inputs = vec![self.main.input(), self.broadcast.input()];
        let added = NewOperator { naming: Naming::Given(name), kind: "connect_broadcast", location, inputs };
        let operator = BroadcastOperator { process, output: Output::new() };
        let handle = self.main.dataflow().add_operator(added, operator);
        Stream::new(self.main.dataflow().clone(), handle.output(MAIN_PORT))
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
        let location = Location::caller();
        self.main.dataflow().check_same(self.broadcast.dataflow(), name, location);
        let inputs = vec![self.main.input(), self.broadcast.input()];
        let added = NewOperator { naming: Naming::Given(name), kind: "connect_broadcast", location, inputs };
        let operator = KeyedBroadcastOperator { process, backend: None, output: Output::new() };
        let handle = self.main.dataflow().add_operator(added, operator);
        Stream::new(self.main.dataflow().clone(), handle.output(MAIN_PORT))
    }
}

/// The first input of a two-input operator.
const LEFT: usize = 0;

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
        let mut view = ProcessContext::new(context.states, context.info, context.clock);
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
        let mut view = ProcessContext::new(context.states, context.info, context.clock);
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

/// The backend exists from `open` on; the runtime calls nothing before it.
const OPENED: &str = "open is called before anything else";

struct KeyedCoOperator<P: KeyedCoProcess> {
    process: P,
    backend: Option<KeyedBackend<P::Key>>,
    output: Output<P::Output>,
}

impl<P: KeyedCoProcess> Operator for KeyedCoOperator<P> {
    fn open(&mut self, context: &mut OpenContext<'_>) -> UserResult {
        self.output.listen(context.sides);
        let mut backend = open_backend(context);
        self.process.open(&mut backend.declarer(), context)?;
        self.backend = Some(backend);
        Ok(())
    }

    fn on_batch(
        &mut self,
        input: usize,
        batch: BoxBatch,
        context: &mut OperatorContext<'_>,
    ) -> UserResult<Option<BoxBatch>> {
        let KeyedCoOperator { process, backend, output } = self;
        let backend = backend.as_mut().expect(OPENED);
        let mut view = KeyedContext::new(backend, context.states, context.info, context.clock);
        if input == LEFT {
            let batch = batch.downcast::<Keyed<P::Key, P::Left>>();
            for_each_keyed(batch, &mut view, output, context.outputs, |record, view, output| {
                process.process_left(record, view, output)
            })
        } else {
            let batch = batch.downcast::<Keyed<P::Key, P::Right>>();
            for_each_keyed(batch, &mut view, output, context.outputs, |record, view, output| {
                process.process_right(record, view, output)
            })
        }
    }

    fn on_end(&mut self, context: &mut OperatorContext<'_>) -> UserResult {
        let backend = self.backend.as_mut().expect(OPENED);
        let mut view = KeyedContext::new(backend, context.states, context.info, context.clock);
        self.process.on_end(&mut view, &mut self.output)?;
        self.output.flush(context.outputs);
        Ok(())
    }

    fn keyed(&mut self) -> Option<&mut dyn KeyedBackendControl> {
        self.backend.as_mut().map(|backend| backend as &mut dyn KeyedBackendControl)
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
        let mut view = ProcessContext::new(context.states, context.info, context.clock);
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
            let mut view = ProcessContext::new(context.states, context.info, context.clock);
            for_each_record(batch.downcast::<P::Broadcast>(), output, context.outputs, |record, time, output| {
                view.set_time(time);
                process.process_broadcast(record, &mut view, output)
            })
        }
    }
}

struct KeyedBroadcastOperator<P: KeyedBroadcastProcess> {
    process: P,
    backend: Option<KeyedBackend<P::Key>>,
    output: Output<P::Output>,
}

impl<P: KeyedBroadcastProcess> Operator for KeyedBroadcastOperator<P> {
    fn open(&mut self, context: &mut OpenContext<'_>) -> UserResult {
        self.output.listen(context.sides);
        let mut backend = open_backend(context);
        self.process.open(&mut backend.declarer(), context)?;
        self.backend = Some(backend);
        Ok(())
    }

    fn on_batch(
        &mut self,
        input: usize,
        batch: BoxBatch,
        context: &mut OperatorContext<'_>,
    ) -> UserResult<Option<BoxBatch>> {
        let KeyedBroadcastOperator { process, backend, output } = self;
        let backend = backend.as_mut().expect(OPENED);
        let mut view = KeyedContext::new(backend, context.states, context.info, context.clock);
        if input == LEFT {
            let batch = batch.downcast::<Keyed<P::Key, P::Input>>();
            for_each_keyed(batch, &mut view, output, context.outputs, |record, view, output| {
                process.process(record, view, output)
            })
        } else {
            for_each_record(batch.downcast::<P::Broadcast>(), output, context.outputs, |record, time, output| {
                view.set_time(time);
                process.process_broadcast(record, &mut view, output)
            })
        }
    }

    fn on_end(&mut self, context: &mut OperatorContext<'_>) -> UserResult {
        let backend = self.backend.as_mut().expect(OPENED);
        let mut view = KeyedContext::new(backend, context.states, context.info, context.clock);
        self.process.on_end(&mut view, &mut self.output)?;
        self.output.flush(context.outputs);
        Ok(())
    }

    fn keyed(&mut self) -> Option<&mut dyn KeyedBackendControl> {
        self.backend.as_mut().map(|backend| backend as &mut dyn KeyedBackendControl)
    }
}
