//! Kafka as a sink: exactly once by the logged contract, or at least once.
//!
//! Owns: messages of records, transactions, what a marker is in Kafka. Does *not* own: the log and who applies it
//! (`millpond_operators`, module `logged`).

mod entry;
mod limits;
mod plain;
mod producer;
mod target;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use millpond_connectors::BadRecordCounter;
use millpond_core::{Data, UserError, UserResult};
use millpond_dataflow::{SinkContext, SinkStream, Stream};
use millpond_operators::{Applier, LoggedSink, LoggedSinkOperators, LostMarker, Patience, SinkOperators};

use crate::KafkaError;
use crate::client::Connection;
use crate::error::Classify;
use crate::message::Message;
use limits::{Limits, dead_letter};
use plain::PlainSink;
use target::{KafkaTarget, writer_name};

/// Bytes of a batch of the client unless its property says otherwise.
const BATCH_BYTES: usize = 1_000_000;
/// Bytes of the log of a subtask unless set otherwise.
const LOG_BYTES: usize = 64 << 20;
/// How long a transaction may be open unless set otherwise.
const TRANSACTION: Duration = Duration::from_secs(10);
/// Bytes of logs in one transaction unless set otherwise.
const TRANSACTION_BYTES: usize = 16 << 20;
/// How often a marker is set anew without output unless set otherwise: brokers keep one for a week unless told otherwise.
const RENEW: Duration = Duration::from_secs(6 * 3_600);
/// How long brokers may be away unless set otherwise.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// What a sink promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// Readers that read what is committed see every record once, when its checkpoint is complete.
    #[default]
    ExactlyOnce,
    /// Records are sent at once; after a failure of the job some are there twice.
    AtLeastOnce,
    /// As [`Delivery::AtLeastOnce`], but what the client sends again because a connection broke is there once, and in
    /// order.
    Idempotent,
}

/// What becomes of a message that Kafka never takes: larger than `message.max.bytes` or, without compression, than
/// `max.message.bytes` of its topic; for a partition or a topic that is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RefusedMessages {
    /// The attempt ends with an error that names topic and numbers, before the epoch of the message is published.
    #[default]
    Fail,
    /// It is left out and counted, see [`KafkaSink::refused_message_counter`]; the first, second, fourth, eighth… is logged as a
    /// warning.
    SkipAndCount,
    /// It goes to this topic, with headers `millpond.topic`, `millpond.error` and `millpond.partition`; its value is cut
    /// to what fits, and `millpond.value-bytes` says how long it was.
    DeadLetter(String),
}

/// Makes a message of a record.
type Encode<T> = Arc<dyn Fn(&T) -> Result<Message, UserError> + Send + Sync>;
/// Chooses a partition for a record.
type Choose<T> = Arc<dyn Fn(&T) -> i32 + Send + Sync>;

/// Writes to a topic of Kafka.
///
/// Exactly once unless set otherwise: the output of an epoch is part of its checkpoint, and sent in one transaction
/// once the checkpoint is complete. Readers must read what is committed only (`isolation.level=read_committed`).
///
/// ```
/// use millpond_connectors_kafka::{KafkaSink, Message};
/// let counts = KafkaSink::<(String, u64)>::json("localhost:9092", "counts").key(|(word, _)| word.clone().into_bytes());
/// let lines = KafkaSink::<String>::with("localhost:9092", "lines", |line| Ok(Message::new(line.as_str())));
/// # let _ = (counts, lines);
/// ```
#[must_use]
pub struct KafkaSink<T> {
    settings: Settings<T>,
    delivery: Delivery,
}

struct Settings<T> {
    connection: Connection,
    topic: String,
    prefix: String,
    encode: Encode<T>,
    choose: Option<Choose<T>>,
    log_bytes: usize,
    transaction_timeout: Duration,
    delivery_timeout: Duration,
    lost_marker: LostMarker,
    transaction_bytes: usize,
    renew_marker: Duration,
    refused: RefusedMessages,
    refused_counter: BadRecordCounter,
}

impl<T> Clone for Settings<T> {
    fn clone(&self) -> Self {
        Settings {
            connection: self.connection.clone(),
            topic: self.topic.clone(),
            prefix: self.prefix.clone(),
            encode: Arc::clone(&self.encode),
            choose: self.choose.clone(),
            refused: self.refused.clone(),
            refused_counter: self.refused_counter.clone(),
            ..*self
        }
    }
}

impl<T: Data> KafkaSink<T> {
    /// Values that are JSON, without keys.
    pub fn json(servers: &str, topic: &str) -> Self {
        KafkaSink::with(servers, topic, |record| Ok(Message::new(serde_json::to_vec(record)?)))
    }

    /// Messages that `encode` makes of records.
    pub fn with(
        servers: &str,
        topic: &str,
        encode: impl Fn(&T) -> Result<Message, UserError> + Send + Sync + 'static,
    ) -> Self {
        let settings = Settings {
            connection: Connection::new(servers),
            topic: topic.to_owned(),
            prefix: "millpond".to_owned(),
            encode: Arc::new(encode),
            choose: None,
            log_bytes: LOG_BYTES,
            transaction_timeout: TRANSACTION,
            delivery_timeout: PATIENCE,
            lost_marker: LostMarker::Fail,
            transaction_bytes: TRANSACTION_BYTES,
            renew_marker: RENEW,
            refused: RefusedMessages::Fail,
            refused_counter: BadRecordCounter::default(),
        };
        KafkaSink { settings, delivery: Delivery::ExactlyOnce }
    }

    /// Gives messages the key that `key` computes.
    pub fn key(mut self, key: impl Fn(&T) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let encode = self.settings.encode;
        self.settings.encode = Arc::new(move |record| Ok(encode(record)?.key(key(record))));
        self
    }

    /// Chooses the partition of each record. Unless set, the hash of the key decides, as with Kafka's own producer.
    pub fn partition_by(mut self, choose: impl Fn(&T) -> i32 + Send + Sync + 'static) -> Self {
        self.settings.choose = Some(Arc::new(choose));
        self
    }

    /// What the sink promises; [`Delivery::ExactlyOnce`] unless set. In the other modes the timestamp of messages is
    /// the time of sending, unless they set one.
    pub fn delivery(mut self, delivery: Delivery) -> Self {
        self.delivery = delivery;
        self
    }

    /// The names of transactions and of the groups that keep markers begin with `prefix`; `millpond` unless set.
    /// Where brokers control access, it must be permitted for both.
    pub fn id_prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.settings.prefix);
        self
    }

    /// How many bytes a subtask may log before they are sent; 64 MiB unless set. At half of it a checkpoint is taken
    /// before its time, when it is full the job waits. It takes about four times as much memory.
    pub fn log_bytes(mut self, bytes: usize) -> Self {
        self.settings.log_bytes = bytes;
        self
    }

    /// How many bytes of logs one transaction holds; 16 MiB unless set. After a long outage of the brokers, epochs beyond
    /// it go into several transactions, in order. An epoch is never divided.
    pub fn transaction_bytes(mut self, bytes: usize) -> Self {
        self.settings.transaction_bytes = bytes;
        self
    }

    /// After how long without output the marker is set anew, so that brokers do not forget it; 6 h unless set. It must be
    /// well below `offsets.retention.minutes` and `transactional.id.expiration.ms` of the brokers (7 days each).
    pub fn renew_marker_every(mut self, pause: Duration) -> Self {
        self.settings.renew_marker = pause;
        self
    }

    /// What becomes of messages that Kafka never takes; [`RefusedMessages::Fail`] unless set.
    pub fn refused_messages(mut self, refused: RefusedMessages) -> Self {
        self.settings.refused = refused;
        self
    }

    /// Counts messages that are left out in `counter`, which the caller keeps a clone of.
    pub fn refused_message_counter(mut self, counter: &BadRecordCounter) -> Self {
        self.settings.refused_counter = counter.clone();
        self
    }

    /// How long a transaction may be open before the broker gives it up; 10 s unless set. One that takes longer is
    /// sent again, which helps only if the next one is faster: it must be long enough for `log_bytes`.
    pub fn transaction_timeout(mut self, timeout: Duration) -> Self {
        self.settings.transaction_timeout = timeout;
        self
    }

    /// How long brokers may be away before the attempt ends; 2 min unless set. Until then the job goes on as far as
    /// its log has room.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.settings.delivery_timeout = patience;
        self
    }

    /// What to do when the broker has forgotten what a checkpoint's output needs to know, because the job was down
    /// for longer than `offsets.retention.minutes`; [`LostMarker::Fail`] unless set.
    pub fn lost_marker(mut self, lost: LostMarker) -> Self {
        self.settings.lost_marker = lost;
        self
    }

    /// How long the first contact with the brokers may take; 10 s unless set.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.settings.connection.deadline = deadline;
        self
    }

    /// Sets a property of librdkafka, such as `compression.type`, `linger.ms`, `security.protocol` or
    /// `sasl.username`. Those that other settings decide are refused when the sink starts.
    pub fn property(mut self, name: &str, value: &str) -> Self {
        self.settings.connection.set(name, value);
        self
    }
}

impl<T: Data> Settings<T> {
    /// The message of a record; `None` when it is left out.
    fn message(&self, record: &T, limits: &mut Limits) -> Result<Option<Message>, KafkaError> {
        let mut message = (self.encode)(record).map_err(|source| KafkaError::Encode { source })?;
        if let Some(choose) = &self.choose {
            message.partition = Some(choose(record));
        }
        let topic = message.topic.as_deref().unwrap_or(&self.topic);
        match limits.check(topic, &message) {
            Ok(()) => Ok(Some(message)),
            Err(error) => self.refuse(message, error, limits),
        }
    }

    fn refuse(&self, message: Message, error: KafkaError, limits: &mut Limits) -> Result<Option<Message>, KafkaError> {
        match &self.refused {
            RefusedMessages::Fail => Err(error),
            RefusedMessages::SkipAndCount => {
                let count = self.refused_counter.count_one();
                if count.is_power_of_two() {
                    tracing::warn!(%error, count, "left out a message");
                }
                Ok(None)
            }
            RefusedMessages::DeadLetter(dead) => {
                let (topic, most) = (message.topic.as_ref().unwrap_or(&self.topic).clone(), limits.most_bytes(dead));
                let letter = dead_letter(message, &topic, dead, &error.to_string(), most);
                limits.check(dead, &letter)?;
                Ok(Some(letter))
            }
        }
    }

    /// Whether the topic is there, and what it takes.
    fn check(&self) -> Result<Limits, KafkaError> {
        for (setting, time) in
            [("transaction_timeout", self.transaction_timeout), ("renew_marker_every", self.renew_marker)]
        {
            if time.is_zero() {
                let reason = "it must not be zero".to_owned();
                return Err(KafkaError::Setting { setting: setting.to_owned(), reason });
            }
        }
        let mut limits = Limits::open(&self.connection, &self.topic)?;
        if let RefusedMessages::DeadLetter(dead) = &self.refused {
            // So that batches are no larger than this topic takes, either.
            limits.most_bytes(dead);
        }
        Ok(limits)
    }

    /// The property that keeps batches as small as the topic takes them, unless the user has set it.
    fn batch_size(&self, limits: &Limits) -> Option<(&'static str, String)> {
        let bytes = limits.batch_bytes().filter(|bytes| *bytes < BATCH_BYTES)?;
        let set = self.connection.properties.contains_key("batch.size");
        (!set).then(|| ("batch.size", bytes.max(1).to_string()))
    }
}

/// A Kafka sink by the logged contract.
struct LoggedKafka<T> {
    settings: Settings<T>,
    limits: Option<Limits>,
}

impl<T: Data> LoggedSink for LoggedKafka<T> {
    type Record = T;

    fn open(&mut self, context: &SinkContext<'_>) -> UserResult<Applier> {
        let limits = self.settings.check().classify()?;
        let target = KafkaTarget {
            batch_size: self.settings.batch_size(&limits),
            connection: self.settings.connection.clone(),
            topic: self.settings.topic.clone(),
            transaction_timeout: self.settings.transaction_timeout,
            held: None,
            missing_since: None,
            end: context.end.clone(),
        };
        self.limits = Some(limits);
        Ok(Applier::on_thread(target, Patience { total: self.settings.delivery_timeout, pause: PAUSE }))
    }

    /// Attempts of one job differ in their number, jobs and lives of a job in what is drawn.
    fn writer(&self, context: &SinkContext<'_>) -> String {
        let info = context.info;
        let drawn = RandomState::new().build_hasher().finish();
        let id = format!("{}-{}-{}-{}-{drawn:016x}", self.settings.prefix, info.operator, info.attempt.0, info.index);
        writer_name(&id, &self.settings.topic)
    }

    fn encode(&mut self, record: T, time: Option<i64>, bytes: &mut Vec<u8>) -> UserResult {
        let limits = self.limits.as_mut().ok_or(KafkaError::NotOpen).classify()?;
        if let Some(message) = self.settings.message(&record, limits).classify()? {
            entry::encode(&message, time, bytes);
        }
        Ok(())
    }

    fn transaction_bytes(&self) -> usize {
        self.settings.transaction_bytes
    }

    fn renew_marker_every(&self) -> Option<Duration> {
        Some(self.settings.renew_marker)
    }

    fn log_limit_bytes(&self) -> usize {
        self.settings.log_bytes
    }

    fn lost_marker(&self) -> LostMarker {
        self.settings.lost_marker
    }
}

/// Methods of a stream that end it in Kafka.
pub trait KafkaSinks<T: Data> {
    /// Writes the records to Kafka. `name` identifies the sink in checkpoints.
    #[track_caller]
    fn to_kafka(&self, name: &str, sink: KafkaSink<T>) -> SinkStream;
}

impl<T: Data> KafkaSinks<T> for Stream<T> {
    #[track_caller]
    fn to_kafka(&self, name: &str, sink: KafkaSink<T>) -> SinkStream {
        let KafkaSink { settings, delivery } = sink;
        let plain = |settings, idempotent| PlainSink { settings, idempotent, open: None, scratch: Vec::new() };
        match delivery {
            Delivery::ExactlyOnce => self.logged_sink(name, LoggedKafka { settings, limits: None }),
            Delivery::AtLeastOnce => self.sink(name, plain(settings, false)),
            Delivery::Idempotent => self.sink(name, plain(settings, true)),
        }
    }
}
