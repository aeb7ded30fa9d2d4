//! One backend with a state of every kind, and checkpoints as lists of run files.

use std::collections::BTreeMap;

use millpond_core::{Key, KeyGroupRange, MaxParallelism};
use millpond_runs::{MemoryRun, RowBuffer, RunReader, RunSettings, SectionInfo, write_runs};
use millpond_state::{
    AggregateFunction, AggregatingState, KeyedBackend, KeyedBackendControl, KeyedStates, ListState, MapState,
    ReducingState, SliceProgress, StateError, ValueState,
};

/// Sum and count, read as the mean.
pub(crate) struct Mean;

impl AggregateFunction for Mean {
    type Input = u32;
    type Accumulator = (u64, u32);
    type Output = f64;

    fn create_accumulator(&self) -> (u64, u32) {
        (0, 0)
    }
    fn add(&self, input: u32, accumulator: &mut (u64, u32)) {
        accumulator.0 += u64::from(input);
        accumulator.1 += 1;
    }
    fn result(&self, accumulator: &(u64, u32)) -> f64 {
        accumulator.0 as f64 / f64::from(accumulator.1)
    }
    fn merge(&self, a: (u64, u32), b: (u64, u32)) -> (u64, u32) {
        (a.0 + b.0, a.1 + b.1)
    }
}

/// A sum, read as it is.
pub(crate) struct Sum;

impl AggregateFunction for Sum {
    type Input = u32;
    type Accumulator = u64;
    type Output = u64;

    fn create_accumulator(&self) -> u64 {
        0
    }
    fn add(&self, input: u32, accumulator: &mut u64) {
        *accumulator += u64::from(input);
    }
    fn result(&self, accumulator: &u64) -> u64 {
        *accumulator
    }
    fn merge(&self, accumulator: u64, other: u64) -> u64 {
        accumulator + other
    }
}

/// What an operator declares, as the suite drives it.
pub(crate) trait Handles: Sized {
    const NAMES: &'static [&'static str];
    /// What one key holds, over all states.
    type Content: PartialEq + std::fmt::Debug;

    fn declare(backend: &mut KeyedBackend<String>) -> Result<Self, StateError>;
    fn content(&self, states: &mut KeyedStates<String>) -> Self::Content;
}

impl Handles for All {
    const NAMES: &'static [&'static str] = &NAMES;
    type Content = Content;

    fn declare(backend: &mut KeyedBackend<String>) -> Result<Self, StateError> {
        declare(backend)
    }

    fn content(&self, states: &mut KeyedStates<String>) -> Content {
        content(self, states)
    }
}

/// A state of every kind.
pub(crate) struct All {
    pub(crate) value: ValueState<String>,
    pub(crate) list: ListState<u16>,
    pub(crate) map: MapState<String, u32>,
    pub(crate) sum: ReducingState<u64>,
    pub(crate) mean: AggregatingState<Mean>,
}

pub(crate) const NAMES: [&str; 5] = ["value", "list", "map", "sum", "mean"];

pub(crate) fn declare<K: Key>(backend: &mut KeyedBackend<K>) -> Result<All, StateError> {
    let mut declarer = backend.declarer();
    Ok(All {
        value: declarer.value("value")?,
        list: declarer.list("list")?,
        map: declarer.map("map")?,
        sum: declarer.reducing("sum", |a, b| a + b)?,
        mean: declarer.aggregating("mean", Mean)?,
    })
}

/// What one key holds, over all states.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Content {
    pub(crate) value: Option<String>,
    pub(crate) list: Vec<u16>,
    pub(crate) map: BTreeMap<String, u32>,
    pub(crate) sum: Option<u64>,
    pub(crate) mean: Option<f64>,
}

impl Content {
    /// How many values, lists and map entries.
    pub(crate) fn entries(&self) -> usize {
        let values = [self.value.is_some(), !self.list.is_empty(), self.sum.is_some(), self.mean.is_some()];
        values.into_iter().filter(|present| *present).count() + self.map.len()
    }
}

pub(crate) fn content<K: Key>(all: &All, states: &mut KeyedStates<K>) -> Content {
    let map: BTreeMap<String, u32> = all.map.iter(states).unwrap().map(|(k, v)| (k.clone(), *v)).collect();
    assert_eq!(all.map.len(states).unwrap(), map.len());
    Content {
        value: all.value.get(states).unwrap().cloned(),
        list: all.list.get(states).unwrap().to_vec(),
        map,
        sum: all.sum.get(states).unwrap().copied(),
        mean: all.mean.get(states).unwrap(),
    }
}

/// Everything that a backend holds, by key; checks that every state lists its keys once.
pub(crate) fn contents<K: Key + Ord>(backend: &mut KeyedBackend<K>, all: &All) -> BTreeMap<K, Content> {
    contents_of(backend, &NAMES, |states| content(all, states))
}

/// The same, of these states, as `content` shows what the current key holds.
pub(crate) fn contents_of<K: Key + Ord, C>(
    backend: &mut KeyedBackend<K>,
    names: &[&str],
    mut content: impl FnMut(&mut KeyedStates<K>) -> C,
) -> BTreeMap<K, C> {
    let mut keys: Vec<K> = Vec::new();
    for name in names {
        let mut listed = backend.keys(name).unwrap();
        let count = listed.len();
        listed.sort();
        listed.dedup();
        assert_eq!(listed.len(), count, "state {name} lists a key twice");
        keys.extend(listed);
    }
    keys.sort();
    keys.dedup();
    let mut contents = BTreeMap::new();
    for key in keys {
        backend.set_current_key_of(key.clone()).unwrap();
        contents.insert(key, content(backend.states_mut()));
    }
    backend.clear_current_key();
    contents
}

/// A checkpoint: run files, oldest first.
#[derive(Clone, Default)]
pub(crate) struct Runs(Vec<(KeyGroupRange, MemoryRun)>);

impl Runs {
    pub(crate) fn add(&mut self, rows: RowBuffer, sections: &[SectionInfo]) {
        let settings = RunSettings { block_bytes: 256, ..RunSettings::default() };
        for run in write_runs(rows, sections, &settings).unwrap() {
            self.0.push((run.info.groups, MemoryRun::new(format!("run {}", self.0.len()), run.bytes)));
        }
    }

    /// Rows to come hold all there is of `range`: runs that have nothing else go, but for those over one that stays.
    pub(crate) fn supersede(&mut self, range: KeyGroupRange) {
        let mut staying: Vec<KeyGroupRange> = Vec::new();
        self.0.retain(|(groups, _)| {
            let stays = groups.intersection(range) != *groups || staying.iter().any(|other| other.intersects(*groups));
            if stays {
                staying.push(*groups);
            }
            stays
        });
    }

    pub(crate) fn files(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn readers(&self) -> Vec<RunReader<MemoryRun>> {
        self.0.iter().map(|(_, run)| RunReader::open(run.clone()).unwrap()).collect()
    }

    /// Name and description of everything stored.
    pub(crate) fn sections(&self) -> Vec<SectionInfo> {
        let mut sections: Vec<SectionInfo> = Vec::new();
        for reader in self.readers() {
            for section in reader.sections() {
                for description in &section.descriptions {
                    let info = SectionInfo { name: section.name.clone(), description: description.text.clone() };
                    if !sections.contains(&info) {
                        sections.push(info);
                    }
                }
            }
        }
        sections
    }

    /// Feeds the rows of one state to a backend.
    pub(crate) fn feed<K: Key>(&self, state: &str, backend: &mut KeyedBackend<K>) -> Result<(), StateError> {
        let range = backend.key_groups();
        for reader in self.readers() {
            let Some(section) = reader.section(state) else { continue };
            let versions = section.descriptions.iter().map(|written| backend.row_version(state, &written.text));
            let versions: Vec<_> = versions.collect::<Result<_, _>>()?;
            let mut cursor = reader.cursor(state, range);
            while cursor.advance().unwrap() {
                let row = cursor.current().unwrap();
                backend.restore_row(versions[row.description as usize], row.group, row.key, row.value)?;
            }
        }
        Ok(())
    }

    pub(crate) fn restore<K: Key>(&self, max: MaxParallelism, range: KeyGroupRange) -> (KeyedBackend<K>, All) {
        let mut backend = KeyedBackend::new(max, range);
        backend.set_stored_sections(self.sections());
        let all = declare(&mut backend).unwrap();
        for name in NAMES {
            self.feed(name, &mut backend).unwrap();
        }
        backend.finish_restore().unwrap();
        (backend, all)
    }
}

/// Writes everything that is frozen, in slices of `budget` bytes.
pub(crate) fn drain<K: Key>(backend: &mut KeyedBackend<K>, runs: &mut Runs, budget: usize) {
    loop {
        match backend.serialise_slice(budget).unwrap() {
            SliceProgress::Idle => return,
            SliceProgress::More | SliceProgress::Waiting => {}
            SliceProgress::Done { rows, .. } | SliceProgress::Part { rows, .. } => runs.add(rows, &backend.sections()),
        }
    }
}

/// Writes some of what is frozen: one slice of `budget` bytes.
pub(crate) fn write_some<K: Key>(backend: &mut KeyedBackend<K>, runs: &mut Runs, budget: usize) {
    if let SliceProgress::Done { rows, .. } | SliceProgress::Part { rows, .. } =
        backend.serialise_slice(budget).unwrap()
    {
        runs.add(rows, &backend.sections());
    }
}
