//! The engine of an attempt, in whichever process: what it is started from.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

use millpond_checkpoint::{Manifest, Names};
use millpond_core::{Attempt, Epoch, MaxParallelism};
use millpond_engine::{Engine, EngineEvent, EngineSpec, Mesh, SharedValues, UploadLimits};
use millpond_runtime::{FlowLimits, RestorePoint};
use millpond_storage::Storage;

use crate::cold::Bounds;
use crate::error::JobError;
use crate::job::{Components, Job};
use crate::settings::JobSettings;

/// The job as it was given.
#[derive(Clone, Copy)]
pub(crate) struct Given<'a> {
    pub(crate) job: &'a Job,
    pub(crate) settings: &'a JobSettings,
    pub(crate) components: &'a Components,
}

/// What an attempt goes on from.
pub(crate) struct Ground<'a> {
    pub(crate) attempt: Attempt,
    pub(crate) base: &'a Manifest,
    pub(crate) storage: &'a Arc<dyn Storage>,
    pub(crate) names: Names,
    pub(crate) durable: bool,
    pub(crate) max_parallelism: MaxParallelism,
}

/// What ties this process to the others.
pub(crate) struct Ties {
    pub(crate) mesh: Mesh,
    pub(crate) shared: Arc<dyn SharedValues>,
}

/// Starts the engine of this process.
///
/// # Errors
/// When its threads cannot be started. What goes wrong in them comes as an event.
pub(crate) fn start_engine(
    given: Given<'_>,
    ground: &Ground<'_>,
    ties: Option<Ties>,
    bounds: Bounds,
    events: Sender<EngineEvent>,
) -> Result<Engine, JobError> {
    let Given { job, settings, components } = given;
    let (base, attempt) = (ground.base, ground.attempt);
    components.status.attempt.store(attempt.0, Ordering::Relaxed);
    components.status.epoch.store(base.epoch.0, Ordering::Relaxed);
    tracing::info!(
        job = settings.name,
        attempt = attempt.0,
        workers = settings.workers,
        epoch = base.epoch.0,
        "starting"
    );
    let restore = (base.epoch > Epoch::ZERO)
        .then(|| RestorePoint::new(Arc::new(base.clone()), Arc::clone(ground.storage), settings.allow_dropped_state))
        .map(|restore| restore.reading_ahead(bounds.reads / u64::from(settings.workers.max(1))));
    let file_bytes = settings.uploads.file_bytes.min(bounds.file);
    let (mesh, shared) = ties.map_or((None, None), |ties| (Some(ties.mesh), Some(ties.shared)));
    components.times.begin();
    Ok(Engine::start(EngineSpec {
        job: Arc::clone(job),
        workers: settings.workers,
        mesh,
        shared,
        max_parallelism: ground.max_parallelism,
        attempt,
        restore,
        storage: ground.durable.then(|| (Arc::clone(ground.storage), ground.names.clone())),
        cold: bounds.cold,
        clock: Arc::clone(&components.clock),
        uploads: UploadLimits { file_bytes, ..settings.uploads.clone() },
        flow: FlowLimits {
            records: settings.channel_records,
            bytes: settings.channel_bytes,
            total_bytes: bounds.flight,
        },
        pauses: Arc::clone(&components.pauses),
        times: Arc::clone(&components.times),
        queries: Arc::clone(&components.queries),
        events,
    })?)
}
