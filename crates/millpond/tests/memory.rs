//! Keyed state larger than the memory it may take, on worker threads.

use std::collections::BTreeMap;
use std::sync::Arc;

use millpond::prelude::*;
use millpond::state::{ColdBacking, MemoryBudget, MemoryColdStores};
use millpond::storage::{MemoryStorage, Storage};
use millpond::{Components, JobOutcome, JobSettings};

#[test]
fn sums_are_right_with_little_memory_with_and_without_checkpoints() {
    const KEYS: u64 = 20_000;
    const RECORDS: u64 = 100_000;
    let storages: [Option<Arc<dyn Storage>>; 2] = [None, Some(Arc::new(MemoryStorage::new()))];
    for storage in storages {
        let checkpoints = storage.is_some();
        let cold = ColdBacking { stores: Arc::new(MemoryColdStores), budget: MemoryBudget::new(256 << 10) };
        let components = Components { cold: Some(cold), ..Components::new(storage) };
        let out = Collector::new();
        let inside = out.clone();
        let job = move |flow: &mut Dataflow| {
            // Neighbours far apart, so that most keys are cold when they come again.
            flow.from_iter("numbers", 0..RECORDS)
                .key_by(|number| number * 7_919 % KEYS)
                .fold("sums", 0, |sum: &mut u64, number| *sum += number)
                .collect("out", &inside);
            Ok(())
        };
        let mut settings = JobSettings { workers: 2, ..JobSettings::default() };
        settings.checkpoints.interval_ms = checkpoints.then_some(50);
        let report = millpond::run_with(job, &settings, &components).unwrap();
        assert_eq!((report.outcome, report.restarts), (JobOutcome::Finished, 0));
        let last: BTreeMap<u64, u64> = out.take().into_iter().collect();
        let mut expected = BTreeMap::new();
        (0..RECORDS).for_each(|number| *expected.entry(number * 7_919 % KEYS).or_insert(0) += number);
        assert!(last == expected, "sums differ, checkpoints: {checkpoints}");
    }
}
