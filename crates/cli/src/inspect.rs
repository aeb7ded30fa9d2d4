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
use serde::Serialize;

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

/// Something that is missing, damaged or unreadable.
#[derive(Debug, Serialize)]
struct Fault {
    /// The checkpoint that needs it, where one was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    operator: Option<String>,
    /// Absent for state inside a manifest, and for manifests, which the problem names.
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<String>,
    problem: String,
}

/// Something that nobody needs.
#[derive(Debug, Serialize)]
struct Orphan {
    object: String,
    bytes: u64,
}

/// What was found. As JSON, this is what `--json` prints.
#[derive(Debug, Default, Serialize)]
struct Findings {
    /// Manifests looked at.
    manifests: usize,
    /// Objects read, and their bytes.
    objects: usize,
    bytes: u64,
    faults: Vec<Fault>,
    orphans: Vec<Orphan>,
    /// Whether the orphans were deleted.
    deleted: bool,
    /// Whether the job has published meanwhile, so that what is missing may only have been subsumed.
    moved_on: bool,
}

/// What is printed, and how the command ends.
pub(crate) type Outcome = (String, Result<(), CliError>);

impl Findings {
    /// A manifest that cannot be read.
    fn unreadable(&mut self, error: &CheckpointError) {
        self.faults.push(Fault { checkpoint: None, operator: None, object: None, problem: error.to_string() });
    }

    /// Reads everything that `manifest` names.
    fn verify(&mut self, verifier: &mut Verifier, what: &str, manifest: &Manifest, storage: &Arc<dyn Storage>) {
        self.manifests += 1;
        for damage in verifier.verify(manifest, storage) {
            self.faults.push(Fault {
                checkpoint: Some(what.to_owned()),
                operator: Some(damage.operator),
                object: damage.object.map(|object| object.to_string()),
                problem: damage.problem.to_string(),
            });
        }
        (self.objects, self.bytes) = (verifier.objects(), verifier.bytes());
    }

    /// The lines for people, without the last one.
    fn lines(&self) -> String {
        let mut text = String::new();
        for Fault { checkpoint, operator, object, problem } in &self.faults {
            let object = object.as_deref();
            let _ = match (checkpoint, operator, object) {
                (Some(checkpoint), Some(operator), object) => {
                    let object = object.unwrap_or("state in the manifest");
                    writeln!(text, "{checkpoint}: operator {operator:?}: {object} {problem}")
                }
                (.., Some(object)) => writeln!(text, "{object} {problem}"),
                _ => writeln!(text, "{problem}"),
            };
        }
        if self.moved_on {
            text.push_str("the job has moved on meanwhile: verify again, or stop it first\n");
        }
        for Orphan { object, bytes } in &self.orphans {
            let _ = writeln!(text, "orphan: {object} ({})", bytes_words(*bytes));
        }
        text
    }

    fn json(&self) -> String {
        let json = serde_json::to_string_pretty(self).expect("findings have string keys and no floats");
        format!("{json}\n")
    }

    fn result(&self) -> Result<(), CliError> {
        match self.faults.len() {
            0 => Ok(()),
            faults => Err(CliError::Damage { faults }),
        }
    }

    /// All said of what was read, and whether all is well.
    fn conclude(self, what: &str, json: bool) -> Outcome {
        if json {
            return (self.json(), self.result());
        }
        let mut text = self.lines();
        if self.faults.is_empty() {
            let _ = writeln!(text, "{what}: all is well ({} objects, {} read)", self.objects, bytes_words(self.bytes));
        }
        (text, self.result())
    }
}

/// Reads everything that the retained checkpoints name, or the one of `epoch`.
pub(crate) fn verify(flags: &VerifyFlags, settings: &Settings, opening: Opening<'_>) -> Result<Outcome, CliError> {
    let history = open(settings, opening)?;
    let mut findings = Findings::default();
    let mut verifier = Verifier::new();
    let entries = match flags.epoch {
        Some(epoch) => {
            let manifest = history.load(Epoch(epoch))?;
            findings.verify(&mut verifier, &format!("epoch {epoch}"), &manifest, history.storage());
            return Ok(findings.conclude(&format!("epoch {epoch}"), flags.json));
        }
        None => history.entries()?,
    };
    for Entry { manifest, sequence, .. } in &entries {
        match manifest {
            Err(error) => findings.unreadable(error),
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
    findings.moved_on = !findings.faults.is_empty()
        && history.sequences()?.first().map(|first| first.0) > entries.first().map(|entry| entry.sequence);
    Ok(findings.conclude(&format!("{} manifests", entries.len()), flags.json))
}

/// Reads everything that a savepoint names.
pub(crate) fn verify_savepoint(path: &Path, opening: Opening<'_>) -> Result<Outcome, CliError> {
    let storage = place::open(path, opening)?;
    let at = |source| CliError::Savepoint { path: path.to_owned(), source };
    let savepoint = Savepoint::read(&storage).map_err(at)?;
    let mut findings = Findings::default();
    let manifest = savepoint.to_manifest();
    findings.verify(&mut Verifier::new(), "savepoint", &manifest, &storage);
    let named: BTreeSet<&ObjectName> = manifest.objects().collect();
    let own = savepoint::manifest_name();
    let listed = storage.list("").map_err(|error| at(error.into()))?;
    let others = listed
        .into_iter()
        .filter(|info| info.name != own && is_savepoint_object(&info.name) && !named.contains(&info.name));
    findings.orphans.extend(others.map(Orphan::from));
    Ok(findings.conclude(&format!("savepoint of epoch {}", savepoint.epoch.0), false))
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
pub(crate) fn fsck(flags: &FsckFlags, settings: &Settings, opening: Opening<'_>) -> Result<Outcome, CliError> {
    let history = match flags.delete_orphans {
        false => open(settings, opening)?,
        true => History::new(opening.for_deleting(place_of(settings)?)?.storage, &settings.job.name)?,
    };
    let (orphans, entries) = orphans(&history)?;
    let mut findings = Findings { manifests: entries.len(), ..Findings::default() };
    for error in entries.iter().filter_map(|entry| entry.manifest.as_ref().err()) {
        findings.unreadable(error);
    }
    for (object, problem) in missing(&history, &entries)? {
        findings.faults.push(Fault { checkpoint: None, operator: None, object: Some(object.to_string()), problem });
    }
    // A manifest that cannot be read might name anything.
    let unreadable = entries.iter().any(|entry| entry.manifest.is_err());
    if flags.delete_orphans && !unreadable {
        for info in &orphans {
            history.storage().delete(&info.name).map_err(CheckpointError::from)?;
        }
        findings.deleted = !orphans.is_empty();
    }
    findings.orphans.extend(orphans.into_iter().map(Orphan::from));
    if flags.json {
        return Ok((findings.json(), findings.result()));
    }
    let fate = match (findings.orphans.is_empty() || findings.deleted, flags.delete_orphans) {
        (true, _) if findings.deleted => "; deleted",
        (true, _) => "",
        (false, true) => "; nothing is deleted while a manifest cannot be read",
        (false, false) => "; --delete-orphans deletes them",
    };
    let bytes = findings.orphans.iter().map(|orphan| orphan.bytes).fold(0, u64::saturating_add);
    let (manifests, faults, count) = (findings.manifests, findings.faults.len(), findings.orphans.len());
    let mut text = findings.lines();
    let bytes = bytes_words(bytes);
    let _ = writeln!(text, "{manifests} manifests, {faults} faults, {count} orphans ({bytes}){fate}");
    Ok((text, findings.result()))
}

impl From<ObjectInfo> for Orphan {
    fn from(info: ObjectInfo) -> Orphan {
        Orphan { object: info.name.to_string(), bytes: info.bytes }
    }
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
