//! What becomes of the records of a window.

use std::marker::PhantomData;

use millpond_core::{Data, Key, UserResult};
use millpond_dataflow::{KeyedContext, Output, SideTag};
use millpond_state::{AggregateFunction, StateDeclarer};
use serde::{Deserialize, Serialize};

use super::evict::{Evictor, InWindow};
use super::window::Window;

/// A result of a window.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Windowed<K, R> {
    /// The key.
    pub key: K,
    /// The window.
    pub window: Window,
    /// The result.
    pub value: R,
}

/// A function over all records of a window.
///
/// Keyed state that it declares is per key, over all windows; state of one window is a map state whose user key is
/// the [`Window`], cleared in [`WindowProcess::clear`] (WI-38).
pub trait WindowProcess: 'static {
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
    fn open(&mut self, states: &mut StateDeclarer<'_, Self::Key>) -> UserResult {
        let _ = states;
        Ok(())
    }

    /// Called when the window fires, with its key as the current key. What it emits carries the last time of the
    /// window. The records come in the order of arrival, those of merged sessions one after the other.
    ///
    /// # Errors
    /// Ends the attempt.
    fn process(
        &mut self,
        window: Window,
        records: &[InWindow<Self::Input>],
        context: &mut KeyedContext<'_, Self::Key>,
        output: &mut Output<Self::Output>,
    ) -> UserResult;

    /// Called when the window goes for good.
    ///
    /// # Errors
    /// Ends the attempt.
    fn clear(&mut self, window: Window, context: &mut KeyedContext<'_, Self::Key>) -> UserResult {
        let _ = (window, context);
        Ok(())
    }
}

/// What a window holds, and what it emits; the operators below are made of it.
pub(crate) trait WindowFunction<K: Key, T: Data>: 'static {
    /// What is stored of the records of a window.
    type Content: Data;
    /// What is emitted.
    type Output: Data;

    fn open(&mut self, states: &mut StateDeclarer<'_, K>) -> UserResult {
        let _ = states;
        Ok(())
    }

    fn add(&mut self, content: &mut Option<Self::Content>, record: T, time_ms: i64);

    fn merge(&mut self, content: Self::Content, other: Self::Content) -> Self::Content;

    fn emit(
        &mut self,
        window: Window,
        content: &mut Self::Content,
        context: &mut KeyedContext<'_, K>,
        output: &mut Output<Self::Output>,
    ) -> UserResult;

    /// Whether nothing is left after `emit`, as if the content had been purged.
    fn is_empty(&self, content: &Self::Content) -> bool {
        let _ = content;
        false
    }

    fn clear(&mut self, window: Window, context: &mut KeyedContext<'_, K>) -> UserResult {
        let _ = (window, context);
        Ok(())
    }

    /// A record has come too late; false when it is dropped.
    fn late(&mut self, record: T, output: &mut Output<Self::Output>) -> bool {
        let _ = (record, output);
        false
    }
}

/// A function whose late records go to a side output.
pub(crate) struct LateTo<F, T> {
    pub(crate) function: F,
    pub(crate) late: Option<SideTag<T>>,
}

impl<K: Key, T: Data, F: WindowFunction<K, T>> WindowFunction<K, T> for LateTo<F, T> {
    type Content = F::Content;
    type Output = F::Output;

    fn open(&mut self, states: &mut StateDeclarer<'_, K>) -> UserResult {
        self.function.open(states)
    }

    fn add(&mut self, content: &mut Option<F::Content>, record: T, time_ms: i64) {
        self.function.add(content, record, time_ms);
    }

    fn merge(&mut self, content: F::Content, other: F::Content) -> F::Content {
        self.function.merge(content, other)
    }

    fn emit(
        &mut self,
        window: Window,
        content: &mut F::Content,
        context: &mut KeyedContext<'_, K>,
        output: &mut Output<F::Output>,
    ) -> UserResult {
        self.function.emit(window, content, context, output)
    }

    fn is_empty(&self, content: &F::Content) -> bool {
        self.function.is_empty(content)
    }

    fn clear(&mut self, window: Window, context: &mut KeyedContext<'_, K>) -> UserResult {
        self.function.clear(window, context)
    }

    fn late(&mut self, record: T, output: &mut Output<F::Output>) -> bool {
        if let Some(tag) = self.late {
            output.emit_side(tag, record);
        }
        self.late.is_some()
    }
}

/// What is emitted of a result: the user's part of an incremental window.
pub(crate) trait EmitResult<K: Key, R, U>: 'static {
    fn emit(&mut self, key: &K, window: Window, result: R, output: &mut Output<U>) -> UserResult;
}

/// Emits key, window and result.
pub(crate) struct AsWindowed;

impl<K: Key, R: Data> EmitResult<K, R, Windowed<K, R>> for AsWindowed {
    #[inline]
    fn emit(&mut self, key: &K, window: Window, value: R, output: &mut Output<Windowed<K, R>>) -> UserResult {
        output.emit(Windowed { key: key.clone(), window, value });
        Ok(())
    }
}

/// Emits what a closure makes of it.
pub(crate) struct EmitWith<F>(pub(crate) F);

impl<K: Key, R, U, F> EmitResult<K, R, U> for EmitWith<F>
where
    F: FnMut(&K, Window, R, &mut Output<U>) -> UserResult + 'static,
{
    #[inline]
    fn emit(&mut self, key: &K, window: Window, result: R, output: &mut Output<U>) -> UserResult {
        (self.0)(key, window, result, output)
    }
}

/// One accumulator per window (WI-45).
pub(crate) struct Incremental<A, E, U> {
    pub(crate) aggregate: A,
    pub(crate) emit: E,
    types: PhantomData<fn() -> U>,
}

impl<A, E, U> Incremental<A, E, U> {
    pub(crate) fn new(aggregate: A, emit: E) -> Self {
        Incremental { aggregate, emit, types: PhantomData }
    }
}

impl<K: Key, A, E, U> WindowFunction<K, A::Input> for Incremental<A, E, U>
where
    A: AggregateFunction,
    A::Input: Data,
    E: EmitResult<K, A::Output, U>,
    U: Data,
{
    type Content = A::Accumulator;
    type Output = U;

    fn add(&mut self, content: &mut Option<A::Accumulator>, record: A::Input, _: i64) {
        self.aggregate.add(record, content.get_or_insert_with(|| self.aggregate.create_accumulator()));
    }

    fn merge(&mut self, content: A::Accumulator, other: A::Accumulator) -> A::Accumulator {
        self.aggregate.merge(content, other)
    }

    fn emit(
        &mut self,
        window: Window,
        content: &mut A::Accumulator,
        context: &mut KeyedContext<'_, K>,
        output: &mut Output<U>,
    ) -> UserResult {
        self.emit.emit(context.key()?, window, self.aggregate.result(content), output)
    }
}

/// `reduce` as an aggregate: the first record is taken as it is (WI-27).
pub(crate) struct Reducing<T, F> {
    reduce: F,
    records: PhantomData<fn(T) -> T>,
}

impl<T, F> Reducing<T, F> {
    pub(crate) fn new(reduce: F) -> Self {
        Reducing { reduce, records: PhantomData }
    }
}

impl<T: Data, F: Fn(T, T) -> T + Send + 'static> AggregateFunction for Reducing<T, F> {
    type Input = T;
    type Accumulator = Option<T>;
    type Output = Option<T>;

    fn create_accumulator(&self) -> Option<T> {
        None
    }

    fn add(&self, input: T, accumulator: &mut Option<T>) {
        *accumulator = Some(match accumulator.take() {
            Some(before) => (self.reduce)(before, input),
            None => input,
        });
    }

    fn result(&self, accumulator: &Option<T>) -> Option<T> {
        accumulator.clone()
    }

    fn merge(&self, accumulator: Option<T>, other: Option<T>) -> Option<T> {
        match (accumulator, other) {
            (Some(one), Some(other)) => Some((self.reduce)(one, other)),
            (one, other) => one.or(other),
        }
    }
}

/// Emits the result of a reduction, which is there whenever a record is.
pub(crate) struct Reduced;

impl<K: Key, T: Data> EmitResult<K, Option<T>, Windowed<K, T>> for Reduced {
    #[inline]
    fn emit(&mut self, key: &K, window: Window, value: Option<T>, output: &mut Output<Windowed<K, T>>) -> UserResult {
        if let Some(value) = value {
            output.emit(Windowed { key: key.clone(), window, value });
        }
        Ok(())
    }
}

/// All records of a window, with or without an evictor (WI-45).
pub(crate) struct Listing<P: WindowProcess> {
    pub(crate) process: P,
    pub(crate) evictor: Option<Box<dyn Evictor<P::Input>>>,
}

impl<P: WindowProcess> WindowFunction<P::Key, P::Input> for Listing<P> {
    type Content = Vec<InWindow<P::Input>>;
    type Output = P::Output;

    fn open(&mut self, states: &mut StateDeclarer<'_, P::Key>) -> UserResult {
        self.process.open(states)
    }

    fn add(&mut self, content: &mut Option<Self::Content>, record: P::Input, time_ms: i64) {
        content.get_or_insert_default().push((record, time_ms));
    }

    fn merge(&mut self, mut content: Self::Content, other: Self::Content) -> Self::Content {
        content.extend(other);
        content
    }

    fn emit(
        &mut self,
        window: Window,
        content: &mut Self::Content,
        context: &mut KeyedContext<'_, P::Key>,
        output: &mut Output<P::Output>,
    ) -> UserResult {
        if let Some(evictor) = &mut self.evictor {
            evictor.before(content, window);
        }
        // Also with no records left (WI-37).
        self.process.process(window, content, context, output)?;
        if let Some(evictor) = &mut self.evictor {
            evictor.after(content, window);
        }
        Ok(())
    }

    fn is_empty(&self, content: &Self::Content) -> bool {
        content.is_empty()
    }

    fn clear(&mut self, window: Window, context: &mut KeyedContext<'_, P::Key>) -> UserResult {
        self.process.clear(window, context)
    }
}

/// An aggregate over the records that an evictor has left.
pub(crate) struct AggregateListed<K, A, E, U> {
    inner: Incremental<A, E, U>,
    key: PhantomData<fn(K)>,
}

impl<K, A, E, U> AggregateListed<K, A, E, U> {
    pub(crate) fn new(inner: Incremental<A, E, U>) -> Self {
        AggregateListed { inner, key: PhantomData }
    }
}

impl<K: Key, A, E, U> WindowProcess for AggregateListed<K, A, E, U>
where
    A: AggregateFunction,
    A::Input: Data,
    E: EmitResult<K, A::Output, U>,
    U: Data,
{
    type Key = K;
    type Input = A::Input;
    type Output = U;

    fn process(
        &mut self,
        window: Window,
        records: &[InWindow<A::Input>],
        context: &mut KeyedContext<'_, K>,
        output: &mut Output<U>,
    ) -> UserResult {
        let aggregate = &self.inner.aggregate;
        let mut accumulator = aggregate.create_accumulator();
        records.iter().for_each(|(record, _)| aggregate.add(record.clone(), &mut accumulator));
        self.inner.emit.emit(context.key()?, window, aggregate.result(&accumulator), output)
    }
}
