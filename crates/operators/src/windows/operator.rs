//! Windows of every kind: assigner, trigger, function, lateness.
//!
//! Owns what happens to a record, at a time, and when sessions merge. A window of a key is one entry of the map
//! state `windows`: its content, and what its trigger remembers. Timers belong to (key, window). Windows that need
//! none of that generality are in `slices`.

use millpond_core::{Data, Epoch, Key, UserResult};
use millpond_dataflow::batch::NO_TIME;
use millpond_dataflow::{
    Advance, Batch, BoxBatch, Keyed, KeyedContext, OpenContext, Operator, OperatorContext, Output, TimeDomain, Timers,
};
use millpond_state::{KeyedBackendControl, MapState};
use serde::{Deserialize, Serialize};

use super::assign::{Shape, WindowError, Windows};
use super::fired::Fired;
use super::function::WindowFunction;
use super::sessions::{MANY, Sessions};
use super::trigger::{Trigger, TriggerContext, TriggerResult, TriggerState};
use super::window::Window;
use crate::keyed_host::{KeyedHost, fire_due, for_each_keyed};
use crate::late::LateRecords;

/// The map state of windows, and the name under which their timers are kept.
const WINDOWS: &str = "windows";
const TIMERS: &str = "window timers";

/// What is kept of a window of a key.
#[derive(Clone, Serialize, Deserialize)]
struct WindowState<C, T> {
    content: Option<C>,
    trigger: TriggerState<T>,
}

/// What all window operators are told.
pub(crate) struct WindowRules<T> {
    pub(crate) windows: Windows<T>,
    pub(crate) trigger: Box<dyn Trigger<T>>,
    pub(crate) lateness_ms: i64,
}

impl<T: Data> WindowRules<T> {
    /// When a window is gone (WI-16); the end of time when never (WI-19).
    pub(crate) fn cleanup_ms(&self, window: Window) -> i64 {
        match self.windows.domain {
            TimeDomain::Event => window.max_time().saturating_add(self.lateness_ms),
            TimeDomain::Processing => window.max_time(),
        }
    }

    /// Whether records for the window come too late (WI-14).
    fn is_late(&self, window: Window, watermark: i64) -> bool {
        self.windows.domain == TimeDomain::Event && self.cleanup_ms(window) <= watermark
    }
}

/// See the module.
pub(crate) struct WindowOperator<K: Key, T: Data, F: WindowFunction<K, T>> {
    keyed: KeyedHost<K>,
    output: Output<F::Output>,
    fired: Fired,
    core: Core<K, T, F>,
}

struct Core<K: Key, T: Data, F: WindowFunction<K, T>> {
    rules: WindowRules<T>,
    function: F,
    state: Option<MapState<Window, WindowState<F::Content, T>>>,
    timers: Option<Timers<K, Window>>,
    assigned: Vec<Window>,
    /// Of windows that merge.
    sessions: Sessions<K>,
    requests: Vec<(TimeDomain, i64, bool)>,
    late: LateRecords,
    /// How far windows have fired.
    clock: i64,
}

/// State and timers exist from `open` on; the runtime calls nothing before it.
const OPENED: &str = "open is called before anything else";

impl<K: Key, T: Data, F: WindowFunction<K, T>> WindowOperator<K, T, F> {
    pub(crate) fn new(rules: WindowRules<T>, function: F) -> Self {
        let (state, timers) = (None, None);
        let (assigned, sessions, requests) = (Vec::new(), Sessions::default(), Vec::new());
        let core = Core {
            rules,
            function,
            state,
            timers,
            assigned,
            sessions,
            requests,
            late: LateRecords::default(),
            clock: i64::MIN,
        };
        WindowOperator { keyed: KeyedHost::default(), output: Output::new(), fired: Fired::default(), core }
    }

    /// Adds records to their windows, as what `take` makes of them.
    pub(crate) fn on_records<R: Data>(
        &mut self,
        batch: Batch<Keyed<K, R>>,
        context: &mut OperatorContext<'_>,
        take: impl Fn(R) -> T,
    ) -> UserResult<Option<BoxBatch>> {
        let WindowOperator { keyed, output, fired, core } = self;
        let mut view = keyed.view(context.states, context.info, context.clock, context.watermark);
        let clocks = fired.clocks(context.watermark);
        let rest = for_each_keyed(batch, &mut view, output, context.outputs, |record, view, output| {
            core.clock = clocks.of(view.current_hash());
            core.on_record(take(record), view, output)
        });
        core.late.tell(context.gauge);
        rest
    }

    fn fire(&mut self, domain: TimeDomain, until_ms: i64, context: &mut OperatorContext<'_>) -> UserResult<Advance> {
        let WindowOperator { keyed, output, fired, core } = self;
        core.clock = fired.clock(context.watermark);
        let mut view = keyed.view(context.states, context.info, context.clock, context.watermark);
        let next = |core: &mut Core<K, T, F>, view: &mut KeyedContext<'_, K>| {
            core.timers().next(domain, until_ms, view.backend())
        };
        fire_due(core, &mut view, output, context.outputs, next, |core, time_ms, window, view, output| {
            core.on_time(domain, time_ms, window, view, output)
        })
    }
}

impl<K: Key, T: Data, F: WindowFunction<K, T>> Operator for WindowOperator<K, T, F> {
    fn open(&mut self, context: &mut OpenContext<'_>) -> UserResult {
        self.output.listen(context.sides);
        self.fired.open(context)?;
        let core = &mut self.core;
        self.keyed.open(context, |states, _| {
            core.state = Some(states.map(WINDOWS)?);
            core.function.open(states)
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
        self.on_records(batch.downcast::<Keyed<K, T>>(), context, |record| record)
    }

    fn on_watermark(&mut self, watermark: i64, context: &mut OperatorContext<'_>) -> UserResult<Advance> {
        let first = self.core.timers().first(TimeDomain::Event);
        if first.is_none_or(|first| first > watermark) {
            return Ok(Advance::Done);
        }
        self.fire(TimeDomain::Event, watermark, context)
    }

    fn wake_at(&self) -> Option<i64> {
        self.core.timers.as_ref()?.first(TimeDomain::Processing)
    }

    fn on_clock(&mut self, context: &mut OperatorContext<'_>) -> UserResult {
        let now_ms = context.clock.now_ms();
        self.fire(TimeDomain::Processing, now_ms, context)?;
        Ok(())
    }

    fn prepare_snapshot(&mut self, _epoch: Epoch, context: &mut OperatorContext<'_>) -> UserResult {
        self.core.late.log(context);
        self.fired.snapshot(context)
    }

    fn keyed(&mut self) -> Option<&mut dyn KeyedBackendControl> {
        self.keyed.control()
    }
}

impl<K: Key, T: Data, F: WindowFunction<K, T>> Core<K, T, F> {
    fn timers(&mut self) -> &mut Timers<K, Window> {
        self.timers.as_mut().expect(OPENED)
    }

    fn state(&self) -> MapState<Window, WindowState<F::Content, T>> {
        self.state.expect(OPENED)
    }

    fn on_record(&mut self, record: T, view: &mut KeyedContext<'_, K>, output: &mut Output<F::Output>) -> UserResult {
        let time_ms = match (self.rules.windows.domain, view.timestamp()) {
            (TimeDomain::Processing, _) => view.processing_time(),
            (TimeDomain::Event, Some(time_ms)) => time_ms,
            (TimeDomain::Event, None) if matches!(self.rules.windows.shape, Shape::Global) => NO_TIME,
            (TimeDomain::Event, None) => return Err(WindowError::NoTimestamp.into()),
        };
        let mut assigned = std::mem::take(&mut self.assigned);
        assigned.clear();
        self.rules.windows.assign(&record, time_ms, &mut assigned)?;
        let watermark = self.clock;
        let had_windows = !assigned.is_empty();
        if self.rules.windows.merges() {
            let merged = assigned.first().map(|window| self.merge_in(*window, view)).transpose()?.flatten();
            assigned.clear();
            assigned.extend(merged);
        } else {
            assigned.retain(|window| !self.rules.is_late(*window, watermark));
        }
        let Some((last, others)) = assigned.split_last() else {
            self.assigned = assigned;
            // WI-18: without a window it is late only when a window of its own time would be.
            let is_late = had_windows
                || self.rules.windows.domain == TimeDomain::Event
                    && time_ms.saturating_add(self.rules.lateness_ms) <= watermark;
            if is_late {
                self.late(record, output);
            }
            return Ok(());
        };
        for window in others {
            self.add(*window, record.clone(), time_ms, view, output)?;
        }
        self.add(*last, record, time_ms, view, output)?;
        self.assigned = assigned;
        Ok(())
    }

    fn late(&mut self, record: T, output: &mut Output<F::Output>) {
        if !self.function.late(record, output) {
            self.late.dropped();
        }
    }

    /// Adds a record to a live window of the current key: one access to its state.
    fn add(
        &mut self,
        window: Window,
        record: T,
        time_ms: i64,
        view: &mut KeyedContext<'_, K>,
        output: &mut Output<F::Output>,
    ) -> UserResult {
        let (domain, watermark, now_ms) = (self.rules.windows.domain, self.clock, view.processing_time());
        let state = self.state();
        let Core { rules, function, requests, .. } = self;
        let (is_new, result) = state.modify(view, window, |slot| {
            let is_new = slot.is_none();
            let held = slot.get_or_insert_with(|| WindowState { content: None, trigger: TriggerState::default() });
            let mut context =
                TriggerContext { state: &mut held.trigger, domain, watermark, now_ms, timers: &mut *requests };
            let result = rules.trigger.on_record(&record, time_ms, window, &mut context);
            function.add(&mut held.content, record, time_ms);
            (is_new, result)
        })?;
        if is_new {
            self.set_cleanup(window, view)?;
            if let Some((hash, key)) = view.current_hash().zip(view.current_key()) {
                self.sessions.added(hash, key, window);
            }
        }
        self.carry_out(window, view)?;
        self.obey(result?, window, view, output)
    }

    /// Sets the timer at which a window goes.
    fn set_cleanup(&mut self, window: Window, view: &mut KeyedContext<'_, K>) -> UserResult {
        let (domain, cleanup_ms) = (self.rules.windows.domain, self.rules.cleanup_ms(window));
        if cleanup_ms != i64::MAX {
            self.timers().register(domain, cleanup_ms, window, view.backend())?;
        }
        Ok(())
    }

    /// Sets and deletes the timers that the trigger asked for. The one at which the window goes stays (WI-46).
    fn carry_out(&mut self, window: Window, view: &mut KeyedContext<'_, K>) -> UserResult {
        if self.requests.is_empty() {
            return Ok(());
        }
        let cleanup = (self.rules.windows.domain, self.rules.cleanup_ms(window));
        let mut requests = std::mem::take(&mut self.requests);
        for (domain, time_ms, set) in requests.drain(..) {
            if set {
                self.timers().register(domain, time_ms, window, view.backend())?;
            } else if (domain, time_ms) != cleanup {
                self.timers().delete(domain, time_ms, window, view.backend())?;
            }
        }
        self.requests = requests;
        Ok(())
    }

    /// Emits and purges as the trigger wants. Without content nothing is emitted (WI-34), also when it is an evictor
    /// that has left none.
    fn obey(
        &mut self,
        result: TriggerResult,
        window: Window,
        view: &mut KeyedContext<'_, K>,
        output: &mut Output<F::Output>,
    ) -> UserResult {
        if result == TriggerResult::Continue {
            return Ok(());
        }
        let state = self.state();
        let taken = state.modify(view, window, |slot| slot.as_mut().and_then(|held| held.content.take()))?;
        let Some(mut content) = taken else { return Ok(()) };
        if result.fires() {
            output.set_time(window.max_time());
            let time = view.timestamp();
            view.set_time(window.max_time());
            self.function.emit(window, &mut content, view, output)?;
            view.set_time(time.unwrap_or(NO_TIME));
            output.set_time(time.unwrap_or(NO_TIME));
        }
        if !result.purges() && !self.function.is_empty(&content) {
            state.modify(view, window, |slot| {
                if let Some(held) = slot {
                    held.content = Some(content);
                }
            })?;
        }
        Ok(())
    }

    fn on_time(
        &mut self,
        domain: TimeDomain,
        time_ms: i64,
        window: Window,
        view: &mut KeyedContext<'_, K>,
        output: &mut Output<F::Output>,
    ) -> UserResult {
        let (follows, watermark, now_ms) = (self.rules.windows.domain, self.clock, view.processing_time());
        let state = self.state();
        let Core { rules, requests, .. } = self;
        let result = state.modify(view, window, |slot| {
            let held = slot.as_mut()?;
            let mut context =
                TriggerContext { state: &mut held.trigger, domain: follows, watermark, now_ms, timers: &mut *requests };
            Some(rules.trigger.on_time(domain, time_ms, window, &mut context))
        })?;
        // Timers of windows that are gone are ignored (WI-44).
        let Some(result) = result else { return Ok(()) };
        self.carry_out(window, view)?;
        self.obey(result?, window, view, output)?;
        if (domain, time_ms) == (self.rules.windows.domain, self.rules.cleanup_ms(window)) {
            self.remove(window, view)?;
            self.function.clear(window, view)?;
        }
        Ok(())
    }

    /// Removes a window with all its timers; returns what it held (WI-41).
    fn remove(
        &mut self,
        window: Window,
        view: &mut KeyedContext<'_, K>,
    ) -> UserResult<Option<WindowState<F::Content, T>>> {
        let (domain, watermark, now_ms) = (self.rules.windows.domain, self.clock, view.processing_time());
        let Some(held) = self.state().remove(view, &window)? else { return Ok(None) };
        if let Some((hash, key)) = view.current_hash().zip(view.current_key()) {
            self.sessions.removed(hash, key, window);
        }
        let mut state = held.trigger.clone();
        let mut context = TriggerContext { state: &mut state, domain, watermark, now_ms, timers: &mut self.requests };
        self.rules.trigger.clear(window, &mut context);
        self.carry_out(window, view)?;
        let cleanup_ms = self.rules.cleanup_ms(window);
        self.timers().delete(domain, cleanup_ms, window, view.backend())?;
        Ok(Some(held))
    }

    /// The windows of the current key that touch `window`, in order.
    fn touching(&mut self, window: Window, view: &mut KeyedContext<'_, K>) -> UserResult<Vec<Window>> {
        if let Some((hash, key)) = view.current_hash().zip(view.current_key())
            && let Some(touching) = self.sessions.touching(hash, key, &window)
        {
            return Ok(touching);
        }
        let (state, mut touching, mut open) = (self.state(), Vec::new(), 0);
        for known in state.keys(view)? {
            open += 1;
            if known.touches(&window) {
                touching.push(*known);
            }
        }
        if open > MANY {
            let all: Vec<Window> = state.keys(view)?.copied().collect();
            if let Some((hash, key)) = view.current_hash().zip(view.current_key()) {
                self.sessions.learn(hash, key, &all);
            }
        }
        touching.sort_unstable();
        Ok(touching)
    }

    /// Makes one window of `window` and those of the current key that touch it (WI-20, WI-22). `None` when it
    /// would be late (WI-23); nothing has changed then.
    fn merge_in(&mut self, window: Window, view: &mut KeyedContext<'_, K>) -> UserResult<Option<Window>> {
        let state = self.state();
        let touched = self.touching(window, view)?;
        let cover = touched.iter().fold(window, |cover, known| cover.cover(known));
        if self.rules.is_late(cover, self.clock) {
            return Ok(None);
        }
        // A new window, or one that holds the record already: nothing merges (WI-21).
        if touched.is_empty() || touched == [cover] {
            return Ok(Some(cover));
        }
        let mut merged: Option<WindowState<F::Content, T>> = None;
        for known in touched {
            let Some(held) = self.remove(known, view)? else { continue };
            merged = Some(match merged {
                None => held,
                Some(before) => self.merge(before, held),
            });
        }
        let Some(mut held) = merged else { return Ok(Some(cover)) };
        let (domain, watermark, now_ms) = (self.rules.windows.domain, self.clock, view.processing_time());
        let mut context =
            TriggerContext { state: &mut held.trigger, domain, watermark, now_ms, timers: &mut self.requests };
        self.rules.trigger.on_merge(cover, &mut context);
        state.put(view, cover, held)?;
        if let Some((hash, key)) = view.current_hash().zip(view.current_key()) {
            self.sessions.added(hash, key, cover);
        }
        self.set_cleanup(cover, view)?;
        self.carry_out(cover, view)?;
        Ok(Some(cover))
    }

    fn merge(
        &mut self,
        one: WindowState<F::Content, T>,
        other: WindowState<F::Content, T>,
    ) -> WindowState<F::Content, T> {
        let content = match (one.content, other.content) {
            (Some(one), Some(other)) => Some(self.function.merge(one, other)),
            (one, other) => one.or(other),
        };
        WindowState { content, trigger: one.trigger.merge(other.trigger) }
    }
}
