//! Which checkpoint is meant, and where it is.

use std::path::Path;
use std::sync::Arc;

use millpond_checkpoint::history::jobs;
use millpond_core::Epoch;
use millpond_state_reader::StateReader;
use millpond_storage::{ObjectName, Storage};

use crate::error::CliError;
use crate::extensions::Extensions;
use crate::place::manifest_file;
use crate::settings::{Place, Settings, Start, parse_start};
use crate::storage::Opening;

/// Reads which checkpoint is meant: as the setting `from`.
pub(super) fn parse(text: &str) -> Result<Start, CliError> {
    let wrong = |reason| CliError::WrongCheckpoint { text: text.to_owned(), reason };
    match parse_start(text).map_err(wrong)? {
        Start::Nothing => Err(wrong("there is no state in none".to_owned())),
        start => Ok(start),
    }
}

/// Opens the checkpoint that is meant.
pub(super) fn open(start: &Start, settings: &Settings, extensions: &Extensions) -> Result<StateReader, CliError> {
    match start {
        Start::Path(path) if path.exists() || !matches!(settings.checkpoints, Some(Place::Address(_))) => {
            return open_manifest(path, Opening::new(settings, extensions));
        }
        _ => {}
    }
    let storage = checkpoint_storage(settings, extensions)?;
    if let Start::Path(path) = start {
        return open_object(path, storage);
    }
    let job = job_name(&storage, settings)?;
    Ok(match start {
        Start::Epoch(epoch) => StateReader::epoch(storage, &job, Epoch(*epoch))?,
        _ => StateReader::latest(storage, &job)?,
    })
}

pub(super) fn checkpoint_storage(settings: &Settings, extensions: &Extensions) -> Result<Arc<dyn Storage>, CliError> {
    let place = settings.checkpoints.as_ref().ok_or(CliError::NoCheckpointDirectory)?;
    Ok(Opening::new(settings, extensions).for_reading(place)?.storage)
}

/// The manifest with this address, or with this name below the address of the storage.
fn open_object(path: &Path, storage: Arc<dyn Storage>) -> Result<StateReader, CliError> {
    let refused = || CliError::NotAManifest { path: path.to_owned() };
    let text = path.to_str().ok_or_else(refused)?;
    let location = storage.location();
    let below = text.strip_prefix(location.as_str()).and_then(|below| below.strip_prefix('/')).unwrap_or(text);
    let object = ObjectName::new(below).map_err(|_| refused())?;
    Ok(StateReader::object(storage, &object)?)
}

/// The name that was given; else the only job in the directory.
pub(super) fn job_name(storage: &Arc<dyn Storage>, settings: &Settings) -> Result<String, CliError> {
    if !settings.job.name.is_empty() {
        return Ok(settings.job.name.clone());
    }
    let mut jobs = jobs(storage)?;
    match jobs.len() {
        1 => Ok(jobs.remove(0)),
        _ => Err(CliError::WhichJob { jobs }),
    }
}

/// The manifest in this file, in whatever checkpoint directory it is.
fn open_manifest(path: &Path, opening: Opening<'_>) -> Result<StateReader, CliError> {
    let missing = |source| CliError::NoSuchCheckpoint { path: path.to_owned(), source };
    let file = path.canonicalize().map_err(missing)?;
    let refused = || CliError::NotAManifest { path: path.to_owned() };
    let (root, object) = manifest_file(&file).ok_or_else(refused)?;
    let opened = opening.for_reading(&Place::Directory(root.to_owned()))?;
    Ok(StateReader::object(opened.storage, &object)?)
}
