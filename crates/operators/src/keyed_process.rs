//! Keyed `process`: a function with keyed state, as a trait and as a closure; and the methods of keyed
//! streams built on it.

use std::marker::PhantomData;
use std::panic::Location;

use millpond_core::{Data, Epoch, Key, UserResult};
use millpond_dataflow::graph::Naming;
use millpond_dataflow::{
    Advance, BoxBatch, Keyed, KeyedContext, KeyedStream, OpenContext, Operator, OperatorContext, Output, Stream, Timer,
};
use millpond_state::{AggregateFunction, KeyedBackendControl, StateDeclarer, StateError};

use crate::aggregate::{Aggregate, Fold};
use crate::broadcast_keyed::KeyedBroadcastConnected;
use crate::connect_keyed::KeyedConnected;
use crate::interval_join::{Interval, IntervalJoined};
use crate::keyed_host::{KeyedHost, for_each_keyed};
use crate::reduce::Reduce;
use crate::temporal_join::TemporalJoined;
use crate::windows::{Joined, WindowedStream, Windows};

/// A function over a keyed stream. It declares its keyed state in `open`; in `process` the state of the
/// current record's key is reached through the context.
///
/// ```
/// use millpond_operators::KeyedProcess;
/// use millpond_dataflow::{KeyedContext, OpenContext, Output};
/// use millpond_core::UserResult;
/// use millpond_state::{StateDeclarer, ValueState};
///
/// struct Count(Option<ValueState<u64>>);
///
/// impl KeyedProcess for Count {
///     type Key = String;
///     type Input = String;
///     type Output = (String, u64);
///
///     fn open(&mut self, states: &mut StateDeclarer<'_, String>, _: &mut OpenContext<'_>) -> UserResult {
///         self.0 = Some(states.value("count")?);
///         Ok(())
///     }
///
///     fn process(
///         &mut self,
///         word: String,
///         context: &mut KeyedContext<'_, String>,
///         output: &mut Output<(String, u64)>,
///     ) -> UserResult {
///         let Some(count) = self.0 else { return Ok(()) };
///         let seen = count.get(context)?.copied().unwrap_or(0) + 1;
///         count.set(context, seen)?;
///         output.emit((word, seen));
///         Ok(())
///     }
/// }
/// ```
pub trait KeyedProcess: 'static {
    /// The key.
    type Key: Key;
    /// What it takes.
    type Input: Data;
    /// What it emits.
    type Output: Data;

    /// Declares keyed state. Called once per attempt, before the first record.
    ///
    /// # Errors
    /// Ends the attempt.
    fn open(&mut self, states: &mut StateDeclarer<'_, Self::Key>, context: &mut OpenContext<'_>) -> UserResult;

    /// Called for each record, with its key as the current key.
    ///
    /// # Errors
    /// Ends the attempt.
    fn process(
        &mut self,
        record: Self::Input,
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

    /// Called right before state is captured for the checkpoint of `epoch`. There is no current key.
    ///
    /// # Errors
    /// Ends the attempt.
    fn snapshot(&mut self, epoch: Epoch, context: &mut KeyedContext<'_, Self::Key>) -> UserResult {
        let _ = (epoch, context);
        Ok(())
    }

    /// Called once when the input has ended. There is no current key.
    ///
    /// # Errors
    /// Ends the attempt.
    fn on_end(&mut self, context: &mut KeyedContext<'_, Self::Key>, output: &mut Output<Self::Output>) -> UserResult {
        let _ = (context, output);
        Ok(())
    }
}

/// Runs a [`KeyedProcess`].
pub(crate) struct KeyedProcessOperator<P: KeyedProcess> {
    process: P,
    keyed: KeyedHost<P::Key>,
    output: Output<P::Output>,
}

impl<P: KeyedProcess> KeyedProcessOperator<P> {
    pub(crate) fn new(process: P) -> Self {
        KeyedProcessOperator { process, keyed: KeyedHost::default(), output: Output::new() }
    }
}

impl<P: KeyedProcess> Operator for KeyedProcessOperator<P> {
    fn open(&mut self, context: &mut OpenContext<'_>) -> UserResult {
        self.output.listen(context.sides);
        let process = &mut self.process;
        self.keyed.open(context, |states, context| process.open(states, context))
    }

    fn on_batch(
        &mut self,
        _input: usize,
        batch: BoxBatch,
        context: &mut OperatorContext<'_>,
    ) -> UserResult<Option<BoxBatch>> {
        let KeyedProcessOperator { process, keyed, output } = self;
        let OperatorContext { info, states, outputs, clock, watermark, .. } = context;
        let mut view = keyed.view(states, info, clock, *watermark);
        let batch = batch.downcast::<Keyed<P::Key, P::Input>>();
        for_each_keyed(batch, &mut view, output, outputs, |record, view, output| process.process(record, view, output))
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

    fn prepare_snapshot(&mut self, epoch: Epoch, context: &mut OperatorContext<'_>) -> UserResult {
        let mut view = self.keyed.view(context.states, context.info, context.clock, context.watermark);
        self.process.snapshot(epoch, &mut view)
    }

    fn keyed(&mut self) -> Option<&mut dyn KeyedBackendControl> {
        self.keyed.control()
    }
}

/// A [`KeyedProcess`] made of two closures: one declares the states, one is called for each record.
struct ClosureProcess<K, T, U, S, D, F> {
    declare: Option<D>,
    states: Option<S>,
    function: F,
    types: PhantomData<fn(K, T) -> U>,
}

impl<K: Key, T: Data, U: Data, S, D, F> KeyedProcess for ClosureProcess<K, T, U, S, D, F>
where
    S: 'static,
    D: FnOnce(&mut StateDeclarer<'_, K>) -> Result<S, StateError> + 'static,
    F: FnMut(&S, T, &mut KeyedContext<'_, K>, &mut Output<U>) -> UserResult + 'static,
{
    type Key = K;
    type Input = T;
    type Output = U;

    fn open(&mut self, states: &mut StateDeclarer<'_, K>, _context: &mut OpenContext<'_>) -> UserResult {
        if let Some(declare) = self.declare.take() {
            self.states = Some(declare(states)?);
        }
        Ok(())
    }

    fn process(&mut self, record: T, context: &mut KeyedContext<'_, K>, output: &mut Output<U>) -> UserResult {
        match &self.states {
            Some(states) => (self.function)(states, record, context, output),
            None => unreachable!("open declares the states before the first record"),
        }
    }
}

/// Methods of every keyed stream.
pub trait KeyedStreamOperators<K: Key, T: Data> {
    /// Runs a function with keyed state.
    #[track_caller]
    fn process<P: KeyedProcess<Key = K, Input = T>>(&self, name: &str, process: P) -> Stream<P::Output>;

    /// Runs a closure with keyed state: `declare` declares the states once and returns their handles,
    /// which `function` is given with each record.
    #[track_caller]
    fn process_with<U: Data, S, D, F>(&self, name: &str, declare: D, function: F) -> Stream<U>
    where
        S: 'static,
        D: FnOnce(&mut StateDeclarer<'_, K>) -> Result<S, StateError> + 'static,
        F: FnMut(&S, T, &mut KeyedContext<'_, K>, &mut Output<U>) -> UserResult + 'static;

    /// Cuts the stream into windows; what becomes of them is said next.
    fn window(&self, windows: Windows<T>) -> WindowedStream<K, T>;

    /// Windows of `count` records of a key each (WI-40).
    fn count_window(&self, count: u64) -> WindowedStream<K, T>;

    /// Every `step` records of a key, a window of its last `count` (WI-40).
    fn sliding_count_window(&self, count: u64, step: u64) -> WindowedStream<K, T>;

    /// Combines each record with the result so far of its key, and emits the new result. The first
    /// record of a key is its own result (KS-40).
    #[track_caller]
    fn reduce(&self, name: &str, reduce: impl Fn(T, T) -> T + 'static) -> Stream<(K, T)>;

    /// Folds each record into an accumulator of its key, which starts as `initial`, and emits the
    /// accumulator.
    #[track_caller]
    fn fold<A: Data>(&self, name: &str, initial: A, fold: impl FnMut(&mut A, T) + 'static) -> Stream<(K, A)>;

    /// Aggregates the records of each key and emits the result after each.
    #[track_caller]
    fn aggregate<A>(&self, name: &str, aggregate: A) -> Stream<(K, A::Output)>
    where
        A: AggregateFunction<Input = T> + 'static,
        A::Output: Data;

    /// Counts the records of each key and emits the count after each.
    #[track_caller]
    fn count(&self, name: &str) -> Stream<(K, u64)>;

    /// Connects two streams with keys of one type, to be processed by one function with shared state.
    fn connect<U: Data>(&self, other: &KeyedStream<K, U>) -> KeyedConnected<K, T, U>;

    /// Joins records of two streams whose event times lie close to each other (JN-01).
    fn interval_join<U: Data>(&self, other: &KeyedStream<K, U>, interval: Interval) -> IntervalJoined<K, T, U>;

    /// Joins records of two streams that are in the same window; the windows are said next (JN-10).
    fn join<U: Data>(&self, other: &KeyedStream<K, U>) -> Joined<K, T, U>;

    /// Joins each record with the version of its key that was in force at its time, as `versions` tells (as-of join).
    fn temporal_join<V: Data>(&self, versions: &KeyedStream<K, V>) -> TemporalJoined<K, T, V>;

    /// Connects a stream whose records go to every subtask, to keep as broadcast state.
    fn connect_broadcast<U: Data>(&self, rules: &Stream<U>) -> KeyedBroadcastConnected<K, T, U>;
}

impl<K: Key, T: Data> KeyedStreamOperators<K, T> for KeyedStream<K, T> {
    fn window(&self, windows: Windows<T>) -> WindowedStream<K, T> {
        WindowedStream::new(self.clone(), windows)
    }

    fn count_window(&self, count: u64) -> WindowedStream<K, T> {
        WindowedStream::counted(self.clone(), count, None)
    }

    fn sliding_count_window(&self, count: u64, step: u64) -> WindowedStream<K, T> {
        WindowedStream::counted(self.clone(), count, Some(step))
    }

    #[track_caller]
    fn process<P: KeyedProcess<Key = K, Input = T>>(&self, name: &str, process: P) -> Stream<P::Output> {
        keyed(self, name, "process", process)
    }

    #[track_caller]
    fn process_with<U: Data, S, D, F>(&self, name: &str, declare: D, function: F) -> Stream<U>
    where
        S: 'static,
        D: FnOnce(&mut StateDeclarer<'_, K>) -> Result<S, StateError> + 'static,
        F: FnMut(&S, T, &mut KeyedContext<'_, K>, &mut Output<U>) -> UserResult + 'static,
    {
        let process = ClosureProcess { declare: Some(declare), states: None, function, types: PhantomData };
        keyed(self, name, "process", process)
    }

    #[track_caller]
    fn reduce(&self, name: &str, reduce: impl Fn(T, T) -> T + 'static) -> Stream<(K, T)> {
        keyed(self, name, "reduce", Reduce::new(reduce))
    }

    #[track_caller]
    fn fold<A: Data>(&self, name: &str, initial: A, fold: impl FnMut(&mut A, T) + 'static) -> Stream<(K, A)> {
        keyed(self, name, "fold", Fold::new(initial, fold))
    }

    #[track_caller]
    fn aggregate<A>(&self, name: &str, aggregate: A) -> Stream<(K, A::Output)>
    where
        A: AggregateFunction<Input = T> + 'static,
        A::Output: Data,
    {
        keyed(self, name, "aggregate", Aggregate::new(aggregate))
    }

    #[track_caller]
    fn count(&self, name: &str) -> Stream<(K, u64)> {
        keyed(self, name, "count", Fold::new(0u64, |count: &mut u64, _| *count += 1))
    }

    fn connect<U: Data>(&self, other: &KeyedStream<K, U>) -> KeyedConnected<K, T, U> {
        KeyedConnected::new(self.clone(), other.clone())
    }

    fn interval_join<U: Data>(&self, other: &KeyedStream<K, U>, interval: Interval) -> IntervalJoined<K, T, U> {
        IntervalJoined::new(self.clone(), other.clone(), interval)
    }

    fn join<U: Data>(&self, other: &KeyedStream<K, U>) -> Joined<K, T, U> {
        Joined::new(self.clone(), other.clone())
    }

    fn temporal_join<V: Data>(&self, versions: &KeyedStream<K, V>) -> TemporalJoined<K, T, V> {
        TemporalJoined::new(self.clone(), versions.clone())
    }

    fn connect_broadcast<U: Data>(&self, rules: &Stream<U>) -> KeyedBroadcastConnected<K, T, U> {
        KeyedBroadcastConnected::new(self.clone(), rules.broadcast())
    }
}

/// Adds an operator that runs `process`.
#[track_caller]
pub(crate) fn keyed<P: KeyedProcess>(
    stream: &KeyedStream<P::Key, P::Input>,
    name: &str,
    kind: &'static str,
    process: P,
) -> Stream<P::Output> {
    stream.transform(Naming::Given(name), kind, Location::caller(), KeyedProcessOperator::new(process))
}
