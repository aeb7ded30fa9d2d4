//! The backends of all subtasks of one operator, with what happens in the background done by hand.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use millpond_core::hash::stable_hash;
use millpond_core::{Clock, Epoch, KeyHash, ManualClock, MaxParallelism};
use millpond_runs::{LiveRows, RowBuffer};
use millpond_state::{
    ColdBacking, ColdRows, ColdStores, KeyedBackend, KeyedBackendControl, MemoryBudget, SliceProgress,
};

use crate::support::{All, Handles, Runs, contents_of};

/// So that snapshots go in pieces.
const PIECE_BYTES: usize = 64;

/// Rows on their way to the background thread.
struct Handed {
    epoch: Epoch,
    /// Whether these are the last rows of the epoch.
    last: bool,
    /// Whether they hold all there is.
    whole: bool,
    rows: RowBuffer,
    cold: Option<ColdRows>,
}

pub(crate) struct Subtask<H> {
    pub(crate) backend: KeyedBackend<String>,
    pub(crate) all: H,
    handed: VecDeque<Handed>,
    /// Stored, of epochs that are not completed.
    stored: Vec<(Epoch, RowBuffer)>,
    /// The newest epoch that was handed over whole, and that was stored whole.
    handed_epoch: Epoch,
    stored_epoch: Epoch,
    /// Epochs of which the stored rows hold all there was, not completed yet.
    wholes: Vec<Epoch>,
}

/// A cold store, and how many bytes may be in memory.
#[derive(Clone)]
pub(crate) struct Memory {
    pub(crate) stores: Arc<dyn ColdStores>,
    pub(crate) bytes: usize,
}

/// See the module.
pub(crate) struct Cluster<H = All> {
    max: MaxParallelism,
    /// `None` for the heap alone.
    memory: Option<Memory>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) subtasks: Vec<Subtask<H>>,
    completed: Epoch,
    /// How often the rows of a subtask held all there was, so that older ones were thrown away.
    pub(crate) superseded: usize,
    runs: Runs,
}

impl<H: Handles> Cluster<H> {
    pub(crate) fn new(memory: Option<Memory>) -> Self {
        let (max, clock) = (MaxParallelism::new(16).unwrap(), Arc::new(ManualClock::new(0)));
        let (subtasks, runs) = (Vec::new(), Runs::default());
        let mut cluster = Cluster { max, memory, clock, subtasks, completed: Epoch::ZERO, superseded: 0, runs };
        cluster.subtasks = cluster.start(1, cluster.memory.as_ref());
        cluster
    }

    /// Subtasks that go on from the last completed epoch.
    fn start(&self, parallelism: u32, memory: Option<&Memory>) -> Vec<Subtask<H>> {
        let backing = memory.map(|Memory { stores, bytes }| ColdBacking {
            stores: Arc::clone(stores),
            budget: MemoryBudget::new(*bytes),
        });
        (0..parallelism).map(|index| self.open(index, parallelism, backing.as_ref())).collect()
    }

    fn open(&self, index: u32, parallelism: u32, backing: Option<&ColdBacking>) -> Subtask<H> {
        let mut backend = KeyedBackend::new(self.max, self.max.range_of(index, parallelism))
            .with_clock(Arc::clone(&self.clock) as Arc<dyn Clock>)
            .with_piece_bytes(PIECE_BYTES);
        if let Some(backing) = backing {
            let (store, share) = backing.open("operator", index).unwrap();
            backend.attach_cold(store, share).unwrap();
        }
        backend.set_stored_sections(self.runs.sections());
        let all = H::declare(&mut backend).unwrap();
        // As if the state were a little larger than half of the memory.
        if let Some(cold) = backend.cold_restore(1_000) {
            let mut filling = cold.begin().unwrap();
            for name in H::NAMES {
                let readers = self.runs.readers();
                let mut rows = LiveRows::new(&readers, name, backend.key_groups()).unwrap();
                while rows.advance().unwrap() {
                    let row = rows.current().unwrap().unwrap();
                    filling.put(name, row.group, row.key, row.value.unwrap()).unwrap();
                }
            }
            let entries = filling.finish().unwrap();
            backend.finish_cold_restore(entries);
        } else {
            H::NAMES.iter().for_each(|name| self.runs.feed(name, &mut backend).unwrap());
            backend.finish_restore().unwrap();
        }
        let (handed, stored) = (VecDeque::new(), Vec::new());
        let (handed_epoch, stored_epoch, wholes) = (self.completed, self.completed, Vec::new());
        Subtask { backend, all, handed, stored, handed_epoch, stored_epoch, wholes }
    }

    fn hash(&self, key: &String) -> KeyHash {
        KeyHash::from_stable(stable_hash(key, &mut Vec::new()).unwrap(), self.max)
    }

    /// The subtask that owns a key.
    pub(crate) fn owner(&mut self, key: &String) -> (&mut KeyedBackend<String>, &H) {
        let group = self.hash(key).group();
        let mut subtasks = self.subtasks.iter_mut();
        let owner = subtasks.find(|subtask| subtask.backend.key_groups().contains(group)).unwrap();
        (&mut owner.backend, &owner.all)
    }

    pub(crate) fn fetch(&mut self, keys: &[String]) {
        let keys: Vec<(KeyHash, &String)> = keys.iter().map(|key| (self.hash(key), key)).collect();
        for subtask in &mut self.subtasks {
            subtask.backend.fetch(keys.iter().copied()).unwrap();
        }
    }

    pub(crate) fn keep_budget(&mut self) {
        for subtask in &mut self.subtasks {
            subtask.backend.clear_current_key();
            // The hand comes by twice before it takes anything away.
            subtask.backend.keep_budget().unwrap();
            subtask.backend.keep_budget().unwrap();
        }
    }

    pub(crate) fn freeze(&mut self, epoch: Epoch) {
        self.subtasks.iter_mut().for_each(|subtask| subtask.backend.freeze(epoch).unwrap());
    }

    /// Every subtask serialises about `budget` bytes. True when something was left to do.
    pub(crate) fn slice(&mut self, budget: usize) -> bool {
        let (mut more, mut waiting) = (false, Vec::new());
        for (at, subtask) in self.subtasks.iter_mut().enumerate() {
            let handed = match subtask.backend.serialise_slice(budget).unwrap() {
                SliceProgress::Idle => continue,
                SliceProgress::More => None,
                SliceProgress::Waiting => {
                    waiting.push(at);
                    None
                }
                SliceProgress::Part { rows, cold, .. } => {
                    let epoch = subtask.handed_epoch.next();
                    Some(Handed { epoch, last: false, whole: false, rows, cold })
                }
                SliceProgress::Done { epoch, rows, cold, whole } => {
                    subtask.handed_epoch = epoch;
                    Some(Handed { epoch, last: true, whole, rows, cold })
                }
            };
            subtask.handed.extend(handed);
            more = true;
        }
        waiting.into_iter().for_each(|subtask| while self.deliver(subtask) {});
        if self.memory.is_none() {
            (0..self.subtasks.len()).for_each(|subtask| while self.deliver(subtask) {});
        }
        more
    }

    /// The background thread takes the oldest rows of one subtask. False when there are none.
    pub(crate) fn deliver(&mut self, subtask: usize) -> bool {
        let count = self.subtasks.len();
        let subtask = &mut self.subtasks[subtask % count];
        let Some(Handed { epoch, last, whole, rows, cold }) = subtask.handed.pop_front() else { return false };
        if let Some(mut cold) = cold {
            cold.apply(&rows).unwrap();
        }
        subtask.stored.push((epoch, rows));
        if last {
            subtask.stored_epoch = epoch;
        }
        if whole {
            subtask.wholes.push(epoch);
        }
        true
    }

    /// Completes what every subtask has stored; says up to which epoch, when that is news.
    pub(crate) fn complete(&mut self) -> Option<Epoch> {
        let completed = self.subtasks.iter().map(|subtask| subtask.stored_epoch).min()?;
        if completed == self.completed {
            return None;
        }
        self.completed = completed;
        for subtask in &mut self.subtasks {
            let sections = subtask.backend.sections();
            let whole = subtask.wholes.extract_if(.., |epoch| *epoch <= completed).last();
            let mut whole = whole.inspect(|_| self.superseded += 1);
            for (epoch, rows) in subtask.stored.extract_if(.., |(epoch, _)| *epoch <= completed) {
                if whole.take_if(|whole| *whole <= epoch).is_some() {
                    self.runs.supersede(subtask.backend.key_groups());
                }
                self.runs.add(rows, &sections);
            }
        }
        Some(completed)
    }

    /// Loses everything that is in no completed epoch, and goes on with so many subtasks.
    pub(crate) fn crash(&mut self, subtasks: u32) -> Epoch {
        self.subtasks = self.start(subtasks, self.memory.as_ref());
        self.completed
    }

    /// Everything frozen is serialised and stored.
    pub(crate) fn finish(&mut self) {
        while self.slice(1_000) {}
        (0..self.subtasks.len()).for_each(|subtask| while self.deliver(subtask) {});
    }

    /// All that the last completed epoch holds, read on the heap.
    pub(crate) fn restored(&self) -> BTreeMap<String, H::Content> {
        all_contents(&mut self.start(1, None))
    }

    pub(crate) fn contents(&mut self) -> BTreeMap<String, H::Content> {
        all_contents(&mut self.subtasks)
    }

    /// Rows of the last completed epoch that are not deleted.
    pub(crate) fn live_rows(&self) -> usize {
        let readers = self.runs.readers();
        let live = |name: &&str| -> usize {
            let (mut rows, mut count) = (LiveRows::new(&readers, name, self.max.all()).unwrap(), 0);
            while rows.advance().unwrap() {
                count += 1;
            }
            count
        };
        H::NAMES.iter().map(live).sum()
    }

    pub(crate) fn live_entries(&self) -> usize {
        self.subtasks.iter().map(|subtask| subtask.backend.live_entries()).sum()
    }
}

fn all_contents<H: Handles>(subtasks: &mut [Subtask<H>]) -> BTreeMap<String, H::Content> {
    let mut all = BTreeMap::new();
    for Subtask { backend, all: handles, .. } in subtasks {
        for (key, content) in contents_of(backend, H::NAMES, |states| handles.content(states)) {
            assert!(all.insert(key, content).is_none(), "a key has two owners");
        }
    }
    all
}
