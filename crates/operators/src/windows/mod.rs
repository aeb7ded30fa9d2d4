//! Windows over keyed streams: which records come together, when they fire, and what is emitted.
//!
//! Owns the methods of [`WindowedStream`]. Files: [`Windows`] says which windows a record belongs to, [`Trigger`]
//! when a window fires, [`Evictor`] which records are left out; `function` what a window holds and emits;
//! `operator` runs all of that, `slices` the common case of it without timers, and `quick_sessions` sessions with an
//! aggregate; `all` is windows without keys, and `join` windows over the records of two streams.

mod all;
mod assign;
mod evict;
mod fired;
mod function;
mod join;
mod lattice;
mod operator;
mod quick_sessions;
mod sessions;
mod sided;
mod slice_store;
mod slices;
#[cfg(test)]
mod tests;
mod trigger;
mod window;

use std::panic::Location;
use std::time::Duration;

use millpond_core::{Data, Key, UserResult};
use millpond_dataflow::graph::Naming;
use millpond_dataflow::{Dataflow, KeyedStream, Output, SideTag, Stream, TimeDomain};
use millpond_state::AggregateFunction;

pub use all::AllWindowedStream;
pub use assign::{WindowError, Windows};
pub use evict::{EvictWhen, Evictor, Evictors, InWindow};
pub(crate) use fired::Fired;
pub use function::{WindowProcess, Windowed};
pub use join::{Joined, WindowJoined};
pub use sided::{Sided, WindowCoProcess};
pub use trigger::{
    AtEnd, Continuous, CountTrigger, DeltaTrigger, Never, Purging, Trigger, TriggerContext, TriggerResult,
    TriggerState, Triggers,
};
pub use window::Window;

use function::{
    AggregateListed, AsWindowed, EmitResult, EmitWith, Incremental, LateTo, Listing, Reduced, Reducing, WindowFunction,
};
use lattice::Lattice;
use operator::{WindowOperator, WindowRules};
use quick_sessions::SessionOperator;
use slices::SliceOperator;

/// A keyed stream cut into windows, waiting for its function.
///
/// ```
/// use std::time::Duration;
/// use millpond_dataflow::{KeyedStream, SideTag, Stream};
/// use millpond_operators::{KeyedStreamOperators, Windowed, Windows};
///
/// const LATE: SideTag<u64> = SideTag::new("late");
///
/// fn per_minute(readings: &KeyedStream<String, u64>) -> Stream<Windowed<String, u64>> {
///     readings
///         .window(Windows::tumbling(Duration::from_secs(60)))
///         .allowed_lateness(Duration::from_secs(10))
///         .late_output(LATE)
///         .reduce("largest", u64::max)
/// }
/// ```
pub struct WindowedStream<K, T> {
    stream: KeyedStream<K, T>,
    settings: WindowSettings<T>,
}

/// What is said of windows before it is said what becomes of their records.
pub(crate) struct WindowSettings<T> {
    windows: Windows<T>,
    trigger: Option<Box<dyn Trigger<T>>>,
    evictor: Option<Box<dyn Evictor<T>>>,
    lateness: Duration,
    late: Option<SideTag<T>>,
    /// What is wrong with it, found while it was put together.
    fault: Option<WindowError>,
}

impl<T: Data> WindowSettings<T> {
    fn new(windows: Windows<T>) -> Self {
        let fault = windows.check().err();
        WindowSettings { windows, trigger: None, evictor: None, lateness: Duration::ZERO, late: None, fault }
    }

    fn trigger(&mut self, trigger: impl Trigger<T>) {
        let cannot = self.windows.merges() && !trigger.can_merge();
        let fault = self.fault.take().or(cannot.then_some(WindowError::Merging { what: "its trigger" }));
        self.fault = fault.or(trigger.check().err());
        self.trigger = Some(Box::new(trigger));
    }

    fn allowed_lateness(&mut self, lateness: Duration) {
        let cannot = self.windows.domain == TimeDomain::Processing && !lateness.is_zero();
        self.fault = self.fault.take().or(cannot.then_some(WindowError::Lateness));
        self.lateness = lateness;
    }

    /// The slices of windows that need neither timers nor lists: tumbling, sliding and cumulative ones in event time
    /// that fire at their end.
    fn lattice(&self) -> Option<Lattice> {
        self.are_plain().then(|| Lattice::of(&self.windows)).flatten()
    }

    /// Whether windows are in event time, fire at their end, and with all their records.
    fn are_plain(&self) -> bool {
        self.evictor.is_none() && self.trigger.is_none() && self.windows.domain == TimeDomain::Event
    }

    fn into_rules(self) -> WindowRules<T> {
        let trigger = self.trigger.unwrap_or_else(|| self.windows.default_trigger());
        WindowRules { windows: self.windows, trigger, lateness_ms: millis(self.lateness) }
    }

    /// Refuses the job when something is wrong with the windows.
    fn check(&self, dataflow: &Dataflow, name: &str, location: &'static Location<'static>) {
        if let Some(fault) = &self.fault {
            dataflow.refuse(name, location, fault.clone());
        }
    }
}

impl<K: Key, T: Data> WindowedStream<K, T> {
    pub(crate) fn new(stream: KeyedStream<K, T>, windows: Windows<T>) -> Self {
        WindowedStream { stream, settings: WindowSettings::new(windows) }
    }

    /// Windows of `count` records of a key; with `step`, one every `step` records over the last `count` (WI-40).
    pub(crate) fn counted(stream: KeyedStream<K, T>, count: u64, step: Option<u64>) -> Self {
        let windowed = WindowedStream::new(stream, Windows::global());
        let windowed = match step {
            None => windowed.trigger(Triggers::purging(Triggers::count(count))),
            Some(step) => {
                let kept = usize::try_from(count).unwrap_or(usize::MAX);
                windowed.trigger(Triggers::count(step)).evictor(Evictors::count(kept, EvictWhen::Before))
            }
        };
        let WindowedStream { stream, mut settings } = windowed;
        settings.fault = (count == 0 || step == Some(0)).then_some(WindowError::Count);
        WindowedStream { stream, settings }
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

    /// How long after its end a window still takes records, and fires again for each (WI-15). Windows by the wall
    /// clock have no such time.
    #[must_use]
    pub fn allowed_lateness(mut self, lateness: Duration) -> Self {
        self.settings.allowed_lateness(lateness);
        self
    }

    /// Where records go that come later than that; without it they are dropped and counted (WI-14).
    #[must_use]
    pub fn late_output(mut self, tag: SideTag<T>) -> Self {
        self.settings.late = Some(tag);
        self
    }

    /// Combines the records of each window; what is stored is the result so far (WI-27).
    #[track_caller]
    pub fn reduce(self, name: &str, reduce: impl Fn(T, T) -> T + Send + 'static) -> Stream<Windowed<K, T>> {
        self.incremental(name, Location::caller(), Reducing::new(reduce), Reduced)
    }

    /// Aggregates the records of each window; what is stored is the accumulator.
    #[track_caller]
    pub fn aggregate<A>(self, name: &str, aggregate: A) -> Stream<Windowed<K, A::Output>>
    where
        A: AggregateFunction<Input = T>,
        A::Output: Data,
    {
        self.incremental(name, Location::caller(), aggregate, AsWindowed)
    }

    /// Aggregates, and emits what `emit` makes of the result, its key and its window.
    #[track_caller]
    pub fn aggregate_with<A, U: Data>(
        self,
        name: &str,
        aggregate: A,
        emit: impl FnMut(&K, Window, A::Output, &mut Output<U>) -> UserResult + 'static,
    ) -> Stream<U>
    where
        A: AggregateFunction<Input = T>,
        A::Output: Data,
    {
        self.incremental(name, Location::caller(), aggregate, EmitWith(emit))
    }

    /// Counts the records of each window.
    #[track_caller]
    pub fn count(self, name: &str) -> Stream<Windowed<K, u64>> {
        self.incremental(name, Location::caller(), CountRecords(std::marker::PhantomData), AsWindowed)
    }

    /// Hands all records of a window to a function. They are stored until the window goes.
    #[track_caller]
    pub fn process<P: WindowProcess<Key = K, Input = T>>(mut self, name: &str, process: P) -> Stream<P::Output> {
        let evictor = self.settings.evictor.take();
        self.run(name, Location::caller(), Listing { process, evictor })
    }

    fn incremental<A, U: Data>(
        mut self,
        name: &str,
        location: &'static Location<'static>,
        aggregate: A,
        emit: impl EmitResult<K, A::Output, U>,
    ) -> Stream<U>
    where
        A: AggregateFunction<Input = T>,
        A::Output: Data,
    {
        if let Some(lattice) = self.settings.lattice() {
            return self.run_slices(name, location, lattice, aggregate, emit);
        }
        if self.settings.are_plain() && self.settings.windows.merges() {
            return self.run_sessions(name, location, aggregate, emit);
        }
        let incremental = Incremental::new(aggregate, emit);
        match self.settings.evictor.take() {
            None => self.run(name, location, incremental),
            evictor => {
                let process = AggregateListed::new(incremental);
                self.run(name, location, Listing { process, evictor })
            }
        }
    }

    /// Tumbling, sliding and cumulative windows that fire at their end need neither timers nor lists.
    fn run_slices<A, U: Data>(
        self,
        name: &str,
        location: &'static Location<'static>,
        lattice: Lattice,
        aggregate: A,
        emit: impl EmitResult<K, A::Output, U>,
    ) -> Stream<U>
    where
        A: AggregateFunction<Input = T>,
        A::Output: Data,
    {
        let WindowedStream { stream, settings } = self;
        settings.check(stream.dataflow(), name, location);
        let operator = SliceOperator::new(lattice, millis(settings.lateness), settings.late, aggregate, emit);
        stream.transform(Naming::Given(name), "window", location, operator)
    }

    /// Sessions with an aggregate that fire at their end are one value per key.
    fn run_sessions<A, U: Data>(
        self,
        name: &str,
        location: &'static Location<'static>,
        aggregate: A,
        emit: impl EmitResult<K, A::Output, U>,
    ) -> Stream<U>
    where
        A: AggregateFunction<Input = T>,
        A::Output: Data,
    {
        let WindowedStream { stream, settings } = self;
        settings.check(stream.dataflow(), name, location);
        let WindowSettings { windows, lateness, late, .. } = settings;
        let operator = SessionOperator::new(windows, millis(lateness), late, aggregate, emit);
        stream.transform(Naming::Given(name), "window", location, operator)
    }

    fn run<F: WindowFunction<K, T>>(
        self,
        name: &str,
        location: &'static Location<'static>,
        function: F,
    ) -> Stream<F::Output> {
        let WindowedStream { stream, settings } = self;
        settings.check(stream.dataflow(), name, location);
        let function = LateTo { function, late: settings.late };
        let operator = WindowOperator::new(settings.into_rules(), function);
        stream.transform(Naming::Given(name), "window", location, operator)
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Counts.
pub(crate) struct CountRecords<T>(std::marker::PhantomData<fn(T)>);

impl<T: 'static> AggregateFunction for CountRecords<T> {
    type Input = T;
    type Accumulator = u64;
    type Output = u64;

    fn create_accumulator(&self) -> u64 {
        0
    }

    fn add(&self, _: T, count: &mut u64) {
        *count += 1;
    }

    fn result(&self, count: &u64) -> u64 {
        *count
    }

    fn merge(&self, count: u64, other: u64) -> u64 {
        count + other
    }
}
