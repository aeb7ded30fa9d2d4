//! Session windows in event time with an aggregate: the quick way.
//!
//! The sessions of a key are one value: a list in order of time, as long as there are sessions open at a time, which is
//! one as a rule. A record changes it in one look-up. A timer is set for a session when it begins, and no other while it grows:
//! when it fires and the session has grown meanwhile, it is set again for the end of today.
//!
//! Invariants: sessions of a key do not touch each other; a key has a timer that is not later than the next thing that
//! happens to any of its sessions; a session fires once when its end passes, and again for each record within the
//! lateness.

use millpond_core::{Data, Epoch, Key, UserResult};
use millpond_dataflow::{
    Advance, BoxBatch, Keyed, KeyedContext, OpenContext, Operator, OperatorContext, Output, SideTag, TimeDomain, Timers,
};
use millpond_state::{AggregateFunction, KeyedBackendControl, ValueState};
use serde::{Deserialize, Serialize};

use super::assign::{WindowError, Windows};
use super::fired::Fired;
use super::function::EmitResult;
use super::window::Window;
use crate::keyed_host::{KeyedHost, fire_due, for_each_keyed};
use crate::late::LateRecords;

/// The value state of sessions, and the name under which their timers are kept.
const SESSIONS: &str = "sessions";
const TIMERS: &str = "session timers";

/// State and timers exist from `open` on; the runtime calls nothing before it.
const OPENED: &str = "open is called before anything else";

/// A session of a key.
#[derive(Clone, Serialize, Deserialize)]
struct Session<A> {
    window: Window,
    held: A,
    /// Whether it has fired since it last grew beyond the clock.
    fired: bool,
}

/// What is to be done after a record has come in.
struct Done {
    /// The place of its session.
    at: usize,
    /// Whether the session needs a timer.
    needs_timer: bool,
}

/// See the module.
pub(crate) struct SessionOperator<K: Key, A: AggregateFunction, E, U> {
    keyed: KeyedHost<K>,
    output: Output<U>,
    fired: Fired,
    core: Core<K, A, E>,
}

struct Core<K: Key, A: AggregateFunction, E> {
    windows: Windows<A::Input>,
    lateness_ms: i64,
    late: Option<SideTag<A::Input>>,
    aggregate: A,
    emit: E,
    state: Option<ValueState<Vec<Session<A::Accumulator>>>>,
    timers: Option<Timers<K>>,
    assigned: Vec<Window>,
    dropped: LateRecords,
}

impl<K: Key, A: AggregateFunction, E, U: Data> SessionOperator<K, A, E, U> {
    pub(crate) fn new(
        windows: Windows<A::Input>,
        lateness_ms: i64,
        late: Option<SideTag<A::Input>>,
        aggregate: A,
        emit: E,
    ) -> Self {
        let (state, timers, assigned) = (None, None, Vec::new());
        let core = Core {
            windows,
            lateness_ms,
            late,
            aggregate,
            emit,
            state,
            timers,
            assigned,
            dropped: LateRecords::default(),
        };
        SessionOperator { keyed: KeyedHost::default(), output: Output::new(), fired: Fired::default(), core }
    }
}

impl<K, A, E, U> Operator for SessionOperator<K, A, E, U>
where
    K: Key,
    A: AggregateFunction,
    A::Input: Data,
    E: EmitResult<K, A::Output, U>,
    U: Data,
{
    fn open(&mut self, context: &mut OpenContext<'_>) -> UserResult {
        self.output.listen(context.sides);
        self.fired.open(context)?;
        let core = &mut self.core;
        self.keyed.open(context, |states, _| {
            core.state = Some(states.value(SESSIONS)?);
            Ok(())
        })?;
        core.timers = Some(Timers::open(TIMERS, self.keyed.backend(), context.stored_sections)?);
        Ok(())
    }

    fn on_batch(
        &mut self,
        _input: usize,
        batch: BoxBatch,
        context: &mut OperatorContext<'_>,
    ) -> UserResult<Option<BoxBatch>> {
        let SessionOperator { keyed, output, fired, core } = self;
        let mut view = keyed.view(context.states, context.info, context.clock, context.watermark);
        let clocks = fired.clocks(context.watermark);
        let batch = batch.downcast::<Keyed<K, A::Input>>();
        let rest = for_each_keyed(batch, &mut view, output, context.outputs, |record, view, output| {
            let clock = clocks.of(view.current_hash());
            core.on_record(record, clock, view, output)
        });
        core.dropped.tell(context.gauge);
        rest
    }

    fn on_watermark(&mut self, watermark: i64, context: &mut OperatorContext<'_>) -> UserResult<Advance> {
        let SessionOperator { keyed, output, core, .. } = self;
        if core.timers().first(TimeDomain::Event).is_none_or(|first| first > watermark) {
            return Ok(Advance::Done);
        }
        let mut view = keyed.view(context.states, context.info, context.clock, watermark);
        let next = |core: &mut Core<K, A, E>, view: &mut KeyedContext<'_, K>| {
            core.timers().next(TimeDomain::Event, watermark, view.backend())
        };
        fire_due(core, &mut view, output, context.outputs, next, |core, time_ms, (), view, output| {
            core.on_time(time_ms, view, output)
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

impl<K: Key, A: AggregateFunction, E> Core<K, A, E>
where
    A::Input: Data,
{
    fn timers(&mut self) -> &mut Timers<K> {
        self.timers.as_mut().expect(OPENED)
    }

    /// When a window is gone (WI-16); the end of time when never (WI-19).
    fn cleanup_ms(&self, window: Window) -> i64 {
        window.max_time().saturating_add(self.lateness_ms)
    }

    /// When something happens to a session next; the end of time when never.
    fn next_ms(&self, session: &Session<A::Accumulator>) -> i64 {
        if session.fired { self.cleanup_ms(session.window) } else { session.window.max_time() }
    }

    fn set_timer(&mut self, time_ms: i64, never: bool, view: &mut KeyedContext<'_, K>) -> UserResult {
        if !never {
            self.timers().register(TimeDomain::Event, time_ms, (), view.backend())?;
        }
        Ok(())
    }

    #[inline]
    fn on_record<U: Data>(
        &mut self,
        record: A::Input,
        clock: i64,
        view: &mut KeyedContext<'_, K>,
        output: &mut Output<U>,
    ) -> UserResult
    where
        E: EmitResult<K, A::Output, U>,
    {
        let Some(time_ms) = view.timestamp() else { return Err(WindowError::NoTimestamp.into()) };
        self.assigned.clear();
        self.windows.assign(&record, time_ms, &mut self.assigned)?;
        let Some(window) = self.assigned.first().copied() else { return Ok(()) };
        let state = self.state.expect(OPENED);
        if self.cleanup_ms(window) <= clock {
            // WI-23: not late when it merges with a session that is not.
            let sessions = state.get(view)?.map_or(&[][..], Vec::as_slice);
            let touched = sessions[first_touching(sessions, window)..].iter().map(|session| session.window);
            let touched = touched.take_while(|known| known.touches(&window));
            let cover = touched.fold(window, |cover, known| cover.cover(&known));
            if self.cleanup_ms(cover) <= clock {
                self.late(record, output);
                return Ok(());
            }
        }
        let aggregate = &self.aggregate;
        let (done, fires) = state.modify_or(view, Vec::new, |sessions| {
            let done = merge_in(sessions, window, clock, aggregate);
            let session = &mut sessions[done.at];
            aggregate.add(record, &mut session.held);
            (done, session.fired.then(|| (session.window, aggregate.result(&session.held))))
        })?;
        if let Some((window, result)) = fires {
            output.set_time(window.max_time());
            self.emit.emit(view.key()?, window, result, output)?;
            output.set_time(time_ms);
        }
        if done.needs_timer {
            let session = state.get(view)?.and_then(|sessions| sessions.get(done.at));
            let next = session.map(|session| (self.next_ms(session), session.fired));
            if let Some((next_ms, fired)) = next {
                self.set_timer(next_ms, fired && next_ms == i64::MAX, view)?;
            }
        }
        Ok(())
    }

    fn late<U: Data>(&mut self, record: A::Input, output: &mut Output<U>) {
        match self.late {
            Some(tag) => output.emit_side(tag, record),
            None => self.dropped.dropped(),
        }
    }

    /// Fires the sessions of the current key that end by `time_ms`, in order of their ends (WI-12), and lets those go
    /// whose lateness is over.
    fn on_time<U: Data>(&mut self, time_ms: i64, view: &mut KeyedContext<'_, K>, output: &mut Output<U>) -> UserResult
    where
        E: EmitResult<K, A::Output, U>,
    {
        let state = self.state.expect(OPENED);
        let (aggregate, lateness_ms) = (&self.aggregate, self.lateness_ms);
        let mut due = Vec::new();
        state.modify(view, |held| {
            let Some(sessions) = held else { return };
            for session in &mut *sessions {
                if !session.fired && session.window.max_time() <= time_ms {
                    session.fired = true;
                    due.push((session.window, aggregate.result(&session.held)));
                }
            }
            // What would go beyond the end of time never goes (WI-19).
            sessions.retain(|session| {
                let end_ms = session.window.max_time().saturating_add(lateness_ms);
                !session.fired || end_ms > time_ms || (lateness_ms > 0 && end_ms == i64::MAX)
            });
            if sessions.is_empty() {
                *held = None;
            }
        })?;
        for (window, result) in due {
            output.set_time(window.max_time());
            self.emit.emit(view.key()?, window, result, output)?;
        }
        let sessions = state.get(view)?.map_or(&[][..], Vec::as_slice);
        let next = sessions.iter().map(|session| (self.next_ms(session), session.fired)).min();
        if let Some((next_ms, fired)) = next {
            self.set_timer(next_ms, fired && next_ms == i64::MAX, view)?;
        }
        Ok(())
    }
}

/// The place of the first session that touches `window`, or of what would be behind those before it. Sessions are in
/// order, and do not touch each other.
fn first_touching<A>(sessions: &[Session<A>], window: Window) -> usize {
    sessions.partition_point(|session| session.window.end < window.start)
}

/// Makes one session of `window` and those that touch it (WI-20, WI-22).
#[inline]
fn merge_in<A: AggregateFunction>(
    sessions: &mut Vec<Session<A::Accumulator>>,
    window: Window,
    clock: i64,
    aggregate: &A,
) -> Done {
    let at = first_touching(sessions, window);
    if sessions.get(at).is_none_or(|session| !session.window.touches(&window)) {
        let fired = window.max_time() <= clock;
        sessions.insert(at, Session { window, held: aggregate.create_accumulator(), fired });
        return Done { at, needs_timer: true };
    }
    let mut cover = sessions[at].window.cover(&window);
    let mut needs_timer = sessions[at].fired;
    while sessions.get(at + 1).is_some_and(|other| other.window.touches(&cover)) {
        let other = sessions.remove(at + 1);
        cover = cover.cover(&other.window);
        needs_timer |= other.fired;
        let held = std::mem::replace(&mut sessions[at].held, aggregate.create_accumulator());
        sessions[at].held = aggregate.merge(held, other.held);
    }
    sessions[at].window = cover;
    sessions[at].fired = cover.max_time() <= clock;
    Done { at, needs_timer }
}
