//! Looks at checkpoint storage without changing anything: before a job is claimed, and after it failed.
//!
//! A job that cannot be built, or does not fit its checkpoint, is refused before it claims anything: a
//! wrong start beside a running job must not fence that one out. What is found here is only a first
//! look; everything is checked again once the job is claimed.

use std::sync::Arc;

use millpond_checkpoint::history::load_object;
use millpond_checkpoint::savepoint::MANIFEST_NAME;
use millpond_checkpoint::{CheckpointError, History, JobObject, Manifest, RestoreFrom, Savepoint, WriterId};
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

/// What a first look has shown.
pub(crate) struct Looked {
    /// The job has finished with this epoch, and all its output is committed: nothing is left to do.
    pub(crate) finished: Option<Epoch>,
    /// The operators of each chain, for messages.
    pub(crate) chains: Vec<String>,
}

/// Checks that `job` can be built and fits what it is to start from.
///
/// # Errors
/// When it cannot or does not, or when storage fails.
pub(crate) fn check_start(
    job: &Job,
    settings: &JobSettings,
    origin: Option<&Arc<dyn Storage>>,
    storage: Option<&Arc<dyn Storage>>,
) -> Result<Looked, JobError> {
    let given = settings.max_parallelism.map(MaxParallelism::new).transpose()?;
    let graph = Dataflow::build(|dataflow| job(dataflow)).map_err(EngineError::from)?;
    let history = storage.map(|storage| History::new(Arc::clone(storage), &settings.name)).transpose()?;
    let base = match (&settings.from, &history) {
        (StartFrom::Foreign { object, claim }, _) => {
            if *claim {
                check_claim(object, storage.is_some())?;
            }
            let (origin, manifest) = foreign(object, origin)?;
            Some((manifest, Arc::clone(origin)))
        }
        (_, None) => None,
        (from, Some(history)) => base(history, from)?.map(|manifest| (manifest, Arc::clone(history.storage()))),
    };
    if let Some(history) = &history {
        warn_of_repeated_output(history, &settings.from, base.as_ref().map(|(manifest, _)| manifest));
    }
    let Some((manifest, storage)) = base else {
        let max_parallelism = given.unwrap_or_default();
        max_parallelism.check(settings.total_workers())?;
        let chains = chains(&Plan::new(&graph, settings.total_workers(), max_parallelism));
        return Ok(Looked { finished: None, chains });
    };
    let finished =
        (manifest.finished && manifest.committed && settings.from == StartFrom::Latest).then_some(manifest.epoch);
    let stored = MaxParallelism::new(manifest.max_parallelism)?;
    check_max_parallelism(stored, given)?;
    stored.check(settings.total_workers())?;
    let plan = Plan::new(&graph, settings.total_workers(), stored);
    let restore = RestorePoint::new(Arc::new(manifest), storage, settings.allow_dropped_state);
    restore.check(&plan).map_err(EngineError::from)?;
    Ok(Looked { finished, chains: chains(&plan) })
}

/// The plan as all processes must see it, for their comparison; the number of key groups is compared by itself.
///
/// # Errors
/// When the job cannot be built.
pub(crate) fn plan_text(job: &Job, settings: &JobSettings) -> Result<String, JobError> {
    let graph = Dataflow::build(|dataflow| job(dataflow)).map_err(EngineError::from)?;
    let given = settings.max_parallelism.map(MaxParallelism::new).transpose()?;
    Ok(Plan::new(&graph, settings.total_workers(), given.unwrap_or_default()).to_text())
}

/// Whether the newest checkpoint says that the job has finished and nothing is left to commit. Trouble with storage is no
/// answer.
pub(crate) fn finished(settings: &JobSettings, storage: &Arc<dyn Storage>) -> Option<Epoch> {
    let history = History::new(Arc::clone(storage), &settings.name).ok()?;
    let newest = history.latest().ok()??;
    let done = newest.finished && newest.committed && settings.from == StartFrom::Latest;
    done.then_some(newest.epoch)
}

fn chains(plan: &Plan) -> Vec<String> {
    let names = plan.chains.iter().map(|chain| {
        let operators: Vec<&str> = chain.operators.iter().map(|operator| operator.name.as_str()).collect();
        operators.join(" → ")
    });
    names.collect()
}

/// Who starts from an older epoch, from elsewhere or anew gets output a second time that was committed
/// since. That may be meant, and is said.
fn warn_of_repeated_output(history: &JobHistory, from: &StartFrom, base: Option<&Manifest>) {
    let Ok(Some(newest)) = history.latest() else { return };
    let start = base.map_or(Epoch::ZERO, |base| base.epoch);
    let is_older = !matches!(from, StartFrom::Latest) && base.is_none_or(|base| base.operators != newest.operators);
    if is_older {
        tracing::warn!(
            job = newest.job,
            from = start.0,
            newest = newest.epoch.0,
            "the job has a newer checkpoint than the one it starts from: output that was committed since will be \
             there twice, unless it is taken away"
        );
    }
}

fn check_claim(object: &str, durable: bool) -> Result<(), JobError> {
    let reason = match () {
        () if object != MANIFEST_NAME => "it is no savepoint",
        () if !durable => "the job keeps no checkpoints of its own",
        () => return Ok(()),
    };
    Err(JobError::Unclaimable { object: object.to_owned(), reason })
}

/// The savepoint or checkpoint in `origin` whose manifest is `object`; names in it are those of `origin`.
pub(crate) fn foreign<'a>(
    object: &str,
    origin: Option<&'a Arc<dyn Storage>>,
) -> Result<(&'a Arc<dyn Storage>, Manifest), JobError> {
    let origin = origin.ok_or_else(|| JobError::NoOrigin { object: object.to_owned() })?;
    let manifest = if object == MANIFEST_NAME {
        Savepoint::read(origin)?.to_manifest()
    } else {
        load_object(origin, &ObjectName::new(object).map_err(CheckpointError::from)?)?
    };
    Ok((origin, manifest))
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
        StartFrom::Foreign { object, .. } => return Err(JobError::NoOrigin { object: object.clone() }),
    })
}

/// How the wish of the settings is put to a publisher.
pub(crate) fn restore_from(history: &JobHistory, from: &StartFrom) -> Result<RestoreFrom, JobError> {
    Ok(match from {
        StartFrom::Latest => RestoreFrom::Latest,
        StartFrom::Nothing => RestoreFrom::Nothing,
        StartFrom::Epoch(epoch) => RestoreFrom::Epoch(Epoch(*epoch)),
        StartFrom::Object(object) => RestoreFrom::Epoch(epoch_of(history, object)?),
        StartFrom::Foreign { object, .. } => return Err(JobError::NoOrigin { object: object.clone() }),
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
