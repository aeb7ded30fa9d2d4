//! Reading the log of manifests: for restore, for the command line, for everybody who only looks.
//!
//! Owns nothing and changes nothing. A damaged manifest is an entry with its error; it never hides
//! the good ones, and restoring the latest never silently falls back past it.

use millpond_core::Epoch;
use millpond_storage::{ObjectName, Storage, StorageError};

use crate::error::CheckpointError;
use crate::format;
use crate::manifest::{Manifest, ManifestKind};
use crate::names::{JobObject, Names, job_of_manifest};

/// The manifests of one job.
#[derive(Clone, Debug)]
pub struct History<S> {
    storage: S,
    names: Names,
}

/// One manifest of the log.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Place in the log.
    pub sequence: u64,
    /// Where it is.
    pub object: ObjectName,
    /// Its own size, in bytes.
    pub bytes: u64,
    /// What it says, or why it cannot be read.
    pub manifest: Result<Manifest, CheckpointError>,
}

impl Entry {
    /// The manifest, if it is readable and records a completed epoch (not the start of an attempt).
    #[must_use]
    pub fn checkpoint(&self) -> Option<&Manifest> {
        self.manifest.as_ref().ok().filter(|manifest| manifest.kind == ManifestKind::Checkpoint)
    }
}

impl<S: Storage> History<S> {
    /// The history of `job` in `storage`.
    ///
    /// # Errors
    /// [`CheckpointError::Name`] when the job's name cannot stand in an object name.
    pub fn new(storage: S, job: &str) -> Result<History<S>, CheckpointError> {
        Ok(History { storage, names: Names::new(job)? })
    }

    /// How the job's objects are called.
    #[must_use]
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Where everything is.
    #[must_use]
    pub fn storage(&self) -> &S {
        &self.storage
    }

    /// Sequence numbers with the sizes of their objects, ascending.
    ///
    /// # Errors
    /// When storage cannot be listed.
    pub fn sequences(&self) -> Result<Vec<(u64, u64)>, CheckpointError> {
        let listed = self.storage.list(&self.names.manifest_prefix())?;
        let mut sequences: Vec<(u64, u64)> = listed
            .iter()
            .filter_map(|info| match self.names.parse(&info.name) {
                Some(JobObject::Manifest(sequence)) => Some((sequence, info.bytes)),
                _ => None,
            })
            .collect();
        sequences.sort_unstable();
        Ok(sequences)
    }

    /// All manifests of the log, oldest first, fences and damaged ones included.
    ///
    /// # Errors
    /// When storage cannot be listed. Trouble with one manifest is in its entry.
    pub fn entries(&self) -> Result<Vec<Entry>, CheckpointError> {
        let mut entries = Vec::new();
        for (sequence, bytes) in self.sequences()? {
            match self.read(sequence) {
                Ok(None) => {}
                Ok(Some(manifest)) => entries.push(self.entry(sequence, bytes, Ok(manifest))),
                Err(error) => entries.push(self.entry(sequence, bytes, Err(error))),
            }
        }
        let newest = entries.iter().rev().find_map(|entry| entry.manifest.as_ref().ok());
        let floor = newest.map_or(0, |newest| newest.retained_from);
        entries.retain(|entry| entry.sequence >= floor);
        Ok(entries)
    }

    /// The newest completed epoch, by the manifest that a start would take; `None` when the job
    /// has never completed one.
    ///
    /// # Errors
    /// [`CheckpointError::NewestDamaged`] when the newest manifest cannot be read: it names the
    /// newest older epoch that can. Else when storage fails.
    pub fn latest(&self) -> Result<Option<Manifest>, CheckpointError> {
        let entries = self.entries()?;
        let Some(newest) = entries.last() else {
            return Ok(None);
        };
        match &newest.manifest {
            Ok(manifest) => Ok(Some(manifest.clone()).filter(|manifest| manifest.epoch > Epoch::ZERO)),
            Err(error @ (CheckpointError::Damaged { .. } | CheckpointError::UnsupportedVersion { .. })) => {
                let readable = entries.iter().rev().filter_map(|entry| entry.manifest.as_ref().ok());
                let older = readable.map(|manifest| manifest.epoch).find(|epoch| *epoch > Epoch::ZERO);
                let (object, reason) = (newest.object.clone(), error.without_object());
                Err(CheckpointError::NewestDamaged { object, reason, older })
            }
            Err(other) => Err(other.clone()),
        }
    }

    /// The newest manifest that holds `epoch`; the record of its completion rather than a fence.
    ///
    /// # Errors
    /// [`CheckpointError::NoSuchEpoch`] when no readable manifest of the log does; else when
    /// storage fails.
    pub fn load(&self, epoch: Epoch) -> Result<Manifest, CheckpointError> {
        let held: Vec<Manifest> =
            self.entries()?.into_iter().filter_map(|entry| entry.manifest.ok()).filter(|m| m.epoch == epoch).collect();
        let completed = held.iter().rev().find(|manifest| manifest.kind == ManifestKind::Checkpoint);
        let missing = || CheckpointError::NoSuchEpoch { job: self.names.job().to_owned(), epoch };
        completed.or(held.last()).cloned().ok_or_else(missing)
    }

    /// The manifest with this sequence number; `None` when there is none.
    ///
    /// # Errors
    /// When it is damaged, claims to be another one, or storage fails.
    pub fn read(&self, sequence: u64) -> Result<Option<Manifest>, CheckpointError> {
        let object = self.names.manifest(sequence);
        match load_object(&self.storage, &object) {
            Ok(manifest) if manifest.sequence == sequence && manifest.job == self.names.job() => Ok(Some(manifest)),
            Ok(manifest) => {
                let reason = format!("it says that it is manifest {} of job {:?}", manifest.sequence, manifest.job);
                Err(CheckpointError::Damaged { object, reason })
            }
            Err(CheckpointError::NoManifest { .. }) => Ok(None),
            Err(other) => Err(other),
        }
    }

    fn entry(&self, sequence: u64, bytes: u64, manifest: Result<Manifest, CheckpointError>) -> Entry {
        Entry { sequence, object: self.names.manifest(sequence), bytes, manifest }
    }
}

/// The jobs that have a manifest in `storage`, by name. Lists the whole storage.
///
/// # Errors
/// When storage cannot be listed.
pub fn jobs<S: Storage>(storage: &S) -> Result<Vec<String>, CheckpointError> {
    let mut jobs: Vec<String> = storage.list("")?.iter().filter_map(|info| job_of_manifest(&info.name)).collect();
    jobs.sort_unstable();
    jobs.dedup();
    Ok(jobs)
}

/// The manifest stored as `object`, of whatever job.
///
/// # Errors
/// [`CheckpointError::NoManifest`] when there is nothing (RS-27), [`CheckpointError::Damaged`] or
/// [`CheckpointError::UnsupportedVersion`] when it cannot be read; else when storage fails.
pub fn load_object<S: Storage>(storage: &S, object: &ObjectName) -> Result<Manifest, CheckpointError> {
    match storage.read(object) {
        Ok(bytes) => format::decode(object, &bytes),
        Err(StorageError::NotFound { .. }) => Err(CheckpointError::NoManifest { object: object.clone() }),
        Err(other) => Err(other.into()),
    }
}
