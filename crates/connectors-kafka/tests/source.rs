//! The source against a real broker.

#![expect(clippy::unwrap_used, reason = "outside of test functions, but only called by them")]

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use millpond::prelude::*;
use millpond::storage::MemoryStorage;
use millpond_connectors_kafka::{BAD_MESSAGES, BadMessage, KafkaRecord, KafkaSource, Missing, StartAt, StopAt};
use rdkafka::producer::{BaseRecord, Producer};
use support::{Broker, Job, LONG, until};

fn numbers(range: std::ops::Range<u64>) -> impl Iterator<Item = String> {
    range.map(|n| n.to_string())
}

/// What a bounded source reads.
fn read(source: impl Fn() -> KafkaSource<KafkaRecord> + Send + Sync + 'static, workers: u32) -> Vec<KafkaRecord> {
    let out = Collector::new();
    let inside = out.clone();
    let job = Job::new(&MemoryStorage::new(), workers, 100);
    job.run(move |flow| {
        flow.source("in", source()).collect("out", &inside);
        Ok(())
    })
    .unwrap();
    let mut records = out.take();
    records.sort_by_key(|record| (record.partition, record.offset));
    records
}

fn values(records: &[KafkaRecord]) -> Vec<String> {
    let text = |record: &KafkaRecord| String::from_utf8(record.value.clone().unwrap_or_default()).unwrap();
    records.iter().map(text).collect()
}

#[test]
fn kf_08_a_bounded_source_reads_every_message_of_every_partition_once_and_ends() {
    let Some(broker) = Broker::start() else { return };
    broker.topic("in", 3);
    for partition in 0..3 {
        broker.write("in", partition, numbers(0..500));
    }
    let servers = broker.servers.clone();
    let records = read(move || KafkaSource::records(&servers, "in").stop_at(StopAt::Latest), 2);
    assert_eq!(records.len(), 1_500);
    for partition in 0..3 {
        let own: Vec<KafkaRecord> = records.iter().filter(|record| record.partition == partition).cloned().collect();
        assert_eq!(values(&own), numbers(0..500).collect::<Vec<_>>());
        assert!(own.iter().all(|record| record.timestamp_ms.is_some()));
    }
    let servers = broker.servers.clone();
    let stops = BTreeMap::from([(("in".to_owned(), 1), 20)]);
    let starts = BTreeMap::from([(("in".to_owned(), 1), 7)]);
    let source = move || {
        let source = KafkaSource::records(&servers, "in").start_at(StartAt::Offsets(starts.clone()));
        source.stop_at(StopAt::Offsets(stops.clone()))
    };
    assert_eq!(values(&read(source, 1)), numbers(7..20).collect::<Vec<_>>());
}

#[test]
fn messages_of_open_and_aborted_transactions_are_not_read_and_markers_at_the_end_do_not_stop_a_bounded_source() {
    let Some(broker) = Broker::start() else { return };
    broker.topic("in", 1);
    let producer = broker.transactional("writer");
    let write = |value: &str| {
        producer.send(BaseRecord::<str, str>::to("in").payload(value)).map_err(|(error, _)| error).unwrap();
    };
    for (value, commits) in [("a", true), ("lost", false), ("b", true), ("lost too", false)] {
        producer.begin_transaction().unwrap();
        write(value);
        producer.flush(LONG).unwrap();
        if commits { producer.commit_transaction(LONG).unwrap() } else { producer.abort_transaction(LONG).unwrap() }
    }
    let servers = broker.servers.clone();
    let source = move || KafkaSource::records(&servers, "in").stop_at(StopAt::Latest);
    assert_eq!(values(&read(source.clone(), 1)), ["a", "b"]);
    producer.begin_transaction().unwrap();
    write("open");
    producer.flush(LONG).unwrap();
    assert_eq!(values(&read(source, 1)), ["a", "b"]);
    producer.abort_transaction(LONG).unwrap();
}

#[test]
fn kf_03_offsets_are_committed_to_the_group_after_a_checkpoint_and_a_later_job_can_start_there() {
    let Some(broker) = Broker::start() else { return };
    broker.topic("in", 2);
    broker.write("in", 0, numbers(0..10));
    broker.write("in", 1, numbers(0..20));
    let servers = broker.servers.clone();
    let source = move || KafkaSource::records(&servers, "in").group("readers").start_at(StartAt::Group);
    let bounded = source.clone();
    assert_eq!(read(move || bounded().stop_at(StopAt::Latest), 2).len(), 30, "kf_06: nothing committed: earliest");
    until("offsets are committed", || {
        broker.committed("readers", "in", 0) == Some(10) && broker.committed("readers", "in", 1) == Some(20)
    });
    broker.write("in", 1, ["new".to_owned()]);
    let bounded = source.clone();
    assert_eq!(values(&read(move || bounded().stop_at(StopAt::Latest), 1)), ["new"]);
    let other = move || source().group("strangers").without_group_offset(Missing::Fail).stop_at(StopAt::Latest);
    let job = Job::new(&MemoryStorage::new(), 1, 100);
    let error = job.run(move |flow| {
        flow.source("in", other());
        Ok(())
    });
    let error = support::chain(&error.unwrap_err());
    assert!(error.contains("group strangers has no committed offset for partition 0 of topic in"), "{error}");
}

#[test]
fn kf_02_a_restored_job_goes_on_where_its_checkpoint_ends_whatever_the_start_says() {
    let Some(broker) = Broker::start() else { return };
    broker.topic("in", 2);
    let storage = MemoryStorage::new();
    let out = Collector::<KafkaRecord>::new();
    let mut expected = Vec::new();
    for (round, workers) in [1, 3, 2].into_iter().enumerate() {
        let round = round as u64;
        broker.write("in", 0, numbers(round * 100..round * 100 + 50));
        broker.write("in", 1, numbers(round * 100 + 50..round * 100 + 100));
        expected.extend(numbers(round * 100..round * 100 + 100));
        let (servers, inside) = (broker.servers.clone(), out.clone());
        let job = Job::new(&storage, workers, 20);
        let (stop, seen) = (job.components.stop.clone(), out.clone());
        let wanted = expected.len();
        let watcher = std::thread::spawn(move || {
            until("all is read", || seen.snapshot().len() >= wanted);
            stop.stop();
        });
        // Started anew it would read from the beginning.
        job.run(move |flow| {
            let source = KafkaSource::records(&servers, "in").discover_every(Some(Duration::from_millis(100)));
            flow.source("in", source).collect("out", &inside);
            Ok(())
        })
        .unwrap();
        watcher.join().unwrap();
    }
    let mut found = values(&out.take());
    found.sort_by_key(|value| value.parse::<u64>().unwrap());
    assert_eq!(found, expected);
}

#[test]
fn kf_06_partitions_that_appear_while_the_job_runs_are_read_from_their_beginning() {
    let Some(broker) = Broker::start() else { return };
    broker.topic("in", 1);
    broker.write("in", 0, ["before".to_owned()]);
    let out = Collector::<KafkaRecord>::new();
    let job = Job::new(&MemoryStorage::new(), 2, 20);
    let (stop, seen) = (job.components.stop.clone(), out.clone());
    let (servers, inside) = (broker.servers.clone(), out.clone());
    let writer = std::thread::spawn(move || {
        let has = |value: &str| values(&seen.snapshot()).contains(&value.to_owned());
        // What is written before the source has started is before its start: written until it is seen.
        until("the source has started", || {
            broker.write("in", 0, ["after".to_owned()]);
            has("after")
        });
        broker.add_partitions("in", 3);
        broker.write("in", 2, ["first".to_owned(), "second".to_owned()]);
        until("the new partition is read", || has("second"));
        stop.stop();
        broker
    });
    job.run(move |flow| {
        let source = KafkaSource::records(&servers, "in").start_at(StartAt::Latest);
        flow.source("in", source.discover_every(Some(Duration::from_millis(50)))).collect("out", &inside);
        Ok(())
    })
    .unwrap();
    drop(writer.join().unwrap());
    let mut found = values(&out.take());
    found.retain(|value| value != "after");
    assert_eq!(found, ["first", "second"]);
}

#[test]
fn an_offset_out_of_range_ends_the_job_or_is_replaced_as_the_setting_says() {
    let Some(broker) = Broker::start() else { return };
    broker.topic("in", 1);
    broker.write("in", 0, numbers(0..5));
    let servers = broker.servers.clone();
    let source = move |missing| {
        let starts = BTreeMap::from([(("in".to_owned(), 0), 1_000)]);
        let stops = BTreeMap::from([(("in".to_owned(), 0), 2_000)]);
        let source = KafkaSource::records(&servers, "in").start_at(StartAt::Offsets(starts));
        source.stop_at(StopAt::Offsets(stops)).out_of_range(missing)
    };
    let failing = source.clone();
    let job = Job::new(&MemoryStorage::new(), 1, 100);
    let error = job.run(move |flow| {
        flow.source("in", failing(Missing::Fail));
        Ok(())
    });
    let error = support::chain(&error.unwrap_err());
    assert!(error.contains("offset 1000 of partition 0 of topic in is out of range: there are 0 to 5"), "{error}");

    let out = Collector::<KafkaRecord>::new();
    let inside = out.clone();
    let job = Job::new(&MemoryStorage::new(), 1, 20);
    let (stop, seen) = (job.components.stop.clone(), out.clone());
    let watcher = std::thread::spawn(move || {
        until("the messages that are there are read", || seen.snapshot().len() == 5);
        stop.stop();
    });
    job.run(move |flow| {
        flow.source("in", source(Missing::Earliest)).collect("out", &inside);
        Ok(())
    })
    .unwrap();
    watcher.join().unwrap();
    assert_eq!(values(&out.take()), numbers(0..5).collect::<Vec<_>>());
}

#[test]
fn bad_messages_end_the_job_are_counted_or_go_to_a_side_output() {
    let Some(broker) = Broker::start() else { return };
    broker.topic("in", 1);
    broker.write("in", 0, ["1", "no number", "3"].map(str::to_owned));
    let servers = broker.servers.clone();
    let source = move || KafkaSource::json::<u64>(&servers, "in").stop_at(StopAt::Latest);
    let failing = source.clone();
    let error = Job::new(&MemoryStorage::new(), 1, 100).run(move |flow| {
        flow.source("in", failing());
        Ok(())
    });
    let error = support::chain(&error.unwrap_err());
    assert!(error.contains("bad message at offset 1 of partition 0 of topic in: expected ident"), "{error}");

    let (out, bad) = (Collector::<u64>::new(), Collector::<BadMessage>::new());
    let (inside, inside_bad) = (out.clone(), bad.clone());
    let counter = BadRecordCounter::new();
    let (counted, skipping, skipped) = (counter.clone(), source.clone(), Collector::<u64>::new());
    let inside_skipped = skipped.clone();
    let job = Job::new(&MemoryStorage::new(), 1, 100);
    job.run(move |flow| {
        let numbers = flow.source("side", source().bad_messages(BadRecords::SideOutput));
        numbers.side_output(BAD_MESSAGES).collect("bad", &inside_bad);
        numbers.collect("out", &inside);
        let skipping = skipping().bad_messages(BadRecords::SkipAndCount).bad_message_counter(&counted);
        flow.source("skip", skipping).collect("skipped", &inside_skipped);
        Ok(())
    })
    .unwrap();
    assert_eq!((out.take(), skipped.take(), counter.count()), (vec![1, 3], vec![1, 3], 1));
    let bad = bad.take();
    assert_eq!((bad.len(), bad[0].message.offset), (1, 1));
    assert_eq!(bad[0].message.value.as_deref(), Some(&b"no number"[..]));
}

#[test]
fn a_deleted_topic_ends_the_job_with_an_error_or_its_partitions() {
    let Some(broker) = Broker::start() else { return };
    for ends in [false, true] {
        broker.topic("in", 1);
        broker.write("in", 0, ["1".to_owned()]);
        let (out, servers) = (Collector::<KafkaRecord>::new(), broker.servers.clone());
        let inside = out.clone();
        let job = Job::new(&MemoryStorage::new(), 1, 20);
        let running = std::thread::spawn(move || {
            job.run(move |flow| {
                let source = KafkaSource::records(&servers, "in").discover_every(None);
                let source = source.property("topic.metadata.refresh.interval.ms", "200");
                let source = source.property("topic.metadata.propagation.max.ms", "200");
                let source = if ends { source.deleted_partitions_end() } else { source };
                flow.source("in", source).collect("out", &inside);
                Ok(())
            })
        });
        until("the message is read", || out.snapshot().len() == 1);
        broker.delete_topic("in");
        let outcome = running.join().unwrap();
        if ends {
            outcome.unwrap();
        } else {
            let error = support::chain(&outcome.unwrap_err());
            assert!(error.contains("partition 0 of topic in does not exist; it was read up to offset 1"), "{error}");
        }
    }
}
