//! A queue of keys in order of time, of which only the near future is in memory.
//!
//! Owns the order in which things of keys are due: timers, windows. An entry is (time, key, namespace). In memory stand
//! buckets by time: adding appends to a bucket, taking pops from the first. Once state does not fit into memory and
//! the buckets take more than they may, their later half goes to a file of the subtask, in order of time (`spilled`); what
//! comes next of a file is read back, a block at a time, when nothing in memory is due before it.
//!
//! Does *not* own whether an entry counts: it is found again in keyed state, which alone is stored. So an entry may be
//! there twice, or be of something that is gone; whoever takes it looks there. No entry of something that is there is
//! ever missing: a file that cannot be written or read, or is damaged, ends the attempt.

mod spilled;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use millpond_core::{Key, KeyHash, codec};
use millpond_state::{BesideRoom, KeyedBackend, StateError};
use smallvec::SmallVec;

use self::spilled::Spilled;

/// What is due at some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queued<K, N> {
    /// Hash and group of the key.
    pub hash: KeyHash,
    /// The key.
    pub key: K,
    /// What it is of the key.
    pub namespace: N,
}

/// An entry with its time, in milliseconds.
pub type At<K, N> = (i64, Queued<K, N>);

type Bucket<K, N> = SmallVec<[Queued<K, N>; 1]>;

/// Memory of a bucket beside what is in it, in bytes, roughly.
const BUCKET_BYTES: usize = 32;
/// After so many entries the memory is looked at.
const LOOK_EVERY: usize = 64;
/// After so many entries were taken it is counted anew.
const COUNT_EVERY: usize = 1_024;
/// The size of one in so many entries is measured, where they own memory.
const MEASURE_EVERY: usize = 16;

/// See the module.
pub struct TimeQueue<K, N> {
    /// Of which state the entries are, for messages.
    state: Arc<str>,
    /// By time; buckets are never empty.
    buckets: BTreeMap<i64, Bucket<K, N>>,
    /// Entries in memory.
    hot: usize,
    spilled: Spilled,
    /// What an entry owns beside itself, by the last measure, in bytes.
    owned_bytes: usize,
    /// Entries added since the memory was looked at.
    added: usize,
    /// Entries taken since the memory was counted.
    taken: usize,
    /// What the backend was told that the queue takes.
    counted_bytes: usize,
}

impl<K: Key, N: Key> TimeQueue<K, N> {
    /// An empty queue of what stands in `state`.
    #[must_use]
    pub fn new(state: &str) -> Self {
        TimeQueue {
            state: Arc::from(state),
            buckets: BTreeMap::new(),
            hot: 0,
            spilled: Spilled::default(),
            owned_bytes: 0,
            added: 0,
            taken: 0,
            counted_bytes: 0,
        }
    }

    /// Entries that are queued.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hot + self.spilled.entries()
    }

    /// Whether nothing is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entries that are in files.
    #[must_use]
    pub fn spilled(&self) -> usize {
        self.spilled.entries()
    }

    /// The earliest time of an entry.
    #[inline]
    #[must_use]
    pub fn first(&self) -> Option<i64> {
        let hot = self.buckets.keys().next().copied();
        match (hot, self.spilled.first()) {
            (Some(hot), Some(spilled)) => Some(hot.min(spilled)),
            (hot, spilled) => hot.or(spilled),
        }
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// When the files cannot be written.
    #[inline]
    pub fn push(&mut self, time_ms: i64, entry: Queued<K, N>, backend: &mut KeyedBackend<K>) -> Result<(), StateError> {
        self.add(time_ms, entry);
        if self.added >= LOOK_EVERY { self.look(backend) } else { Ok(()) }
    }

    /// As [`TimeQueue::push`], while the backend is busy showing its rows: keeps to `room`.
    ///
    /// # Errors
    /// As [`TimeQueue::push`].
    pub fn push_within(
        &mut self,
        time_ms: i64,
        entry: Queued<K, N>,
        room: Option<&BesideRoom>,
    ) -> Result<(), StateError> {
        self.add(time_ms, entry);
        if self.added >= LOOK_EVERY {
            self.added = 0;
            self.keep_within(room)?;
        }
        Ok(())
    }

    #[inline]
    fn add(&mut self, time_ms: i64, entry: Queued<K, N>) {
        if const { std::mem::needs_drop::<K>() || std::mem::needs_drop::<N>() }
            && self.added.is_multiple_of(MEASURE_EVERY)
        {
            let bytes = |size: Result<usize, codec::CodecError>| size.unwrap_or(0);
            self.owned_bytes = bytes(codec::encoded_size(&entry.key)) + bytes(codec::encoded_size(&entry.namespace));
        }
        self.buckets.entry(time_ms).or_default().push(entry);
        self.hot += 1;
        self.added += 1;
    }

    /// Takes an entry of the earliest time, if that is not above `until_ms`.
    ///
    /// # Errors
    /// When a file cannot be read, or is damaged.
    #[inline]
    pub fn pop(&mut self, until_ms: i64, backend: &mut KeyedBackend<K>) -> Result<Option<At<K, N>>, StateError> {
        if self.spilled.first().is_some_and(|first| first <= until_ms) {
            self.read_near(until_ms, backend)?;
        }
        let Some(mut bucket) = self.buckets.first_entry().filter(|bucket| *bucket.key() <= until_ms) else {
            return Ok(None);
        };
        let time_ms = *bucket.key();
        let entry = bucket.get_mut().pop();
        if bucket.get().is_empty() {
            bucket.remove();
        }
        self.hot -= usize::from(entry.is_some());
        self.taken += 1;
        if self.taken >= COUNT_EVERY {
            self.count(backend);
        }
        Ok(entry.map(|entry| (time_ms, entry)))
    }

    /// Reads what is due before the first bucket.
    fn read_near(&mut self, until_ms: i64, backend: &mut KeyedBackend<K>) -> Result<(), StateError> {
        while let Some(next) = self.spilled.first().filter(|next| *next <= until_ms) {
            if self.buckets.first_key_value().is_some_and(|(hot, _)| *hot <= next) {
                break;
            }
            let TimeQueue { spilled, buckets, hot, state, .. } = self;
            spilled.read_next(state, |time_ms, entry| {
                buckets.entry(time_ms).or_default().push(entry);
                *hot += 1;
            })?;
            self.count(backend);
        }
        Ok(())
    }

    /// Shows all entries up to `until_ms`, in no order; they stay.
    ///
    /// # Errors
    /// What `show` returns, or when a file cannot be read, or is damaged.
    pub fn for_each(
        &mut self,
        until_ms: i64,
        mut show: impl FnMut(i64, &Queued<K, N>) -> Result<(), StateError>,
    ) -> Result<(), StateError> {
        for (time_ms, bucket) in self.buckets.range(..=until_ms) {
            bucket.iter().try_for_each(|entry| show(*time_ms, entry))?;
        }
        self.spilled.for_each(&self.state, until_ms, |time_ms, entry| show(time_ms, &entry))
    }

    /// Forgets all entries.
    ///
    /// # Errors
    /// When a file cannot be removed.
    pub fn clear(&mut self, backend: &mut KeyedBackend<K>) -> Result<(), StateError> {
        self.buckets.clear();
        self.hot = 0;
        self.spilled.clear(&self.state)?;
        self.count(backend);
        Ok(())
    }

    /// Memory that the entries take, in bytes, roughly.
    fn memory_bytes(&self) -> usize {
        let each = size_of::<Queued<K, N>>() + self.owned_bytes;
        let bucket = size_of::<i64>() + size_of::<Bucket<K, N>>() + BUCKET_BYTES;
        // The first entry of a bucket stands in it; lists of more have some room.
        self.buckets.len() * bucket
            + (self.hot - self.buckets.len().min(self.hot)) * each / 2 * 3
            + self.hot * self.owned_bytes
    }

    /// Says what is taken, and keeps to what may be.
    #[cold]
    #[inline(never)]
    pub fn look(&mut self, backend: &mut KeyedBackend<K>) -> Result<(), StateError> {
        self.added = 0;
        if !backend.is_bounded() {
            return Ok(());
        }
        self.keep_within(backend.beside_room().as_ref())?;
        self.count(backend);
        Ok(())
    }

    fn count(&mut self, backend: &mut KeyedBackend<K>) {
        self.taken = 0;
        if backend.is_bounded() {
            let bytes = self.memory_bytes();
            backend.count_beside(self.counted_bytes, bytes);
            self.counted_bytes = bytes;
        }
    }

    /// Puts the later entries into a file when there are too many.
    fn keep_within(&mut self, room: Option<&BesideRoom>) -> Result<(), StateError> {
        let Some(room) = room else { return Ok(()) };
        let bytes = self.memory_bytes();
        if bytes <= room.limit_bytes {
            return Ok(());
        }
        let keep = (room.limit_bytes / 2).checked_div(bytes / self.hot.max(1)).unwrap_or(0);
        let (mut left, mut from) = (self.hot, None);
        for (time_ms, bucket) in self.buckets.iter().rev() {
            if left <= keep {
                break;
            }
            left -= bucket.len();
            from = Some(*time_ms);
        }
        let Some(from) = from else { return Ok(()) };
        let later = self.buckets.split_off(&from);
        self.hot = left;
        self.spilled.write(&self.state, room, later)
    }
}
