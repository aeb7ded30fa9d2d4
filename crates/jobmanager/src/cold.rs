//! The cold store of an attempt: whether there is one, where, and how much memory it has.

use millpond_state::{ColdBacking, MemoryBudget};

use crate::error::JobError;
use crate::job::Components;
use crate::memory::MemoryPlan;
use crate::settings::{Backend, JobSettings};

/// What keeps an attempt within its memory.
pub(crate) struct Bounds {
    /// Bytes in flight on all channels.
    pub(crate) flight: u64,
    /// Size of the run files that are written, at most about this, in bytes: some of them are in memory at a time.
    pub(crate) file: u64,
    /// What is read ahead by all subtasks that are restored at the same time, in bytes.
    pub(crate) reads: u64,
    /// Where state goes that memory does not hold; `None` when all of it is in memory, whatever it takes.
    pub(crate) cold: Option<ColdBacking>,
}

/// Whether the program can do what the settings say.
pub(crate) fn check(settings: &JobSettings, components: &Components) -> Result<(), JobError> {
    let known = components.cold_backend.as_ref().is_some_and(|cold| cold.name() == settings.backend.name());
    match settings.backend {
        Backend::Heap => Ok(()),
        _ if known => Ok(()),
        backend => Err(JobError::NoBackend { backend }),
    }
}

/// Opens what an attempt needs.
pub(crate) fn open(settings: &JobSettings, components: &Components) -> Result<Bounds, JobError> {
    check(settings, components)?;
    let Some(backend) = components.cold_backend.as_ref().filter(|_| settings.backend != Backend::Heap) else {
        return Ok(Bounds { flight: u64::MAX, file: u64::MAX, reads: u64::MAX, cold: components.cold.clone() });
    };
    let plan = settings.memory.map_or_else(MemoryPlan::of_machine, MemoryPlan::of);
    let stores = backend.start(components.local_directory.as_deref(), plan.store)?;
    let bytes = |share: u64| usize::try_from(share).unwrap_or(usize::MAX);
    millpond_runtime::set_spare_limit(bytes(plan.spare()));
    let budget = MemoryBudget::with_idle(bytes(plan.state), bytes(plan.store));
    tracing::info!(
        backend = backend.name(),
        memory = plan.total,
        state = plan.state,
        store = plan.store,
        "state may outgrow memory"
    );
    Ok(Bounds {
        flight: plan.flight,
        file: plan.file(),
        reads: plan.state / 4,
        cold: Some(ColdBacking { stores, budget }),
    })
}
