//! Interval join: pairs of records of two keyed streams whose event times lie close to each other.
//!
//! Each side keeps its records by time, as a map state; a record looks through the other side, and goes when event
//! time has passed all that it could still meet. Of a side that is shown without partners as well, those that go unmet
//! are emitted then. Owns the bounds and the late records; the pairs belong to the user.

use std::panic::Location;

use millpond_core::{Data, Epoch, ErrorKind, Key, UserResult};
use millpond_dataflow::{
    Advance, BoxBatch, Keyed, KeyedContext, KeyedStream, OpenContext, Operator, OperatorContext, Output, SideTag,
    Stream, TimeDomain, Timers,
};
use millpond_state::{KeyedBackendControl, MapState, StateError};

use crate::connect::{LEFT, join_at};
use crate::keyed_host::{KeyedHost, fire_due, for_each_keyed};
use crate::late::LateRecords;

/// A join in event time that cannot be, or a record that it cannot place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// Bounds between which there is no time.
    #[error(
        "an interval join needs a lower bound that is not above its upper bound, not {lower_ms} ms and {upper_ms} ms"
    )]
    Bounds {
        /// The first difference of times that joins, in milliseconds.
        lower_ms: i64,
        /// The last difference of times that joins, in milliseconds.
        upper_ms: i64,
    },
    /// A record without event time (JN-06).
    #[error("a record without event time has come to a join in event time: is a watermark strategy missing?")]
    NoTimestamp,
}

impl JoinError {
    /// Always [`ErrorKind::Invalid`].
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }
}

/// Which pairs join: those with `left + lower ≤ right ≤ left + upper` in event time (JN-01).
///
/// ```
/// use millpond_operators::Interval;
///
/// // A click up to a minute after its impression.
/// let within_a_minute = Interval::between_ms(0, 60_000);
/// // Strictly less than a second apart, either way.
/// let close = Interval::between_ms(-1_000, 1_000).exclusive_lower().exclusive_upper();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    lower_ms: i64,
    upper_ms: i64,
}

impl Interval {
    /// Both bounds inclusive; either may be negative (JN-02).
    #[must_use]
    pub fn between_ms(lower_ms: i64, upper_ms: i64) -> Self {
        Interval { lower_ms, upper_ms }
    }

    /// The lower bound itself does not join.
    #[must_use]
    pub fn exclusive_lower(self) -> Self {
        Interval { lower_ms: self.lower_ms.saturating_add(1), ..self }
    }

    /// The upper bound itself does not join.
    #[must_use]
    pub fn exclusive_upper(self) -> Self {
        Interval { upper_ms: self.upper_ms.saturating_sub(1), ..self }
    }
}

/// Two keyed streams that join within an interval, waiting for their function.
pub struct IntervalJoined<K, L, R> {
    left: KeyedStream<K, L>,
    right: KeyedStream<K, R>,
    interval: Interval,
    late_left: Option<SideTag<L>>,
    late_right: Option<SideTag<R>>,
}

impl<K: Key, L: Data, R: Data> IntervalJoined<K, L, R> {
    pub(crate) fn new(left: KeyedStream<K, L>, right: KeyedStream<K, R>, interval: Interval) -> Self {
        IntervalJoined { left, right, interval, late_left: None, late_right: None }
    }

    /// Where records of the first stream go that are older than the watermark; else they are dropped (JN-04).
    #[must_use]
    pub fn late_left(self, tag: SideTag<L>) -> Self {
        IntervalJoined { late_left: Some(tag), ..self }
    }

    /// Where records of the second stream go that are older than the watermark; else they are dropped (JN-04).
    #[must_use]
    pub fn late_right(self, tag: SideTag<R>) -> Self {
        IntervalJoined { late_right: Some(tag), ..self }
    }

    /// Calls `pair` once for each pair that joins. What it emits carries the later of the two times (JN-03).
    #[track_caller]
    pub fn process<U: Data>(
        self,
        name: &str,
        mut pair: impl FnMut(&L, &R, &mut Output<U>) -> UserResult + 'static,
    ) -> Stream<U> {
        self.run(name, Location::caller(), Outer::default(), move |left, right, output| match (left, right) {
            (Some(left), Some(right)) => pair(left, right, output),
            _ => Ok(()),
        })
    }

    /// As [`IntervalJoined::process`], and once for each record of the first stream that has met none, when event time
    /// has passed all that it could meet; what is emitted then carries the last time at which it could.
    #[track_caller]
    pub fn left_outer<U: Data>(
        self,
        name: &str,
        mut pair: impl FnMut(&L, Option<&R>, &mut Output<U>) -> UserResult + 'static,
    ) -> Stream<U> {
        let outer = Outer { left: true, right: false };
        self.run(name, Location::caller(), outer, move |left, right, output| match left {
            Some(left) => pair(left, right, output),
            None => Ok(()),
        })
    }

    /// As [`IntervalJoined::left_outer`], for records of the second stream.
    #[track_caller]
    pub fn right_outer<U: Data>(
        self,
        name: &str,
        mut pair: impl FnMut(Option<&L>, &R, &mut Output<U>) -> UserResult + 'static,
    ) -> Stream<U> {
        let outer = Outer { left: false, right: true };
        self.run(name, Location::caller(), outer, move |left, right, output| match right {
            Some(right) => pair(left, right, output),
            None => Ok(()),
        })
    }

    /// As [`IntervalJoined::left_outer`], for records of both streams.
    #[track_caller]
    pub fn full_outer<U: Data>(
        self,
        name: &str,
        pair: impl FnMut(Option<&L>, Option<&R>, &mut Output<U>) -> UserResult + 'static,
    ) -> Stream<U> {
        self.run(name, Location::caller(), Outer { left: true, right: true }, pair)
    }

    fn run<U: Data>(
        self,
        name: &str,
        location: &'static Location<'static>,
        outer: Outer,
        pair: impl FnMut(Option<&L>, Option<&R>, &mut Output<U>) -> UserResult + 'static,
    ) -> Stream<U> {
        let IntervalJoined { left, right, interval, late_left, late_right } = self;
        let Interval { lower_ms, upper_ms } = interval;
        if lower_ms > upper_ms {
            left.dataflow().refuse(name, location, JoinError::Bounds { lower_ms, upper_ms });
        }
        let operator = IntervalJoin::<K, L, R, U, _> {
            keyed: KeyedHost::default(),
            output: Output::new(),
            core: Core {
                interval,
                outer,
                pair,
                late_left,
                late_right,
                dropped: LateRecords::default(),
                states: None,
                timers: None,
            },
        };
        let inputs = [(left.dataflow(), left.input()), (right.dataflow(), right.input())];
        join_at(name, "interval_join", location, inputs, operator)
    }
}

/// Whether the records of a side are shown also when they have met none.
#[derive(Clone, Copy, Debug, Default)]
struct Outer {
    left: bool,
    right: bool,
}

/// Records by event time, and whether each has met another; of a side that is shown with partners only, that is not kept
/// up.
type Buffer<T> = MapState<i64, Vec<(T, bool)>>;

struct IntervalJoin<K: Key, L, R, U, F> {
    keyed: KeyedHost<K>,
    output: Output<U>,
    core: Core<K, L, R, F>,
}

struct Core<K: Key, L, R, F> {
    interval: Interval,
    outer: Outer,
    pair: F,
    late_left: Option<SideTag<L>>,
    late_right: Option<SideTag<R>>,
    dropped: LateRecords,
    states: Option<(Buffer<L>, Buffer<R>)>,
    /// For each time of a record, when it goes; the namespace is the side and that time.
    timers: Option<Timers<K, (bool, i64)>>,
}

/// State and timers exist from `open` on; the runtime calls nothing before it.
const OPENED: &str = "open is called before anything else";

/// Collects what the other side has between two times, and adds a record to its own. With `mark`, those of the other side
/// have met one from now on.
fn meet<K: Key, T: Data, O: Data>(
    (own, other): (Buffer<T>, Buffer<O>),
    record: T,
    time_ms: i64,
    between: (i64, i64),
    mark: bool,
    view: &mut KeyedContext<'_, K>,
) -> Result<Vec<(i64, O)>, StateError> {
    let (mut met, mut unmarked): (Vec<(i64, O)>, Vec<i64>) = (Vec::new(), Vec::new());
    for (other_ms, records) in other.iter(view)?.filter(|(time, _)| between.0 <= **time && **time <= between.1) {
        met.extend(records.iter().map(|(other, _)| (*other_ms, other.clone())));
        if mark && records.iter().any(|(_, has_met)| !has_met) {
            unmarked.push(*other_ms);
        }
    }
    for other_ms in unmarked {
        let mark = |records: &mut Option<Vec<(O, bool)>>| records.iter_mut().flatten().for_each(|kept| kept.1 = true);
        other.modify(view, other_ms, mark)?;
    }
    // The state has no order; the pairs of a record come in the order of time.
    met.sort_by_key(|(other_ms, _)| *other_ms);
    let kept = (record, !met.is_empty());
    own.modify(view, time_ms, |records| records.get_or_insert_default().push(kept))?;
    Ok(met)
}

impl<K: Key, L: Data, R: Data, F> Core<K, L, R, F> {
    fn states(&self) -> (Buffer<L>, Buffer<R>) {
        self.states.expect(OPENED)
    }

    /// The record of a side at `time_ms` goes when nothing that it could meet may come any more (JN-05).
    fn set_cleanup(&mut self, left: bool, time_ms: i64, view: &mut KeyedContext<'_, K>) -> Result<(), StateError> {
        let Interval { lower_ms, upper_ms } = self.interval;
        let stays_ms = if left { upper_ms.max(0) } else { lower_ms.saturating_neg().max(0) };
        let timers = self.timers.as_mut().expect(OPENED);
        timers.register(TimeDomain::Event, time_ms.saturating_add(stays_ms), (left, time_ms), view.backend())
    }
}

/// The time of the current record, or why there is none.
fn time_of<K: Key>(view: &KeyedContext<'_, K>) -> Result<i64, JoinError> {
    view.timestamp().ok_or(JoinError::NoTimestamp)
}

impl<K: Key, L: Data, R: Data, U: Data, F> Operator for IntervalJoin<K, L, R, U, F>
where
    F: FnMut(Option<&L>, Option<&R>, &mut Output<U>) -> UserResult + 'static,
{
    fn open(&mut self, context: &mut OpenContext<'_>) -> UserResult {
        self.output.listen(context.sides);
        let core = &mut self.core;
        self.keyed.open(context, |states, _| {
            core.states = Some((states.map("left")?, states.map("right")?));
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
        let IntervalJoin { keyed, output, core } = self;
        let mut view = keyed.view(context.states, context.info, context.clock, context.watermark);
        let (lefts, rights) = core.states();
        let Interval { lower_ms, upper_ms } = core.interval;
        if input == LEFT {
            let rest = for_each_keyed(
                batch.downcast::<Keyed<K, L>>(),
                &mut view,
                output,
                context.outputs,
                |left, view, output| {
                    let time_ms = time_of(view)?;
                    if time_ms < view.watermark() {
                        match core.late_left {
                            Some(tag) => output.emit_side(tag, left),
                            None => core.dropped.dropped(),
                        }
                        return Ok(());
                    }
                    let between = (time_ms.saturating_add(lower_ms), time_ms.saturating_add(upper_ms));
                    let met = meet((lefts, rights), left.clone(), time_ms, between, core.outer.right, view)?;
                    core.set_cleanup(true, time_ms, view)?;
                    for (other_ms, right) in met {
                        output.set_time(time_ms.max(other_ms));
                        (core.pair)(Some(&left), Some(&right), output)?;
                    }
                    Ok(())
                },
            );
            core.dropped.tell(context.gauge);
            return rest;
        }
        let rest = for_each_keyed(
            batch.downcast::<Keyed<K, R>>(),
            &mut view,
            output,
            context.outputs,
            |right, view, output| {
                let time_ms = time_of(view)?;
                if time_ms < view.watermark() {
                    match core.late_right {
                        Some(tag) => output.emit_side(tag, right),
                        None => core.dropped.dropped(),
                    }
                    return Ok(());
                }
                let between = (time_ms.saturating_sub(upper_ms), time_ms.saturating_sub(lower_ms));
                let met = meet((rights, lefts), right.clone(), time_ms, between, core.outer.left, view)?;
                core.set_cleanup(false, time_ms, view)?;
                for (other_ms, left) in met {
                    output.set_time(time_ms.max(other_ms));
                    (core.pair)(Some(&left), Some(&right), output)?;
                }
                Ok(())
            },
        );
        core.dropped.tell(context.gauge);
        rest
    }

    fn on_watermark(&mut self, watermark: i64, context: &mut OperatorContext<'_>) -> UserResult<Advance> {
        let IntervalJoin { keyed, output, core } = self;
        let mut view = keyed.view(context.states, context.info, context.clock, watermark);
        let (lefts, rights) = core.states();
        let next = |core: &mut Core<K, L, R, F>, view: &mut KeyedContext<'_, K>| {
            core.timers.as_mut().expect(OPENED).next(TimeDomain::Event, watermark, view.backend())
        };
        fire_due(core, &mut view, output, context.outputs, next, |core, timer_ms, (left, time_ms), view, output| {
            output.set_time(timer_ms);
            if left {
                let gone = lefts.remove(view, &time_ms)?.unwrap_or_default();
                let unmet = gone.iter().filter(|(_, has_met)| core.outer.left && !has_met);
                unmet.map(|(record, _)| record).try_for_each(|record| (core.pair)(Some(record), None, output))
            } else {
                let gone = rights.remove(view, &time_ms)?.unwrap_or_default();
                let unmet = gone.iter().filter(|(_, has_met)| core.outer.right && !has_met);
                unmet.map(|(record, _)| record).try_for_each(|record| (core.pair)(None, Some(record), output))
            }
        })
    }

    fn prepare_snapshot(&mut self, _epoch: Epoch, context: &mut OperatorContext<'_>) -> UserResult {
        self.core.dropped.log(context);
        Ok(())
    }

    fn keyed(&mut self) -> Option<&mut dyn KeyedBackendControl> {
        self.keyed.control()
    }
}
