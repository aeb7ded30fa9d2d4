//! Windows over a stream without keys, in two stages where that is possible.
//!
//! Every subtask puts the records of a batch that lie in one slice together (`Combine`); only these partial results
//! go to the one subtask that owns the windows, at most a few per batch. Windows over everything are thus not limited
//! by what one core can add up. The first stage keeps nothing from one batch to the next: watermarks, checkpoints and
//! idleness need not know of it.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millpond_core::{Data, KeyHash, MaxParallelism, UserResult, hash::stable_hash};
use millpond_dataflow::batch::{Batch, BoxBatch, NO_TIME};
use millpond_dataflow::graph::Naming;
use millpond_dataflow::{Keyed, KeyedStream, OpenContext, Operator, OperatorContext, Output, SideTag, Stream};
use millpond_state::AggregateFunction;

use super::assign::{WindowError, Windows};
use super::evict::Evictor;
use super::function::{AsWindowed, EmitResult, EmitWith, Reduced, Reducing, WindowProcess, Windowed};
use super::lattice::Lattice;
use super::slices::SliceOperator;
use super::trigger::Trigger;
use super::window::Window;
use super::{CountRecords, WindowSettings, WindowedStream, millis};
use crate::stateless::StreamOperators;

/// A stream cut into windows over all its records, waiting for its function.
///
/// One subtask owns the windows. With tumbling, sliding and cumulative windows in event time and an aggregate, the
/// others do most of the work: each puts its records together before they travel. That is so unless a trigger, an
/// evictor or [`late_output`](AllWindowedStream::late_output) is given, or the windows are others: then
/// every record travels.
///
/// ```
/// use std::time::Duration;
/// use millpond_dataflow::Stream;
/// use millpond_operators::{StreamOperators, Windowed, Windows};
///
/// fn per_second(clicks: &Stream<String>) -> Stream<Windowed<(), u64>> {
///     clicks.window_all(Windows::tumbling(Duration::from_secs(1))).count("clicks per second")
/// }
/// ```
pub struct AllWindowedStream<T> {
    stream: Stream<T>,
    settings: WindowSettings<T>,
}

impl<T: Data> AllWindowedStream<T> {
    pub(crate) fn new(stream: Stream<T>, windows: Windows<T>) -> Self {
        AllWindowedStream { stream, settings: WindowSettings::new(windows) }
    }

    /// When windows fire, instead of at their end.
    #[must_use]
    pub fn trigger(mut self, trigger: impl Trigger<T>) -> Self {
        self.settings.trigger(trigger);
        self
    }

    /// Which records are left out when a window fires. The window then keeps all its records, whatever the
    /// function.
    #[must_use]
    pub fn evictor(mut self, evictor: impl Evictor<T>) -> Self {
        self.settings.evictor = Some(Box::new(evictor));
        self
    }

    /// How long after its end a window still takes records. It fires again for each, or once for those that were put
    /// together on their way (WI-15).
    #[must_use]
    pub fn allowed_lateness(mut self, lateness: Duration) -> Self {
        self.settings.allowed_lateness(lateness);
        self
    }

    /// Where records go that come later than that; without it they are dropped and counted (WI-14), those that were
    /// put together on their way as one.
    #[must_use]
    pub fn late_output(mut self, tag: SideTag<T>) -> Self {
        self.settings.late = Some(tag);
        self
    }

    /// Combines the records of each window; what is stored is the result so far (WI-27).
    #[track_caller]
    pub fn reduce(self, name: &str, reduce: impl Fn(T, T) -> T + Send + 'static) -> Stream<Windowed<(), T>> {
        self.incremental(name, Location::caller(), Reducing::new(reduce), Reduced)
    }

    /// Aggregates the records of each window; what is stored is the accumulator.
    #[track_caller]
    pub fn aggregate<A>(self, name: &str, aggregate: A) -> Stream<Windowed<(), A::Output>>
    where
        A: AggregateFunction<Input = T>,
        A::Output: Data,
    {
        self.incremental(name, Location::caller(), aggregate, AsWindowed)
    }

    /// Aggregates, and emits what `emit` makes of the window and its result.
    #[track_caller]
    pub fn aggregate_with<A, U: Data>(
        self,
        name: &str,
        aggregate: A,
        mut emit: impl FnMut(Window, A::Output, &mut Output<U>) -> UserResult + 'static,
    ) -> Stream<U>
    where
        A: AggregateFunction<Input = T>,
        A::Output: Data,
    {
        let emit = EmitWith(move |(): &(), window, result, output: &mut Output<U>| emit(window, result, output));
        self.incremental(name, Location::caller(), aggregate, emit)
    }

    /// Counts the records of each window.
    #[track_caller]
    pub fn count(self, name: &str) -> Stream<Windowed<(), u64>> {
        self.incremental(name, Location::caller(), CountRecords(PhantomData), AsWindowed)
    }

    /// Hands all records of a window to a function, in one subtask. They are stored until the window goes.
    #[track_caller]
    pub fn process<P: WindowProcess<Key = (), Input = T>>(self, name: &str, process: P) -> Stream<P::Output> {
        self.keyed().process(name, process)
    }

    fn incremental<A, U: Data>(
        self,
        name: &str,
        location: &'static Location<'static>,
        aggregate: A,
        emit: impl EmitResult<(), A::Output, U>,
    ) -> Stream<U>
    where
        A: AggregateFunction<Input = T>,
        A::Output: Data,
    {
        let Some(lattice) = self.settings.lattice().filter(|_| self.settings.late.is_none()) else {
            return self.keyed().incremental(name, location, aggregate, emit);
        };
        let AllWindowedStream { stream, settings } = self;
        let aggregate = Arc::new(Mutex::new(aggregate));
        let combine = Combine { lattice, aggregate: Arc::clone(&aggregate), hash: None, output: Output::new() };
        let partials: Stream<Keyed<(), A::Accumulator>> =
            stream.transform(Naming::Automatic("combine"), "combine", location, combine);
        settings.check(stream.dataflow(), name, location);
        let operator = SliceOperator::new(lattice, millis(settings.lateness), None, Partials(aggregate), emit);
        KeyedStream::new(partials).transform(Naming::Given(name), "window", location, operator)
    }

    /// Everything under one key.
    fn keyed(self) -> WindowedStream<(), T> {
        WindowedStream { stream: self.stream.key_by(|_| ()), settings: self.settings }
    }
}

/// An aggregate that both stages use. They run one after the other in one thread; the lock is for the compiler.
type SharedAggregate<A> = Arc<Mutex<A>>;

fn lock<A>(aggregate: &SharedAggregate<A>) -> MutexGuard<'_, A> {
    // A panic in the user's function ends the attempt, and the aggregate with it.
    aggregate.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts accumulators together that hold the records of a batch.
struct Partials<A>(SharedAggregate<A>);

impl<A: AggregateFunction> AggregateFunction for Partials<A> {
    type Input = A::Accumulator;
    type Accumulator = Option<A::Accumulator>;
    type Output = A::Output;

    fn create_accumulator(&self) -> Option<A::Accumulator> {
        None
    }

    fn add(&self, input: A::Accumulator, accumulator: &mut Option<A::Accumulator>) {
        *accumulator = self.merge(accumulator.take(), Some(input));
    }

    fn result(&self, accumulator: &Option<A::Accumulator>) -> A::Output {
        let aggregate = lock(&self.0);
        match accumulator {
            Some(accumulator) => aggregate.result(accumulator),
            None => aggregate.result(&aggregate.create_accumulator()),
        }
    }

    fn merge(&self, one: Option<A::Accumulator>, other: Option<A::Accumulator>) -> Option<A::Accumulator> {
        match (one, other) {
            (Some(one), Some(other)) => Some(lock(&self.0).merge(one, other)),
            (one, other) => one.or(other),
        }
    }
}

/// The first stage: one accumulator per slice and batch, with the latest time of its records.
struct Combine<A: AggregateFunction> {
    lattice: Lattice,
    aggregate: SharedAggregate<A>,
    /// Of the one key there is.
    hash: Option<KeyHash>,
    output: Output<Keyed<(), A::Accumulator>>,
}

impl<A: AggregateFunction> Operator for Combine<A>
where
    A::Input: Data,
{
    fn open(&mut self, context: &mut OpenContext<'_>) -> UserResult {
        self.hash = Some(key_hash(context.info.max_parallelism)?);
        Ok(())
    }

    fn on_batch(
        &mut self,
        _input: usize,
        batch: BoxBatch,
        context: &mut OperatorContext<'_>,
    ) -> UserResult<Option<BoxBatch>> {
        let Batch { records, times } = batch.downcast::<A::Input>();
        let hash = self.hash.expect("open is called before anything else");
        let aggregate = lock(&self.aggregate);
        let mut slices: BTreeMap<i64, (i64, A::Accumulator)> = BTreeMap::new();
        let mut current: Option<(i64, i64, A::Accumulator)> = None;
        for (nth, record) in records.into_iter().enumerate() {
            let time_ms = times.get(nth).copied().filter(|time| *time != NO_TIME).ok_or(WindowError::NoTimestamp)?;
            let slice = self.lattice.slice_of(time_ms);
            // Records in a row are mostly of one slice.
            if current.as_ref().is_none_or(|(known, ..)| *known != slice) {
                let (latest_ms, held) =
                    slices.remove(&slice).unwrap_or_else(|| (time_ms, aggregate.create_accumulator()));
                if let Some((known, latest_ms, held)) = current.replace((slice, latest_ms, held)) {
                    slices.insert(known, (latest_ms, held));
                }
            }
            if let Some((_, latest_ms, held)) = &mut current {
                *latest_ms = time_ms.max(*latest_ms);
                aggregate.add(record, held);
            }
        }
        slices.extend(current.map(|(slice, latest_ms, held)| (slice, (latest_ms, held))));
        for (latest_ms, value) in slices.into_values() {
            self.output.set_time(latest_ms);
            self.output.emit(Keyed { hash, key: (), value });
        }
        self.output.set_time(NO_TIME);
        self.output.flush(context.outputs);
        Ok(None)
    }
}

/// The hash of the key that everything has.
fn key_hash(max_parallelism: MaxParallelism) -> UserResult<KeyHash> {
    Ok(KeyHash::from_stable(stable_hash(&(), &mut Vec::new())?, max_parallelism))
}
