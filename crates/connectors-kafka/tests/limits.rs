//! What a sink does at the limits of a real broker: messages that are never taken, many epochs at once, topics that come late.

mod support;

use std::sync::Arc;
use std::time::Duration;

use millpond::prelude::*;
use millpond::storage::MemoryStorage;
use millpond_connectors_kafka::{Delivery, KafkaSink, KafkaSinks, KafkaSource, Message, RefusedMessages};
use support::{Broker, Job, Seen, chain, until};

const MODES: [Delivery; 3] = [Delivery::ExactlyOnce, Delivery::AtLeastOnce, Delivery::Idempotent];

/// A job that writes `texts` to `out`, those that begin with a digit to the partition that it names.
fn write(
    broker: &Broker,
    texts: &[&str],
    storage: &MemoryStorage,
    sink: impl Fn(KafkaSink<String>) -> KafkaSink<String> + Send + Sync + 'static,
) -> Result<(), String> {
    let servers = broker.servers.clone();
    let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
    let done = Job::new(storage, 1, 20).run(move |flow| {
        let out = KafkaSink::<String>::with(&servers, "out", |text| {
            let partition = text.chars().next().and_then(|digit| digit.to_digit(10));
            Ok(Message { partition: partition.map(|digit| digit as i32), ..Message::new(text.as_str()) })
        });
        flow.from_iter("texts", texts.clone()).to_kafka("out", sink(out));
        Ok(())
    });
    done.map(drop).map_err(|error| chain(&error))
}

fn values(seen: &[Seen]) -> Vec<&str> {
    let mut values: Vec<&str> = seen.iter().map(|seen| seen.value.as_str()).collect();
    values.sort_unstable();
    values
}

#[test]
fn a_message_that_is_never_taken_ends_the_job_before_its_epoch_is_published() {
    let Some(broker) = Broker::start() else { return };
    broker.topic_with("out", 2, &[("max.message.bytes", "3000")]);
    let (large, larger) = ("x".repeat(3_000), "x".repeat(5_000));
    for delivery in MODES {
        for (text, words) in [
            (large.as_str(), "it has 3000 bytes, max.message.bytes of the topic is 3000"),
            (larger.as_str(), "it has 5036 bytes, message.max.bytes is 4000"),
            ("7 is no partition", "there is no partition 7, it has 2"),
        ] {
            let storage = MemoryStorage::new();
            let sink = move |sink: KafkaSink<String>| sink.delivery(delivery).property("message.max.bytes", "4000");
            let error = write(&broker, &["a", text], &storage, sink).unwrap_err();
            assert!(error.contains("a message for topic out is not taken") && error.contains(words), "{error}");
            // The next start, with an encoder that has been mended, is not held up by a published log.
            let sink = move |sink: KafkaSink<String>| sink.delivery(delivery);
            write(&broker, &["b"], &storage, sink).unwrap();
        }
    }
    let seen = broker.read("out");
    assert!(values(&seen).iter().all(|value| ["a", "b"].contains(value)), "{:?}", values(&seen));
}

#[test]
fn messages_that_are_never_taken_are_left_out_and_counted_where_the_setting_says_so() {
    let Some(broker) = Broker::start() else { return };
    broker.topic("out", 2);
    let (counter, large) = (BadRecordCounter::new(), "x".repeat(2_000_000));
    for delivery in MODES {
        let counter = counter.clone();
        let sink = move |sink: KafkaSink<String>| {
            let sink = sink.delivery(delivery).refused_messages(RefusedMessages::SkipAndCount);
            sink.refused_message_counter(&counter)
        };
        write(&broker, &["a", &large, "1b", "2 is no partition", "c"], &MemoryStorage::new(), sink).unwrap();
    }
    assert_eq!(counter.count(), 6);
    assert_eq!(values(&broker.read("out")), ["1b", "1b", "1b", "a", "a", "a", "c", "c", "c"]);
}

#[test]
fn messages_that_are_never_taken_go_to_the_dead_letter_topic_with_what_is_wrong() {
    let Some(broker) = Broker::start() else { return };
    broker.topic("out", 1);
    broker.topic_with("dead", 1, &[("max.message.bytes", "2000")]);
    let large = "x".repeat(2_000_000);
    let sink = |sink: KafkaSink<String>| sink.refused_messages(RefusedMessages::DeadLetter("dead".to_owned()));
    write(&broker, &["a", "5 is no partition", &large], &MemoryStorage::new(), sink).unwrap();
    assert_eq!(values(&broker.read("out")), ["a"]);
    let letters = broker.read("dead");
    let headers: Vec<Vec<&str>> =
        letters.iter().map(|letter| letter.headers.iter().map(|(name, _)| name.as_str()).collect()).collect();
    assert_eq!(headers[0], ["millpond.topic", "millpond.error", "millpond.partition"]);
    assert_eq!(headers[1], ["millpond.topic", "millpond.error", "millpond.value-bytes"]);
    assert_eq!((letters[0].value.as_str(), letters[0].headers[2].1.as_str()), ("5 is no partition", "5"));
    assert_eq!(letters[1].headers[2].1, "2000000");
    let kept = letters[1].value.len();
    assert!((1_000..2_000).contains(&kept) && letters[1].value.bytes().all(|byte| byte == b'x'), "{kept}");
}

#[test]
fn batches_are_no_larger_than_the_topic_takes() {
    let Some(broker) = Broker::start() else { return };
    broker.topic_with("out", 1, &[("max.message.bytes", "4000")]);
    for delivery in MODES {
        let texts = vec!["a".repeat(1_000); 300];
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        write(&broker, &texts, &MemoryStorage::new(), move |sink| sink.delivery(delivery)).unwrap();
    }
    assert_eq!(broker.read("out").len(), 900);
}

#[test]
fn a_topic_that_is_not_there_at_once_is_waited_for_a_moment() {
    let Some(broker) = Broker::start() else { return };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            broker.topic("out", 1);
        });
        write(&broker, &["a"], &MemoryStorage::new(), |sink| sink).unwrap();
    });
    assert_eq!(values(&broker.read("out")), ["a"]);
}

#[test]
fn after_an_outage_the_epochs_that_wait_go_into_several_transactions() {
    let Some(mut broker) = Broker::start() else { return };
    broker.topic("in", 1);
    broker.topic("out", 1);
    broker.write("in", 0, (0..20_000).map(|n| n.to_string()));
    let job = Job::new(&MemoryStorage::new(), 1, 10);
    let (status, stop, servers) =
        (Arc::clone(&job.components.status), Arc::clone(&job.components.stop), broker.servers.clone());
    let running = std::thread::spawn(move || {
        job.run(move |flow| {
            // Slowly, so that there is something left in the client's buffer while the broker is away.
            let numbers = flow.source("in", KafkaSource::json::<u64>(&servers, "in").discover_every(None));
            let slow = numbers.map(|number| {
                std::thread::sleep(Duration::from_millis(1));
                number
            });
            slow.to_kafka("out", KafkaSink::<u64>::json(&servers, "out").transaction_bytes(200));
            Ok(())
        })
    });
    until("something is written", || !broker.read("out").is_empty());
    broker.stop();
    let before = status.snapshot().epoch;
    until("epochs wait", || status.snapshot().epoch > before + 20);
    broker.restart();
    stop.stop();
    assert_eq!(running.join().unwrap().unwrap().restarts, 0);
    let seen = broker.read("out");
    let numbers: Vec<u64> = seen.iter().map(|seen| seen.value.parse().unwrap()).collect();
    assert!(numbers.is_sorted());
    // Every transaction takes an offset for its end: so many there were, each of a few dozen messages at most.
    let ends = seen.last().unwrap().offset as usize + 1 - seen.len();
    assert!(ends > seen.len() / 150, "{ends} transactions before the last one, {} messages", seen.len());
}
