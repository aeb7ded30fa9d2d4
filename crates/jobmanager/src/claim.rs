//! The claim of an attempt: whoever fences last owns the job, and knows what to start from.
//!
//! Owns what this process has claimed so far, and the storage as an attempt sees it. Does *not* own the log of manifests.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millpond_checkpoint::{Publisher, RestoreFrom, Started, WriterId};
use millpond_core::{Attempt, Epoch, MaxParallelism};
use millpond_storage::{Deadline, Interrupt, MemoryStorage, Retry, RetryPolicy, Storage};

use crate::control::Asked;
use crate::copies::{self, Copies};
use crate::error::JobError;
use crate::job::Components;
use crate::look;
use crate::settings::{JobSettings, StartFrom, StorageSettings};

/// What this process has claimed so far.
pub(crate) struct Claims {
    /// Tells this process from all others.
    pub(crate) writer: WriterId,
    /// Its newest attempt.
    pub(crate) last: Option<Attempt>,
    /// A savepoint that the job owns, as long as it has no checkpoint of its own.
    pub(crate) savepoint: Option<Arc<dyn Storage>>,
    /// The operators of each chain, for messages; empty when nobody knows.
    pub(crate) chains: Vec<String>,
    /// The number of workers was changed, and somebody waits for the attempt that has it.
    pub(crate) rescaled: Option<Rescaled>,
}

/// A change of the number of workers.
pub(crate) struct Rescaled {
    pub(crate) asked: Asked,
    /// Workers of each process.
    pub(crate) workers: u32,
    /// When sources were closed for it.
    pub(crate) since: Instant,
}

impl Claims {
    pub(crate) fn new() -> Self {
        Claims {
            writer: WriterId(RandomState::new().build_hasher().finish()),
            last: None,
            savepoint: None,
            chains: Vec::new(),
            rescaled: None,
        }
    }
}

/// The job as claimed by this attempt.
pub(crate) struct Claimed {
    pub(crate) publisher: Publisher<Arc<dyn Storage>>,
    pub(crate) storage: Arc<dyn Storage>,
    /// Ends the patience with storage.
    pub(crate) interrupt: Interrupt,
    pub(crate) durable: bool,
    pub(crate) started: Started,
    pub(crate) max_parallelism: MaxParallelism,
    pub(crate) checkpoint_settings: millpond_checkpoint::Settings,
}

/// Storage that tries again by itself, and whose calls end. Once `interrupt` is raised they end soon.
pub(crate) fn patient(
    storage: &Arc<dyn Storage>,
    settings: &StorageSettings,
    seed: WriterId,
    interrupt: &Interrupt,
) -> Arc<dyn Storage> {
    let policy = RetryPolicy { patience: Duration::from_millis(settings.patience_ms), ..RetryPolicy::default() };
    let mut bounded = Arc::clone(storage);
    if !bounded.ends_calls() {
        bounded = Arc::new(Deadline::new(bounded, Duration::from_millis(settings.timeout_ms), interrupt.clone()));
    }
    Arc::new(Retry::new(bounded, policy, seed.0, interrupt.clone()))
}

/// Checkpoint storage as an attempt sees it: patient, and with local copies where those are asked for.
pub(crate) struct AttemptStorage {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) copies: Option<Copies>,
}

/// Opens it for an attempt of `writer`.
///
/// # Errors
/// When the directory for local copies cannot be had.
pub(crate) fn attempt_storage(
    settings: &JobSettings,
    components: &Components,
    writer: WriterId,
    interrupt: &Interrupt,
) -> Result<AttemptStorage, JobError> {
    let storage: Arc<dyn Storage> = match &components.storage {
        Some(storage) => patient(storage, &settings.storage, writer, interrupt),
        None => Arc::new(MemoryStorage::new()),
    };
    let copies = match &components.copies_directory {
        Some(directory) if components.storage.is_some() => {
            Some(copies::wrap(Arc::clone(&storage), directory, &settings.name)?)
        }
        _ => None,
    };
    let storage = copies.as_ref().map_or(storage, |copies| Arc::clone(copies) as Arc<dyn Storage>);
    Ok(AttemptStorage { storage, copies })
}

/// Fences every other attempt out.
///
/// # Errors
/// When somebody else fences at the same time, or what is to start from does not fit.
pub(crate) fn claim(settings: &JobSettings, components: &Components, claims: &mut Claims) -> Result<Claimed, JobError> {
    let durable = components.storage.is_some();
    let interrupt = Interrupt::new();
    let AttemptStorage { storage, copies } = attempt_storage(settings, components, claims.writer, &interrupt)?;
    let mut checkpoint_settings = settings.checkpoints.clone();
    checkpoint_settings.drop_undeclared |= settings.allow_dropped_state;
    if !durable {
        // Nothing to come back to: the only epoch is the last one, so that sinks show all or nothing.
        checkpoint_settings.interval_ms = None;
    }
    let publisher = Publisher::new(Arc::clone(&storage), &settings.name, claims.writer)?;
    let given = settings.max_parallelism.map(MaxParallelism::new).transpose()?;
    let fresh = look::fresh_max_parallelism(given);
    let now_ms = components.clock.now_ms();
    let mut started = match (claims.last, &settings.from) {
        // A restart goes on from the newest checkpoint, wherever the job began.
        (Some(last), _) if durable => publisher.fence(RestoreFrom::After(last), fresh, now_ms)?,
        (_, StartFrom::Foreign { object, claim }) => {
            let (origin, foreign) = look::foreign(object, components.origin.as_ref())?;
            tracing::info!(epoch = foreign.epoch.0, bytes = foreign.state_bytes(), "copying the state to start from");
            let started = publisher.fence_imported(origin, &foreign, now_ms)?;
            claims.savepoint = claim.then(|| Arc::clone(origin));
            started
        }
        (_, from) => {
            let from = look::restore_from(publisher.history(), from)?;
            if from == RestoreFrom::Latest && durable {
                publisher.check_log_end()?;
            }
            publisher.fence(from, fresh, now_ms)?
        }
    };
    // Without storage every claim begins a log of its own; the other processes tell attempts apart by their number all the
    // same, so it goes on where the last one was.
    while !durable && claims.last.is_some_and(|last| started.right.attempt() <= last) {
        started = publisher.fence(RestoreFrom::After(started.right.attempt()), fresh, now_ms)?;
    }
    claims.last = Some(started.right.attempt());
    if let Some(copies) = &copies {
        copies::keep(copies, started.base());
    }
    let stored = MaxParallelism::new(started.base().max_parallelism)?;
    let max_parallelism = if started.base().epoch == Epoch::ZERO { given.unwrap_or(stored) } else { stored };
    look::check_max_parallelism(max_parallelism, given)?;
    Ok(Claimed { publisher, storage, interrupt, durable, started, max_parallelism, checkpoint_settings })
}
