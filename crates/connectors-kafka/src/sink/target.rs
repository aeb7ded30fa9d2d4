//! Kafka as the target of a logged sink: a transaction for each log, with the marker in it.
//!
//! A writer is a `transactional.id` and a consumer group of the same name. Its marker is the offset that the group has
//! committed for partition 0 of the sink's topic: the number of the last epoch that was applied. The offset is committed
//! by the transaction that holds the output, so that either both are there or neither.
//!
//! Claiming a writer makes a producer with its id: the broker then refuses whoever had it before, and ends what that
//! one had begun. Only after that the marker is read.

use std::time::{Duration, Instant};

use millpond_core::{Epoch, UserResult};
use millpond_dataflow::AttemptEnd;
use millpond_operators::{EpochLog, LoggedTarget};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError as ClientError;
use rdkafka::producer::Producer as _;
use rdkafka::{Offset, TopicPartitionList};

use super::entry;
use super::producer::Producer;
use crate::KafkaError;
use crate::client::{Connection, Watch};
use crate::error::Classify;

/// Between the name of a writer and the topic under which it keeps its marker.
const AT: char = '@';
/// The partition under which markers are kept.
const MARKER_PARTITION: i32 = 0;
/// How long the end of a transaction that has failed is waited for. After that the claim ends it.
const ABORT: Duration = Duration::from_secs(2);
/// How long a topic may be unknown to the brokers before its messages count as refused.
const UNKNOWN_TOPIC: Duration = Duration::from_secs(15);
/// The least time that a call of the client gets.
const LEAST: Duration = Duration::from_millis(500);

/// The name of a writer that keeps its marker under `topic`.
pub(super) fn writer_name(id: &str, topic: &str) -> String {
    format!("{id}{AT}{topic}")
}

/// See the module.
pub(super) struct KafkaTarget {
    pub(super) connection: Connection,
    pub(super) topic: String,
    pub(super) transaction_timeout: Duration,
    /// A property of producers, where the topic takes less than they would send.
    pub(super) batch_size: Option<(&'static str, String)>,
    pub(super) held: Option<Held>,
    /// Since when a topic of the log is not there.
    pub(super) missing_since: Option<Instant>,
    /// Nobody waits any more once the attempt is over.
    pub(super) end: AttemptEnd,
}

/// A writer that is ours.
pub(super) struct Held {
    producer: Producer,
    /// Stands for the group of the marker.
    group: BaseConsumer<Watch>,
    marker_topic: String,
}

impl KafkaTarget {
    fn take_over(&mut self, writer: &str) -> Result<Option<Epoch>, KafkaError> {
        // The former producer first: what it has open, it gives up.
        self.held = None;
        let (id, marker_topic) = writer.rsplit_once(AT).unwrap_or((writer, self.topic.as_str()));
        let timeout_ms = self.transaction_timeout.as_millis().to_string();
        let own = [
            ("transactional.id", id),
            ("transaction.timeout.ms", timeout_ms.as_str()),
            ("message.timeout.ms", timeout_ms.as_str()),
        ];
        let batch_size = self.batch_size.as_ref().map(|(name, value)| (*name, value.as_str()));
        let own: Vec<_> = own.into_iter().chain(batch_size).collect();
        let producer = Producer::new(&self.connection, &self.topic, self.transaction_timeout, &own)?;
        self.initialise(&producer)?;
        let own = [("group.id", id), ("enable.auto.commit", "false"), ("isolation.level", "read_committed")];
        let group = self.connection.consumer(&own)?;
        let held = Held { producer, group, marker_topic: marker_topic.to_owned() };
        let marker = self.marker(&held)?;
        self.held = Some(held);
        Ok(marker)
    }

    fn initialise(&self, producer: &Producer) -> Result<(), KafkaError> {
        let started = Instant::now();
        let watch = producer.watch();
        loop {
            let left = self.connection.deadline.saturating_sub(started.elapsed());
            // In short steps: what the client notices meanwhile may say that waiting is in vain.
            let step = left.min(Duration::from_secs(1)).max(Duration::from_millis(100));
            let error = match producer.client.init_transactions(step) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            producer.client.poll(Duration::from_millis(10));
            watch.verdict(&self.connection.servers)?;
            let retriable = matches!(&error, ClientError::Transaction(error) if error.is_retriable());
            if !retriable {
                return Err(KafkaError::call("begin to write in transactions", watch.last_word(), error));
            }
            if started.elapsed() >= self.connection.deadline || self.end.is_over() {
                return Err(self.connection.unreachable(started, &watch));
            }
        }
    }

    fn marker(&self, held: &Held) -> Result<Option<Epoch>, KafkaError> {
        let failed = |error| KafkaError::call("read the marker of a writer", held.group.context().last_word(), error);
        let mut asked = TopicPartitionList::new();
        asked.add_partition(&held.marker_topic, MARKER_PARTITION);
        let found = held.group.committed_offsets(asked, self.connection.deadline).map_err(failed)?;
        let Some(element) = found.find_partition(&held.marker_topic, MARKER_PARTITION) else { return Ok(None) };
        element.error().map_err(failed)?;
        match element.offset() {
            Offset::Offset(epoch) => Ok(u64::try_from(epoch).ok().map(Epoch)),
            _ => Ok(None),
        }
    }

    fn transact(&mut self, epoch: Epoch, logs: &[EpochLog]) -> Result<(), KafkaError> {
        let until = Instant::now() + self.transaction_timeout;
        let held = self.held.as_mut().ok_or(KafkaError::NotOpen)?;
        let result = held.run(epoch, logs, until);
        if let Err(error) = &result {
            tracing::debug!(%error, %epoch, "a transaction is given up");
            // So that none is open until the next try. Should this fail as well, the claim ends it.
            let _ = held.producer.client.abort_transaction(ABORT);
            self.held = None;
        }
        self.judge_missing(result)
    }

    /// A topic that is not there may come: brokers that have just started do not know all of them.
    fn judge_missing(&mut self, result: Result<(), KafkaError>) -> Result<(), KafkaError> {
        let Err(KafkaError::NotThere { topic }) = result else {
            self.missing_since = None;
            return result;
        };
        if self.missing_since.get_or_insert_with(Instant::now).elapsed() < UNKNOWN_TOPIC {
            return Err(KafkaError::NotThere { topic });
        }
        Err(KafkaError::Refused { topic, reason: "there is no such topic or partition".to_owned() })
    }
}

impl Held {
    /// One transaction, which is over or given up at `until`: the broker would not take its end after that.
    fn run(&mut self, epoch: Epoch, logs: &[EpochLog], until: Instant) -> Result<(), KafkaError> {
        let left = || until.saturating_duration_since(Instant::now()).max(LEAST);
        let failed = |what: &str, watch: &Watch, error| KafkaError::call(what, watch.last_word(), error);
        let watch = self.producer.watch();
        let client = &self.producer.client;
        client.begin_transaction().map_err(|error| failed("begin a transaction", &watch, error))?;
        // A message that was left out is an entry without bytes.
        for bytes in logs.iter().flat_map(EpochLog::entries).filter(|bytes| !bytes.is_empty()) {
            self.producer.send(&entry::decode(bytes)?)?;
        }
        let mut marker = TopicPartitionList::new();
        let offset = Offset::Offset(i64::try_from(epoch.0).unwrap_or(i64::MAX));
        let named = marker.add_partition_offset(&self.marker_topic, MARKER_PARTITION, offset);
        named.map_err(|error| failed("name a marker", &watch, error))?;
        let client = &self.producer.client;
        let group = self.group.group_metadata().ok_or(KafkaError::NotOpen)?;
        client
            .send_offsets_to_transaction(&marker, &group, left())
            .map_err(|error| failed("set a marker", &watch, error))?;
        client.flush(left()).map_err(|error| failed("send a transaction", &watch, error))?;
        self.producer.check_delivered()?;
        client.commit_transaction(left()).map_err(|error| failed("commit a transaction", &watch, error).uncertain())
    }
}

impl LoggedTarget for KafkaTarget {
    fn claim(&mut self, writer: &str) -> UserResult<Option<Epoch>> {
        self.take_over(writer).classify()
    }

    fn apply(&mut self, epoch: Epoch, logs: &[EpochLog]) -> UserResult {
        self.transact(epoch, logs).classify()
    }
}
