//! Async map through the engine: worker threads, exchanges, checkpoints while calls are under way, failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use millpond::prelude::*;
use millpond::storage::MemoryStorage;
use millpond::{Components, JobSettings, RestartPolicy};

const RECORDS: u64 = 5_000;

fn settings(workers: u32) -> (JobSettings, Components) {
    let mut settings = JobSettings { workers, ..JobSettings::default() };
    settings.checkpoints.interval_ms = Some(10);
    (settings, Components::new(Some(Arc::new(MemoryStorage::new()))))
}

fn sorted(out: &Collector<u64>) -> Vec<u64> {
    let mut results = out.take();
    results.sort_unstable();
    results
}

#[test]
fn blocking_calls_on_other_threads_give_every_record_one_result() {
    for (workers, exchange) in [(1, false), (3, false), (2, true)] {
        let (out, calls) = (Collector::new(), Arc::new(AtomicU64::new(0)));
        let inside = out.clone();
        let job = move |flow: &mut Dataflow| {
            let (pool, calls) = (BlockingPool::new(4), Arc::clone(&calls));
            let numbers = flow.source("numbers", VecSource::new(0..RECORDS).splits(3));
            let numbers = if exchange { numbers.rebalance() } else { numbers };
            let how = AsyncMap::unordered(32).retry(Retry::fixed(100, Duration::ZERO));
            let doubled = numbers.async_map("double", how, move |number| {
                let calls = Arc::clone(&calls);
                pool.run(move || match calls.fetch_add(1, Ordering::Relaxed) % 50 {
                    0 => Err("try again".into()),
                    _ => Ok(number * 2),
                })
            });
            doubled.collect("out", &inside);
            Ok(())
        };
        let (settings, components) = settings(workers);
        millpond::run_with(job, &settings, &components).unwrap();
        assert!(sorted(&out).into_iter().eq((0..RECORDS).map(|number| number * 2)), "{workers} workers, {exchange}");
    }
}

#[test]
fn a_restart_makes_the_calls_again_that_were_under_way_and_emits_each_result_once() {
    let (out, failed) = (Collector::new(), Arc::new(AtomicBool::new(false)));
    let inside = out.clone();
    let job = move |flow: &mut Dataflow| {
        let (pool, failed) = (BlockingPool::new(2), Arc::clone(&failed));
        let numbers = flow.source("numbers", VecSource::new(0..RECORDS).splits(2));
        let calls = numbers.async_map("call", AsyncMap::ordered(16), move |number| {
            let failed = Arc::clone(&failed);
            pool.run(move || {
                if number == RECORDS / 2 && !failed.swap(true, Ordering::SeqCst) {
                    return Err("the first time it fails".into());
                }
                Ok(number)
            })
        });
        calls.collect("out", &inside);
        Ok(())
    };
    let (settings, components) = settings(2);
    let settings = JobSettings { restart: RestartPolicy::Fixed { restarts: 1, delay_ms: 1 }, ..settings };
    millpond::run_with(job, &settings, &components).unwrap();
    assert!(sorted(&out).into_iter().eq(0..RECORDS));
}

#[test]
fn a_call_that_never_returns_ends_in_an_error_and_not_in_a_hang() {
    let out = Collector::<u64>::new();
    let job = move |flow: &mut Dataflow| {
        let numbers = flow.source("numbers", VecSource::new(0..3));
        let how = AsyncMap::ordered(16).timeout(Duration::from_millis(50));
        numbers.async_map("call", how, |_| std::future::pending()).collect("out", &out);
        Ok(())
    };
    let (settings, components) = settings(1);
    let settings = JobSettings { restart: RestartPolicy::Never, ..settings };
    let error = millpond::run_with(job, &settings, &components).unwrap_err();
    let told = format!("{error:?}");
    assert!(told.contains("TimedOut") && told.contains("call"), "{told}");
}
