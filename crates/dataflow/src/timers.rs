//! Timers of keyed operators: per key and namespace, in event time and in processing time.
//!
//! Owns which timers are set, and in which order they fire. Does *not* own time: an operator asks for what is
//! due. The set of timers is keyed state, a map per key from (time, namespace) to nothing, so that timers are
//! snapshotted with what changed, rescaled with their keys, and may lie in the cold store. Beside it, in memory,
//! stands a queue of buckets by time: setting a timer appends to a bucket, firing takes from the first.
//!
//! Invariants: what is in the set is in the queue; what is in the queue and not in the set was deleted, and is
//! passed over. The queue is not stored: it is read from the set after a restore. See decision 0008.

use std::collections::BTreeMap;

use millpond_core::{Key, KeyHash};
use millpond_runs::SectionInfo;
use millpond_state::{KeyedBackend, MapState, StateError};

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

/// Deleted timers that may stay in the queue.
const STALE_TIMERS: usize = 1_024;

struct Queued<K, N> {
    hash: KeyHash,
    key: K,
    namespace: N,
}

/// The timers of one domain.
struct TimerQueue<K, N> {
    state: String,
    set: Option<MapState<(i64, N), ()>>,
    /// By time; buckets are never empty.
    buckets: BTreeMap<i64, Vec<Queued<K, N>>>,
    queued: usize,
    /// Entries of the queue that are not in the set, at most.
    stale: usize,
    /// Whether the set holds timers from before a restore that are not queued.
    unread: bool,
}

impl<K: Key, N: Key> TimerQueue<K, N> {
    fn open(state: String, backend: &mut KeyedBackend<K>, stored: &[SectionInfo]) -> Result<Self, StateError> {
        let mut queue = TimerQueue { state, set: None, buckets: BTreeMap::new(), queued: 0, stale: 0, unread: false };
        if stored.iter().any(|section| section.name == queue.state) {
            queue.declared(backend)?;
            queue.unread = true;
        }
        Ok(queue)
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
            self.buckets.entry(time_ms).or_default().push(Queued { hash, key, namespace });
            self.queued += 1;
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

    /// Whether the queue is to be read anew, so that it does not grow with timers that were deleted.
    fn is_mostly_stale(&self) -> bool {
        self.stale > STALE_TIMERS && self.stale * 2 > self.queued
    }

    /// Reads the queue from the set.
    fn read(&mut self, backend: &mut KeyedBackend<K>) -> Result<(), StateError> {
        self.unread = false;
        self.buckets.clear();
        (self.queued, self.stale) = (0, 0);
        let Some(set) = self.set else { return Ok(()) };
        let (buckets, state) = (&mut self.buckets, self.state.as_str());
        let mut queued = 0;
        backend.for_each_key(state, |states| {
            let missing = || StateError::NoCurrentKey { state: state.to_owned() };
            let hash = states.current_hash().ok_or_else(missing)?;
            let key = states.current_key().cloned().ok_or_else(missing)?;
            set.for_each_entry(states, |entry| {
                let (time_ms, namespace) = entry.key().clone();
                buckets.entry(time_ms).or_default().push(Queued { hash, key: key.clone(), namespace });
                queued += 1;
                Ok(())
            })
        })?;
        self.queued = queued;
        Ok(())
    }

    /// Takes the next timer that is due by `until`: its key is current afterwards.
    fn next(&mut self, until_ms: i64, backend: &mut KeyedBackend<K>) -> Result<Option<(i64, N)>, StateError> {
        if self.unread {
            self.read(backend)?;
        }
        let Some(set) = self.set else { return Ok(None) };
        while let Some(mut bucket) = self.buckets.first_entry().filter(|bucket| *bucket.key() <= until_ms) {
            let time_ms = *bucket.key();
            let queued = bucket.get_mut().pop();
            if bucket.get().is_empty() {
                bucket.remove();
            }
            let Some(Queued { hash, key, namespace }) = queued else { continue };
            self.queued -= 1;
            backend.set_current_key(hash, key)?;
            let was_set =
                set.modify(backend.states_mut(), (time_ms, namespace.clone()), |entry| entry.take().is_some())?;
            if was_set {
                return Ok(Some((time_ms, namespace)));
            }
            self.stale = self.stale.saturating_sub(1);
        }
        Ok(None)
    }

    fn first(&self) -> Option<i64> {
        if self.unread { Some(i64::MIN) } else { self.buckets.keys().next().copied() }
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
    ) -> Result<Option<(i64, N)>, StateError> {
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
        self.event.queued + self.processing.queued
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
        assert_eq!(next, Some((1_000_000, ())));
        assert_eq!(timers.next(TimeDomain::Event, i64::MAX, &mut backend).unwrap(), None);
    }
}
