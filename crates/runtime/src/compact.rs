//! Carries out a compaction that the coordinator has planned. Rows whose time is over leave the runs on the way.

use std::sync::Arc;

use millpond_checkpoint::{CompactionPlan, Names, RunRef};
use millpond_core::Attempt;
use millpond_runs::{EncodedRun, RowRef, RunError, RunReader, RunSettings, StoredRun, merge_runs_keeping};
use millpond_state::ExpiredRows;
use millpond_storage::{Storage, StorageError};

use crate::upload::run_ref;

/// Why a compaction did not happen. Nothing is lost: its inputs stay as they are.
#[derive(Debug, thiserror::Error)]
enum CompactError {
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Name(#[from] millpond_checkpoint::CheckpointError),
    #[error(transparent)]
    Store(#[from] StorageError),
}

/// Merges the inputs of `plan` and stores the outputs; returns them in key order.
///
/// # Errors
/// What went wrong, with all causes; nothing is lost then, the inputs stay as they are.
pub fn compact(
    plan: &CompactionPlan,
    attempt: Attempt,
    names: &Names,
    storage: &Arc<dyn Storage>,
) -> Result<Vec<RunRef>, String> {
    merge(plan, attempt, names, storage).map_err(|error| millpond_core::error::chain(&error))
}

fn merge(
    plan: &CompactionPlan,
    attempt: Attempt,
    names: &Names,
    storage: &Arc<dyn Storage>,
) -> Result<Vec<RunRef>, CompactError> {
    let mut inputs = Vec::with_capacity(plan.inputs.len());
    for input in &plan.inputs {
        let source = StoredRun::new(Arc::clone(storage), input.object.clone());
        inputs.push(RunReader::open_with_size(source, input.bytes)?);
    }
    let mut outputs: Vec<RunRef> = Vec::new();
    let declared = plan.declared.iter().map(|state| (&*state.name, &*state.description));
    let mut expired = ExpiredRows::new(declared, plan.planned_ms);
    let keep = |section: &str, description: &str, row: &RowRef<'_>| {
        !plan.dropped_states.contains(section) && !expired.is_expired(section, description, row.value)
    };
    merge_runs_keeping(&inputs, plan.drop_tombstones, &RunSettings::default(), keep, |EncodedRun { bytes, info }| {
        let object = names.run(&plan.output(attempt, outputs.len() as u32))?;
        storage.create(&object, &bytes)?;
        outputs.push(run_ref(object, &info, plan.epoch, plan.level));
        Ok::<(), CompactError>(())
    })?;
    Ok(outputs)
}
