//! From a serialised snapshot to objects in storage, for one subtask.
//!
//! Runs on a background thread, one snapshot of a subtask at a time, oldest first. A run only holds what
//! changed since the freeze before, so an acknowledgement carries *every* run since the last epoch known
//! to be completed; and a run that could not be stored is kept and stored with the next snapshot. Of a large
//! snapshot each file is stored when the next one is encoded: two of them are in memory at a time.

use std::collections::BTreeMap;

use millpond_checkpoint::manifest::INLINE_BLOB_LIMIT;
use millpond_checkpoint::{
    Blob, CheckpointError, DataObject, KeyedStateInfo, Names, OperatorPiece, RunRef, Whole, Writer,
};
use millpond_core::{Attempt, Epoch, ErrorKind, SubtaskIndex};
use millpond_runs::{
    EncodedRun, RowBuffer, RunError, RunInfo, RunSettings, SectionInfo, give_back, spare_epoch, write_each_run,
};
use millpond_state::ColdRows;
use millpond_storage::{ObjectName, Storage, StorageError};

use crate::snapshot::{OperatorSnapshot, SnapshotKind, SubtaskSnapshot};

/// A snapshot that could not be stored. Nothing of it is lost: it goes with the next one.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    /// The rows could not be encoded.
    #[error("cannot encode the state of operator {operator:?}")]
    Encode {
        /// The operator.
        operator: String,
        /// What went wrong.
        #[source]
        source: RunError,
    },
    /// Rows of an earlier snapshot could not be encoded and are lost: no later snapshot is whole.
    #[error("rows of operator {operator:?} were lost when an earlier snapshot could not be encoded")]
    Lost {
        /// The operator.
        operator: String,
    },
    /// An object could not be written.
    #[error("cannot store {object}")]
    Store {
        /// The object.
        object: String,
        /// What went wrong.
        #[source]
        source: StorageError,
    },
    /// An object of this name is there already, with other content.
    #[error("object {object} exists with other content; another process writes to the same checkpoint storage")]
    Conflict {
        /// The object.
        object: String,
    },
    /// An object could not be named.
    #[error("cannot name an object")]
    Name(#[from] CheckpointError),
}

impl UploadError {
    /// What to do next.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            UploadError::Encode { source, .. } => source.kind(),
            UploadError::Lost { .. } => ErrorKind::Bug,
            UploadError::Store { source, .. } => source.kind(),
            UploadError::Conflict { .. } => ErrorKind::Fenced,
            UploadError::Name(source) => source.kind(),
        }
    }
}

/// What is needed to name and encode objects.
#[derive(Clone, Debug)]
pub struct UploadSettings {
    /// Names of the job's objects.
    pub names: Names,
    /// Which execution writes.
    pub attempt: Attempt,
    /// How runs are encoded.
    pub runs: RunSettings,
}

/// What one operator of a subtask has stored, or has yet to store.
#[derive(Default)]
struct OperatorUploads {
    states: Vec<KeyedStateInfo>,
    /// Stored, of epochs not known to be completed; oldest first.
    unconfirmed: Vec<RunRef>,
    /// Encoded and not stored; oldest first.
    unsent: Vec<(RunRef, Vec<u8>)>,
    /// The newest operator state that is stored, with its version.
    blob: Option<(u64, Blob)>,
    /// From which of the runs above on they hold everything, if they do.
    whole: Option<Whole>,
}

/// Runs on their way to storage, up to the first that fails.
struct Sending<'a> {
    storage: &'a dyn Storage,
    failed: Option<UploadError>,
}

impl Sending<'_> {
    fn send(&mut self, run: RunRef, mut bytes: Vec<u8>, uploads: &mut OperatorUploads) {
        if self.failed.is_none() {
            match store(self.storage, &run.object, &bytes) {
                Ok(()) => {
                    give_back(bytes);
                    return uploads.unconfirmed.push(run);
                }
                Err(error) => self.failed = Some(error),
            }
        }
        // It may wait for long: without the room that its buffer has left.
        bytes.shrink_to_fit();
        uploads.unsent.push((run, bytes));
    }

    fn outcome(self) -> Result<(), UploadError> {
        self.failed.map_or(Ok(()), Err)
    }
}

/// Stores the snapshots of one subtask.
pub struct SubtaskUploads {
    settings: UploadSettings,
    subtask: SubtaskIndex,
    operators: BTreeMap<String, OperatorUploads>,
    counter: u32,
    /// The operator whose rows are being encoded, or were lost on the way, be it by a panic.
    encoding: Option<String>,
}

impl SubtaskUploads {
    /// For subtask `subtask` of its chain.
    #[must_use]
    pub fn new(settings: UploadSettings, subtask: SubtaskIndex) -> Self {
        SubtaskUploads { settings, subtask, operators: BTreeMap::new(), counter: 0, encoding: None }
    }

    /// `epoch` and all before it are completed: their runs are in the manifest.
    pub fn completed(&mut self, epoch: Epoch) {
        for operator in self.operators.values_mut() {
            operator.unconfirmed.retain(|run| run.epoch > epoch);
            operator.whole = operator.whole.filter(|whole| whole.since > epoch);
        }
    }

    /// Stores a snapshot and returns what to acknowledge. Before anything else its rows go to the cold stores of
    /// its operators; when that fails, the operators hear of it by themselves.
    ///
    /// A part is stored like a snapshot of its epoch, of which it is the beginning, and is acknowledged with it.
    ///
    /// # Errors
    /// When something cannot be stored: it is stored with the next snapshot. When something cannot be
    /// encoded: its rows are lost, and every later snapshot is refused.
    pub fn upload(
        &mut self,
        mut snapshot: SubtaskSnapshot,
        storage: &dyn Storage,
    ) -> Result<Vec<OperatorPiece>, UploadError> {
        let epoch = snapshot.epoch;
        spare_epoch(epoch);
        apply_cold(&mut snapshot);
        if let Some(operator) = &self.encoding {
            return Err(UploadError::Lost { operator: operator.clone() });
        }
        if snapshot.kind == SnapshotKind::Part {
            return self.upload_part(snapshot, storage);
        }
        let mut sending = Sending { storage, failed: None };
        let mut blobs = Vec::new();
        // Everything is encoded, whatever fails to be stored: that is kept for the next time.
        for operator in snapshot.operators {
            self.encoding = Some(operator.operator.clone());
            blobs.push(self.encode(epoch, operator, &mut sending)?);
            self.encoding = None;
        }
        sending.outcome()?;
        for (operator, (version, bytes)) in blobs {
            self.send_blob(&operator, epoch, version, bytes, storage)?;
        }
        let pieces = self.operators.iter().map(|(operator, uploads)| OperatorPiece {
            operator: operator.clone(),
            states: uploads.states.clone(),
            runs: uploads.unconfirmed.clone(),
            blob: uploads.blob.as_ref().map(|(_, blob)| blob.clone()),
            whole: uploads.whole,
        });
        Ok(pieces.collect())
    }

    fn upload_part(&mut self, part: SubtaskSnapshot, storage: &dyn Storage) -> Result<Vec<OperatorPiece>, UploadError> {
        let mut sending = Sending { storage, failed: None };
        for OperatorSnapshot { operator, sections, rows, cold, continued, .. } in part.operators {
            self.encoding = Some(operator.clone());
            self.encode_rows(&operator, part.epoch, (rows, cold), &sections, &mut sending)?;
            if !continued {
                self.end_sorted_run();
            }
            self.encoding = None;
        }
        sending.outcome()?;
        Ok(Vec::new())
    }

    #[expect(clippy::type_complexity, reason = "operator name, then version and bytes of its operator state")]
    fn encode(
        &mut self,
        epoch: Epoch,
        snapshot: OperatorSnapshot,
        sending: &mut Sending<'_>,
    ) -> Result<(String, (u64, Option<Vec<u8>>)), UploadError> {
        let OperatorSnapshot { operator, states, version, sections, rows, cold, whole, .. } = snapshot;
        self.encode_rows(&operator, epoch, (rows, cold), &sections, sending)?;
        self.end_sorted_run();
        let uploads = self.operators.entry(operator.clone()).or_default();
        uploads.states = sections
            .into_iter()
            .map(|section| KeyedStateInfo { name: section.name, description: section.description })
            .collect();
        if let Some(groups) = whole {
            uploads.whole = Some(Whole { since: epoch, groups });
        }
        if states.is_empty() {
            uploads.blob = None;
        }
        let unchanged = uploads.blob.as_ref().is_some_and(|(stored, _)| *stored == version);
        let bytes = (!unchanged && !states.is_empty()).then(|| states.encode());
        Ok((operator, (version, bytes)))
    }

    /// Rows become runs, which are stored or, when that fails, wait to be.
    fn encode_rows(
        &mut self,
        operator: &str,
        epoch: Epoch,
        (rows, cold): (RowBuffer, Option<ColdRows>),
        sections: &[SectionInfo],
        sending: &mut Sending<'_>,
    ) -> Result<(), UploadError> {
        let first = self.counter;
        let object = self.object(operator, epoch);
        let (names, settings) = (&self.settings.names, &self.settings.runs);
        let mut uploads = std::mem::take(self.operators.entry(operator.to_owned()).or_default());
        for (run, bytes) in std::mem::take(&mut uploads.unsent) {
            sending.send(run, bytes, &mut uploads);
        }
        let (mut encoded, mut last, mut unnamed) = (0, None, None);
        let outcome = write_each_run(rows, sections, settings, |EncodedRun { bytes, info }| {
            match names.run(&DataObject { counter: first + encoded, ..object.clone() }) {
                Ok(object) => {
                    let run = run_ref(object, &info, epoch, 0);
                    if let Some((before, bytes)) = last.replace((run, bytes)) {
                        sending.send(before, bytes, &mut uploads);
                    }
                }
                Err(error) => unnamed = Some(error),
            }
            encoded += 1;
        });
        // The memory of the rows counts until here.
        drop(cold);
        if let Some((run, bytes)) = last {
            sending.send(run, bytes, &mut uploads);
        }
        self.counter = first + encoded;
        self.operators.insert(operator.to_owned(), uploads);
        outcome.map_err(|source| UploadError::Encode { operator: operator.to_owned(), source })?;
        unnamed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// The files since the last call are one sorted run, or pieces of one snapshot, which share no key and count like one: the
    /// number that is left out tells them from those of the next.
    fn end_sorted_run(&mut self) {
        self.counter += 1;
    }

    /// The first object of this name.
    fn object(&self, operator: &str, epoch: Epoch) -> DataObject {
        DataObject {
            operator: operator.to_owned(),
            attempt: self.settings.attempt,
            writer: Writer::Subtask(self.subtask),
            epoch,
            counter: 0,
        }
    }

    fn next_object(&mut self, operator: &str, epoch: Epoch) -> DataObject {
        let counter = self.counter;
        self.counter += 1;
        DataObject { counter, ..self.object(operator, epoch) }
    }

    fn send_blob(
        &mut self,
        operator: &str,
        epoch: Epoch,
        version: u64,
        bytes: Option<Vec<u8>>,
        storage: &dyn Storage,
    ) -> Result<(), UploadError> {
        let Some(bytes) = bytes else { return Ok(()) };
        let blob = if bytes.len() <= INLINE_BLOB_LIMIT {
            Blob::Inline(bytes)
        } else {
            let object = self.next_object(operator, epoch);
            let object = self.settings.names.blob(&object)?;
            store(storage, &object, &bytes)?;
            Blob::stored(object, &bytes)
        };
        if let Some(uploads) = self.operators.get_mut(operator) {
            uploads.blob = Some((version, blob));
        }
        Ok(())
    }
}

/// Puts the rows of a snapshot into the cold stores of its operators, which hear by themselves when that fails.
/// Must be called for every snapshot of a subtask, in order; [`SubtaskUploads::upload`] does.
pub fn apply_cold(snapshot: &mut SubtaskSnapshot) {
    for OperatorSnapshot { rows, cold, .. } in &mut snapshot.operators {
        if let Some(cold) = cold {
            // The backend finds the failure at its next look, and ends the attempt.
            let _ = cold.apply(rows);
        }
    }
}

/// What a manifest says of a run stored as `object`.
pub(crate) fn run_ref(object: ObjectName, info: &RunInfo, epoch: Epoch, level: u8) -> RunRef {
    RunRef {
        object,
        bytes: info.bytes,
        raw_bytes: info.raw_bytes,
        rows: info.rows,
        tombstones: info.tombstones,
        groups: info.groups,
        checksum: info.checksum,
        epoch,
        level,
    }
}

/// Creates an object; one of the same name and content is as good (a create whose answer was lost).
fn store(storage: &dyn Storage, object: &ObjectName, bytes: &[u8]) -> Result<(), UploadError> {
    match storage.create(object, bytes) {
        Ok(()) => Ok(()),
        Err(error) if error.is_already_exists() => match storage.read(object) {
            Ok(found) if found == bytes => Ok(()),
            Ok(_) => Err(UploadError::Conflict { object: object.to_string() }),
            Err(source) => Err(UploadError::Store { object: object.to_string(), source }),
        },
        Err(source) => Err(UploadError::Store { object: object.to_string(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_core::KeyGroup;
    use millpond_runs::StateIndex;
    use millpond_storage::{Effect, FaultPlan, FaultRule, Faults, MemoryStorage, Operation};

    fn snapshot(epoch: u64) -> SubtaskSnapshot {
        let (operator, rows) = ("count".to_owned(), RowBuffer::new());
        let operator = OperatorSnapshot {
            operator,
            states: Default::default(),
            version: 0,
            sections: Vec::new(),
            rows,
            cold: None,
            whole: None,
            continued: false,
        };
        SubtaskSnapshot { epoch: Epoch(epoch), kind: SnapshotKind::Whole, operators: vec![operator] }
    }

    fn uploads(block_bytes: usize) -> SubtaskUploads {
        let names = Names::new("job").unwrap();
        let runs = RunSettings { block_bytes, ..RunSettings::default() };
        SubtaskUploads::new(UploadSettings { names, attempt: Attempt(1), runs }, SubtaskIndex(0))
    }

    #[test]
    fn after_rows_were_lost_no_snapshot_is_acknowledged() {
        let storage = MemoryStorage::new();
        let mut broken = uploads(1);
        assert!(matches!(broken.upload(snapshot(1), &storage), Err(UploadError::Encode { .. })));
        broken.settings.runs = RunSettings::default();
        let refused = broken.upload(snapshot(2), &storage).unwrap_err();
        assert!(matches!(&refused, UploadError::Lost { operator } if operator == "count"), "{refused}");
        assert!(uploads(64).upload(snapshot(1), &storage).is_ok());
    }

    /// A snapshot of many files, each a row.
    fn large(epoch: u64) -> SubtaskSnapshot {
        let mut snapshot = snapshot(epoch);
        let operator = &mut snapshot.operators[0];
        operator.sections = vec![SectionInfo { name: "state".to_owned(), description: "u64".to_owned() }];
        for row in 0..5u8 {
            let fill = |bytes: &mut Vec<u8>| {
                bytes.extend_from_slice(&[row; 100]);
                Ok::<(), RunError>(())
            };
            operator.rows.put(StateIndex(0), KeyGroup(0), fill, fill).unwrap();
        }
        snapshot
    }

    #[test]
    fn what_of_a_large_snapshot_could_not_be_stored_goes_with_the_next_one() {
        for (effect, call) in
            [Effect::FailBefore, Effect::FailAfter].into_iter().flat_map(|e| (0..6).map(move |c| (e, c)))
        {
            let (memory, plan) = (MemoryStorage::new(), FaultPlan::new(1));
            plan.add(FaultRule::new(effect).on(Operation::Create).after(call).times(1));
            let storage = Faults::new(memory, plan);
            let mut uploads = uploads(64);
            uploads.settings.runs.target_file_bytes = 1;
            let first = uploads.upload(large(1), &storage);
            assert_eq!(first.is_err(), call < 5, "{effect:?} {call}");
            let pieces = uploads.upload(large(2), &storage).or_else(|_| uploads.upload(snapshot(3), &storage)).unwrap();
            let runs: Vec<(u64, u64)> = pieces[0].runs.iter().map(|run| (run.epoch.0, run.rows)).collect();
            let expected = [[(1, 1); 5], [(2, 1); 5]].concat();
            assert_eq!(runs, expected, "all of them once, in order: {effect:?} {call}");
            let places =
                pieces[0].runs.iter().map(|run| run.object.as_str().rsplit_once('-').unwrap().1.parse().unwrap());
            let places: Vec<u32> = places.collect();
            assert_eq!(places, [0, 1, 2, 3, 4, 6, 7, 8, 9, 10], "a number is left out between two sorted runs");
        }
    }
}
