//! The sink against a real broker.

#![expect(clippy::unwrap_used, reason = "outside of test functions, but only called by them")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millpond::prelude::*;
use millpond::storage::MemoryStorage;
use millpond::{RestartPolicy, StopSignal};
use millpond_connectors_kafka::{Delivery, KafkaSink, KafkaSinks, KafkaSource, Message, StopAt};
use support::{Broker, Job, chain, until};

/// Copies topic `in` to topic `out`, one message a value, keyed by its last digit; user code fails at every message
/// whose number `fails` says.
fn copy(
    servers: &str,
    sink: impl Fn(KafkaSink<u64>) -> KafkaSink<u64> + Send + Sync + 'static,
    fails: impl Fn(u64) -> bool + Send + Sync + 'static,
    bounded: bool,
) -> impl Fn(&mut Dataflow) -> UserResult + Send + Sync + 'static {
    let (servers, fails) = (servers.to_owned(), Arc::new(fails));
    let seen = Arc::new(AtomicU64::new(0));
    move |flow| {
        let source = KafkaSource::json::<u64>(&servers, "in");
        let source = if bounded { source.stop_at(StopAt::Latest) } else { source.discover_every(None) };
        let (fails, seen) = (Arc::clone(&fails), Arc::clone(&seen));
        let keyed = flow.source("in", source).key_by(|n| n % 10);
        let counted = keyed.process_with(
            "count",
            |states| states.value::<u64>("count"),
            move |count, n: u64, context, output| {
                if fails(seen.fetch_add(1, Ordering::SeqCst)) {
                    return Err("user code fails on purpose".into());
                }
                count.modify_or(context, || 0, |count| *count += 1)?;
                output.emit(n);
                Ok(())
            },
        );
        let out = KafkaSink::<u64>::json(&servers, "out").key(|n| vec![b'0' + (n % 10) as u8]);
        counted.to_kafka("out", sink(out));
        Ok(())
    }
}

fn write_numbers(broker: &Broker, partitions: u64, count: u64) {
    for partition in 0..partitions {
        let own = (0..count).filter(|n| n % partitions == partition);
        broker.write("in", partition as i32, own.map(|n| n.to_string()));
    }
}

/// Every number is in `out` once, and those of one key that came from one of `sources` partitions are in order.
fn check(broker: &Broker, sources: u64, count: u64) {
    let seen = broker.read("out");
    let mut numbers: Vec<u64> = seen.iter().map(|seen| seen.value.parse().unwrap()).collect();
    for key in 0..10 {
        let of_key = seen.iter().filter(|seen| seen.key.as_deref() == Some(&key.to_string()));
        let partitions: std::collections::BTreeSet<i32> = of_key.clone().map(|seen| seen.partition).collect();
        assert!(partitions.len() <= 1, "key {key} is in {partitions:?}");
        let of_key: Vec<u64> = of_key.map(|seen| seen.value.parse().unwrap()).collect();
        for source in 0..sources {
            let of_both = of_key.iter().filter(|n| *n % sources == source);
            assert!(of_both.is_sorted(), "key {key}: {of_key:?}");
        }
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..count).collect::<Vec<_>>());
}

/// True so many times, each time when at least two epochs were completed since the last.
fn after_epochs(job: &Job, times: u64) -> impl Fn(u64) -> bool + Send + Sync + 'static {
    let (status, failed, last) = (Arc::clone(&job.components.status), AtomicU64::new(0), AtomicU64::new(0));
    move |_| {
        let epoch = status.snapshot().epoch;
        let fails = failed.load(Ordering::SeqCst) < times && epoch >= last.load(Ordering::SeqCst) + 2;
        if fails {
            last.store(epoch, Ordering::SeqCst);
            failed.fetch_add(1, Ordering::SeqCst);
        }
        fails
    }
}

#[test]
fn ex_02_a_job_that_fails_again_and_again_writes_every_record_once_and_in_order() {
    let Some(broker) = Broker::start() else { return };
    broker.topic("in", 2);
    broker.topic("out", 3);
    write_numbers(&broker, 2, 4_000);
    let mut job = Job::new(&MemoryStorage::new(), 2, 20);
    job.settings.restart = RestartPolicy::Fixed { restarts: 100, delay_ms: 5 };
    let fails = after_epochs(&job, 8);
    let report = job.run(copy(&broker.servers, |sink| sink.log_bytes(3_000), fails, true)).unwrap();
    // How often depends on how soon epochs complete.
    assert!(report.restarts >= 1, "{report:?}");
    check(&broker, 2, 4_000);
}

#[test]
fn output_is_visible_once_its_checkpoint_is_complete_and_not_before() {
    let Some(broker) = Broker::start() else { return };
    broker.topic("in", 1);
    broker.topic("out", 1);
    write_numbers(&broker, 1, 100);
    let mut job = Job::new(&MemoryStorage::new(), 1, 20);
    job.settings.checkpoints.interval_ms = None;
    let (status, stop) = (Arc::clone(&job.components.status), Arc::clone(&job.components.stop));
    let copy = copy(&broker.servers, |sink| sink, |_| false, false);
    let running = std::thread::spawn(move || job.run(copy).unwrap());
    until("all is read", || status.snapshot().records == 100);
    assert!(broker.read("out").is_empty());
    assert!(broker.read_as("out", "read_uncommitted").is_empty(), "nothing is sent, so no transaction is open");
    stop.stop();
    running.join().unwrap();
    check(&broker, 1, 100);
}

/// Stops the job when about so many records are read.
fn stop_at(job: &Job, records: u64) {
    let (status, stop): (_, Arc<StopSignal>) = (Arc::clone(&job.components.status), Arc::clone(&job.components.stop));
    std::thread::spawn(move || {
        until("records are read", || status.snapshot().records >= records);
        stop.stop();
    });
}

#[test]
fn tp_07_a_job_that_is_stopped_and_started_with_other_numbers_of_workers_writes_every_record_once() {
    let Some(broker) = Broker::start() else { return };
    broker.topic("in", 3);
    broker.topic("out", 2);
    let storage = MemoryStorage::new();
    for (round, workers) in [2, 4, 1, 3].into_iter().enumerate() {
        let from = round as u64 * 300;
        for partition in 0..3u64 {
            let own = (from..from + 300).filter(|n| n % 3 == partition);
            broker.write("in", partition as i32, own.map(|n| n.to_string()));
        }
        let job = Job::new(&storage, workers, 10);
        stop_at(&job, 200);
        job.run(copy(&broker.servers, |sink| sink, |_| false, false)).unwrap();
    }
    let job = Job::new(&storage, 2, 10);
    let seen = broker.read("out").len() as u64;
    assert!((200..=1_200).contains(&seen), "{seen}");
    stop_at(&job, 1_200 - seen);
    job.run(copy(&broker.servers, |sink| sink, |_| false, false)).unwrap();
    check(&broker, 3, 1_200);
}

#[test]
fn a_log_that_is_full_asks_for_a_checkpoint_before_its_time() {
    let Some(broker) = Broker::start() else { return };
    broker.topic("in", 1);
    broker.topic("out", 1);
    write_numbers(&broker, 1, 5_000);
    let mut job = Job::new(&MemoryStorage::new(), 1, 1_000_000);
    job.settings.channel_records = 100;
    let report = job.run(copy(&broker.servers, |sink| sink.log_bytes(2_000), |_| false, true)).unwrap();
    assert!(report.epoch.0 > 5, "{report:?}");
    check(&broker, 1, 5_000);
}

#[test]
fn a_broker_that_is_restarted_only_makes_output_late() {
    let Some(mut broker) = Broker::start() else { return };
    broker.topic("in", 2);
    broker.topic("out", 2);
    write_numbers(&broker, 2, 1_000);
    let job = Job::new(&MemoryStorage::new(), 2, 20);
    let (status, stop) = (Arc::clone(&job.components.status), Arc::clone(&job.components.stop));
    let copy = copy(&broker.servers, |sink| sink, |_| false, false);
    let running = std::thread::spawn(move || job.run(copy));
    until("something is read", || status.snapshot().records > 0);
    for _ in 0..2 {
        broker.stop();
        std::thread::sleep(Duration::from_millis(300));
        broker.restart();
    }
    until("all is written", || broker.read("out").len() == 1_000);
    stop.stop();
    assert_eq!(running.join().unwrap().unwrap().restarts, 0);
    check(&broker, 2, 1_000);
}

#[test]
fn other_modes_write_everything_at_least_once_and_without_failure_once() {
    let Some(broker) = Broker::start() else { return };
    broker.topic("in", 1);
    write_numbers(&broker, 1, 2_000);
    for (delivery, failures) in [(Delivery::AtLeastOnce, 0), (Delivery::Idempotent, 3)] {
        broker.topic("out", 2);
        let mut job = Job::new(&MemoryStorage::new(), 1, 1);
        job.settings.restart = RestartPolicy::Fixed { restarts: 100, delay_ms: 5 };
        let fails = after_epochs(&job, failures);
        job.run(copy(&broker.servers, move |sink| sink.delivery(delivery), fails, true)).unwrap();
        if failures == 0 {
            check(&broker, 1, 2_000);
        } else {
            let mut numbers: Vec<u64> = broker.read("out").iter().map(|seen| seen.value.parse().unwrap()).collect();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers, (0..2_000).collect::<Vec<_>>());
        }
        broker.delete_topic("out");
    }
}

#[test]
fn keys_headers_timestamps_and_partitions_are_written_as_they_are_told() {
    let Some(broker) = Broker::start() else { return };
    broker.topic("out", 4);
    let servers = broker.servers.clone();
    Job::new(&MemoryStorage::new(), 1, 20)
        .run(move |flow| {
            let sink = KafkaSink::<u64>::with(&servers, "out", |n| {
                let message =
                    Message::new(format!("value {n}")).key(format!("key {n}")).header("number", n.to_string());
                Ok(Message { timestamp_ms: Some(1_700_000_000_000 + *n as i64), ..message })
            });
            flow.from_iter("numbers", 0..20u64).to_kafka("out", sink.partition_by(|n| (n % 4) as i32));
            Ok(())
        })
        .unwrap();
    let (out, servers) = (Collector::new(), broker.servers.clone());
    let inside = out.clone();
    Job::new(&MemoryStorage::new(), 1, 20)
        .run(move |flow| {
            flow.source("in", KafkaSource::records(&servers, "out").stop_at(StopAt::Latest)).collect("out", &inside);
            Ok(())
        })
        .unwrap();
    let records = out.take();
    assert_eq!(records.len(), 20);
    for record in records {
        let value = String::from_utf8(record.value.unwrap()).unwrap();
        let n: u64 = value.strip_prefix("value ").unwrap().parse().unwrap();
        assert_eq!(record.partition, (n % 4) as i32);
        assert_eq!(record.key.unwrap(), format!("key {n}").into_bytes());
        assert_eq!(record.headers, [("number".to_owned(), Some(n.to_string().into_bytes()))]);
        assert_eq!(record.timestamp_ms, Some(1_700_000_000_000 + n as i64));
    }
}

#[test]
fn a_message_that_is_too_large_ends_the_job_with_an_error_that_says_so() {
    let Some(broker) = Broker::start() else { return };
    broker.topic("out", 1);
    for delivery in [Delivery::ExactlyOnce, Delivery::Idempotent] {
        let servers = broker.servers.clone();
        let error = Job::new(&MemoryStorage::new(), 1, 20).run(move |flow| {
            let sink = KafkaSink::<String>::json(&servers, "out").property("message.max.bytes", "2000");
            let large = flow.from_iter("texts", ["x".repeat(5_000)]);
            large.to_kafka("out", sink.delivery(delivery));
            Ok(())
        });
        let error = chain(&error.unwrap_err());
        assert!(error.contains("a message for topic out is not taken"), "{error}");
    }
}
