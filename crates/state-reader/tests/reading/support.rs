//! A job with one operator whose keyed state is written as checkpoints into memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use millpond_checkpoint::{
    Blob, KeyedStateInfo, Manifest, ManifestKind, Names, OperatorManifest, RunRef, WriterId, format,
};
use millpond_core::{Attempt, Epoch, MaxParallelism};
use millpond_runs::{RowBuffer, RunSettings, write_runs};
use millpond_state::{
    AggregateFunction, AggregatingState, KeyedBackend, KeyedBackendControl, ListState, MapState, OperatorStates,
    ReducingState, SliceProgress, ValueState,
};
use millpond_state_reader::StateReader;
use millpond_storage::{MemoryStorage, ObjectName, Storage};
use serde::{Deserialize, Serialize};

pub(crate) const JOB: &str = "a job";
pub(crate) const OPERATOR: &str = "per key";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) times: u64,
    pub(crate) delay: Option<i32>,
    pub(crate) last: String,
}

pub(crate) struct Count;

impl AggregateFunction for Count {
    type Input = u32;
    type Accumulator = (u64, u32);
    type Output = u64;

    fn create_accumulator(&self) -> (u64, u32) {
        (0, 0)
    }
    fn add(&self, input: u32, accumulator: &mut (u64, u32)) {
        accumulator.0 += u64::from(input);
        accumulator.1 += 1;
    }
    fn result(&self, accumulator: &(u64, u32)) -> u64 {
        accumulator.0
    }
    fn merge(&self, a: (u64, u32), b: (u64, u32)) -> (u64, u32) {
        (a.0 + b.0, a.1 + b.1)
    }
}

pub(crate) struct States {
    pub(crate) seen: ValueState<Seen>,
    pub(crate) list: ListState<u16>,
    pub(crate) map: MapState<String, u32>,
    pub(crate) sum: ReducingState<u64>,
    pub(crate) count: AggregatingState<Count>,
}

/// A job that runs only as far as its state.
pub(crate) struct Job {
    pub(crate) storage: Arc<MemoryStorage>,
    pub(crate) backend: KeyedBackend<String>,
    pub(crate) states: States,
    pub(crate) operator_states: Vec<OperatorStates>,
    max: MaxParallelism,
    runs: Vec<RunRef>,
    pub(crate) epoch: u64,
}

impl Job {
    pub(crate) fn new(key_groups: u32) -> Job {
        let max = MaxParallelism::new(key_groups).unwrap();
        let mut backend = KeyedBackend::new(max, max.all());
        let mut declarer = backend.declarer();
        let states = States {
            seen: declarer.value("seen").unwrap(),
            list: declarer.list("list").unwrap(),
            map: declarer.map("map").unwrap(),
            sum: declarer.reducing("sum", |a, b| a + b).unwrap(),
            count: declarer.aggregating("count", Count).unwrap(),
        };
        let storage = Arc::new(MemoryStorage::new());
        Job { storage, backend, states, operator_states: Vec::new(), max, runs: Vec::new(), epoch: 0 }
    }

    pub(crate) fn at(&mut self, key: &str) -> &mut KeyedBackend<String> {
        self.backend.set_current_key_of(key.to_owned()).unwrap();
        &mut self.backend
    }

    /// Takes a checkpoint.
    pub(crate) fn checkpoint(&mut self) {
        self.epoch += 1;
        self.backend.clear_current_key();
        self.backend.freeze(Epoch(self.epoch)).unwrap();
        loop {
            match self.backend.serialise_slice(1 << 20).unwrap() {
                SliceProgress::Idle => break,
                SliceProgress::More | SliceProgress::Waiting => {}
                SliceProgress::Part { rows, .. } | SliceProgress::Done { rows, .. } => self.add_runs(rows),
            }
        }
        let manifest = self.manifest();
        let object = Names::new(JOB).unwrap().manifest(self.epoch);
        self.storage.create(&object, &format::encode(&manifest).unwrap()).unwrap();
    }

    fn add_runs(&mut self, rows: RowBuffer) {
        let settings = RunSettings { block_bytes: 128, target_file_bytes: 2_000, ..RunSettings::default() };
        for run in write_runs(rows, &self.backend.sections(), &settings).unwrap() {
            let object = ObjectName::new(format!("runs/{}", self.runs.len())).unwrap();
            self.storage.create(&object, &run.bytes).unwrap();
            self.runs.push(RunRef {
                object,
                bytes: run.info.bytes,
                raw_bytes: run.info.raw_bytes,
                rows: run.info.rows,
                tombstones: run.info.tombstones,
                groups: run.info.groups,
                checksum: run.info.checksum,
                epoch: Epoch(self.epoch),
                level: 0,
            });
        }
    }

    fn manifest(&self) -> Manifest {
        let states = self.backend.sections().into_iter();
        let mut states: Vec<KeyedStateInfo> =
            states.map(|section| KeyedStateInfo { name: section.name, description: section.description }).collect();
        states.sort();
        let subtasks: Vec<Option<Blob>> =
            self.operator_states.iter().map(|states| Some(Blob::Inline(states.freeze().encode()))).collect();
        let parallelism = subtasks.len() as u32;
        let operator =
            OperatorManifest { name: OPERATOR.to_owned(), parallelism, states, runs: self.runs.clone(), subtasks };
        Manifest {
            sequence: self.epoch,
            attempt: Attempt(1),
            writer: WriterId(1),
            kind: ManifestKind::Checkpoint,
            epoch: Epoch(self.epoch),
            operators: vec![operator],
            ..Manifest::empty(JOB, self.max.get())
        }
    }

    pub(crate) fn reader(&self) -> StateReader {
        StateReader::latest(Arc::clone(&self.storage) as Arc<dyn Storage>, JOB).unwrap()
    }

    pub(crate) fn reader_at(&self, epoch: u64) -> StateReader {
        StateReader::epoch(Arc::clone(&self.storage) as Arc<dyn Storage>, JOB, Epoch(epoch)).unwrap()
    }
}

/// What a job holds of one state: by key and by what tells its entries apart, the value as JSON.
pub(crate) type Model = BTreeMap<(String, String), serde_json::Value>;

/// The same of a checkpoint, checking that everything comes once and in order.
pub(crate) fn content(reader: &StateReader, state: &str) -> Model {
    let info = reader.state(OPERATOR, state, None).unwrap();
    let mut content = Model::new();
    let mut groups = Vec::new();
    for entry in reader.entries(&info).unwrap() {
        let entry = entry.unwrap();
        groups.push(entry.key_group.unwrap());
        let key = entry.key.unwrap().as_str().unwrap().to_owned();
        let inner = match (&entry.user_key, entry.index) {
            (Some(user_key), None) => user_key.as_str().unwrap().to_owned(),
            (None, Some(index)) => index.to_string(),
            _ => String::new(),
        };
        assert!(content.insert((key, inner), entry.value).is_none(), "an entry comes twice");
    }
    assert!(groups.is_sorted());
    content
}
