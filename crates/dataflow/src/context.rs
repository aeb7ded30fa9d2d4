//! What user code and operators see of the world around them.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use millpond_core::{Attempt, Clock, Key, KeyGroupRange, KeyHash, MaxParallelism, UserResult};
use millpond_runs::SectionInfo;
use millpond_state::{ColdBacking, KeyedBackend, KeyedStates, OperatorStates, StateError};

use crate::align::AlignmentGroup;
use crate::batch::NO_TIME;
use crate::gauge::TimeGauge;
use crate::output::{Outputs, SidePort};
use crate::timers::{Due, TimeDomain, Timers};

/// Who a subtask is.
#[derive(Clone, Debug)]
pub struct SubtaskInfo {
    /// Name of the operator.
    pub operator: Arc<str>,
    /// Index of this parallel instance, from 0.
    pub index: u32,
    /// Number of parallel instances.
    pub parallelism: u32,
    /// Number of key groups of the job.
    pub max_parallelism: MaxParallelism,
    /// Which execution of the job this is.
    pub attempt: Attempt,
}

impl SubtaskInfo {
    /// The key groups that this subtask owns.
    #[must_use]
    pub fn key_groups(&self) -> KeyGroupRange {
        self.max_parallelism.range_of(self.index, self.parallelism)
    }
}

/// Whether an attempt is over, for threads that work for a subtask and may outlive it. Clones share one answer.
#[derive(Clone, Debug, Default)]
pub struct AttemptEnd {
    over: Arc<AtomicBool>,
}

impl AttemptEnd {
    /// The attempt is over.
    pub fn set(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Whether the attempt is over: what is begun for it now is in the way of the next one.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

/// Computes something once for all subtasks of an attempt, such as the splits of a source.
pub trait OncePerAttempt {
    /// The bytes that the first caller with this `name` computed.
    ///
    /// # Errors
    /// When the computation fails; the next caller tries again.
    fn get_or_compute(&self, name: &str, compute: &mut dyn FnMut() -> UserResult<Vec<u8>>) -> UserResult<Vec<u8>>;

    /// The sources that wait for each other under this name.
    fn alignment(&self, group: &str) -> Arc<AlignmentGroup>;
}

/// Given to an operator once, before its first batch, in every attempt.
pub struct OpenContext<'a> {
    /// Who we are.
    pub info: &'a SubtaskInfo,
    /// Operator state: restored already, if there was any.
    pub states: &'a mut OperatorStates,
    /// Keyed states that the checkpoint holds for this operator.
    pub stored_sections: &'a [SectionInfo],
    /// Whether the job starts from a checkpoint (OS-17: true also for an operator new in it).
    pub restored: bool,
    /// Whether the job had come to its end in that checkpoint: only its output may still be committed.
    pub finished: bool,
    /// Whether checkpoints are taken; without, the only epoch is the last one.
    pub takes_checkpoints: bool,
    /// Whether the checkpoint holds something for this operator.
    pub has_stored_state: bool,
    /// Side outputs that somebody listens to.
    pub sides: &'a [SidePort],
    /// Where keyed state goes that does not fit into memory; `None` to keep all of it there.
    pub cold: Option<&'a ColdBacking>,
    /// Things that all subtasks must see alike.
    pub once: &'a dyn OncePerAttempt,
    /// The time.
    pub clock: &'a Arc<dyn Clock>,
    /// Whether the attempt is over, for whoever waits long or has threads.
    pub end: &'a AttemptEnd,
}

/// Given to an operator with every call after [`OpenContext`].
pub struct OperatorContext<'a> {
    /// Who we are.
    pub info: &'a SubtaskInfo,
    /// Operator state.
    pub states: &'a mut OperatorStates,
    /// Where produced batches go.
    pub outputs: &'a mut Outputs,
    /// The time.
    pub clock: &'a Arc<dyn Clock>,
    /// The operator's watermark: event time up to which its inputs are complete, in milliseconds.
    pub watermark: i64,
    /// What whoever watches the job sees of event time here.
    pub gauge: &'a TimeGauge,
    /// Makes the subtask run soon, from any thread.
    pub waker: &'a Waker,
}

/// What every context of a record tells, from the fields `operator_states`, `info`, `clock`, `watermark` and `time`.
macro_rules! surroundings {
    () => {
        /// Moves on to a record with this event time.
        #[inline]
        pub fn set_time(&mut self, time: i64) {
            self.time = time;
        }

        /// The event time of the current record in milliseconds, if it has one.
        #[must_use]
        pub fn timestamp(&self) -> Option<i64> {
            (self.time != NO_TIME).then_some(self.time)
        }

        /// Event time up to which the inputs are complete, in milliseconds: the watermark that was there before
        /// the current record; [`MIN_WATERMARK`](crate::MIN_WATERMARK) before the first (TM-31).
        #[must_use]
        pub fn watermark(&self) -> i64 {
            self.watermark
        }

        /// The wall-clock time in milliseconds since 1970-01-01 UTC.
        #[must_use]
        pub fn processing_time(&self) -> i64 {
            self.clock.now_ms()
        }

        /// Who we are.
        #[must_use]
        pub fn subtask(&self) -> &SubtaskInfo {
            self.info
        }

        /// The operator state of this subtask, broadcast state included.
        #[must_use]
        pub fn operator_states(&self) -> &OperatorStates {
            self.operator_states
        }

        /// The operator state of this subtask, to change it.
        pub fn operator_states_mut(&mut self) -> &mut OperatorStates {
            self.operator_states
        }
    };
}

/// What a keyed function sees while it processes a record: the current key, and through `Deref` the
/// keyed state of exactly that key.
pub struct KeyedContext<'a, K: Key> {
    backend: &'a mut KeyedBackend<K>,
    timers: &'a mut Timers<K>,
    operator_states: &'a mut OperatorStates,
    info: &'a SubtaskInfo,
    clock: &'a Arc<dyn Clock>,
    watermark: i64,
    time: i64,
}

impl<'a, K: Key> KeyedContext<'a, K> {
    /// A context for the records of one batch.
    pub fn new(
        backend: &'a mut KeyedBackend<K>,
        timers: &'a mut Timers<K>,
        operator_states: &'a mut OperatorStates,
        info: &'a SubtaskInfo,
        clock: &'a Arc<dyn Clock>,
        watermark: i64,
    ) -> Self {
        KeyedContext { backend, timers, operator_states, info, clock, watermark, time: NO_TIME }
    }

    surroundings!();

    /// Moves on to a record with this key. For operators; user code finds the key set.
    ///
    /// # Errors
    /// When the key's group is not owned here.
    #[inline]
    pub fn set_current_key(&mut self, hash: KeyHash, key: K) -> Result<(), StateError> {
        self.backend.set_current_key(hash, key)
    }

    /// Leaves the current key. For operators.
    pub fn clear_current_key(&mut self) {
        self.backend.clear_current_key();
    }

    /// Fetches the state of keys that come soon, and the way to those that come later, into the
    /// processor's cache. For operators.
    #[inline]
    pub fn prefetch(&self, soon: impl Iterator<Item = KeyHash>, later: impl Iterator<Item = KeyHash>) {
        self.backend.prefetch(soon, later);
    }

    /// Brings the state of the keys of a batch into memory, where some of it is not. For operators.
    ///
    /// # Errors
    /// When the cold store fails, or holds a damaged row.
    #[inline]
    pub fn fetch<'k>(&mut self, keys: impl Iterator<Item = (KeyHash, &'k K)>) -> Result<(), StateError>
    where
        K: 'k,
    {
        self.backend.fetch(keys)
    }

    /// The keyed state as the operator drives it. For operators.
    pub fn backend(&mut self) -> &mut KeyedBackend<K> {
        self.backend
    }

    /// Takes the earliest timer that is due by `until_ms`: its key is current afterwards. For operators.
    ///
    /// # Errors
    /// When the state of timers cannot be read.
    pub fn next_timer(&mut self, domain: TimeDomain, until_ms: i64) -> Result<Due<()>, StateError> {
        self.timers.next(domain, until_ms, self.backend)
    }

    /// Sets a timer of the current key: `on_timer` is called when the watermark reaches `time_ms` (milliseconds).
    /// Set twice, it fires once (TM-03); set at or below the watermark, it fires with the next one (TM-06).
    ///
    /// # Errors
    /// When no key is current (TM-33), or the table of timers is full.
    pub fn set_event_timer(&mut self, time_ms: i64) -> Result<(), StateError> {
        self.timers.register(TimeDomain::Event, time_ms, (), self.backend)
    }

    /// Deletes an event timer of the current key; one that is not set is no error (TM-05).
    ///
    /// # Errors
    /// When no key is current.
    pub fn delete_event_timer(&mut self, time_ms: i64) -> Result<(), StateError> {
        self.timers.delete(TimeDomain::Event, time_ms, (), self.backend)
    }

    /// Sets a timer of the current key: `on_timer` is called when the wall clock reaches `time_ms` (milliseconds
    /// since 1970-01-01 UTC), or soon after.
    ///
    /// # Errors
    /// As [`KeyedContext::set_event_timer`].
    pub fn set_processing_timer(&mut self, time_ms: i64) -> Result<(), StateError> {
        self.timers.register(TimeDomain::Processing, time_ms, (), self.backend)
    }

    /// Deletes a processing timer of the current key; one that is not set is no error (TM-05).
    ///
    /// # Errors
    /// When no key is current.
    pub fn delete_processing_timer(&mut self, time_ms: i64) -> Result<(), StateError> {
        self.timers.delete(TimeDomain::Processing, time_ms, (), self.backend)
    }

    /// The current key.
    ///
    /// # Errors
    /// When there is none: in `on_end`, `snapshot` and `process_broadcast`.
    pub fn key(&self) -> Result<&K, StateError> {
        let key = self.backend.states().current_key();
        key.ok_or_else(|| StateError::NoCurrentKey { state: "(the key itself)".to_owned() })
    }

    /// Makes every key that has something in the state called `state` current in turn (KS-64, BS-03).
    ///
    /// # Errors
    /// What `visit` returns; the walk ends there.
    pub fn for_each_key<E: From<StateError>>(
        &mut self,
        state: &str,
        visit: impl FnMut(&mut KeyedStates<K>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.backend.for_each_key(state, visit)
    }
}

impl<K: Key> Deref for KeyedContext<'_, K> {
    type Target = KeyedStates<K>;

    fn deref(&self) -> &KeyedStates<K> {
        self.backend.states()
    }
}

impl<K: Key> DerefMut for KeyedContext<'_, K> {
    fn deref_mut(&mut self) -> &mut KeyedStates<K> {
        self.backend.states_mut()
    }
}

/// What a function on a stream without keys sees: operator state, but no keyed state.
pub struct ProcessContext<'a> {
    operator_states: &'a mut OperatorStates,
    info: &'a SubtaskInfo,
    clock: &'a Arc<dyn Clock>,
    watermark: i64,
    time: i64,
}

impl<'a> ProcessContext<'a> {
    /// A context for the records of one batch.
    pub fn new(
        operator_states: &'a mut OperatorStates,
        info: &'a SubtaskInfo,
        clock: &'a Arc<dyn Clock>,
        watermark: i64,
    ) -> Self {
        ProcessContext { operator_states, info, clock, watermark, time: NO_TIME }
    }

    surroundings!();
}
