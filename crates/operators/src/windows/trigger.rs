//! When a window fires.

use std::time::Duration;

use millpond_core::{Data, UserResult};
use millpond_dataflow::TimeDomain;
use serde::{Deserialize, Serialize};

use super::assign::WindowError;
use super::window::{Window, clamp, floor};

/// What a trigger wants (WI-34).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggerResult {
    /// Nothing.
    Continue,
    /// Emit, and keep the content.
    Fire,
    /// Drop the content without emitting.
    Purge,
    /// Emit, then drop the content.
    FireAndPurge,
}

impl TriggerResult {
    pub(crate) fn fires(self) -> bool {
        matches!(self, TriggerResult::Fire | TriggerResult::FireAndPurge)
    }

    pub(crate) fn purges(self) -> bool {
        matches!(self, TriggerResult::Purge | TriggerResult::FireAndPurge)
    }
}

/// What a trigger remembers for a window of a key; part of the window's state, and gone with it (WI-41).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TriggerState<T> {
    /// A number of records.
    pub count: u64,
    /// A time.
    pub time_ms: Option<i64>,
    /// A record.
    pub record: Option<T>,
}

impl<T> Default for TriggerState<T> {
    fn default() -> Self {
        TriggerState { count: 0, time_ms: None, record: None }
    }
}

impl<T> TriggerState<T> {
    /// The state of two windows that become one: counts add up, the earlier time and the own record stay.
    pub(crate) fn merge(self, other: TriggerState<T>) -> TriggerState<T> {
        let time_ms = [self.time_ms, other.time_ms].into_iter().flatten().min();
        TriggerState { count: self.count + other.count, time_ms, record: self.record.or(other.record) }
    }
}

/// What a trigger sees and may do. Timers belong to the window of the key.
pub struct TriggerContext<'a, T> {
    /// What the trigger remembers.
    pub state: &'a mut TriggerState<T>,
    /// The time that windows follow.
    pub(crate) domain: TimeDomain,
    pub(crate) watermark: i64,
    pub(crate) now_ms: i64,
    /// Timers to set (true) or delete, carried out afterwards.
    pub(crate) timers: &'a mut Vec<(TimeDomain, i64, bool)>,
}

impl<T> TriggerContext<'_, T> {
    /// How far event time has come, in milliseconds.
    #[must_use]
    pub fn watermark(&self) -> i64 {
        self.watermark
    }

    /// The wall clock, in milliseconds since 1970-01-01 UTC.
    #[must_use]
    pub fn processing_time(&self) -> i64 {
        self.now_ms
    }

    /// How far time has come in a domain.
    fn now(&self, domain: TimeDomain) -> i64 {
        if domain == TimeDomain::Event { self.watermark } else { self.now_ms }
    }

    /// Asks for `on_time` in a domain at `time_ms` (WI-46).
    pub fn set_timer(&mut self, domain: TimeDomain, time_ms: i64) {
        self.timers.push((domain, time_ms, true));
    }

    /// Takes that back.
    pub fn delete_timer(&mut self, domain: TimeDomain, time_ms: i64) {
        self.timers.push((domain, time_ms, false));
    }
}

/// Decides when a window fires.
pub trait Trigger<T>: 'static {
    /// A record was added to the window.
    ///
    /// # Errors
    /// Ends the attempt.
    fn on_record(
        &mut self,
        record: &T,
        time_ms: i64,
        window: Window,
        context: &mut TriggerContext<'_, T>,
    ) -> UserResult<TriggerResult>;

    /// A timer of the window has come; it may have been set by the window itself (for its end).
    ///
    /// # Errors
    /// Ends the attempt.
    fn on_time(
        &mut self,
        domain: TimeDomain,
        time_ms: i64,
        window: Window,
        context: &mut TriggerContext<'_, T>,
    ) -> UserResult<TriggerResult>;

    /// Whether it may be used with windows that merge (WI-29).
    fn can_merge(&self) -> bool {
        false
    }

    /// Whether it can work at all; asked when the job is built.
    ///
    /// # Errors
    /// What is wrong with it. The job is refused then.
    fn check(&self) -> Result<(), WindowError> {
        Ok(())
    }

    /// Windows have become `window`, whose state is merged already: sets the timers that it needs.
    fn on_merge(&mut self, window: Window, context: &mut TriggerContext<'_, T>) {
        let _ = (window, context);
    }

    /// The window goes: deletes its timers (WI-41).
    fn clear(&mut self, window: Window, context: &mut TriggerContext<'_, T>) {
        let _ = (window, context);
    }
}

/// The triggers that come with the library.
pub struct Triggers;

impl Triggers {
    /// Fires when time passes the end of the window (WI-10), and at each record after that (WI-15).
    #[must_use]
    pub fn at_end(domain: TimeDomain) -> AtEnd {
        AtEnd { domain }
    }

    /// Fires at each `count`-th record; the content stays (WI-30). A count of 0 is refused.
    #[must_use]
    pub fn count(count: u64) -> CountTrigger {
        CountTrigger { count }
    }

    /// Fires at a multiple of `interval` that event time has passed, and at the end of the window (WI-33); after that
    /// only at late records. When event time passes several multiples at once, it fires at the first of them. An
    /// interval below a millisecond is refused.
    #[must_use]
    pub fn continuous(interval: Duration) -> Continuous {
        Continuous {
            interval_ms: clamp(interval.as_millis().try_into().unwrap_or(i128::MAX)),
            domain: TimeDomain::Event,
        }
    }

    /// As [`Triggers::continuous`], at multiples that the wall clock passes. The end of the window counts in the time
    /// that the windows follow.
    #[must_use]
    pub fn continuous_processing(interval: Duration) -> Continuous {
        Continuous { domain: TimeDomain::Processing, ..Triggers::continuous(interval) }
    }

    /// Fires at a record that differs from the one that fired last by more than `threshold`, as `difference(last,
    /// record)` has it; the first record of a window is the first to compare with.
    #[must_use]
    pub fn delta<T>(threshold: f64, difference: impl FnMut(&T, &T) -> f64 + 'static) -> DeltaTrigger<T> {
        DeltaTrigger { threshold, difference: Box::new(difference) }
    }

    /// Drops the content whenever `trigger` fires (WI-31).
    #[must_use]
    pub fn purging<G>(trigger: G) -> Purging<G> {
        Purging { trigger }
    }

    /// Never fires; also not at the end of input (WI-32).
    #[must_use]
    pub fn never() -> Never {
        Never
    }
}

/// See [`Triggers::at_end`].
#[derive(Clone, Copy, Debug)]
pub struct AtEnd {
    domain: TimeDomain,
}

impl<T: Data> Trigger<T> for AtEnd {
    fn on_record(&mut self, _: &T, _: i64, window: Window, c: &mut TriggerContext<'_, T>) -> UserResult<TriggerResult> {
        if self.domain == TimeDomain::Event && window.max_time() <= c.now(self.domain) {
            return Ok(TriggerResult::Fire);
        }
        // Set with the first record of the window, not with each.
        if c.state.time_ms.is_none() {
            c.state.time_ms = Some(window.max_time());
            c.set_timer(self.domain, window.max_time());
        }
        Ok(TriggerResult::Continue)
    }

    fn on_time(
        &mut self,
        domain: TimeDomain,
        time_ms: i64,
        window: Window,
        _: &mut TriggerContext<'_, T>,
    ) -> UserResult<TriggerResult> {
        let is_end = domain == self.domain && time_ms == window.max_time();
        Ok(if is_end { TriggerResult::Fire } else { TriggerResult::Continue })
    }

    fn can_merge(&self) -> bool {
        true
    }

    fn on_merge(&mut self, window: Window, context: &mut TriggerContext<'_, T>) {
        if window.max_time() > context.now(self.domain) {
            context.set_timer(self.domain, window.max_time());
        }
    }

    fn clear(&mut self, window: Window, context: &mut TriggerContext<'_, T>) {
        context.delete_timer(self.domain, window.max_time());
    }
}

/// See [`Triggers::count`].
#[derive(Clone, Copy, Debug)]
pub struct CountTrigger {
    pub(crate) count: u64,
}

impl<T: Data> Trigger<T> for CountTrigger {
    fn on_record(
        &mut self,
        _: &T,
        _: i64,
        _: Window,
        context: &mut TriggerContext<'_, T>,
    ) -> UserResult<TriggerResult> {
        context.state.count += 1;
        if context.state.count < self.count {
            return Ok(TriggerResult::Continue);
        }
        context.state.count = 0;
        Ok(TriggerResult::Fire)
    }

    fn on_time(
        &mut self,
        _: TimeDomain,
        _: i64,
        _: Window,
        _: &mut TriggerContext<'_, T>,
    ) -> UserResult<TriggerResult> {
        Ok(TriggerResult::Continue)
    }

    fn check(&self) -> Result<(), WindowError> {
        if self.count == 0 { Err(WindowError::Count) } else { Ok(()) }
    }

    fn can_merge(&self) -> bool {
        true
    }
}

/// See [`Triggers::continuous`].
#[derive(Clone, Copy, Debug)]
pub struct Continuous {
    interval_ms: i64,
    domain: TimeDomain,
}

impl Continuous {
    /// The first multiple of the interval after `time_ms`.
    fn after(self, time_ms: i64) -> i64 {
        clamp(floor(time_ms, self.interval_ms, 0) + i128::from(self.interval_ms))
    }

    /// Remembers the next multiple; its timer is needed only when it comes before the end of the window.
    fn schedule<T>(self, next_ms: i64, window: Window, context: &mut TriggerContext<'_, T>) {
        context.state.time_ms = Some(next_ms);
        if self.domain != context.domain || next_ms < window.max_time() {
            context.set_timer(self.domain, next_ms);
        }
    }

    fn cancel<T>(self, context: &mut TriggerContext<'_, T>) {
        if let Some(next_ms) = context.state.time_ms.take() {
            context.delete_timer(self.domain, next_ms);
        }
    }
}

impl<T: Data> Trigger<T> for Continuous {
    fn on_record(
        &mut self,
        _: &T,
        time_ms: i64,
        window: Window,
        context: &mut TriggerContext<'_, T>,
    ) -> UserResult<TriggerResult> {
        if context.domain == TimeDomain::Event && window.max_time() <= context.watermark {
            return Ok(TriggerResult::Fire);
        }
        if context.state.time_ms.is_none() {
            context.set_timer(context.domain, window.max_time());
            let now_ms = context.now(self.domain);
            let is_event = self.domain == TimeDomain::Event && context.domain == TimeDomain::Event;
            let next_ms = self.after(if is_event { now_ms.max(time_ms) } else { now_ms });
            self.schedule(next_ms, window, context);
        }
        Ok(TriggerResult::Continue)
    }

    fn on_time(
        &mut self,
        domain: TimeDomain,
        time_ms: i64,
        window: Window,
        context: &mut TriggerContext<'_, T>,
    ) -> UserResult<TriggerResult> {
        if domain == context.domain && time_ms == window.max_time() {
            // Nothing comes after the end but what late records bring.
            self.cancel(context);
            return Ok(TriggerResult::Fire);
        }
        if domain != self.domain || context.state.time_ms != Some(time_ms) {
            return Ok(TriggerResult::Continue);
        }
        // Multiples that time has passed at once would all emit the same.
        let next_ms = self.after(time_ms.max(context.now(domain)));
        context.state.time_ms = None;
        if next_ms > time_ms {
            self.schedule(next_ms, window, context);
        }
        Ok(TriggerResult::Fire)
    }

    fn can_merge(&self) -> bool {
        true
    }

    fn check(&self) -> Result<(), WindowError> {
        if self.interval_ms > 0 {
            return Ok(());
        }
        Err(WindowError::Length { what: "trigger interval", given_ms: self.interval_ms.into() })
    }

    fn on_merge(&mut self, window: Window, context: &mut TriggerContext<'_, T>) {
        if let Some(next_ms) = context.state.time_ms {
            self.schedule(next_ms, window, context);
        }
        if window.max_time() > context.now(context.domain) {
            context.set_timer(context.domain, window.max_time());
        }
    }

    fn clear(&mut self, window: Window, context: &mut TriggerContext<'_, T>) {
        self.cancel(context);
        context.delete_timer(context.domain, window.max_time());
    }
}

/// How far the second record is from the first.
type Difference<T> = Box<dyn FnMut(&T, &T) -> f64>;

/// See [`Triggers::delta`].
pub struct DeltaTrigger<T> {
    threshold: f64,
    difference: Difference<T>,
}

impl<T: Data> Trigger<T> for DeltaTrigger<T> {
    fn on_record(
        &mut self,
        record: &T,
        _: i64,
        _: Window,
        context: &mut TriggerContext<'_, T>,
    ) -> UserResult<TriggerResult> {
        let fires = match &context.state.record {
            None => false,
            Some(last) if (self.difference)(last, record) > self.threshold => true,
            Some(_) => return Ok(TriggerResult::Continue),
        };
        context.state.record = Some(record.clone());
        Ok(if fires { TriggerResult::Fire } else { TriggerResult::Continue })
    }

    fn on_time(
        &mut self,
        _: TimeDomain,
        _: i64,
        _: Window,
        _: &mut TriggerContext<'_, T>,
    ) -> UserResult<TriggerResult> {
        Ok(TriggerResult::Continue)
    }
}

/// See [`Triggers::purging`].
#[derive(Clone, Copy, Debug)]
pub struct Purging<G> {
    trigger: G,
}

fn purged(result: TriggerResult) -> TriggerResult {
    if result.fires() { TriggerResult::FireAndPurge } else { result }
}

impl<T: Data, G: Trigger<T>> Trigger<T> for Purging<G> {
    fn on_record(
        &mut self,
        record: &T,
        time_ms: i64,
        window: Window,
        context: &mut TriggerContext<'_, T>,
    ) -> UserResult<TriggerResult> {
        self.trigger.on_record(record, time_ms, window, context).map(purged)
    }

    fn on_time(
        &mut self,
        domain: TimeDomain,
        time_ms: i64,
        window: Window,
        context: &mut TriggerContext<'_, T>,
    ) -> UserResult<TriggerResult> {
        self.trigger.on_time(domain, time_ms, window, context).map(purged)
    }

    fn can_merge(&self) -> bool {
        self.trigger.can_merge()
    }

    fn check(&self) -> Result<(), WindowError> {
        self.trigger.check()
    }

    fn on_merge(&mut self, window: Window, context: &mut TriggerContext<'_, T>) {
        self.trigger.on_merge(window, context);
    }

    fn clear(&mut self, window: Window, context: &mut TriggerContext<'_, T>) {
        self.trigger.clear(window, context);
    }
}

/// See [`Triggers::never`].
#[derive(Clone, Copy, Debug)]
pub struct Never;

impl<T: Data> Trigger<T> for Never {
    fn on_record(&mut self, _: &T, _: i64, _: Window, _: &mut TriggerContext<'_, T>) -> UserResult<TriggerResult> {
        Ok(TriggerResult::Continue)
    }

    fn on_time(
        &mut self,
        _: TimeDomain,
        _: i64,
        _: Window,
        _: &mut TriggerContext<'_, T>,
    ) -> UserResult<TriggerResult> {
        Ok(TriggerResult::Continue)
    }

    fn can_merge(&self) -> bool {
        true
    }
}
