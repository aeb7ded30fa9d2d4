//! One accumulator per key that is forgotten after a time.

use millpond_core::Key;

use super::{Timed, Ttl};
use crate::error::StateError;
use crate::keyed::aggregating::{AggregateFunction, AggregatingState};
use crate::keyed::states::KeyedStates;

/// A user's function over accumulators with a time.
pub(crate) struct TimedAggregate<A> {
    pub(crate) function: A,
    pub(crate) ttl: Ttl,
}

impl<A: AggregateFunction> AggregateFunction for TimedAggregate<A> {
    /// The input and the time of its addition.
    type Input = (i64, A::Input);
    type Accumulator = Timed<A::Accumulator>;
    /// The result and when the accumulator was renewed.
    type Output = (i64, A::Output);

    fn create_accumulator(&self) -> Self::Accumulator {
        Timed { at_ms: i64::MAX, value: self.function.create_accumulator() }
    }

    fn add(&self, (at_ms, input): Self::Input, accumulator: &mut Self::Accumulator) {
        if self.ttl.is_expired(accumulator.at_ms, at_ms) {
            accumulator.value = self.function.create_accumulator();
        }
        accumulator.at_ms = at_ms;
        self.function.add(input, &mut accumulator.value);
    }

    fn result(&self, accumulator: &Self::Accumulator) -> Self::Output {
        (accumulator.at_ms, self.function.result(&accumulator.value))
    }

    fn merge(&self, accumulator: Self::Accumulator, other: Self::Accumulator) -> Self::Accumulator {
        let at_ms = accumulator.at_ms.max(other.at_ms);
        Timed { at_ms, value: self.function.merge(accumulator.value, other.value) }
    }
}

/// Handle of a state that aggregates what is added, with a time to live since the last addition. Copy it freely.
pub struct ExpiringAggregating<A> {
    inner: AggregatingState<TimedAggregate<A>>,
    ttl: Ttl,
}

impl<A> Clone for ExpiringAggregating<A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for ExpiringAggregating<A> {}

impl<A: AggregateFunction> ExpiringAggregating<A> {
    pub(crate) fn new(inner: AggregatingState<TimedAggregate<A>>, ttl: Ttl) -> Self {
        ExpiringAggregating { inner, ttl }
    }

    /// Adds an input to the current key's accumulator, which is created anew when there is none or it has expired.
    ///
    /// # Errors
    /// When no key is current, the handle belongs to other states, or the table is full.
    pub fn add<K: Key>(&self, states: &mut KeyedStates<K>, input: A::Input) -> Result<(), StateError> {
        let at_ms = states.now_ms();
        self.inner.add(states, (at_ms, input))
    }

    /// The result for the current key; `None` before the first addition and when it has expired.
    ///
    /// # Errors
    /// When no key is current, or the handle belongs to other states.
    pub fn get<K: Key>(&self, states: &mut KeyedStates<K>) -> Result<Option<A::Output>, StateError> {
        let now_ms = states.now_ms();
        let Some((at_ms, output)) = self.inner.get(states)? else { return Ok(None) };
        if self.ttl.is_expired(at_ms, now_ms) {
            self.inner.clear(states)?;
            return Ok(None);
        }
        if self.ttl.renews(at_ms, now_ms) {
            self.inner.touch(states, |timed| timed.at_ms = now_ms)?;
        }
        Ok(Some(output))
    }

    /// As [`ExpiringAggregating::get`], but changes nothing: neither renews nor removes.
    ///
    /// # Errors
    /// As [`ExpiringAggregating::get`].
    pub fn peek<K: Key>(&self, states: &mut KeyedStates<K>) -> Result<Option<A::Output>, StateError> {
        let (ttl, now_ms) = (self.ttl, states.now_ms());
        let found = self.inner.get(states)?;
        Ok(found.filter(|(at_ms, _)| !ttl.is_expired(*at_ms, now_ms)).map(|(_, output)| output))
    }

    /// Forgets the current key's accumulator; nothing happens when there is none.
    ///
    /// # Errors
    /// When no key is current, or the handle belongs to other states.
    pub fn clear<K: Key>(&self, states: &mut KeyedStates<K>) -> Result<(), StateError> {
        self.inner.clear(states)
    }
}
