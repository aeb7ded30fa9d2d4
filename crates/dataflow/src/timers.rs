//! Timers of keyed operators: per key and namespace, in event time and in processing time.
//!
//! Owns which timers are set, and in which order they fire. Does *not* own time: an operator asks for what is
//! due. The set of timers is keyed state, a map per key from (time, namespace) to nothing, so that timers are
//! snapshotted with what changed, rescaled with their keys, and may lie in the cold store. Beside it stands a queue
//! in order of time (`time_queue`), of which only the near future is in memory once memory is short.
//!
//! Invariants: what is in the set is in the queue; what is in the queue and not in the set was deleted, and is
//! passed over. The queue is not stored: it is read from the set after a restore. See decision 0008.

use std::collections::VecDeque;

use millpond_core::{Key, KeyHash};
use millpond_runs::SectionInfo;
use millpond_state::{KeyedBackend, KeyedBackendControl as _, MapState, StateError};

use crate::time_queue::{At, Queued, TimeQueue};

/// Which clock a timer follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TimeDomain {
    /// Event time: the watermark.
    Event,
    /// Processing time: the wall clock.
    Processing,
}

/// A timer that fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timer {
    /// The time it was set for, in milliseconds.
    pub time_ms: i64,
    /// Which clock it follows.
    pub domain: TimeDomain,
}

/// What comes next of the timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due<N> {
    /// The timer at this time, of this namespace.
    Timer(i64, N),
    /// None is due.
    None,
    /// Many deleted ones were passed over: ask again once others had their turn.
    Later,
}

/// Deleted timers that may stay in the queue.
const STALE_TIMERS: usize = 1_024;
/// Deleted timers that are passed over in one call.
const STALE_AT_ONCE: usize = 1_024;
/// Timers that are brought into memory together.
const READY_TIMERS: usize = 256;

/// The timers of one domain.
struct TimerQueue<K, N> {
    state: String,
    set: Option<MapState<(i64, N), ()>>,
    queue: TimeQueue<K, N>,
    /// Entries from the front of the queue that are due and were brought into memory together.
    ready: VecDeque<At<K, N>>,
    /// Entries of the queue that are not in the set, at most.
    stale: usize,
    /// Whether the set holds timers from before a restore that are not queued.
    unread: bool,
}

impl<K: Key, N: Key> TimerQueue<K, N> {
    fn open(state: String, backend: &mut KeyedBackend<K>, stored: &[SectionInfo]) -> Result<Self, StateError> {
        let (queue, ready) = (TimeQueue::new(&state), VecDeque::new());
        let mut timers = TimerQueue { state, set: None, queue, ready, stale: 0, unread: false };
        if stored.iter().any(|section| section.name == timers.state) {
            timers.declared(backend)?;
            timers.unread = true;
        }
        Ok(timers)
    }

    /// The set is declared with the first timer, so that operators without timers have no such state.
    fn declared(&mut self, backend: &mut KeyedBackend<K>) -> Result<MapState<(i64, N), ()>, StateError> {
        if let Some(set) = self.set {
            return Ok(set);
        }
        let set = backend.declarer().map(&self.state)?;
        self.set = Some(set);
        Ok(set)
    }

    fn register(&mut self, time_ms: i64, namespace: N, backend: &mut KeyedBackend<K>) -> Result<(), StateError> {
        let set = self.declared(backend)?;
        let states = backend.states_mut();
        let is_new = set.modify(states, (time_ms, namespace.clone()), |entry| entry.replace(()).is_none())?;
        if is_new && !self.unread {
            let (hash, key) = current(backend, &self.state)?;
            self.queue.push(time_ms, Queued { hash, key, namespace }, backend)?;
        }
        Ok(())
    }

    fn delete(&mut self, time_ms: i64, namespace: N, backend: &mut KeyedBackend<K>) -> Result<(), StateError> {
        let Some(set) = self.set else { return Ok(()) };
        let was_set = set.modify(backend.states_mut(), (time_ms, namespace), |entry| entry.take().is_some())?;
        self.stale += usize::from(was_set && !self.unread);
        if self.is_mostly_stale() {
            self.read(backend)?;
        }
        Ok(())
    }

    /// Whether the queue is to be read anew, so that it does not grow with timers that were deleted. What lies in files
    /// takes no memory, and is read anew less often.
    fn is_mostly_stale(&self) -> bool {
        let queued = self.len();
        let most = if self.queue.spilled() == 0 { queued / 2 } else { queued / 4 * 3 };
        self.stale > STALE_TIMERS && self.stale > most
    }

    /// Reads the queue from the set.
    fn read(&mut self, backend: &mut KeyedBackend<K>) -> Result<(), StateError> {
        self.unread = false;
        self.stale = 0;
        self.queue.clear(backend)?;
        self.ready.clear();
        let Some(set) = self.set else { return Ok(()) };
        let (queue, room) = (&mut self.queue, backend.beside_room());
        backend.for_each_map_key(set, |hash, key, (time_ms, namespace)| {
            queue.push_within(time_ms, Queued { hash, key, namespace }, room.as_ref())
        })?;
        self.queue.look(backend)
    }

    /// Takes the next timer that is due by `until`: its key is current afterwards.
    fn next(&mut self, until_ms: i64, backend: &mut KeyedBackend<K>) -> Result<Due<N>, StateError> {
        if self.unread {
            self.read(backend)?;
        }
        let Some(set) = self.set else { return Ok(Due::None) };
        for _ in 0..STALE_AT_ONCE {
            let Some((time_ms, Queued { hash, key, namespace })) = self.take(set, until_ms, backend)? else {
                return Ok(Due::None);
            };
            backend.set_current_key(hash, key)?;
            let was_set =
                set.modify(backend.states_mut(), (time_ms, namespace.clone()), |entry| entry.take().is_some())?;
            if was_set {
                return Ok(Due::Timer(time_ms, namespace));
            }
            self.stale = self.stale.saturating_sub(1);
        }
        Ok(Due::Later)
    }

    /// The next entry of the queue. Once there is a cold store to ask, many are brought into memory at once.
    #[inline]
    fn take(
        &mut self,
        set: MapState<(i64, N), ()>,
        until_ms: i64,
        backend: &mut KeyedBackend<K>,
    ) -> Result<Option<At<K, N>>, StateError> {
        if self.ready.is_empty() {
            if !backend.spills() {
                return self.queue.pop(until_ms, backend);
            }
            self.fetch(set, until_ms, backend)?;
        }
        let first_ms = self.ready.front().map(|(time_ms, _)| *time_ms).filter(|time_ms| *time_ms <= until_ms);
        match (first_ms, self.queue.first()) {
            // One that was set since goes first.
            (Some(ready_ms), Some(queued_ms)) if queued_ms < ready_ms => self.queue.pop(until_ms, backend),
            (Some(_), _) => Ok(self.ready.pop_front()),
            (None, _) => self.queue.pop(until_ms, backend),
        }
    }

    #[inline(never)]
    fn fetch(
        &mut self,
        set: MapState<(i64, N), ()>,
        until_ms: i64,
        backend: &mut KeyedBackend<K>,
    ) -> Result<(), StateError> {
        while self.ready.len() < READY_TIMERS
            && let Some(entry) = self.queue.pop(until_ms, backend)?
        {
            self.ready.push_back(entry);
        }
        let entries =
            self.ready.iter().map(|(time_ms, entry)| (entry.hash, &entry.key, (*time_ms, entry.namespace.clone())));
        set.fetch(backend.states_mut(), entries)?;
        backend.fetch(self.ready.iter().map(|(_, entry)| (entry.hash, &entry.key)))
    }

    fn first(&self) -> Option<i64> {
        if self.unread {
            return Some(i64::MIN);
        }
        let ready = self.ready.front().map(|(time_ms, _)| *time_ms);
        ready.into_iter().chain(self.queue.first()).min()
    }

    fn len(&self) -> usize {
        self.ready.len() + self.queue.len()
    }
}

fn current<K: Key>(backend: &KeyedBackend<K>, state: &str) -> Result<(KeyHash, K), StateError> {
    let states = backend.states();
    let current = states.current_hash().zip(states.current_key().cloned());
    current.ok_or_else(|| StateError::NoCurrentKey { state: state.to_owned() })
}

/// The timers of one operator's subtask. A timer is (key, namespace, time) of a domain, and is set once (TM-03,
/// TM-04).
pub struct Timers<K, N = ()> {
    event: TimerQueue<K, N>,
    processing: TimerQueue<K, N>,
}

impl<K: Key, N: Key> Timers<K, N> {
    /// The timers that the operator keeps under `name`; those that the checkpoint holds are known once their rows
    /// are restored. Called while states are declared.
    ///
    /// # Errors
    /// When the checkpoint holds something else under that name (TM-24).
    pub fn open(name: &str, backend: &mut KeyedBackend<K>, stored: &[SectionInfo]) -> Result<Self, StateError> {
        let event = TimerQueue::open(format!("{name}.event"), backend, stored)?;
        let processing = TimerQueue::open(format!("{name}.processing"), backend, stored)?;
        Ok(Timers { event, processing })
    }

    fn of(&mut self, domain: TimeDomain) -> &mut TimerQueue<K, N> {
        match domain {
            TimeDomain::Event => &mut self.event,
            TimeDomain::Processing => &mut self.processing,
        }
    }

    /// Sets a timer for the current key. Nothing happens when it is set already. One in the past fires with the
    /// next advance of time (TM-06).
    ///
    /// # Errors
    /// When no key is current, or the table is full.
    pub fn register(
        &mut self,
        domain: TimeDomain,
        time_ms: i64,
        namespace: N,
        backend: &mut KeyedBackend<K>,
    ) -> Result<(), StateError> {
        self.of(domain).register(time_ms, namespace, backend)
    }

    /// Deletes a timer of the current key. Nothing happens when it is not set (TM-05).
    ///
    /// # Errors
    /// When no key is current.
    pub fn delete(
        &mut self,
        domain: TimeDomain,
        time_ms: i64,
        namespace: N,
        backend: &mut KeyedBackend<K>,
    ) -> Result<(), StateError> {
        self.of(domain).delete(time_ms, namespace, backend)
    }

    /// Takes the earliest timer that is due at `until_ms` (TM-01, TM-02). Its key is current afterwards (TM-11).
    ///
    /// # Errors
    /// When the state of timers cannot be read.
    pub fn next(
        &mut self,
        domain: TimeDomain,
        until_ms: i64,
        backend: &mut KeyedBackend<K>,
    ) -> Result<Due<N>, StateError> {
        self.of(domain).next(until_ms, backend)
    }

    /// When the earliest timer is due; the least of all times when that is not known yet. A deleted timer may
    /// still count.
    #[must_use]
    pub fn first(&self, domain: TimeDomain) -> Option<i64> {
        match domain {
            TimeDomain::Event => self.event.first(),
            TimeDomain::Processing => self.processing.first(),
        }
    }

    /// Timers that are queued, deleted ones included until they are passed over.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.event.len() + self.processing.len()
    }
}

#[cfg(test)]
mod tests {
    use millpond_core::hash::stable_hash;
    use millpond_core::{KeyHash, MaxParallelism};

    use super::*;

    #[test]
    fn deleted_timers_leave_memory_though_none_is_due() {
        let max = MaxParallelism::default();
        let mut backend: KeyedBackend<u64> = KeyedBackend::new(max, max.all());
        let mut timers: Timers<u64> = Timers::open("timers", &mut backend, &[]).unwrap();
        let hash = KeyHash::from_stable(stable_hash(&7u64, &mut Vec::new()).unwrap(), max);
        backend.set_current_key(hash, 7).unwrap();
        timers.register(TimeDomain::Event, 1_000_000, (), &mut backend).unwrap();
        for time_ms in 0..10_000 {
            timers.register(TimeDomain::Event, time_ms, (), &mut backend).unwrap();
            timers.delete(TimeDomain::Event, time_ms, (), &mut backend).unwrap();
            assert_eq!(backend.states().current_key(), Some(&7), "the key stays");
        }
        assert!(timers.queued() <= 2 * STALE_TIMERS, "{} are queued", timers.queued());
        let next = timers.next(TimeDomain::Event, i64::MAX, &mut backend).unwrap();
        assert_eq!(next, Due::Timer(1_000_000, ()));
        assert_eq!(timers.next(TimeDomain::Event, i64::MAX, &mut backend).unwrap(), Due::None);
    }
}
