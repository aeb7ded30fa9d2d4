//! Writes the first checkpoint of a job without the job: bootstraps state from data, or changes that of
//! another checkpoint. The job then starts from it like from any.
//!
//! ```text
//! StateWriter → values / lists / map entries / operator state / copies → runs, blobs → finish: manifest
//! ```
//!
//! What is not written or copied is not in the new checkpoint: that is how an operator or a state is
//! dropped. What is read typed can be changed on the way; with another key it goes to that key's group.
//!
//! Invariants: there is a checkpoint only when `finish` has returned; a job that has a checkpoint is never
//! written to; memory is bounded, whatever is written (of lists, 8 bytes per key are remembered).

mod copy;
mod keyed;

use std::collections::BTreeMap;
use std::sync::Arc;

use millpond_checkpoint::{
    Blob, DataObject, History, KeyedStateInfo, Manifest, ManifestKind, Names, OperatorManifest, RunRef, Writer, format,
};
use millpond_core::{Attempt, Epoch, MaxParallelism};
use millpond_runs::{EncodedRun, SectionInfo};
use millpond_state::{OperatorStateSnapshot, OperatorStates, StateError};
use millpond_storage::{ObjectName, Storage, StorageError};

use crate::error::ReaderError;

/// Operator state up to this size stands in the manifest.
const INLINE_BYTES: usize = millpond_checkpoint::manifest::INLINE_BLOB_LIMIT;

/// The execution that the written checkpoint is of: the job's own begin above it.
const ATTEMPT: Attempt = Attempt(1);

/// Writes the first checkpoint of a job.
pub struct StateWriter {
    storage: Arc<dyn Storage>,
    names: Names,
    max: MaxParallelism,
    epoch: Epoch,
    operators: BTreeMap<String, Part>,
    /// Number of sorted runs and blobs begun.
    begun: u64,
}

/// What is written of one operator.
#[derive(Default)]
struct Part {
    states: Vec<KeyedStateInfo>,
    runs: Vec<RunRef>,
    subtasks: Vec<Option<Blob>>,
}

impl StateWriter {
    /// Begins the first checkpoint of `job`, which has `max` key groups from then on.
    ///
    /// # Errors
    /// When the job has a checkpoint in `storage` already, its name cannot be one, or storage fails.
    pub fn create(storage: Arc<dyn Storage>, job: &str, max: MaxParallelism) -> Result<Self, ReaderError> {
        let history = History::new(Arc::clone(&storage), job)?;
        if !history.sequences()?.is_empty() {
            return Err(ReaderError::JobExists { job: job.to_owned() });
        }
        let names = history.names().clone();
        Ok(StateWriter { storage, names, max, epoch: Epoch(1), operators: BTreeMap::new(), begun: 0 })
    }

    /// Sets the epoch that the checkpoint is of; 1 if nobody does.
    #[must_use]
    pub fn at_epoch(mut self, epoch: Epoch) -> Self {
        self.epoch = epoch;
        self
    }

    /// Writes lists and broadcast maps of `operator`: declare and fill them as in a job. A restore deals
    /// them out to whatever subtasks there are.
    ///
    /// # Errors
    /// When the operator has operator state already, `fill` fails, or storage does.
    pub fn operator_state(
        &mut self,
        operator: &str,
        fill: impl FnOnce(&mut OperatorStates) -> Result<(), StateError>,
    ) -> Result<(), ReaderError> {
        let mut states = OperatorStates::new();
        fill(&mut states).map_err(|source| ReaderError::State { operator: operator.to_owned(), source })?;
        let snapshot = states.freeze();
        self.put_subtasks(operator, &[Some(snapshot)])
    }

    fn put_subtasks(&mut self, operator: &str, snapshots: &[Option<OperatorStateSnapshot>]) -> Result<(), ReaderError> {
        if self.operators.get(operator).is_some_and(|part| !part.subtasks.is_empty()) {
            let (operator, state) = (operator.to_owned(), "operator state".to_owned());
            return Err(ReaderError::StateExists { operator, state });
        }
        let mut blobs = Vec::with_capacity(snapshots.len());
        for snapshot in snapshots {
            blobs.push(match snapshot.as_ref().filter(|snapshot| !snapshot.is_empty()) {
                Some(snapshot) => Some(self.put_blob(operator, snapshot.encode())?),
                None => None,
            });
        }
        self.part(operator).subtasks = blobs;
        Ok(())
    }

    fn put_blob(&mut self, operator: &str, bytes: Vec<u8>) -> Result<Blob, ReaderError> {
        if bytes.len() <= INLINE_BYTES {
            return Ok(Blob::Inline(bytes));
        }
        let set = self.begin_set();
        let object = self.names.blob(&self.data(operator, set, 0))?;
        self.create_object(operator, &object, &bytes)?;
        Ok(Blob::stored(object, &bytes))
    }

    /// Declares a keyed state.
    fn declare(&mut self, operator: &str, section: &SectionInfo) -> Result<(), ReaderError> {
        let part = self.part(operator);
        if part.states.iter().any(|state| state.name == section.name) {
            let (operator, state) = (operator.to_owned(), section.name.clone());
            return Err(ReaderError::StateExists { operator, state });
        }
        part.states.push(KeyedStateInfo { name: section.name.clone(), description: section.description.clone() });
        Ok(())
    }

    /// Stores the files of one sorted run.
    fn put_runs(&mut self, operator: &str, runs: Vec<EncodedRun>) -> Result<(), ReaderError> {
        let set = self.begin_set();
        for (counter, run) in (0..).zip(runs) {
            let object = self.names.run(&self.data(operator, set, counter))?;
            self.create_object(operator, &object, &run.bytes)?;
            let epoch = self.epoch;
            let info = run.info;
            self.part(operator).runs.push(RunRef {
                object,
                bytes: info.bytes,
                raw_bytes: info.raw_bytes,
                rows: info.rows,
                tombstones: info.tombstones,
                groups: info.groups,
                checksum: info.checksum,
                epoch,
                level: 0,
            });
        }
        Ok(())
    }

    fn create_object(&self, operator: &str, object: &ObjectName, bytes: &[u8]) -> Result<(), ReaderError> {
        self.storage.create(object, bytes).map_err(|source| ReaderError::Storage {
            operator: operator.to_owned(),
            object: object.to_string(),
            source,
        })
    }

    fn part(&mut self, operator: &str) -> &mut Part {
        self.operators.entry(operator.to_owned()).or_default()
    }

    fn begin_set(&mut self) -> u64 {
        self.begun += 1;
        self.begun
    }

    fn data(&self, operator: &str, set: u64, counter: u32) -> DataObject {
        let (operator, writer) = (operator.to_owned(), Writer::Compaction(set));
        DataObject { operator, attempt: ATTEMPT, writer, epoch: self.epoch, counter }
    }

    /// Publishes the manifest: from now on the checkpoint exists. `now_ms` is the time in milliseconds since
    /// 1970 UTC.
    ///
    /// # Errors
    /// When the job has come to have a checkpoint meanwhile, or storage fails.
    pub fn finish(self, now_ms: i64) -> Result<Manifest, ReaderError> {
        let operators = self.operators.into_iter().map(|(name, mut part)| {
            part.states.sort();
            if part.subtasks.is_empty() {
                part.subtasks.push(None);
            }
            let parallelism = part.subtasks.len() as u32;
            OperatorManifest { name, parallelism, states: part.states, runs: part.runs, subtasks: part.subtasks }
        });
        let job = self.names.job();
        let manifest = Manifest {
            sequence: 1,
            attempt: ATTEMPT,
            kind: ManifestKind::Checkpoint,
            epoch: self.epoch,
            created_ms: now_ms,
            operators: operators.collect(),
            ..Manifest::empty(job, self.max.get())
        };
        match self.storage.create(&self.names.manifest(1), &format::encode(&manifest)?) {
            Ok(()) => Ok(manifest),
            Err(StorageError::AlreadyExists { .. }) => Err(ReaderError::JobExists { job: job.to_owned() }),
            Err(other) => Err(millpond_checkpoint::CheckpointError::from(other).into()),
        }
    }
}
