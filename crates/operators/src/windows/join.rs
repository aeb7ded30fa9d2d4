//! Window join and co-group: the records of two keyed streams that are in the same window of the same key.

use std::marker::PhantomData;
use std::panic::Location;
use std::time::Duration;

use millpond_core::{Data, Key, UserResult};
use millpond_dataflow::{KeyedContext, KeyedStream, Output, SideTag, Stream};

use super::WindowSettings;
use super::assign::Windows;
use super::evict::{Evictor, InWindow};
use super::operator::WindowOperator;
use super::sided::{BothSides, Sided, SidedOperator, WindowCoProcess};
use super::trigger::Trigger;
use super::window::Window;
use crate::connect::join_at;

/// Two keyed streams that shall be joined; the windows are said next.
pub struct Joined<K, L, R> {
    left: KeyedStream<K, L>,
    right: KeyedStream<K, R>,
}

impl<K: Key, L: Data, R: Data> Joined<K, L, R> {
    pub(crate) fn new(left: KeyedStream<K, L>, right: KeyedStream<K, R>) -> Self {
        Joined { left, right }
    }

    /// Cuts both streams into the same windows. Sessions are those of both sides together (JN-13).
    pub fn window(self, windows: Windows<Sided<L, R>>) -> WindowJoined<K, L, R> {
        let Joined { left, right } = self;
        WindowJoined { left, right, settings: WindowSettings::new(windows), late_left: None, late_right: None }
    }
}

/// Two keyed streams in windows, waiting for their function.
///
/// ```
/// use std::time::Duration;
/// use millpond_dataflow::{KeyedStream, Stream};
/// use millpond_operators::{KeyedStreamOperators, Windows};
///
/// // Orders with all payments of the same hour, or with none.
/// fn paid(orders: &KeyedStream<u64, String>, payments: &KeyedStream<u64, f64>) -> Stream<(String, Option<f64>)> {
///     let hours = Windows::tumbling(Duration::from_secs(3_600));
///     orders.join(payments).window(hours).left_outer("paid", |order, payment, output| {
///         output.emit((order.clone(), payment.copied()));
///         Ok(())
///     })
/// }
/// ```
pub struct WindowJoined<K, L, R> {
    left: KeyedStream<K, L>,
    right: KeyedStream<K, R>,
    settings: WindowSettings<Sided<L, R>>,
    late_left: Option<SideTag<L>>,
    late_right: Option<SideTag<R>>,
}

impl<K: Key, L: Data, R: Data> WindowJoined<K, L, R> {
    /// When windows fire, instead of at their end. It sees the records of both sides.
    #[must_use]
    pub fn trigger(mut self, trigger: impl Trigger<Sided<L, R>>) -> Self {
        self.settings.trigger(trigger);
        self
    }

    /// Which records are left out when a window fires. It sees the records of both sides in the order of arrival.
    #[must_use]
    pub fn evictor(mut self, evictor: impl Evictor<Sided<L, R>>) -> Self {
        self.settings.evictor = Some(Box::new(evictor));
        self
    }

    /// How long after its end a window still takes records, and fires again, with all its content, for each (WI-15).
    #[must_use]
    pub fn allowed_lateness(mut self, lateness: Duration) -> Self {
        self.settings.allowed_lateness(lateness);
        self
    }

    /// Where records of the first stream go that come later than that; else they are dropped and counted.
    #[must_use]
    pub fn late_left(self, tag: SideTag<L>) -> Self {
        WindowJoined { late_left: Some(tag), ..self }
    }

    /// Where records of the second stream go that come later than that; else they are dropped and counted.
    #[must_use]
    pub fn late_right(self, tag: SideTag<R>) -> Self {
        WindowJoined { late_right: Some(tag), ..self }
    }

    /// Calls `pair` for each pair of records of the two sides of a window (JN-10); not at all when a side has none
    /// (JN-11). What it emits carries the last time of the window.
    #[track_caller]
    pub fn inner<U: Data>(
        self,
        name: &str,
        mut pair: impl FnMut(&L, &R, &mut Output<U>) -> UserResult + 'static,
    ) -> Stream<U> {
        self.pairs(name, Location::caller(), Outer { left: false, right: false }, move |left, right, output| {
            match (left, right) {
                (Some(left), Some(right)) => pair(left, right, output),
                _ => Ok(()),
            }
        })
    }

    /// As [`WindowJoined::inner`], and once for each record of the first stream when the second has none.
    #[track_caller]
    pub fn left_outer<U: Data>(
        self,
        name: &str,
        mut pair: impl FnMut(&L, Option<&R>, &mut Output<U>) -> UserResult + 'static,
    ) -> Stream<U> {
        self.pairs(
            name,
            Location::caller(),
            Outer { left: true, right: false },
            move |left, right, output| match left {
                Some(left) => pair(left, right, output),
                None => Ok(()),
            },
        )
    }

    /// As [`WindowJoined::inner`], and once for each record of the second stream when the first has none.
    #[track_caller]
    pub fn right_outer<U: Data>(
        self,
        name: &str,
        mut pair: impl FnMut(Option<&L>, &R, &mut Output<U>) -> UserResult + 'static,
    ) -> Stream<U> {
        self.pairs(name, Location::caller(), Outer { left: false, right: true }, move |left, right, output| match right
        {
            Some(right) => pair(left, right, output),
            None => Ok(()),
        })
    }

    /// As [`WindowJoined::inner`], and once for each record of a side when the other has none.
    #[track_caller]
    pub fn full_outer<U: Data>(
        self,
        name: &str,
        pair: impl FnMut(Option<&L>, Option<&R>, &mut Output<U>) -> UserResult + 'static,
    ) -> Stream<U> {
        self.pairs(name, Location::caller(), Outer { left: true, right: true }, pair)
    }

    /// Shows all records of a window to `group`, each side on its own; also when one side has none (JN-12).
    #[track_caller]
    pub fn co_group<U: Data>(
        self,
        name: &str,
        group: impl FnMut(&K, Window, &[InWindow<L>], &[InWindow<R>], &mut Output<U>) -> UserResult + 'static,
    ) -> Stream<U> {
        self.run(name, "co_group", Location::caller(), Grouping { group, types: PhantomData })
    }

    /// As [`WindowJoined::co_group`], for a function with keyed state.
    #[track_caller]
    pub fn process<P: WindowCoProcess<Key = K, Left = L, Right = R>>(
        self,
        name: &str,
        process: P,
    ) -> Stream<P::Output> {
        self.run(name, "co_group", Location::caller(), process)
    }

    fn pairs<U: Data>(
        self,
        name: &str,
        location: &'static Location<'static>,
        outer: Outer,
        mut pair: impl FnMut(Option<&L>, Option<&R>, &mut Output<U>) -> UserResult + 'static,
    ) -> Stream<U> {
        let group = move |_: &K, _: Window, lefts: &[InWindow<L>], rights: &[InWindow<R>], output: &mut Output<U>| {
            for (left, _) in lefts {
                for (right, _) in rights {
                    pair(Some(left), Some(right), output)?;
                }
            }
            if rights.is_empty() && outer.left {
                lefts.iter().try_for_each(|(left, _)| pair(Some(left), None, output))?;
            }
            if lefts.is_empty() && outer.right {
                rights.iter().try_for_each(|(right, _)| pair(None, Some(right), output))?;
            }
            Ok(())
        };
        self.run(name, "window_join", location, Grouping { group, types: PhantomData })
    }

    fn run<P: WindowCoProcess<Key = K, Left = L, Right = R>>(
        self,
        name: &str,
        kind: &'static str,
        location: &'static Location<'static>,
        process: P,
    ) -> Stream<P::Output> {
        let WindowJoined { left, right, mut settings, late_left, late_right } = self;
        settings.check(left.dataflow(), name, location);
        let function = BothSides { process, evictor: settings.evictor.take(), late_left, late_right };
        let operator = SidedOperator(WindowOperator::new(settings.into_rules(), function));
        let inputs = [(left.dataflow(), left.input()), (right.dataflow(), right.input())];
        join_at(name, kind, location, inputs, operator)
    }
}

/// Whether the records of a side are shown when the other side has none.
#[derive(Clone, Copy)]
struct Outer {
    left: bool,
    right: bool,
}

/// A [`WindowCoProcess`] made of a closure.
struct Grouping<K, L, R, U, G> {
    group: G,
    types: PhantomData<fn(K, L, R) -> U>,
}

impl<K: Key, L: Data, R: Data, U: Data, G> WindowCoProcess for Grouping<K, L, R, U, G>
where
    G: FnMut(&K, Window, &[InWindow<L>], &[InWindow<R>], &mut Output<U>) -> UserResult + 'static,
{
    type Key = K;
    type Left = L;
    type Right = R;
    type Output = U;

    fn process(
        &mut self,
        window: Window,
        lefts: &[InWindow<L>],
        rights: &[InWindow<R>],
        context: &mut KeyedContext<'_, K>,
        output: &mut Output<U>,
    ) -> UserResult {
        (self.group)(context.key()?, window, lefts, rights, output)
    }
}
