//! What all keyed operators share: the keyed state of their subtask, and the loop over a keyed batch.

use std::sync::Arc;

use millpond_core::{Clock, Data, Key, UserResult};
use millpond_dataflow::batch::{Batch, NO_TIME};
use millpond_dataflow::{
    Advance, BATCH_RECORDS, BoxBatch, Due, Keyed, KeyedContext, OpenContext, OperatorContext, Output, Outputs,
    SubtaskInfo, TimeDomain, Timer, Timers,
};
use millpond_state::{KeyedBackend, KeyedBackendControl, OperatorStates, StateDeclarer, StateError};

use crate::record::YIELD_RECORDS;

/// The backend exists from `open` on; the runtime calls nothing before it.
const OPENED: &str = "open is called before anything else";

/// Under this name an operator keeps the timers that its user code sets.
const TIMERS: &str = "timers";

/// The keyed state of one operator's subtask; empty until the operator opens.
pub(crate) struct KeyedHost<K: Key>(Option<(KeyedBackend<K>, Timers<K>)>);

impl<K: Key> Default for KeyedHost<K> {
    fn default() -> Self {
        KeyedHost(None)
    }
}

impl<K: Key> KeyedHost<K> {
    /// Opens the backend, knowing what the checkpoint holds, and lets the operator declare its states.
    pub(crate) fn open(
        &mut self,
        context: &mut OpenContext<'_>,
        declare: impl FnOnce(&mut StateDeclarer<'_, K>, &mut OpenContext<'_>) -> UserResult,
    ) -> UserResult {
        let mut backend = KeyedBackend::new(context.info.max_parallelism, context.info.key_groups())
            .with_clock(Arc::clone(context.clock));
        if let Some(backing) = context.cold {
            let (store, share) = backing.open(&context.info.operator, context.info.index)?;
            backend.attach_cold(store, share)?;
        }
        backend.set_stored_sections(context.stored_sections.to_vec());
        declare(&mut backend.declarer(), context)?;
        let timers = Timers::open(TIMERS, &mut backend, context.stored_sections)?;
        self.0 = Some((backend, timers));
        Ok(())
    }

    /// What user code sees of it.
    pub(crate) fn view<'a>(
        &'a mut self,
        states: &'a mut OperatorStates,
        info: &'a SubtaskInfo,
        clock: &'a Arc<dyn Clock>,
        watermark: i64,
    ) -> KeyedContext<'a, K> {
        let (backend, timers) = self.0.as_mut().expect(OPENED);
        KeyedContext::new(backend, timers, states, info, clock, watermark)
    }

    /// The backend itself, once it is open.
    pub(crate) fn backend(&mut self) -> &mut KeyedBackend<K> {
        &mut self.0.as_mut().expect(OPENED).0
    }

    /// What the runtime sees of it.
    pub(crate) fn control(&mut self) -> Option<&mut dyn KeyedBackendControl> {
        self.0.as_mut().map(|(backend, _)| backend as &mut dyn KeyedBackendControl)
    }
}

impl<K: Key> KeyedHost<K> {
    /// When the earliest processing timer is due.
    pub(crate) fn wake_at(&self) -> Option<i64> {
        self.0.as_ref().and_then(|(_, timers)| timers.first(TimeDomain::Processing))
    }

    /// Calls `fire` for every event timer that is due at `watermark`, in order; stops when much was emitted.
    pub(crate) fn on_watermark<U: Data>(
        &mut self,
        watermark: i64,
        context: &mut OperatorContext<'_>,
        output: &mut Output<U>,
        fire: impl FnMut(Timer, &mut KeyedContext<'_, K>, &mut Output<U>) -> UserResult,
    ) -> UserResult<Advance> {
        if !self.is_due(watermark) {
            return Ok(Advance::Done);
        }
        let mut view = self.view(context.states, context.info, context.clock, watermark);
        fire_timers(TimeDomain::Event, watermark, &mut view, output, context.outputs, fire)
    }

    /// Calls `fire` for every processing timer that is due now, in order; stops when much was emitted.
    pub(crate) fn on_clock<U: Data>(
        &mut self,
        context: &mut OperatorContext<'_>,
        output: &mut Output<U>,
        fire: impl FnMut(Timer, &mut KeyedContext<'_, K>, &mut Output<U>) -> UserResult,
    ) -> UserResult {
        let now_ms = context.clock.now_ms();
        let mut view = self.view(context.states, context.info, context.clock, context.watermark);
        fire_timers(TimeDomain::Processing, now_ms, &mut view, output, context.outputs, fire)?;
        Ok(())
    }

    /// Whether an event timer is due at this watermark; deleted ones count until they are passed over.
    fn is_due(&self, watermark: i64) -> bool {
        let first = self.0.as_ref().and_then(|(_, timers)| timers.first(TimeDomain::Event));
        first.is_some_and(|first| first <= watermark)
    }
}

/// Calls `fire` for every timer of user code that is due by `until_ms`, in order.
fn fire_timers<K: Key, U: Data>(
    domain: TimeDomain,
    until_ms: i64,
    context: &mut KeyedContext<'_, K>,
    output: &mut Output<U>,
    outputs: &mut Outputs,
    mut fire: impl FnMut(Timer, &mut KeyedContext<'_, K>, &mut Output<U>) -> UserResult,
) -> UserResult<Advance> {
    let next = |(): &mut (), context: &mut KeyedContext<'_, K>| context.next_timer(domain, until_ms);
    fire_due(&mut (), context, output, outputs, next, |(), time_ms, (), context, output| {
        context.set_time(time_ms);
        // Output of processing timers has no event time (TM-32).
        output.set_time(if domain == TimeDomain::Event { time_ms } else { NO_TIME });
        fire(Timer { time_ms, domain }, context, output)
    })
}

/// Calls `fire` for each timer that `next` finds, with its key as the current one. Stops when much was emitted or done:
/// then others have their turn, and memory is looked after.
pub(crate) fn fire_due<K: Key, N, U: Data, C>(
    core: &mut C,
    view: &mut KeyedContext<'_, K>,
    output: &mut Output<U>,
    outputs: &mut Outputs,
    mut next: impl FnMut(&mut C, &mut KeyedContext<'_, K>) -> Result<Due<N>, StateError>,
    mut fire: impl FnMut(&mut C, i64, N, &mut KeyedContext<'_, K>, &mut Output<U>) -> UserResult,
) -> UserResult<Advance> {
    // What is brought in for timers is let go after each turn, as after each batch.
    let most = if view.backend().spills() { BATCH_RECORDS } else { YIELD_RECORDS };
    let (mut fired, mut advance) = (0, Advance::More);
    while fired < most && output.pending() <= YIELD_RECORDS {
        match next(core, view)? {
            Due::Timer(time_ms, namespace) => fire(core, time_ms, namespace, view, output)?,
            Due::None => {
                advance = Advance::Done;
                break;
            }
            Due::Later => break,
        }
        fired += 1;
    }
    output.set_time(NO_TIME);
    output.flush(outputs);
    view.clear_current_key();
    Ok(advance)
}

/// Records ahead of the current one whose state is fetched into the processor's cache.
const PREFETCH_RECORDS: usize = 16;

/// The records ahead from the `nth` window on.
#[inline]
fn window_of<R>(ahead: &[R], nth: usize) -> &[R] {
    ahead.get(nth * PREFETCH_RECORDS..).unwrap_or_default()
}

/// Fetches the entries of the first window of `soon`, and the index slots of the first window of `later`.
#[inline]
fn prefetch<K: Key, T: Data>(context: &KeyedContext<'_, K>, soon: &[Keyed<K, T>], later: &[Keyed<K, T>]) {
    let (soon, later) = (soon.iter().take(PREFETCH_RECORDS), later.iter().take(PREFETCH_RECORDS));
    context.prefetch(soon.map(|record| record.hash), later.map(|record| record.hash));
}

/// Calls `process` for each keyed record with its key set; the loop that all keyed operators share.
pub(crate) fn for_each_keyed<K: Key, T: Data, U: Data>(
    batch: Batch<Keyed<K, T>>,
    context: &mut KeyedContext<'_, K>,
    output: &mut Output<U>,
    outputs: &mut millpond_dataflow::Outputs,
    mut process: impl FnMut(T, &mut KeyedContext<'_, K>, &mut Output<U>) -> UserResult,
) -> UserResult<Option<BoxBatch>> {
    let Batch { records, times } = batch;
    let mut records = records.into_iter();
    let mut done = 0;
    output.set_time(NO_TIME);
    context.set_time(NO_TIME);
    context.fetch(records.as_slice().iter().map(|record| (record.hash, &record.key)))?;
    prefetch(context, &[], records.as_slice());
    prefetch(context, records.as_slice(), window_of(records.as_slice(), 1));
    loop {
        if done % PREFETCH_RECORDS == 0 {
            let ahead = records.as_slice();
            prefetch(context, window_of(ahead, 1), window_of(ahead, 2));
        }
        let Some(Keyed { hash, key, value }) = records.next() else {
            break;
        };
        if !times.is_empty() {
            output.set_time(times[done]);
            context.set_time(times[done]);
        }
        context.set_current_key(hash, key)?;
        process(value, context, output)?;
        done += 1;
        if output.pending() > YIELD_RECORDS && records.len() > 0 {
            let times = times.get(done..).unwrap_or_default().to_vec();
            output.flush(outputs);
            context.clear_current_key();
            return Ok(Some(Batch { records: records.collect(), times }.boxed()));
        }
    }
    output.flush(outputs);
    context.clear_current_key();
    Ok(None)
}
