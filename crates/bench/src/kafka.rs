//! `kafka`: Kafka to count by key to Kafka. Reads what was written before as fast as it can (`records`), then a stream of
//! `rate` records a second for `seconds`, whose way from writer to reader of what is committed is timed.
//!
//! `servers=HOST:PORT mode=exactly-once|at-least-once|idempotent|bare checkpoint_ms=1000`. `bare` is a loop of the client
//! library that copies the messages without state or checkpoints. The topics are made anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use millpond::kafka::{Delivery, KafkaSink, KafkaSinks, KafkaSource, Message, StopAt};
use millpond::prelude::*;
use millpond_jobmanager::Job;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message as _;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};

use crate::measure::{Span, peak_rss_mb};
use crate::parameters::Parameters;
use crate::probe::Latencies;
use crate::setup::{Setup, add_rates};

/// Partitions of both topics.
const PARTITIONS: i32 = 4;
/// Keys.
const KEYS: u64 = 10_000;
/// Anything that takes longer has failed.
const LONG: Duration = Duration::from_secs(120);

/// Runs the workload; returns the fields of its line.
pub(crate) fn run(parameters: &Parameters) -> Result<serde_json::Value, String> {
    let bench = Bench {
        servers: parameters.text("servers", "127.0.0.1:9092").to_owned(),
        mode: parameters.text("mode", "exactly-once").to_owned(),
        bytes: parameters.number("bytes", 100)? as usize,
        log_bytes: parameters.number("log_bytes", 256 << 20)? as usize,
        phase: "all",
    };
    let records = parameters.number("records", 500_000)?;
    let (rate, seconds) = (parameters.number("rate", 5_000)?, parameters.number("seconds", 20)?);
    let setup = Setup::with_checkpoints(parameters, Some(parameters.number("checkpoint_ms", 1_000)?), true)?;
    let mut line = serde_json::json!({
        "engine": if bench.mode == "bare" { "rdkafka" } else { "millpond" },
        "workload": "kafka", "mode": bench.mode, "records": records, "bytes": bench.bytes, "rate": rate,
        "parallelism": setup.settings.workers, "checkpoint_ms": setup.settings.checkpoints.interval_ms,
    });
    bench.make_topics()?;
    bench.fill(records)?;
    let span = Span::start();
    match bench.delivery()? {
        Some(delivery) => setup.run(&bench.job(delivery, true)).map(|_| ())?,
        None => bench.copy(&AtomicBool::new(false), Some(records))?,
    }
    add_rates(&mut line, records, span.stop());
    let bench = Bench { phase: "rate", ..bench };
    bench.make_topics()?;
    bench.latencies(&setup, rate, seconds)?.add_to(&mut line);
    line["peak_rss_mb"] = peak_rss_mb().into();
    Ok(line)
}

#[derive(Clone)]
struct Bench {
    servers: String,
    mode: String,
    bytes: usize,
    log_bytes: usize,
    /// In the names of the topics, which are never used again: a topic that is deleted and made anew may be told from
    /// the old one late, by the broker as well as by clients.
    phase: &'static str,
}

fn told(error: impl std::error::Error) -> String {
    millpond_core::error::chain(&error)
}

/// Nanoseconds since 1970.
fn now_ns() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

impl Bench {
    fn delivery(&self) -> Result<Option<Delivery>, String> {
        match self.mode.as_str() {
            "exactly-once" => Ok(Some(Delivery::ExactlyOnce)),
            "at-least-once" => Ok(Some(Delivery::AtLeastOnce)),
            "idempotent" => Ok(Some(Delivery::Idempotent)),
            "bare" => Ok(None),
            other => Err(format!("unknown mode={other}")),
        }
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        // A test broker may answer with all it has.
        config.set("bootstrap.servers", &self.servers).set("receive.message.max.bytes", "1000000000");
        config
    }

    fn topic(&self, side: &str) -> String {
        format!("bench-{side}-{}-{}", self.phase, std::process::id())
    }

    fn make_topics(&self) -> Result<(), String> {
        let admin: AdminClient<DefaultClientContext> = self.config().create().map_err(told)?;
        let options = AdminOptions::new();
        let names = [self.topic("in"), self.topic("out")];
        let topics = [&names[0], &names[1]].map(|name| NewTopic::new(name, PARTITIONS, TopicReplication::Fixed(1)));
        for made in block_on(admin.create_topics(&topics, &options)).map_err(told)? {
            made.map_err(|(topic, code)| format!("cannot make {topic}: {code}"))?;
        }
        Ok(())
    }

    fn producer(&self) -> Result<BaseProducer, String> {
        self.config().set("linger.ms", "5").set("queue.buffering.max.messages", "1000000").create().map_err(told)
    }

    /// A message: the time, the key, and something to make it as long as it should be.
    fn write(&self, producer: &BaseProducer, topic: &str, number: u64) -> Result<(), String> {
        let key = (number % KEYS).to_le_bytes();
        let mut value = vec![b'x'; self.bytes.max(8)];
        value[..8].copy_from_slice(&now_ns().to_le_bytes());
        let mut record = BaseRecord::to(topic).key(&key[..]).payload(&value[..]);
        while let Err((error, back)) = producer.send(record) {
            if error.rdkafka_error_code() != Some(RDKafkaErrorCode::QueueFull) {
                return Err(told(error));
            }
            producer.poll(Duration::from_millis(10));
            record = back;
        }
        Ok(())
    }

    fn fill(&self, records: u64) -> Result<(), String> {
        let (producer, topic) = (self.producer()?, self.topic("in"));
        for number in 0..records {
            self.write(&producer, &topic, number)?;
        }
        producer.flush(LONG).map_err(told)
    }

    fn job(&self, delivery: Delivery, bounded: bool) -> Job {
        let bench = self.clone();
        Arc::new(move |flow| {
            let source = KafkaSource::with(&bench.servers, &bench.topic("in"), |message| {
                let key = message.key().and_then(|key| key.try_into().ok()).map_or(0, u64::from_le_bytes);
                Ok((key, message.value().unwrap_or_default().to_vec()))
            });
            let source = source.property("receive.message.max.bytes", "1000000000").discover_every(None);
            let source = if bounded { source.stop_at(StopAt::Latest) } else { source };
            let counted = flow.source("in", source).key_by(|(key, _)| *key).process_with(
                "count",
                |states| states.value::<u64>("count"),
                |count, (key, value): (u64, Vec<u8>), context, output| {
                    count.modify_or(context, || 0, |count| *count += 1)?;
                    output.emit((key, value));
                    Ok(())
                },
            );
            let sink = KafkaSink::with(&bench.servers, &bench.topic("out"), |(key, value): &(u64, Vec<u8>)| {
                Ok(Message::new(value.as_slice()).key(key.to_le_bytes()))
            });
            let sink = sink.log_bytes(bench.log_bytes).transaction_timeout(Duration::from_secs(60));
            counted.to_kafka("out", sink.delivery(delivery).property("linger.ms", "5"));
            Ok(())
        })
    }

    fn reader(&self, side: &str) -> Result<BaseConsumer, String> {
        let mut config = self.config();
        config.set("group.id", "bench").set("enable.auto.commit", "false").set("isolation.level", "read_committed");
        let consumer: BaseConsumer = config.create().map_err(told)?;
        let (topic, mut assigned) = (self.topic(side), TopicPartitionList::new());
        for partition in 0..PARTITIONS {
            assigned.add_partition_offset(&topic, partition, Offset::Beginning).map_err(told)?;
        }
        consumer.assign(&assigned).map_err(told)?;
        Ok(consumer)
    }

    /// The bare loop: until `stop`, or until so many messages are copied.
    fn copy(&self, stop: &AtomicBool, records: Option<u64>) -> Result<(), String> {
        let (consumer, producer) = (self.reader("in")?, self.producer()?);
        let (topic, mut copied) = (self.topic("out"), 0);
        while !stop.load(Ordering::Relaxed) && records.is_none_or(|records| copied < records) {
            let Some(message) = consumer.poll(Duration::from_millis(20)) else {
                producer.poll(Duration::ZERO);
                continue;
            };
            let message = match message {
                Ok(message) => message,
                Err(KafkaError::PartitionEOF(_)) => continue,
                Err(error) => return Err(told(error)),
            };
            let (key, value) = (message.key().unwrap_or_default(), message.payload().unwrap_or_default());
            let mut record = BaseRecord::to(&topic).key(key).payload(value);
            while let Err((error, back)) = producer.send(record) {
                if error.rdkafka_error_code() != Some(RDKafkaErrorCode::QueueFull) {
                    return Err(told(error));
                }
                producer.poll(Duration::from_millis(10));
                record = back;
            }
            copied += 1;
        }
        producer.flush(LONG).map_err(told)
    }

    /// Writes at `rate` for `seconds` while the job runs, and times what comes out.
    fn latencies(&self, setup: &Setup, rate: u64, seconds: u64) -> Result<Latencies, String> {
        let latencies = Latencies::default();
        let (records, stop) = (rate * seconds, AtomicBool::new(false));
        // The components of the first run have been used up; those of a fresh start read no checkpoint of it.
        let mut settings = setup.settings.clone();
        settings.name = "bench-latency".to_owned();
        let components = crate::recover::fresh(setup);
        let (reader, delivery) = (self.reader("out")?, self.delivery()?);
        std::thread::scope(|scope| {
            let running = scope.spawn(|| match delivery {
                Some(delivery) => {
                    let done = millpond_jobmanager::run(&self.job(delivery, false), &settings, &components);
                    done.map(drop).map_err(told)
                }
                None => self.copy(&stop, None),
            });
            let writing = scope.spawn(|| self.write_at(rate, records));
            let started = Instant::now();
            let mut seen = 0;
            while seen < records && started.elapsed() < LONG + Duration::from_secs(seconds) && !running.is_finished() {
                let Some(Ok(message)) = reader.poll(Duration::from_millis(20)) else { continue };
                let written = message.payload().and_then(|value| value.get(..8)?.try_into().ok());
                let written = written.map_or(0, u64::from_le_bytes);
                seen += 1;
                // The first ones wait for the start.
                if seen > records / 5 {
                    latencies.record(now_ns().saturating_sub(written));
                }
            }
            stop.store(true, Ordering::Relaxed);
            components.stop.stop();
            writing.join().map_err(|_| "the writer panicked")??;
            running.join().map_err(|_| "the job panicked")??;
            if seen == records { Ok(()) } else { Err(format!("{seen} of {records} records came out")) }
        })?;
        Ok(latencies)
    }

    fn write_at(&self, rate: u64, records: u64) -> Result<(), String> {
        let (producer, topic, started) = (self.producer()?, self.topic("in"), Instant::now());
        for number in 0..records {
            let due = Duration::from_secs_f64(number as f64 / rate as f64);
            while started.elapsed() < due {
                producer.poll(Duration::from_millis(1));
            }
            self.write(&producer, &topic, number)?;
        }
        producer.flush(LONG).map_err(told)
    }
}

/// Runs a future of the client, which has threads of its own.
fn block_on<F: std::future::Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
