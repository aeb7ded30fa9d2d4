//! Carries out a compaction that the coordinator has planned. Rows whose time is over leave the runs on the way.

use std::sync::Arc;

use millpond_checkpoint::{CompactionPlan, Names, RunRef};
use millpond_core::Attempt;
use millpond_runs::{
    EncodedRun, MemoryRun, Prefetch, ReadRange, RowRef, RunError, RunReader, RunSettings, StoredRun, give_back,
    merge_runs_keeping,
};
use millpond_state::ExpiredRows;
use millpond_storage::{Storage, StorageError};

use crate::upload::run_ref;

/// Memory for reading, of all inputs of a merge together, half of it ahead; the least and the most, in bytes. Between
/// them it is as much as a file that is written.
const READ_BYTES: (u64, u64) = (1 << 20, 8 << 20);
/// Size of a piece that is read at once, in bytes: the least and the most.
const PIECE_BYTES: (u64, u64) = (64 << 10, 1 << 20);
/// With more inputs than this, none is read ahead: each would need a thread.
const MOST_READ_AHEAD: usize = 16;

/// An input, wherever its bytes are.
type Input = Box<dyn ReadRange + Send + Sync>;

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
    settings: &RunSettings,
    storage: &Arc<dyn Storage>,
) -> Result<Vec<RunRef>, String> {
    merge(plan, attempt, names, settings, storage).map_err(|error| millpond_core::error::chain(&error))
}

fn merge(
    plan: &CompactionPlan,
    attempt: Attempt,
    names: &Names,
    settings: &RunSettings,
    storage: &Arc<dyn Storage>,
) -> Result<Vec<RunRef>, CompactError> {
    let mut inputs = Vec::with_capacity(plan.inputs.len());
    let reading = settings.target_file_bytes.clamp(READ_BYTES.0, READ_BYTES.1);
    let share = (reading / 2 / plan.inputs.len().max(1) as u64).clamp(PIECE_BYTES.0, PIECE_BYTES.1);
    for input in &plan.inputs {
        let source = open(input, share, plan.inputs.len(), storage)?;
        inputs.push(RunReader::open_stated(source, input.bytes, input.checksum)?.with_read_ahead(share));
    }
    let mut outputs: Vec<RunRef> = Vec::new();
    let declared = plan.declared.iter().map(|state| (&*state.name, &*state.description));
    let mut expired = ExpiredRows::new(declared, plan.planned_ms);
    let keep = |section: &str, description: &str, row: &RowRef<'_>| {
        !plan.dropped_states.contains(section) && !expired.is_expired(section, description, row.value)
    };
    let store = |EncodedRun { bytes, info }| {
        let object = names.run(&plan.output(attempt, outputs.len() as u32))?;
        storage.create(&object, &bytes)?;
        give_back(bytes);
        outputs.push(run_ref(object, &info, plan.epoch, plan.level));
        Ok::<(), CompactError>(())
    };
    merge_runs_keeping(&inputs, plan.drop_tombstones, &plan.cuts, settings, keep, store)?;
    Ok(outputs)
}

/// A small input is read at once, a large one piece by piece, one ahead.
fn open(input: &RunRef, share: u64, inputs: usize, storage: &Arc<dyn Storage>) -> Result<Input, CompactError> {
    if input.bytes <= share {
        let bytes = storage.read(&input.object)?;
        return Ok(Box::new(MemoryRun::new(input.object.as_str(), bytes)));
    }
    let source = StoredRun::new(Arc::clone(storage), input.object.clone());
    Ok(Box::new(Prefetch::new(source, usize::from(inputs <= MOST_READ_AHEAD))))
}

#[cfg(test)]
mod tests {
    use millpond_checkpoint::KeyedStateInfo;
    use millpond_core::codec::encode;
    use millpond_core::{Epoch, KeyGroup, Schema};
    use millpond_runs::{RowBuffer, SectionInfo, StateIndex, write_runs};
    use millpond_state::{StateDescription, StateKind, Ttl};
    use millpond_storage::{MemoryStorage, ObjectName};

    use super::*;

    #[test]
    fn tl_18_what_has_expired_when_a_merge_is_planned_leaves_the_runs() {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let names = Names::new("job").unwrap();
        let description = StateDescription::new(StateKind::Value, Schema::of::<u8>(), None, Schema::of::<u8>());
        let description = description.with_ttl(Ttl::after(std::time::Duration::from_millis(100))).to_json();
        let sections = [SectionInfo { name: "value".to_owned(), description: description.clone() }];
        let mut inputs = Vec::new();
        for (plan, at_ms) in [(1, 500i64), (2, 700)] {
            let mut rows = RowBuffer::new();
            for key in 0..10u8 {
                // The key behind its length; in front of the value its time.
                let fill = |bytes: &mut Vec<u8>, content: &[u8]| {
                    bytes.extend_from_slice(content);
                    Ok::<(), RunError>(())
                };
                let value = encode(&(at_ms + i64::from(key), key)).unwrap();
                let row_key = [1, key + 10 * plan as u8];
                rows.put(StateIndex(0), KeyGroup(0), |bytes| fill(bytes, &row_key), |bytes| fill(bytes, &value))
                    .unwrap();
            }
            let run = write_runs(rows, &sections, &RunSettings::default()).unwrap().remove(0);
            let object = ObjectName::new(format!("run-{plan}")).unwrap();
            storage.create(&object, &run.bytes).unwrap();
            inputs.push(run_ref(object, &run.info, Epoch(plan), 0));
        }
        let declared = vec![KeyedStateInfo { name: "value".to_owned(), description }];
        let merged = |id, declared: &[KeyedStateInfo], drop_tombstones| {
            let plan = CompactionPlan {
                id,
                operator: "op".to_owned(),
                inputs: inputs.clone(),
                drop_tombstones,
                epoch: Epoch(2),
                level: 1,
                dropped_states: Default::default(),
                declared: declared.to_vec(),
                planned_ms: 805,
                cuts: Vec::new(),
                urgent: false,
            };
            let outputs = compact(&plan, Attempt(1), &names, &RunSettings::default(), &storage).unwrap();
            (outputs[0].rows, outputs[0].tombstones)
        };
        assert_eq!(merged(1, &declared, true), (4, 0), "written at 706 and later");
        assert_eq!(merged(2, &declared, false), (20, 16), "something older may lie below");
        assert_eq!(merged(3, &[], true), (20, 0), "what this attempt has not declared is not judged");
    }
}
