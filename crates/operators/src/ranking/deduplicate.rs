//! The first or the last row of each key.
//!
//! Invariants: of rows that arrive in the same order the same one is kept; by event time, of rows of the same time the first
//! that arrived is the first, and the last the last.

use std::marker::PhantomData;

use millpond_core::{Data, Key, UserResult};
use millpond_dataflow::batch::NO_TIME;
use millpond_dataflow::{KeyedContext, OpenContext, Output, Timer};
use millpond_state::{ExpiringValue, StateDeclarer, StateError, Ttl, ValueState};

use crate::changelog::{Change, ChangelogError, emit_replacement};
use crate::keyed_process::KeyedProcess;

/// Which row is first and last, and how long a key is remembered.
///
/// ```
/// use std::time::Duration;
/// use millpond_operators::Deduplicate;
/// use millpond_state::Ttl;
///
/// let clicks_of_a_day = Deduplicate::by_arrival().expire_after(Ttl::after(Duration::from_secs(86_400)));
/// let oldest = Deduplicate::by_event_time();
/// # let _ = (clicks_of_a_day, oldest);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Deduplicate {
    by_event_time: bool,
    ttl: Option<Ttl>,
}

impl Deduplicate {
    /// In the order in which rows arrive at the operator.
    pub const fn by_arrival() -> Self {
        Deduplicate { by_event_time: false, ttl: None }
    }

    /// In the order of event time. Rows without one end the attempt.
    pub const fn by_event_time() -> Self {
        Deduplicate { by_event_time: true, ttl: None }
    }

    /// Forgets a key some time after its row was last kept (processing time): the next row of the key is its first then.
    /// Without it keys are remembered for ever.
    pub const fn expire_after(self, ttl: Ttl) -> Self {
        Deduplicate { ttl: Some(ttl), ..self }
    }

    /// The event time of the current row; [`NO_TIME`] by arrival.
    fn time_of<K: Key>(self, context: &KeyedContext<'_, K>) -> Result<i64, ChangelogError> {
        match context.timestamp() {
            _ if !self.by_event_time => Ok(NO_TIME),
            None => Err(ChangelogError::NoTimestamp),
            Some(time_ms) => Ok(time_ms),
        }
    }
}

/// A value per key, with a time to live or without.
enum Kept<V> {
    ForEver(ValueState<V>),
    Expiring(ExpiringValue<V>),
}

impl<V: Data> Kept<V> {
    fn open<K: Key>(states: &mut StateDeclarer<'_, K>, name: &str, ttl: Option<Ttl>) -> Result<Self, StateError> {
        Ok(match ttl {
            None => Kept::ForEver(states.value(name)?),
            Some(ttl) => Kept::Expiring(states.expiring_value(name, ttl)?),
        })
    }

    fn get<'s, K: Key>(&self, context: &'s mut KeyedContext<'_, K>) -> Result<Option<&'s V>, StateError> {
        match self {
            Kept::ForEver(state) => state.get(context),
            Kept::Expiring(state) => state.get(context),
        }
    }

    /// Sets the value; what was there before.
    fn replace<K: Key>(&self, context: &mut KeyedContext<'_, K>, value: V) -> Result<Option<V>, StateError> {
        match self {
            Kept::ForEver(state) => state.modify(context, |held| held.replace(value)),
            Kept::Expiring(state) => state.modify(context, |held| held.replace(value)),
        }
    }
}

/// The first row of each key, once. By event time it waits until no older one is expected any more.
pub(crate) struct FirstRow<K, T> {
    rule: Deduplicate,
    states: Option<FirstStates<T>>,
    key: PhantomData<fn(K)>,
}

struct FirstStates<T> {
    /// Whether a row of the key was emitted.
    emitted: Kept<bool>,
    /// By event time, the oldest row so far, while it waits. It does not expire.
    waiting: Option<ValueState<(i64, T)>>,
}

impl<K, T> FirstRow<K, T> {
    pub(crate) fn new(rule: Deduplicate) -> Self {
        FirstRow { rule, states: None, key: PhantomData }
    }
}

impl<K: Key, T: Data> KeyedProcess for FirstRow<K, T> {
    type Key = K;
    type Input = T;
    type Output = T;

    fn open(&mut self, states: &mut StateDeclarer<'_, K>, _context: &mut OpenContext<'_>) -> UserResult {
        let emitted = Kept::open(states, "emitted", self.rule.ttl)?;
        let waiting = self.rule.by_event_time.then(|| states.value("waiting")).transpose()?;
        self.states = Some(FirstStates { emitted, waiting });
        Ok(())
    }

    fn process(&mut self, row: T, context: &mut KeyedContext<'_, K>, output: &mut Output<T>) -> UserResult {
        let Some(FirstStates { emitted, waiting }) = &self.states else { return Ok(()) };
        let time_ms = self.rule.time_of(context)?;
        if emitted.get(context)?.is_some() {
            return Ok(());
        }
        let Some(waiting) = waiting else {
            emitted.replace(context, true)?;
            output.emit(row);
            return Ok(());
        };
        let before_ms = waiting.get(context)?.map(|(before_ms, _)| *before_ms);
        if before_ms.is_some_and(|before_ms| before_ms <= time_ms) {
            return Ok(());
        }
        if let Some(before_ms) = before_ms {
            context.delete_event_timer(before_ms)?;
        }
        waiting.set(context, (time_ms, row))?;
        context.set_event_timer(time_ms)?;
        Ok(())
    }

    fn on_timer(&mut self, _timer: Timer, context: &mut KeyedContext<'_, K>, output: &mut Output<T>) -> UserResult {
        let Some(FirstStates { emitted, waiting: Some(waiting) }) = &self.states else { return Ok(()) };
        if let Some((_, row)) = waiting.modify(context, Option::take)? {
            emitted.replace(context, true)?;
            output.emit(row);
        }
        Ok(())
    }
}

/// The last row of each key so far, as changes.
pub(crate) struct LastRow<K, T> {
    rule: Deduplicate,
    /// The row and its event time.
    last: Option<Kept<(i64, T)>>,
    key: PhantomData<fn(K)>,
}

impl<K, T> LastRow<K, T> {
    pub(crate) fn new(rule: Deduplicate) -> Self {
        LastRow { rule, last: None, key: PhantomData }
    }
}

impl<K: Key, T: Data> KeyedProcess for LastRow<K, T> {
    type Key = K;
    type Input = T;
    type Output = Change<T>;

    fn open(&mut self, states: &mut StateDeclarer<'_, K>, _context: &mut OpenContext<'_>) -> UserResult {
        self.last = Some(Kept::open(states, "last", self.rule.ttl)?);
        Ok(())
    }

    fn process(&mut self, row: T, context: &mut KeyedContext<'_, K>, output: &mut Output<Change<T>>) -> UserResult {
        let Some(last) = &self.last else { return Ok(()) };
        let time_ms = self.rule.time_of(context)?;
        if self.rule.by_event_time && last.get(context)?.is_some_and(|(before_ms, _)| time_ms < *before_ms) {
            return Ok(());
        }
        let before = last.replace(context, (time_ms, row.clone()))?;
        emit_replacement(before.map(|(_, row)| row), Some(row), output);
        Ok(())
    }
}
