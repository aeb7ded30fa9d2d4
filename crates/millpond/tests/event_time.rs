//! Event time through the engine: worker threads, exchanges, checkpoints while it runs.

use std::sync::Arc;
use std::time::Duration;

use millpond::prelude::*;
use millpond::storage::MemoryStorage;
use millpond::{Components, JobSettings};

/// Out of order by up to 16 ms.
fn time_of(number: u64) -> i64 {
    (number / 10) as i64 - (number * 7 % 17) as i64
}

/// Counts per window and key by a plain replay.
fn expected(records: u64) -> Vec<(u64, i64, u64)> {
    let mut counts = std::collections::BTreeMap::<(u64, i64), u64>::new();
    for number in 0..records {
        *counts.entry((number % 13, time_of(number).div_euclid(100) * 100)).or_default() += 1;
    }
    counts.into_iter().map(|((key, start), count)| (key, start, count)).collect()
}

#[test]
fn windows_over_several_workers_and_checkpoints_count_every_record_once() {
    const RECORDS: u64 = 200_000;
    for workers in [1, 2, 3] {
        let out = Collector::new();
        let inside = out.clone();
        let job = move |flow: &mut Dataflow| {
            let strategy = WatermarkStrategy::bounded_out_of_orderness(Duration::from_millis(16))
                .timestamps(|number: &u64| time_of(*number));
            flow.timed_source("numbers", VecSource::new(0..RECORDS).splits(3), strategy)
                .key_by(|number| number % 13)
                .window(Windows::tumbling(Duration::from_millis(100)))
                .count("counts")
                .map(|counted| (counted.key, counted.window.start, counted.value))
                .collect("out", &inside);
            Ok(())
        };
        let mut settings = JobSettings { workers, ..JobSettings::default() };
        settings.checkpoints.interval_ms = Some(20);
        let components = Components::new(Some(Arc::new(MemoryStorage::new())));
        millpond::run_with(job, &settings, &components).unwrap();
        let mut counts = out.take();
        counts.sort_unstable();
        assert_eq!(counts, expected(RECORDS), "{workers} workers");
    }
}
