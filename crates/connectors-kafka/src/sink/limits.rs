//! What the brokers take: how large a message may be, which partitions there are. Looked at when a record is encoded, so
//! that a message which nobody would ever take is noticed before its epoch is published.
//!
//! Invariant: a message is refused only if it is certain that it would not be taken. What cannot be known (a topic that
//! cannot be asked for now, a size that compression will change) is let through.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::config::FromClientConfigAndContext as _;
use rdkafka::consumer::BaseConsumer;

use crate::KafkaError;
use crate::client::{Connection, Watch};
use crate::message::Message;

/// What the client takes unless `message.max.bytes` says otherwise.
const CLIENT_BYTES: usize = 1_000_000;
/// The client's estimate of what a message costs beside key, value and headers.
const MESSAGE_OVERHEAD: usize = 36;
/// And each header beside name and value.
const HEADER_OVERHEAD: usize = 10;
/// What a batch costs beside its records.
const BATCH_OVERHEAD: usize = 61;
/// What a record in it costs at least.
const LEAST_OVERHEAD: usize = 7;
/// What could not be found out, or was not enough, is asked for again after so long.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// What is known of the brokers' limits.
pub(super) struct Limits {
    connection: Connection,
    consumer: BaseConsumer<Watch>,
    /// What the client takes.
    client_bytes: usize,
    /// Whether what is sent is smaller than what is given.
    compressed: bool,
    topics: BTreeMap<String, Known>,
}

#[derive(Clone, Copy)]
struct Known {
    asked: Instant,
    /// Number of partitions, 0 for a topic that is not there; `None` when the brokers did not say.
    partitions: Option<i32>,
    /// What the topic takes, where the brokers say so.
    bytes: Option<usize>,
}

impl Limits {
    /// Asks for the sink's topic.
    ///
    /// # Errors
    /// When it is not there, or the brokers cannot be asked.
    pub(super) fn open(connection: &Connection, topic: &str) -> Result<Self, KafkaError> {
        // Properties of producers only are none of the consumer's.
        let consumer = connection.consumer(&[("allow.auto.create.topics", "false")])?;
        let partitions = connection.partitions(&consumer, topic)?.len();
        let property = |names: &[&str]| names.iter().find_map(|name| connection.properties.get(*name));
        let client_bytes = property(&["message.max.bytes"]).and_then(|text| text.parse().ok()).unwrap_or(CLIENT_BYTES);
        let compressed =
            property(&["compression.type", "compression.codec"]).is_some_and(|codec| codec.as_str() != "none");
        let mut limits =
            Limits { connection: connection.clone(), consumer, client_bytes, compressed, topics: BTreeMap::new() };
        let bytes = limits.topic_bytes(topic);
        let known = Known { asked: Instant::now(), partitions: i32::try_from(partitions).ok(), bytes };
        limits.topics.insert(topic.to_owned(), known);
        Ok(limits)
    }

    /// The size of batches that all topics take which were asked for so far, where it is known.
    pub(super) fn batch_bytes(&self) -> Option<usize> {
        self.topics.values().filter_map(|known| known.bytes).min()
    }

    /// What fits into a message for this topic.
    pub(super) fn most_bytes(&mut self, topic: &str) -> usize {
        self.known(topic, None).bytes.map_or(self.client_bytes, |bytes| bytes.min(self.client_bytes))
    }

    /// Whether this message for `topic` may be taken.
    ///
    /// # Errors
    /// [`KafkaError::Refused`] when it certainly will not.
    pub(super) fn check(&mut self, topic: &str, message: &Message) -> Result<(), KafkaError> {
        let refused = |reason: String| Err(KafkaError::Refused { topic: topic.to_owned(), reason });
        let size = size(message);
        let estimate = size + MESSAGE_OVERHEAD + message.headers.len() * HEADER_OVERHEAD;
        if estimate > self.client_bytes {
            return refused(format!("it has {estimate} bytes, message.max.bytes is {}", self.client_bytes));
        }
        let known = self.known(topic, message.partition);
        if let Some(bytes) = known.bytes.filter(|_| !self.compressed)
            && size + LEAST_OVERHEAD + BATCH_OVERHEAD > bytes
        {
            return refused(format!("it has {size} bytes, max.message.bytes of the topic is {bytes}"));
        }
        match (known.partitions, message.partition) {
            (Some(0), _) => refused("there is no such topic".to_owned()),
            (Some(partitions), Some(partition)) if !(0..partitions).contains(&partition) => {
                refused(format!("there is no partition {partition}, it has {partitions}"))
            }
            _ => Ok(()),
        }
    }

    /// What is known of a topic, asked for again where it does not suffice.
    fn known(&mut self, topic: &str, partition: Option<i32>) -> Known {
        let known = self.topics.get(topic).copied();
        let suffices = |known: &Known| {
            let enough = |partitions: i32| partitions > 0 && partition.is_none_or(|wanted| wanted < partitions);
            known.partitions.is_some_and(enough) || known.asked.elapsed() < ASK_AGAIN
        };
        // A partition that is not there may have been added since: the first time it is asked for at once.
        if let Some(known) = known.filter(suffices) {
            return known;
        }
        let partitions = match self.connection.partitions_now(&self.consumer, topic) {
            Ok(partitions) => i32::try_from(partitions.len()).ok(),
            Err(KafkaError::NoTopic { .. }) => Some(0),
            Err(error) => {
                tracing::debug!(topic, %error, "the partitions of a topic cannot be asked for");
                None
            }
        };
        let bytes = known.and_then(|known| known.bytes).or_else(|| self.topic_bytes(topic));
        let known = Known { asked: Instant::now(), partitions, bytes };
        self.topics.insert(topic.to_owned(), known);
        known
    }

    /// `max.message.bytes` of the topic, where the brokers say it.
    fn topic_bytes(&self, topic: &str) -> Option<usize> {
        let config = self.connection.config(&[]).ok()?;
        let client = AdminClient::from_config_and_context(&config, self.connection.watch()).ok()?;
        let options = AdminOptions::new().request_timeout(Some(self.connection.deadline));
        let resource = ResourceSpecifier::Topic(topic);
        let asked = client.describe_configs([&resource], &options);
        let found = match futures_executor::block_on(asked) {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!(topic, %error, "the limits of a topic are not told");
                return None;
            }
        };
        let resource = found.into_iter().find_map(Result::ok)?;
        resource.get("max.message.bytes")?.value.as_ref()?.parse().ok()
    }
}

/// Bytes of key, value and headers.
fn size(message: &Message) -> usize {
    let length = |field: &Option<Vec<u8>>| field.as_ref().map_or(0, Vec::len);
    let headers = message.headers.iter().map(|(name, value)| name.len() + length(value));
    length(&message.key) + length(&message.value) + headers.sum::<usize>()
}

/// The message for the topic of what was refused: with what is wrong with it as headers, and the value cut to what fits.
pub(super) fn dead_letter(message: Message, topic: &str, dead: &str, reason: &str, limit_bytes: usize) -> Message {
    let mut letter = message.header("millpond.topic", topic).header("millpond.error", reason);
    if let Some(partition) = letter.partition.take() {
        letter = letter.header("millpond.partition", partition.to_string());
    }
    letter.topic = Some(dead.to_owned());
    let overhead = |letter: &Message| MESSAGE_OVERHEAD + BATCH_OVERHEAD + letter.headers.len() * HEADER_OVERHEAD;
    let length = letter.value.as_ref().map_or(0, Vec::len);
    if size(&letter) + overhead(&letter) > limit_bytes {
        letter = letter.header("millpond.value-bytes", length.to_string());
        let rest = size(&letter) - length + overhead(&letter);
        if let Some(value) = &mut letter.value {
            value.truncate(limit_bytes.saturating_sub(rest));
        }
    }
    letter
}
