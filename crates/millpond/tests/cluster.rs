//! Several processes of one job, as threads of this one: the same sockets, the same protocol.

#![expect(clippy::unwrap_used, reason = "outside of test functions, but only called by them")]

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millpond::prelude::*;
use millpond::storage::{MemoryStorage, Storage};
use millpond::{ClusterSettings, Components, JobError, JobReport, JobSettings, RestartPolicy, StopSignal};

/// Addresses that were free a moment ago.
fn free_hosts(processes: usize) -> Vec<String> {
    let listeners: Vec<_> = (0..processes).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    listeners.iter().map(|listener| listener.local_addr().unwrap().to_string()).collect()
}

fn settings(hosts: &[String], process: usize, workers: u32) -> JobSettings {
    let cluster = ClusterSettings { process: process as u32, hosts: hosts.to_vec(), ..Default::default() };
    JobSettings { workers, cluster: Some(cluster), ..Default::default() }
}

type Run = Box<dyn FnOnce() -> Result<JobReport, JobError> + Send>;

fn run_all(processes: Vec<Run>) -> Vec<Result<JobReport, JobError>> {
    let threads: Vec<_> = processes.into_iter().map(std::thread::spawn).collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

fn counting(out: &Collector<(u64, u64)>) -> impl Fn(&mut Dataflow) -> UserResult + Send + Sync + 'static {
    let out = out.clone();
    move |flow: &mut Dataflow| {
        let numbers = flow.from_iter("numbers", 0..200_000u64).rebalance();
        numbers.key_by(|number| number % 1_000).count("counts").collect("out", &out);
        Ok(())
    }
}

/// What the counting job must give at its end: the last count of every key.
fn last_counts(out: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    let mut last = std::collections::BTreeMap::new();
    for (key, count) in out {
        let known: &mut u64 = last.entry(key).or_default();
        *known = count.max(*known);
    }
    last.into_iter().collect()
}

fn count_in(processes: usize, workers: u32, storage: Option<Arc<dyn Storage>>) -> Vec<(u64, u64)> {
    let hosts = free_hosts(processes);
    let out = Collector::new();
    let runs = (0..processes).map(|process| -> Run {
        let settings = settings(&hosts, process, workers);
        let (job, storage) = (counting(&out), storage.clone());
        Box::new(move || millpond::run_with(job, &settings, &Components::new(storage)))
    });
    for report in run_all(runs.collect()) {
        assert_eq!(report.unwrap().outcome, millpond::JobOutcome::Finished);
    }
    last_counts(out.take())
}

#[test]
fn two_processes_give_what_one_gives() {
    let expected: Vec<_> = (0..1_000).map(|key| (key, 200)).collect();
    assert_eq!(count_in(2, 1, None), expected);
    assert_eq!(count_in(3, 2, Some(Arc::new(MemoryStorage::new()))), expected);
}

#[test]
fn a_job_in_two_processes_without_checkpoint_storage_starts_again_after_failures() {
    let (hosts, out, failures) = (free_hosts(2), Collector::new(), Arc::new(AtomicU64::new(0)));
    let run = |process: usize| -> Run {
        let mut settings = settings(&hosts, process, 1);
        settings.restart = RestartPolicy::Fixed { restarts: 5, delay_ms: 5 };
        let (out, failures) = (out.clone(), Arc::clone(&failures));
        let job = move |flow: &mut Dataflow| {
            let failures = Arc::clone(&failures);
            let numbers = flow.from_iter("numbers", 0..20_000u64).rebalance();
            let checked = numbers.try_map(move |number| {
                // Three times, in whichever process it comes to.
                if number == 10_000 && failures.fetch_add(1, Ordering::SeqCst) < 3 {
                    return Err("user code fails on purpose".into());
                }
                Ok(number)
            });
            checked.key_by(|number| number % 1_000).count("counts").collect("out", &out);
            Ok(())
        };
        Box::new(move || millpond::run_with(job, &settings, &Components::new(None)))
    };
    for report in run_all(vec![run(0), run(1)]) {
        assert_eq!(report.unwrap().outcome, millpond::JobOutcome::Finished);
    }
    assert_eq!(failures.load(Ordering::SeqCst), 4);
    assert_eq!(last_counts(out.take()), (0..1_000).map(|key| (key, 20)).collect::<Vec<_>>());
}

#[test]
fn a_process_that_does_not_fit_is_refused_with_the_difference() {
    let hosts = free_hosts(2);
    let (out, patient) = (Collector::new(), 3_000);
    let run = |process: usize, workers: u32| -> Run {
        let mut settings = settings(&hosts, process, workers);
        settings.restart = RestartPolicy::Never;
        settings.cluster.as_mut().unwrap().wait_ms = patient;
        let job = counting(&out);
        Box::new(move || millpond::run_with(job, &settings, &Components::new(None)))
    };
    let outcomes = run_all(vec![run(0, 1), run(1, 2)]);
    let texts: Vec<_> = outcomes.into_iter().map(|outcome| outcome.unwrap_err().to_string()).collect();
    let reason = "workers is \"1\" in process 0 and \"2\" in process 1";
    assert_eq!(texts[0], format!("waited 3000 ms for process 1; one was refused: {reason}"));
    assert_eq!(texts[1], format!("process 0 at {} refuses process 1: {reason}", hosts[0]));
}

#[test]
fn a_slow_receiver_slows_the_sources_of_all_processes() {
    const ENOUGH: u64 = 5_000;
    let hosts = free_hosts(2);
    let [emitted, done, ahead] = [(); 3].map(|()| Arc::new(AtomicU64::new(0)));
    let stop = Arc::new(StopSignal::default());
    let run = |process: usize| -> Run {
        let settings = settings(&hosts, process, 1);
        let mut components = Components::new(None);
        components.stop = Arc::clone(&stop);
        let (emitted, done) = (Arc::clone(&emitted), Arc::clone(&done));
        let (ahead, stop) = (Arc::clone(&ahead), Arc::clone(&stop));
        let job = move |flow: &mut Dataflow| {
            let [emitted, all_emitted, done] = [&emitted, &emitted, &done].map(Arc::clone);
            let (ahead, stop) = (Arc::clone(&ahead), Arc::clone(&stop));
            let numbers = flow.source("numbers", GeneratorSource::new(u64::MAX, 2, |index| index));
            let counted = numbers.inspect(move |_| {
                emitted.fetch_add(1, Ordering::Relaxed);
            });
            counted.key_by(|number| number % 100).count("counts").inspect(move |_| {
                std::thread::sleep(Duration::from_micros(20));
                let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                ahead.fetch_max(all_emitted.load(Ordering::Relaxed).saturating_sub(done), Ordering::Relaxed);
                if done >= ENOUGH {
                    stop.stop();
                }
            });
            Ok(())
        };
        Box::new(move || millpond::run_with(job, &settings, &components))
    };
    for report in run_all(vec![run(0), run(1)]) {
        assert_eq!(report.unwrap().outcome, millpond::JobOutcome::Stopped);
    }
    // Four channels of 16,384 records, and a batch in each hand. Without credit between processes it would be millions.
    let ahead = ahead.load(Ordering::Relaxed);
    assert!(ahead <= 4 * (16_384 + 2 * 1_024), "sources are {ahead} records ahead");
}
