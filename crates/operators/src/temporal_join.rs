//! Temporal (as-of) join: each record meets the version of its key that was in force at the record's time.
//!
//! Records (*probes*) and versions wait in keyed state, by time. When event time of both streams has passed a probe, all
//! versions up to its time are known: it is joined, in the order of time within its key. Of the versions that event
//! time has passed only the newest is kept, and not that one if it is a deletion. A key has one timer at most, for the
//! earliest time at which something of it is to be done. Owns all of that; the pairs belong to the user.

use std::panic::Location;

use millpond_core::{Data, Epoch, Key, UserResult};
use millpond_dataflow::{
    Advance, BoxBatch, Keyed, KeyedContext, KeyedStream, OpenContext, Operator, OperatorContext, Output, SideTag,
    Stream, TimeDomain, Timers,
};
use millpond_state::{KeyedBackendControl, MapState, StateError, ValueState};

use crate::connect::{LEFT, join_at};
use crate::interval_join::JoinError;
use crate::keyed_host::{KeyedHost, fire_due, for_each_keyed};
use crate::late::LateRecords;
use crate::windows::Fired;

/// Whether a version says that there is none from its time on.
type IsDeletion<V> = Box<dyn FnMut(&V) -> bool>;

/// A keyed stream of records and one of versions, waiting for their function.
///
/// ```
/// use millpond_dataflow::{KeyedStream, Stream};
/// use millpond_operators::KeyedStreamOperators;
///
/// // Orders in euros, at the rate of their time; a rate that is withdrawn is `None`.
/// fn in_euros(orders: &KeyedStream<String, f64>, rates: &KeyedStream<String, Option<f64>>) -> Stream<f64> {
///     orders.temporal_join(rates).deleted_when(Option::is_none).inner("in euros", |amount, rate, output| {
///         output.emit(amount * rate.unwrap_or(1.0));
///         Ok(())
///     })
/// }
/// ```
pub struct TemporalJoined<K, T, V> {
    probes: KeyedStream<K, T>,
    versions: KeyedStream<K, V>,
    deleted: Option<IsDeletion<V>>,
    late: Option<SideTag<T>>,
}

impl<K: Key, T: Data, V: Data> TemporalJoined<K, T, V> {
    pub(crate) fn new(probes: KeyedStream<K, T>, versions: KeyedStream<K, V>) -> Self {
        TemporalJoined { probes, versions, deleted: None, late: None }
    }

    /// Which versions say that from their time on there is none. Without it every version is one.
    #[must_use]
    pub fn deleted_when(self, is_deletion: impl FnMut(&V) -> bool + 'static) -> Self {
        TemporalJoined { deleted: Some(Box::new(is_deletion)), ..self }
    }

    /// Where records go that are older than the watermark: the version of their time may be gone. Without it they are
    /// dropped, and the log says how many.
    #[must_use]
    pub fn late_output(self, tag: SideTag<T>) -> Self {
        TemporalJoined { late: Some(tag), ..self }
    }

    /// Calls `pair` for each record that has a version at its time. What it emits carries the record's time.
    #[track_caller]
    pub fn inner<U: Data>(
        self,
        name: &str,
        mut pair: impl FnMut(&T, &V, &mut Output<U>) -> UserResult + 'static,
    ) -> Stream<U> {
        self.run(name, Location::caller(), move |probe, version, output| match version {
            Some(version) => pair(probe, version, output),
            None => Ok(()),
        })
    }

    /// Calls `pair` for each record, with the version at its time if there is one.
    #[track_caller]
    pub fn left_outer<U: Data>(
        self,
        name: &str,
        pair: impl FnMut(&T, Option<&V>, &mut Output<U>) -> UserResult + 'static,
    ) -> Stream<U> {
        self.run(name, Location::caller(), pair)
    }

    fn run<U: Data>(
        self,
        name: &str,
        location: &'static Location<'static>,
        pair: impl FnMut(&T, Option<&V>, &mut Output<U>) -> UserResult + 'static,
    ) -> Stream<U> {
        let TemporalJoined { probes, versions, deleted, late } = self;
        let operator = TemporalJoin::<K, T, V, U, _> {
            keyed: KeyedHost::default(),
            output: Output::new(),
            fired: Fired::default(),
            core: Core { pair, deleted, late, dropped: LateRecords::default(), states: None, timers: None },
        };
        let inputs = [(probes.dataflow(), probes.input()), (versions.dataflow(), versions.input())];
        join_at(name, "temporal_join", location, inputs, operator)
    }
}

struct TemporalJoin<K: Key, T, V, U, F> {
    keyed: KeyedHost<K>,
    output: Output<U>,
    /// How far records were joined before a restore: what was late then is late again.
    fired: Fired,
    core: Core<K, T, V, F>,
}

struct Core<K: Key, T, V, F> {
    pair: F,
    deleted: Option<IsDeletion<V>>,
    late: Option<SideTag<T>>,
    dropped: LateRecords,
    states: Option<States<T, V>>,
    timers: Option<Timers<K>>,
}

/// What is kept of a key.
struct States<T, V> {
    /// Records that wait, by time.
    probes: MapState<i64, Vec<T>>,
    /// Versions, by time.
    versions: MapState<i64, V>,
    /// The time of the key's timer.
    due: ValueState<i64>,
}

impl<T, V> Clone for States<T, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, V> Copy for States<T, V> {}

/// State and timers exist from `open` on; the runtime calls nothing before it.
const OPENED: &str = "open is called before anything else";

/// Divides times at `until_ms`: those up to it, in order, and the first after it.
fn divide<'t>(times: impl Iterator<Item = &'t i64>, until_ms: i64) -> (Vec<i64>, Option<i64>) {
    let (mut past, mut next) = (Vec::new(), None);
    for time in times.copied() {
        if time <= until_ms {
            past.push(time);
        } else {
            next = Some(next.map_or(time, |next: i64| next.min(time)));
        }
    }
    past.sort_unstable();
    (past, next)
}

impl<K: Key, T: Data, V: Data, F> Core<K, T, V, F> {
    fn states(&self) -> States<T, V> {
        self.states.expect(OPENED)
    }

    /// Something of the current key is to be done at `time_ms`.
    fn schedule(&mut self, time_ms: i64, view: &mut KeyedContext<'_, K>) -> Result<(), StateError> {
        let due = self.states().due;
        let set = due.get(view)?.copied();
        if set.is_some_and(|set| set <= time_ms) {
            return Ok(());
        }
        let timers = self.timers.as_mut().expect(OPENED);
        if let Some(set) = set {
            timers.delete(TimeDomain::Event, set, (), view.backend())?;
        }
        timers.register(TimeDomain::Event, time_ms, (), view.backend())?;
        due.set(view, time_ms)
    }

    fn on_probe<U: Data>(
        &mut self,
        probe: T,
        clock: i64,
        view: &mut KeyedContext<'_, K>,
        output: &mut Output<U>,
    ) -> UserResult {
        let time_ms = view.timestamp().ok_or(JoinError::NoTimestamp)?;
        if time_ms < clock {
            match self.late {
                Some(tag) => output.emit_side(tag, probe),
                None => self.dropped.dropped(),
            }
            return Ok(());
        }
        self.states().probes.modify(view, time_ms, |waiting| waiting.get_or_insert_default().push(probe))?;
        Ok(self.schedule(time_ms, view)?)
    }

    /// Of versions with one time, the last to come counts.
    fn on_version(&mut self, version: V, view: &mut KeyedContext<'_, K>) -> UserResult {
        let time_ms = view.timestamp().ok_or(JoinError::NoTimestamp)?;
        self.states().versions.put(view, time_ms, version)?;
        Ok(self.schedule(time_ms, view)?)
    }

    /// Joins all records of the current key up to `until_ms`, and drops the versions that none can meet any more.
    fn settle<U: Data>(&mut self, until_ms: i64, view: &mut KeyedContext<'_, K>, output: &mut Output<U>) -> UserResult
    where
        F: FnMut(&T, Option<&V>, &mut Output<U>) -> UserResult,
    {
        let States { probes, versions, due } = self.states();
        due.clear(view)?;
        let (passed, next_version) = divide(versions.keys(view)?, until_ms);
        let (waiting, next_probe) = divide(probes.keys(view)?, until_ms);
        for time_ms in waiting {
            let records = probes.remove(view, &time_ms)?.unwrap_or_default();
            let newest = passed[..passed.partition_point(|version_ms| *version_ms <= time_ms)].last();
            let version = match newest {
                Some(version_ms) => versions.get(view, version_ms)?,
                None => None,
            };
            let deleted = &mut self.deleted;
            let version = version.filter(|version| !deleted.as_mut().is_some_and(|deleted| deleted(version)));
            output.set_time(time_ms);
            for record in &records {
                (self.pair)(record, version, output)?;
            }
        }
        if let Some((newest, older)) = passed.split_last() {
            for version_ms in older {
                versions.remove(view, version_ms)?;
            }
            let is_gone = match (&mut self.deleted, versions.get(view, newest)?) {
                (Some(deleted), Some(version)) => deleted(version),
                _ => false,
            };
            if is_gone {
                versions.remove(view, newest)?;
            }
        }
        if let Some(next_ms) = [next_version, next_probe].into_iter().flatten().min() {
            self.schedule(next_ms, view)?;
        }
        Ok(())
    }
}

impl<K: Key, T: Data, V: Data, U: Data, F> Operator for TemporalJoin<K, T, V, U, F>
where
    F: FnMut(&T, Option<&V>, &mut Output<U>) -> UserResult + 'static,
{
    fn open(&mut self, context: &mut OpenContext<'_>) -> UserResult {
        self.output.listen(context.sides);
        self.fired.open(context)?;
        let core = &mut self.core;
        self.keyed.open(context, |states, _| {
            let (probes, versions, due) = (states.map("probes")?, states.map("versions")?, states.value("due")?);
            core.states = Some(States { probes, versions, due });
            Ok(())
        })?;
        core.timers = Some(Timers::open("join timers", self.keyed.backend(), context.stored_sections)?);
        Ok(())
    }

    fn on_batch(
        &mut self,
        input: usize,
        batch: BoxBatch,
        context: &mut OperatorContext<'_>,
    ) -> UserResult<Option<BoxBatch>> {
        let TemporalJoin { keyed, output, fired, core } = self;
        let mut view = keyed.view(context.states, context.info, context.clock, context.watermark);
        let outputs = &mut *context.outputs;
        if input != LEFT {
            let batch = batch.downcast::<Keyed<K, V>>();
            return for_each_keyed(batch, &mut view, output, outputs, |version, view, _| {
                core.on_version(version, view)
            });
        }
        let clocks = fired.clocks(context.watermark);
        let batch = batch.downcast::<Keyed<K, T>>();
        let rest = for_each_keyed(batch, &mut view, output, outputs, |probe, view, output| {
            let clock = clocks.of(view.current_hash());
            core.on_probe(probe, clock, view, output)
        });
        core.dropped.tell(context.gauge);
        rest
    }

    fn on_watermark(&mut self, watermark: i64, context: &mut OperatorContext<'_>) -> UserResult<Advance> {
        let TemporalJoin { keyed, output, core, .. } = self;
        let mut view = keyed.view(context.states, context.info, context.clock, watermark);
        let next = |core: &mut Core<K, T, V, F>, view: &mut KeyedContext<'_, K>| {
            core.timers.as_mut().expect(OPENED).next(TimeDomain::Event, watermark, view.backend())
        };
        fire_due(core, &mut view, output, context.outputs, next, |core, _, (), view, output| {
            core.settle(watermark, view, output)
        })
    }

    fn prepare_snapshot(&mut self, _epoch: Epoch, context: &mut OperatorContext<'_>) -> UserResult {
        self.core.dropped.log(context);
        self.fired.snapshot(context)
    }

    fn keyed(&mut self) -> Option<&mut dyn KeyedBackendControl> {
        self.keyed.control()
    }
}
