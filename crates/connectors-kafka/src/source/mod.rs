//! Kafka as a source: one split a partition, positions in operator state.
//!
//! Owns: which partitions there are, where they start and stop, what is done when an offset, a topic or a message is
//! not as it should be. Does *not* own: who reads which partition (see `operators`); there is no group that rebalances.
//!
//! ```text
//! topics ─► partitions (discover) ─► offsets to start and stop at (start) ─► split ─► queue of the client ─► decode ─► record
//! ```
//!
//! Invariants: a position is the offset after the last message that was emitted or skipped for good (KF-01); what a
//! checkpoint holds wins over groups and the setting of the start (KF-02); groups are told after a checkpoint (KF-03).

mod discover;
mod reader;
mod split;
mod start;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use millpond_connectors::{BadRecordCounter, BadRecords};
use millpond_core::{Data, UserError, UserResult};
use millpond_dataflow::{RestoredSplits, SideTag, Source, Split};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::{Offset, TopicPartitionList};

use crate::KafkaError;
use crate::client::{Connection, Watch};
use crate::error::Classify;
use crate::message::{BadMessage, KafkaMessage, KafkaRecord};
use discover::Discovery;
pub use reader::KafkaReader;
pub use split::KafkaSplit;
pub use start::{Missing, StartAt, StopAt};

/// Side output of a Kafka source for what it cannot decode.
pub const BAD_MESSAGES: SideTag<BadMessage> = SideTag::new("bad-messages");

/// Bytes of one partition that wait in the client unless set otherwise.
const BUFFER_BYTES: usize = 4 << 20;
/// Time between two looks for new partitions unless set otherwise.
const DISCOVERY: Duration = Duration::from_secs(30);

/// Makes a record of a message.
type Decode<T> = Arc<dyn Fn(&KafkaMessage<'_>) -> Result<T, UserError> + Send + Sync>;

/// Reads topics of Kafka.
///
/// Every partition is read by one subtask; their positions are in checkpoints, and a restore goes on exactly there,
/// whatever a group has committed. Records have the messages' timestamps as event time, each partition with a
/// watermark of its own ([`timed_source`](millpond_operators::SourceOperators::timed_source)).
///
/// Reads what is committed only, unless [`KafkaSource::read_uncommitted`] is set.
///
/// ```
/// use millpond_connectors_kafka::{KafkaSource, StartAt};
/// #[derive(Clone, serde::Serialize, serde::Deserialize)]
/// struct Order { id: u64, amount: f64 }
/// let orders = KafkaSource::json::<Order>("localhost:9092", "orders").group("reports").start_at(StartAt::Group);
/// # let _ = orders;
/// ```
#[must_use]
pub struct KafkaSource<T> {
    settings: Settings,
    decode: Decode<T>,
    shared: Option<Shared>,
    discovery: Option<Discovery>,
}

#[derive(Clone)]
pub(crate) struct Settings {
    connection: Connection,
    topics: Vec<String>,
    group: Option<String>,
    start: StartAt,
    /// Where a partition starts of which the group has committed nothing.
    no_group: Missing,
    stop: Option<StopAt>,
    out_of_range: Missing,
    deleted_ends: bool,
    discovery: Option<Duration>,
    uncommitted: bool,
    buffer_bytes: usize,
    bad: BadRecords,
    counter: BadRecordCounter,
}

/// What all readers of a subtask share.
#[derive(Clone)]
struct Shared {
    consumer: Arc<BaseConsumer<Watch>>,
}

impl KafkaSource<KafkaRecord> {
    /// Messages with all that is known of them.
    pub fn records(servers: &str, topic: &str) -> Self {
        KafkaSource::with(servers, topic, |message| Ok(message.to_owned()))
    }
}

impl KafkaSource<Vec<u8>> {
    /// The values of messages, as bytes; empty for a tombstone.
    pub fn bytes(servers: &str, topic: &str) -> Self {
        KafkaSource::with(servers, topic, |message| Ok(message.value().unwrap_or_default().to_vec()))
    }
}

impl KafkaSource<()> {
    /// Values that are JSON. A tombstone is a bad message, unless `T` can be read from `null`.
    pub fn json<T: Data>(servers: &str, topic: &str) -> KafkaSource<T> {
        KafkaSource::with(servers, topic, |message| Ok(serde_json::from_slice(message.value().unwrap_or(b"null"))?))
    }
}

impl<T: Data> KafkaSource<T> {
    /// Records that `decode` makes of messages. What it fails on is a bad message.
    pub fn with(
        servers: &str,
        topic: &str,
        decode: impl Fn(&KafkaMessage<'_>) -> Result<T, UserError> + Send + Sync + 'static,
    ) -> Self {
        let settings = Settings {
            connection: Connection::new(servers),
            topics: vec![topic.to_owned()],
            group: None,
            start: StartAt::Earliest,
            no_group: Missing::Earliest,
            stop: None,
            out_of_range: Missing::Fail,
            deleted_ends: false,
            discovery: Some(DISCOVERY),
            uncommitted: false,
            buffer_bytes: BUFFER_BYTES,
            bad: BadRecords::Fail,
            counter: BadRecordCounter::new(),
        };
        KafkaSource { settings, decode: Arc::new(decode), shared: None, discovery: None }
    }

    /// Reads one more topic.
    pub fn topic(mut self, topic: &str) -> Self {
        self.settings.topics.push(topic.to_owned());
        self
    }

    /// Commits offsets to a consumer group after each checkpoint, for tools that show how far behind a reader is. They
    /// are where the source starts only with [`StartAt::Group`].
    pub fn group(mut self, group: &str) -> Self {
        self.settings.group = Some(group.to_owned());
        self
    }

    /// Where to start, when no checkpoint says so; [`StartAt::Earliest`] unless set. Partitions that appear later
    /// are read from their beginning (KF-06).
    pub fn start_at(mut self, start: StartAt) -> Self {
        self.settings.start = start;
        self
    }

    /// What to do with partitions of which the group has committed nothing, with [`StartAt::Group`];
    /// [`Missing::Earliest`] unless set.
    pub fn without_group_offset(mut self, missing: Missing) -> Self {
        self.settings.no_group = missing;
        self
    }

    /// Makes the source a bounded one, which ends there (KF-08). New partitions are not looked for (KF-07).
    pub fn stop_at(mut self, stop: StopAt) -> Self {
        self.settings.stop = Some(stop);
        self
    }

    /// What to do when the offset to go on from is not there any more; [`Missing::Fail`] unless set. Whatever is
    /// skipped is told in the log.
    pub fn out_of_range(mut self, missing: Missing) -> Self {
        self.settings.out_of_range = missing;
        self
    }

    /// Partitions that are deleted have been read to their end, instead of ending the job with an error.
    pub fn deleted_partitions_end(mut self) -> Self {
        self.settings.deleted_ends = true;
        self
    }

    /// How often to look for new partitions; every 30 s unless set, `None` for never.
    pub fn discover_every(mut self, interval: Option<Duration>) -> Self {
        self.settings.discovery = interval;
        self
    }

    /// Also reads messages of transactions that are open, or were aborted.
    pub fn read_uncommitted(mut self) -> Self {
        self.settings.uncommitted = true;
        self
    }

    /// How many bytes of one partition may wait in the client, and about how many are fetched at once; 4 MiB unless
    /// set. A slow job holds no more than that for each partition, and a message or two.
    pub fn buffer_bytes(mut self, bytes: usize) -> Self {
        self.settings.buffer_bytes = bytes;
        self
    }

    /// What to do with messages that cannot be decoded; [`BadRecords::Fail`] unless set. The side output is
    /// [`BAD_MESSAGES`], whose records can be sent to a dead-letter topic.
    pub fn bad_messages(mut self, setting: BadRecords) -> Self {
        self.settings.bad = setting;
        self
    }

    /// Counts skipped messages in `counter`, which the caller keeps a clone of.
    pub fn bad_message_counter(mut self, counter: &BadRecordCounter) -> Self {
        self.settings.counter = counter.clone();
        self
    }

    /// How long the first contact with the brokers may take; 10 s unless set.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.settings.connection.deadline = deadline;
        self
    }

    /// Sets a property of librdkafka, such as `security.protocol`, `sasl.username` or `ssl.ca.location`. Those that
    /// other settings decide are refused when the source starts.
    pub fn property(mut self, name: &str, value: &str) -> Self {
        self.settings.connection.set(name, value);
        self
    }
}

impl Settings {
    /// Whether reading ends somewhere.
    fn is_bounded(&self) -> bool {
        self.stop.is_some()
    }

    /// A client for reading. It asks no broker before it has to.
    fn consumer(&self) -> Result<BaseConsumer<Watch>, KafkaError> {
        let kilobytes = (self.buffer_bytes / 1_024).clamp(1, 2_097_151).to_string();
        let fetch = self.buffer_bytes.clamp(1_024, 1_000_000_000).to_string();
        // Without a group nothing is committed; the client wants a name all the same.
        let group = self.group.as_deref().unwrap_or("millpond");
        let isolation = if self.uncommitted { "read_uncommitted" } else { "read_committed" };
        let own = [
            ("group.id", group),
            ("enable.auto.commit", "false"),
            ("enable.auto.offset.store", "false"),
            ("auto.offset.reset", "error"),
            ("enable.partition.eof", "true"),
            ("isolation.level", isolation),
            ("allow.auto.create.topics", "false"),
            ("queued.max.messages.kbytes", &kilobytes),
            ("fetch.message.max.bytes", &fetch),
        ];
        self.connection.consumer(&own)
    }
}

impl<T: Data> KafkaSource<T> {
    fn shared(&mut self) -> Result<Shared, KafkaError> {
        if let Some(shared) = &self.shared {
            return Ok(shared.clone());
        }
        let consumer = Arc::new(self.settings.consumer()?);
        Ok(self.shared.insert(Shared { consumer }).clone())
    }

    /// All partitions that there are.
    fn find(&mut self) -> Result<Vec<(String, i32)>, KafkaError> {
        let shared = self.shared()?;
        self.settings.find(&shared.consumer)
    }
}

impl Settings {
    fn find(&self, consumer: &BaseConsumer<Watch>) -> Result<Vec<(String, i32)>, KafkaError> {
        let mut found = Vec::new();
        for topic in &self.topics {
            let partitions = self.connection.partitions(consumer, topic)?;
            found.extend(partitions.into_iter().map(|partition| (topic.clone(), partition)));
        }
        Ok(found)
    }
}

impl<T: Data> Source for KafkaSource<T> {
    type Record = T;
    type Split = KafkaSplit;
    type Reader = KafkaReader<T>;

    fn enumerate(&mut self) -> UserResult<Vec<KafkaSplit>> {
        let found = self.find().classify()?;
        let consumer = self.shared().classify()?.consumer;
        start::started(&self.settings, &consumer, found).classify()
    }

    fn discover(&mut self) -> UserResult<Vec<KafkaSplit>> {
        if self.discovery.is_none() {
            self.discovery = Some(Discovery::start(self.settings.clone()));
        }
        let found = self.discovery.as_ref().map(Discovery::found).unwrap_or_default();
        Ok(found.into_iter().map(|(topic, partition)| KafkaSplit::from_beginning(topic, partition)).collect())
    }

    fn restore(&mut self, known: &[String], _ended: &BTreeSet<String>) -> UserResult<RestoredSplits<KafkaSplit>> {
        let ids = known.iter().cloned().map(Some).collect();
        if self.settings.is_bounded() {
            return Ok(RestoredSplits { ids, new: Vec::new() });
        }
        let found = self.find().classify()?.into_iter();
        let found = found.map(|(topic, partition)| KafkaSplit::from_beginning(topic, partition));
        let new: Vec<KafkaSplit> = found.filter(|split| !known.contains(&split.id())).collect();
        if !new.is_empty() {
            tracing::info!(count = new.len(), "reads partitions that the checkpoint does not know");
        }
        Ok(RestoredSplits { ids, new })
    }

    fn open_split(&mut self, split: KafkaSplit) -> UserResult<KafkaReader<T>> {
        let consumer = self.shared().classify()?.consumer;
        KafkaReader::open(consumer, split, &self.settings, &self.decode).classify()
    }

    fn discovery_interval(&self) -> Option<Duration> {
        self.settings.discovery.filter(|_| !self.settings.is_bounded())
    }

    fn wants_progress(&self) -> bool {
        self.settings.group.is_some()
    }

    fn progress(&mut self, splits: Vec<KafkaSplit>) -> UserResult {
        let Some(shared) = &self.shared else { return Ok(()) };
        let mut offsets = TopicPartitionList::new();
        for split in splits.iter().filter(|split| split.next >= 0) {
            // Offsets that were read are valid ones.
            let _ = offsets.add_partition_offset(&split.topic, split.partition, Offset::Offset(split.next));
        }
        if offsets.count() > 0
            && let Err(error) = shared.consumer.commit(&offsets, CommitMode::Async)
        {
            tracing::warn!(%error, "offsets are not committed to the group");
        }
        Ok(())
    }
}
