//! Tumbling, sliding and cumulative windows in event time with an aggregate: the quick way.
//!
//! A record changes one accumulator, that of its key in its slice, whatever the number of windows it belongs to.
//! A window that is over puts the accumulators of its slices together; tumbling windows are one slice each, which is
//! handed out from end to end. There are no timers: which windows are to fire follows from the slices that hold
//! something, and from how far they have fired, which is operator state (`fired`).
//!
//! Invariants: a window fires once when its end passes, and again for each record within the lateness; a slice goes
//! when the last window that holds it does.

use std::collections::BTreeSet;

use millpond_core::{Data, Epoch, Key, UserResult};
use millpond_dataflow::batch::NO_TIME;
use millpond_dataflow::time::MIN_WATERMARK;
use millpond_dataflow::{
    Advance, BATCH_RECORDS, BoxBatch, Keyed, KeyedContext, OpenContext, Operator, OperatorContext, Output, SideTag,
};
use millpond_state::{AggregateFunction, KeyedBackendControl, OperatorListState};

use super::assign::WindowError;
use super::fired::Fired;
use super::function::EmitResult;
use super::lattice::Lattice;
use super::slice_store::{SLICES, SliceStore};
use super::window::{Window, clamp};
use crate::keyed_host::{KeyedHost, for_each_keyed};
use crate::late::LateRecords;
use crate::record::YIELD_RECORDS;

/// See the module.
pub(crate) struct SliceOperator<K: Key, A: AggregateFunction, E, U> {
    keyed: KeyedHost<K>,
    output: Output<U>,
    fired: Fired,
    core: Core<K, A, E>,
}

/// A window, and the keys that are not emitted yet, with what they hold in it.
type Emitting<K, V> = (Window, std::vec::IntoIter<(K, V)>);

/// How far windows have fired: of all keys of the subtask, and of the current one (`fired`).
#[derive(Clone, Copy)]
struct Clocks {
    least: i64,
    of_key: i64,
}

struct Core<K: Key, A: AggregateFunction, E> {
    lattice: Lattice,
    lateness_ms: i64,
    late: Option<SideTag<A::Input>>,
    aggregate: A,
    emit: E,
    store: Option<SliceStore<K, A::Accumulator>>,
    /// The ends of windows that hold something and have not fired.
    pending: BTreeSet<i128>,
    /// Whether `pending` lacks what a restore has brought.
    unread: bool,
    /// The slice that is known to hold something.
    known: Option<i64>,
    /// The window that is being emitted, and what is left of it.
    emitting: Option<Emitting<K, A::Accumulator>>,
    dropped: LateRecords,
    /// Which windows the slices are made for; none when it is stored already.
    shape: Option<OperatorListState<Lattice>>,
}

/// The operator state of which windows there are.
const SHAPE: &str = "windows";

/// State exists from `open` on; the runtime calls nothing before it.
const OPENED: &str = "open is called before anything else";

/// The last time inside of a window with this end.
fn max_time(end: i128) -> i64 {
    clamp(end - i128::from(end <= i128::from(i64::MAX)))
}

impl<K: Key, A: AggregateFunction, E, U: Data> SliceOperator<K, A, E, U> {
    pub(crate) fn new(
        lattice: Lattice,
        lateness_ms: i64,
        late: Option<SideTag<A::Input>>,
        aggregate: A,
        emit: E,
    ) -> Self {
        let core = Core {
            lattice,
            lateness_ms,
            late,
            aggregate,
            emit,
            store: None,
            pending: BTreeSet::new(),
            unread: false,
            known: None,
            emitting: None,
            dropped: LateRecords::default(),
            shape: None,
        };
        SliceOperator { keyed: KeyedHost::default(), output: Output::new(), fired: Fired::default(), core }
    }
}

impl<K, A, E, U> Operator for SliceOperator<K, A, E, U>
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
        core.open_shape(context)?;
        let stored = context.stored_sections.iter().any(|section| section.name == SLICES);
        core.unread = stored;
        self.keyed.open(context, |states, context| {
            core.store = Some(SliceStore::open(states, context.cold.is_some(), stored)?);
            Ok(())
        })
    }

    fn on_batch(
        &mut self,
        _input: usize,
        batch: BoxBatch,
        context: &mut OperatorContext<'_>,
    ) -> UserResult<Option<BoxBatch>> {
        let SliceOperator { keyed, output, fired, core } = self;
        let mut view = keyed.view(context.states, context.info, context.clock, context.watermark);
        let clock = fired.clock(context.watermark);
        core.read(fired.restored(), &mut view)?;
        let batch = batch.downcast::<Keyed<K, A::Input>>();
        let clocks = fired.clocks(context.watermark);
        let rest = for_each_keyed(batch, &mut view, output, context.outputs, |record, view, output| {
            let of_key = clocks.of(view.current_hash());
            core.on_record(record, Clocks { least: clock, of_key }, view, output)
        });
        core.dropped.tell(context.gauge);
        rest
    }

    fn on_watermark(&mut self, watermark: i64, context: &mut OperatorContext<'_>) -> UserResult<Advance> {
        let SliceOperator { keyed, output, fired, core } = self;
        let mut view = keyed.view(context.states, context.info, context.clock, watermark);
        let clock = fired.clock(watermark);
        core.read(fired.restored(), &mut view)?;
        let mut advance = Advance::Done;
        while core.fire_some(clock, fired, &mut view, output)? {
            if output.pending() > YIELD_RECORDS {
                advance = Advance::More;
                break;
            }
        }
        if advance == Advance::Done {
            core.clean_up(clock, &mut view)?;
        }
        output.set_time(NO_TIME);
        output.flush(context.outputs);
        Ok(advance)
    }

    fn prepare_snapshot(&mut self, _epoch: Epoch, context: &mut OperatorContext<'_>) -> UserResult {
        self.core.dropped.log(context);
        self.core.store_shape(context)?;
        self.fired.snapshot(context)
    }

    fn keyed(&mut self) -> Option<&mut dyn KeyedBackendControl> {
        self.keyed.control()
    }
}

impl<K: Key, A: AggregateFunction, E> Core<K, A, E> {
    fn cleanup_ms(&self, end: i128) -> i64 {
        max_time(end).saturating_add(self.lateness_ms)
    }

    /// Refuses slices that a checkpoint holds for other windows.
    fn open_shape(&mut self, context: &mut OpenContext<'_>) -> UserResult {
        let shape = context.states.union_list::<Lattice>(SHAPE)?;
        if let Some(stored) = shape.get(context.states)?.iter().find(|stored| **stored != self.lattice) {
            let (operator, stored, given) =
                (context.info.operator.to_string(), stored.to_string(), self.lattice.to_string());
            return Err(WindowError::Changed { operator, stored, given }.into());
        }
        self.shape = Some(shape);
        Ok(())
    }

    /// One subtask writes it for all, once per attempt.
    fn store_shape(&mut self, context: &mut OperatorContext<'_>) -> UserResult {
        if let Some(shape) = self.shape.take() {
            let own = (context.info.index == 0).then_some(self.lattice);
            shape.update(context.states, own)?;
        }
        Ok(())
    }

    /// Finds the windows that a restore has brought and that had not fired by `restored`. Slices that were kept for
    /// a lateness that is not given any more go.
    #[inline]
    fn read(&mut self, restored: i64, view: &mut KeyedContext<'_, K>) -> UserResult {
        if std::mem::take(&mut self.unread) {
            for slice in self.store.as_mut().expect(OPENED).slices(view)? {
                if self.lattice.last_end_of(slice).is_some_and(|end| self.cleanup_ms(end) > restored) {
                    self.expect_windows(slice, restored);
                    continue;
                }
                let store = self.store.as_mut().expect(OPENED);
                while store.drain(view, slice, BATCH_RECORDS, |_, _| Ok(()))? {}
            }
        }
        Ok(())
    }

    /// The windows that hold `slice` are to fire, unless they have.
    fn expect_windows(&mut self, slice: i64, clock: i64) {
        self.pending.extend(self.lattice.ends_of(slice).into_iter().filter(|end| max_time(*end) > clock));
    }
}

impl<K: Key, A: AggregateFunction, E> Core<K, A, E>
where
    A::Input: Data,
{
    #[inline]
    fn on_record<U: Data>(
        &mut self,
        record: A::Input,
        clocks: Clocks,
        view: &mut KeyedContext<'_, K>,
        output: &mut Output<U>,
    ) -> UserResult
    where
        E: EmitResult<K, A::Output, U>,
    {
        let clock = clocks.of_key;
        let Some(time_ms) = view.timestamp() else { return Err(WindowError::NoTimestamp.into()) };
        let Some(end) = self.lattice.last_end(time_ms) else {
            // WI-18: in a gap; late only when a window of its own time would be.
            if time_ms.saturating_add(self.lateness_ms) <= clock {
                self.late(record, output);
            }
            return Ok(());
        };
        if self.cleanup_ms(end) <= clock {
            self.late(record, output);
            return Ok(());
        }
        let slice = self.lattice.slice_of(time_ms);
        let store = self.store.as_mut().expect(OPENED);
        if self.known != Some(slice) {
            if !store.has(view, slice)? {
                self.expect_windows(slice, clocks.least);
            }
            self.known = Some(slice);
        }
        let Core { aggregate, store, .. } = self;
        let store = store.as_mut().expect(OPENED);
        store.modify(view, slice, || aggregate.create_accumulator(), |held| aggregate.add(record, held))?;
        if self.lateness_ms > 0 && clock > MIN_WATERMARK {
            self.fire_late(slice, clock, view, output)?;
        }
        Ok(())
    }

    fn late<U: Data>(&mut self, record: A::Input, output: &mut Output<U>) {
        match self.late {
            Some(tag) => output.emit_side(tag, record),
            None => self.dropped.dropped(),
        }
    }

    /// A record has come into a slice of windows that have fired and are not gone: they fire again (WI-15).
    fn fire_late<U: Data>(
        &mut self,
        slice: i64,
        clock: i64,
        view: &mut KeyedContext<'_, K>,
        output: &mut Output<U>,
    ) -> UserResult
    where
        E: EmitResult<K, A::Output, U>,
    {
        let ends = self.lattice.ends_of(slice);
        for end in ends.into_iter().filter(|end| max_time(*end) <= clock) {
            if self.cleanup_ms(end) <= clock {
                continue;
            }
            let Core { lattice, aggregate, emit, store, .. } = self;
            let store = store.as_mut().expect(OPENED);
            let slices = lattice.slices_in(end, store.slices(view)?.into_iter());
            let held = store.of_key(view, &slices, |one, other| aggregate.merge(one, other))?;
            if let Some(held) = held {
                let window = lattice.window(end);
                let before = view.timestamp().unwrap_or(NO_TIME);
                output.set_time(window.max_time());
                emit.emit(view.key()?, window, aggregate.result(&held), output)?;
                output.set_time(before);
            }
        }
        Ok(())
    }

    /// Emits a part of the first window that is due; false when none is.
    fn fire_some<U: Data>(
        &mut self,
        clock: i64,
        fired: &Fired,
        view: &mut KeyedContext<'_, K>,
        output: &mut Output<U>,
    ) -> UserResult<bool>
    where
        E: EmitResult<K, A::Output, U>,
    {
        if let Some((window, rest)) = &mut self.emitting {
            output.set_time(window.max_time());
            for (key, held) in rest.by_ref().take(BATCH_RECORDS) {
                self.emit.emit(&key, *window, self.aggregate.result(&held), output)?;
            }
            if rest.len() == 0 {
                self.emitting = None;
            }
            return Ok(true);
        }
        let Some(end) = self.pending.first().copied().filter(|end| max_time(*end) <= clock) else { return Ok(false) };
        let Core { lattice, aggregate, emit, store, .. } = self;
        let store = store.as_mut().expect(OPENED);
        let window = lattice.window(end);
        if lattice.is_tumbling() && self.lateness_ms == 0 {
            output.set_time(window.max_time());
            let slice = lattice.slice_of(window.max_time());
            let (differs, max) = (fired.differs_at(window.max_time()), view.subtask().max_parallelism);
            let left = store.drain(view, slice, BATCH_RECORDS, |key, held| {
                if differs && fired.has_fired(&key, window.max_time(), max)? {
                    return Ok(());
                }
                emit.emit(&key, window, aggregate.result(&held), output)
            })?;
            self.known = None;
            if !left {
                self.pending.remove(&end);
            }
            return Ok(true);
        }
        let slices = lattice.slices_in(end, store.slices(view)?.into_iter());
        let mut merged = store.merged(view, &slices, |one, other| aggregate.merge(one, other))?;
        if fired.differs_at(window.max_time()) {
            let max = view.subtask().max_parallelism;
            let mut waiting = Vec::with_capacity(merged.len());
            for (key, held) in merged {
                if !fired.has_fired(&key, window.max_time(), max)? {
                    waiting.push((key, held));
                }
            }
            merged = waiting;
        }
        self.pending.remove(&end);
        self.emitting = Some((window, merged.into_iter()));
        Ok(true)
    }

    /// Drops the slices that no window needs any more.
    fn clean_up(&mut self, clock: i64, view: &mut KeyedContext<'_, K>) -> UserResult {
        if self.lattice.is_tumbling() && self.lateness_ms == 0 {
            return Ok(());
        }
        let slices = self.store.as_mut().expect(OPENED).slices(view)?;
        for slice in slices {
            let last = self.lattice.last_end_of(slice);
            if last.is_some_and(|end| self.cleanup_ms(end) > clock) {
                continue;
            }
            self.known = None;
            let store = self.store.as_mut().expect(OPENED);
            while store.drain(view, slice, BATCH_RECORDS, |_, _| Ok(()))? {}
        }
        Ok(())
    }
}
