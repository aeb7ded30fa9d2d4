//! The commands `checkpoints verify`, `checkpoints fsck` and `savepoint verify`: is everything there, is
//! it whole, and what is there that nobody needs?
//!
//! Owns which checkpoints are looked at and what is said. Does *not* own what damage is (see `runtime`)
//! nor what an orphan is (see `checkpoint::garbage`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use millpond_checkpoint::garbage::{Pending, collectable};
use millpond_checkpoint::savepoint::{self, Savepoint, is_savepoint_object};
use millpond_checkpoint::{CheckpointError, Entry, History, JobObject, Manifest, ManifestKind, Writer};
use millpond_core::Epoch;
use millpond_runtime::Verifier;
use millpond_storage::{ObjectInfo, ObjectName, Storage};

use crate::arguments::{FsckFlags, VerifyFlags};
use crate::error::CliError;
use crate::place;
use crate::settings::{Place, Settings};
use crate::storage::Opening;
use crate::units::bytes_words;

type JobHistory = History<Arc<dyn Storage>>;

fn place_of(settings: &Settings) -> Result<&Place, CliError> {
    settings.checkpoints.as_ref().ok_or(CliError::NoCheckpointDirectory)
}

fn open(settings: &Settings, opening: Opening<'_>) -> Result<JobHistory, CliError> {
    Ok(History::new(opening.for_reading(place_of(settings)?)?.storage, &settings.job.name)?)
}

/// What was found, line by line, and how many faults.
#[derive(Default)]
struct Findings {
    text: String,
    faults: usize,
}

impl Findings {
    fn fault(&mut self, line: &str) {
        self.faults += 1;
        let _ = writeln!(self.text, "{line}");
    }

    /// Reads everything that `manifest` names.
    fn verify(&mut self, verifier: &mut Verifier, what: &str, manifest: &Manifest, storage: &Arc<dyn Storage>) {
        for damage in verifier.verify(manifest, storage) {
            let object = damage.object.as_ref().map_or("state in the manifest", ObjectName::as_str);
            self.fault(&format!("{what}: operator {:?}: {object} {}", damage.operator, damage.problem));
        }
    }

    /// All said, and whether all is well.
    fn conclude(self, verifier: &Verifier, what: &str) -> (String, Result<(), CliError>) {
        let Findings { mut text, faults } = self;
        let read = format!("{} objects, {}", verifier.objects(), bytes_words(verifier.bytes()));
        match faults {
            0 => {
                let _ = writeln!(text, "{what}: all is well ({read} read)");
                (text, Ok(()))
            }
            faults => (text, Err(CliError::Damage { faults })),
        }
    }
}

/// Reads everything that the retained checkpoints name, or the one of `epoch`.
pub(crate) fn verify(
    flags: &VerifyFlags,
    settings: &Settings,
    opening: Opening<'_>,
) -> Result<(String, Result<(), CliError>), CliError> {
    let history = open(settings, opening)?;
    let mut findings = Findings::default();
    let mut verifier = Verifier::new();
    let entries = match flags.epoch {
        Some(epoch) => {
            let manifest = history.load(Epoch(epoch))?;
            findings.verify(&mut verifier, &format!("epoch {epoch}"), &manifest, history.storage());
            return Ok(findings.conclude(&verifier, &format!("epoch {epoch}")));
        }
        None => history.entries()?,
    };
    for Entry { manifest, sequence, .. } in &entries {
        match manifest {
            Err(error) => findings.fault(&error.to_string()),
            Ok(manifest) => {
                let what = match manifest.kind {
                    ManifestKind::Checkpoint => format!("epoch {}", manifest.epoch.0),
                    ManifestKind::Fence => format!("manifest {sequence} (epoch {})", manifest.epoch.0),
                };
                findings.verify(&mut verifier, &what, manifest, history.storage());
            }
        }
    }
    // What was subsumed while it was read is not missed.
    if findings.faults > 0 && history.sequences()?.first().map(|first| first.0) > entries.first().map(|e| e.sequence) {
        let _ = writeln!(findings.text, "the job has moved on meanwhile: verify again, or stop it first");
    }
    Ok(findings.conclude(&verifier, &format!("{} manifests", entries.len())))
}

/// Reads everything that a savepoint names.
pub(crate) fn verify_savepoint(path: &Path, opening: Opening<'_>) -> Result<(String, Result<(), CliError>), CliError> {
    let storage = place::open(path, opening)?;
    let at = |source| CliError::Savepoint { path: path.to_owned(), source };
    let savepoint = Savepoint::read(&storage).map_err(at)?;
    let mut findings = Findings::default();
    let mut verifier = Verifier::new();
    let manifest = savepoint.to_manifest();
    findings.verify(&mut verifier, "savepoint", &manifest, &storage);
    let named: BTreeSet<&ObjectName> = manifest.objects().collect();
    let own = savepoint::manifest_name();
    for info in storage.list("").map_err(|error| at(error.into()))? {
        if info.name != own && is_savepoint_object(&info.name) && !named.contains(&info.name) {
            let _ = writeln!(findings.text, "orphan: {} ({})", info.name, bytes_words(info.bytes));
        }
    }
    Ok(findings.conclude(&verifier, &format!("savepoint of epoch {}", savepoint.epoch.0)))
}

/// The objects of the job that no manifest names and none to come can name, oldest names first. What a
/// running attempt may yet publish is none of them, so the job may run.
fn orphans(history: &JobHistory) -> Result<(Vec<ObjectInfo>, Vec<Entry>), CliError> {
    // Listed before the log is read: what is published in between is named by it.
    let listed = history.storage().list(history.names().prefix()).map_err(CheckpointError::from)?;
    let entries = history.entries()?;
    let retained: Vec<Manifest> = entries.iter().filter_map(|entry| entry.manifest.clone().ok()).collect();
    let Some(newest) = retained.last() else {
        return Ok((Vec::new(), entries));
    };
    let existing: Vec<ObjectName> = listed.iter().map(|info| info.name.clone()).collect();
    let merging = existing.iter().filter_map(|name| match history.names().parse(name)? {
        JobObject::Run(object) | JobObject::Blob(object) => match object.writer {
            Writer::Compaction(plan) if object.attempt == newest.attempt => Some(plan),
            _ => None,
        },
        JobObject::Manifest(_) => None,
    });
    let pending = Pending { objects: BTreeSet::new(), plans: merging.collect() };
    let garbage: BTreeSet<ObjectName> =
        collectable(history.names(), &existing, &retained, newest.attempt, &pending).into_iter().collect();
    Ok((listed.into_iter().filter(|info| garbage.contains(&info.name)).collect(), entries))
}

/// Finds what is missing and what nobody needs; deletes the latter if asked to.
pub(crate) fn fsck(
    flags: &FsckFlags,
    settings: &Settings,
    opening: Opening<'_>,
) -> Result<(String, Result<(), CliError>), CliError> {
    let history = match flags.delete_orphans {
        false => open(settings, opening)?,
        true => History::new(opening.for_deleting(place_of(settings)?)?.storage, &settings.job.name)?,
    };
    let (orphans, entries) = orphans(&history)?;
    let mut findings = Findings::default();
    for entry in &entries {
        if let Err(error) = &entry.manifest {
            findings.fault(&error.to_string());
        }
    }
    for (object, problem) in missing(&history, &entries)? {
        findings.fault(&format!("{object} {problem}"));
    }
    let bytes: u64 = orphans.iter().map(|info| info.bytes).fold(0, u64::saturating_add);
    for info in &orphans {
        let _ = writeln!(findings.text, "orphan: {} ({})", info.name, bytes_words(info.bytes));
    }
    let unreadable = entries.iter().any(|entry| entry.manifest.is_err());
    let fate = match (orphans.is_empty(), flags.delete_orphans, unreadable) {
        (true, ..) => String::new(),
        (_, false, _) => "; --delete-orphans deletes them".to_owned(),
        // It might name anything.
        (_, true, true) => "; nothing is deleted while a manifest cannot be read".to_owned(),
        (_, true, false) => {
            for info in &orphans {
                history.storage().delete(&info.name).map_err(CheckpointError::from)?;
            }
            "; deleted".to_owned()
        }
    };
    let (manifests, count) = (entries.len(), orphans.len());
    let _ = writeln!(
        findings.text,
        "{manifests} manifests, {} faults, {count} orphans ({}){fate}",
        findings.faults,
        bytes_words(bytes)
    );
    let outcome = match findings.faults {
        0 => Ok(()),
        faults => Err(CliError::Damage { faults }),
    };
    Ok((findings.text, outcome))
}

/// The objects that readable manifests name and that are not there, or have another size: known without
/// reading any.
pub(crate) fn missing<S: Storage>(
    history: &History<S>,
    entries: &[Entry],
) -> Result<Vec<(ObjectName, String)>, CheckpointError> {
    let listed = history.storage().list(history.names().prefix())?;
    let sizes: BTreeMap<ObjectName, u64> = listed.into_iter().map(|info| (info.name, info.bytes)).collect();
    let mut missing = BTreeMap::new();
    let floor = history.sequences()?.first().map_or(0, |first| first.0);
    // What was subsumed since it was listed may be gone.
    let retained =
        entries.iter().filter(|entry| entry.sequence >= floor).filter_map(|entry| entry.manifest.as_ref().ok());
    for manifest in retained {
        for (object, bytes) in manifest.sizes() {
            match sizes.get(object) {
                Some(size) if *size == bytes => {}
                Some(size) => {
                    missing
                        .insert(object.clone(), format!("has {size} bytes, epoch {} needs {bytes}", manifest.epoch.0));
                }
                None => {
                    missing.insert(object.clone(), format!("is missing, epoch {} needs it", manifest.epoch.0));
                }
            }
        }
    }
    Ok(missing.into_iter().collect())
}
