//! Which checkpoint is meant, and where it is.

use std::path::Path;
use std::sync::Arc;

use millpond_checkpoint::CheckpointError;
use millpond_checkpoint::history::jobs;
use millpond_core::Epoch;
use millpond_state_reader::StateReader;
use millpond_storage::Storage;

use crate::error::CliError;
use crate::extensions::Extensions;
use crate::place::{self, Found};
use crate::savepoint::foreign;
use crate::settings::{Settings, Start, parse_start};
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
    if let Start::Path(path) = start {
        return open_path(path, settings, Opening::new(settings, extensions));
    }
    let storage = checkpoint_storage(settings, extensions)?;
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

/// Opens what stands at `path`: a savepoint, a manifest in whatever checkpoint directory, the name or address of a
/// manifest in the storage that the settings name, or a checkpoint directory, whose newest checkpoint is meant.
fn open_path(path: &Path, settings: &Settings, opening: Opening<'_>) -> Result<StateReader, CliError> {
    let own = settings.checkpoints.as_ref().map(|place| opening.for_reading(place)).transpose();
    // What lies elsewhere can be read without it.
    let own = own.ok().flatten();
    let (storage, object) = match (place::at_path(path, None, own.as_ref()), own) {
        (Ok(Found::Own(object)), Some(own)) => (own.storage, object.to_string()),
        (Ok(Found::Own(_)), None) => return Err(CliError::NoCheckpointDirectory),
        (Ok(Found::Foreign(root, object)), _) => (place::open(&root, opening)?, object),
        (Err(CliError::NotACheckpoint { .. }), _) if path.is_dir() => (place::open(path, opening)?, String::new()),
        (Err(other), _) => return Err(other),
    };
    if object.is_empty() {
        return latest_in(path, storage, settings);
    }
    match foreign(&storage, &object) {
        Ok((manifest, _)) => Ok(StateReader::new(storage, Arc::new(manifest))),
        // An address does not tell what is there before one looks.
        Err(CliError::Checkpoint(CheckpointError::NoSavepoint)) => latest_in(path, storage, settings),
        Err(other) => Err(other),
    }
}

/// The newest checkpoint of the job that is named, else of the only one, in the storage at `path`.
fn latest_in(path: &Path, storage: Arc<dyn Storage>, settings: &Settings) -> Result<StateReader, CliError> {
    if jobs(&storage)?.is_empty() {
        let reason = "there is no savepoint, no manifest and no job's checkpoints".to_owned();
        return Err(CliError::WrongCheckpoint { text: path.display().to_string(), reason });
    }
    let job = job_name(&storage, settings)?;
    Ok(StateReader::latest(storage, &job)?)
}
