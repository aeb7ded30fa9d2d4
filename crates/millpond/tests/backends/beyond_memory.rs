//! State that does not fit into memory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use millpond::prelude::*;
use millpond::storage::{MemoryStorage, Storage};
use millpond::{Backend, Components, JobSettings, RestartPolicy};

/// Keys of the test below; with their payload, they do not fit into the memory given.
const KEYS: u64 = 60_000;
const PAYLOAD: usize = 1_000;

/// Reads records `range`, and emits for each key how often it was seen and a byte of its payload.
fn job(
    range: std::ops::Range<u64>,
    out: &Collector<(u64, u64, u8)>,
) -> impl Fn(&mut Dataflow) -> UserResult + Send + Sync + use<> {
    let out = out.clone();
    move |flow| {
        let keyed = flow.from_iter("numbers", range.clone()).key_by(|number| number % KEYS);
        let counted = keyed.process_with(
            "payloads",
            |states| states.value::<(u64, Vec<u8>)>("payload"),
            |state, number, context, output| {
                let key = number % KEYS;
                let seen = state.modify(context, |held| {
                    let (count, payload) = held.get_or_insert_with(|| (0, vec![key as u8; PAYLOAD]));
                    *count += 1;
                    (key, *count, payload[PAYLOAD - 1])
                })?;
                output.emit(seen);
                Ok(())
            },
        );
        counted.collect("out", &out);
        Ok(())
    }
}

/// Runs records `0..end` on, from the newest checkpoint in `storage`, and returns what came out.
fn run(
    end: u64,
    backend: Backend,
    workers: u32,
    storage: &Arc<MemoryStorage>,
    local: &Path,
) -> BTreeMap<u64, (u64, u8)> {
    let out = Collector::new();
    let mut components = Components::new(Some(Arc::clone(storage) as Arc<dyn Storage>));
    components.local_directory = Some(local.join("cold"));
    let mut settings = JobSettings {
        workers,
        backend,
        memory: Some(millpond::MemoryPlan::LEAST),
        restart: RestartPolicy::Never,
        ..JobSettings::default()
    };
    settings.checkpoints.interval_ms = Some(200);
    millpond::run_with(job(0..end, &out), &settings, &components).unwrap();
    out.take().into_iter().map(|(key, count, byte)| (key, (count, byte))).collect()
}

#[test]
fn sb_state_beyond_memory_counts_as_in_memory() {
    let local = tempfile::tempdir().unwrap();
    let expected = run(3 * KEYS, Backend::Heap, 1, &Arc::default(), local.path());
    assert_eq!(expected.len() as u64, KEYS);
    for workers in [1, 2] {
        let found = run(3 * KEYS, Backend::Rocksdb, workers, &Arc::default(), local.path());
        assert!(found == expected, "{workers} workers");
        assert!(!local.path().join("cold/database").exists(), "nothing is left on disk");
    }
}
