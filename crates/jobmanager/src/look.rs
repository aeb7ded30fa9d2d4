//! Looks at checkpoint storage without changing anything: before a job is claimed, and after it failed.
//!
//! A job that cannot be built, or does not fit its checkpoint, is refused before it claims anything: a
//! wrong start beside a running job must not fence that one out. What is found here is only a first
//! look; everything is checked again once the job is claimed.

use std::sync::Arc;

use millpond_checkpoint::history::load_object;
use millpond_checkpoint::{CheckpointError, History, JobObject, Manifest, RestoreFrom, WriterId};
use millpond_core::key_group::DEFAULT_MAX_PARALLELISM;
use millpond_core::{Attempt, Epoch, MaxParallelism};
use millpond_dataflow::{Dataflow, Plan};
use millpond_engine::EngineError;
use millpond_runtime::{RestoreError, RestorePoint};
use millpond_storage::{ObjectName, Storage};

use crate::error::JobError;
use crate::job::Job;
use crate::settings::{JobSettings, StartFrom};

type JobHistory = History<Arc<dyn Storage>>;

/// Checks that `job` can be built and fits what it is to start from.
///
/// # Errors
/// When it cannot or does not, or when storage fails.
pub(crate) fn check_start(
    job: &Job,
    settings: &JobSettings,
    storage: Option<&Arc<dyn Storage>>,
) -> Result<(), JobError> {
    let given = settings.max_parallelism.map(MaxParallelism::new).transpose()?;
    let graph = Dataflow::build(|dataflow| job(dataflow)).map_err(EngineError::from)?;
    let base = match storage {
        None => None,
        Some(storage) => {
            let history = History::new(Arc::clone(storage), &settings.name)?;
            base(&history, &settings.from)?.map(|manifest| (manifest, storage))
        }
    };
    let Some((manifest, storage)) = base else {
        return Ok(given.unwrap_or_default().check(settings.workers)?);
    };
    let stored = MaxParallelism::new(manifest.max_parallelism)?;
    check_max_parallelism(stored, given)?;
    stored.check(settings.workers)?;
    let plan = Plan::new(&graph, settings.workers, stored);
    let restore = RestorePoint::new(Arc::new(manifest), Arc::clone(storage), settings.allow_dropped_state);
    Ok(restore.check(&plan).map_err(EngineError::from)?)
}

/// The number of key groups never changes for a job (RS-07).
pub(crate) fn check_max_parallelism(stored: MaxParallelism, given: Option<MaxParallelism>) -> Result<(), JobError> {
    match given {
        Some(given) if given != stored => {
            let (stored, given) = (stored.get(), given.get());
            Err(EngineError::from(RestoreError::MaxParallelism { stored, given }).into())
        }
        _ => Ok(()),
    }
}

/// What a start would restore; `None` for an empty state.
fn base(history: &JobHistory, from: &StartFrom) -> Result<Option<Manifest>, JobError> {
    Ok(match from {
        StartFrom::Nothing => None,
        StartFrom::Latest => history.latest()?,
        StartFrom::Epoch(epoch) => Some(history.load(Epoch(*epoch))?),
        StartFrom::Object(object) => Some(history.load(epoch_of(history, object)?)?),
    })
}

/// How the wish of the settings is put to a publisher.
pub(crate) fn restore_from(history: &JobHistory, from: &StartFrom) -> Result<RestoreFrom, JobError> {
    Ok(match from {
        StartFrom::Latest => RestoreFrom::Latest,
        StartFrom::Nothing => RestoreFrom::Nothing,
        StartFrom::Epoch(epoch) => RestoreFrom::Epoch(Epoch(*epoch)),
        StartFrom::Object(object) => RestoreFrom::Epoch(epoch_of(history, object)?),
    })
}

/// The epoch of the manifest that is `object` (RS-27).
fn epoch_of(history: &JobHistory, object: &str) -> Result<Epoch, JobError> {
    let name = ObjectName::new(object).map_err(CheckpointError::from)?;
    let Some(JobObject::Manifest(_)) = history.names().parse(&name) else {
        return Err(JobError::NotAManifest { object: object.to_owned(), job: history.names().job().to_owned() });
    };
    let asked = load_object(history.storage(), &name)?;
    let found = history.load(asked.epoch)?;
    // After a start from an older epoch the same number stands for two contents.
    if found.operators == asked.operators {
        Ok(asked.epoch)
    } else {
        Err(JobError::OlderHistory { object: object.to_owned(), epoch: asked.epoch, newer: found.sequence })
    }
}

/// Whether somebody else has claimed the job since `ours` ran. Trouble with storage is no answer.
pub(crate) fn successor(history: &JobHistory, ours: Attempt, writer: WriterId) -> Option<CheckpointError> {
    let (sequence, _) = *history.sequences().ok()?.last()?;
    let newest = history.read(sequence).ok()??;
    let theirs = Some(newest.attempt).filter(|theirs| *theirs > ours && newest.writer != writer)?;
    Some(CheckpointError::Fenced { ours, theirs: Some(theirs), sequence })
}

/// The number of key groups of a job that has no checkpoint yet.
pub(crate) fn fresh_max_parallelism(given: Option<MaxParallelism>) -> u32 {
    given.map_or(DEFAULT_MAX_PARALLELISM, MaxParallelism::get)
}
