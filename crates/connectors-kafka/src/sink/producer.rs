//! A producer: hands messages to the client, and waits when it has enough.

use std::time::{Duration, Instant};

use rdkafka::error::{KafkaError as ClientError, RDKafkaErrorCode as Code};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord};

use super::entry::Entry;
use crate::KafkaError;
use crate::client::{Connection, Watch};
use crate::error::code_of;

/// Kilobytes that wait in the client to be sent, at most.
const QUEUE_KILOBYTES: &str = "32768";
/// Messages between two looks at what was delivered.
const POLL_MESSAGES: u32 = 256;

pub(super) struct Producer {
    pub(super) client: BaseProducer<Watch>,
    topic: String,
    /// How long a message may wait for room in the client.
    patience: Duration,
    sent: u32,
}

impl Producer {
    /// A producer to `topic`. No broker is asked yet.
    pub(super) fn new(
        connection: &Connection,
        topic: &str,
        patience: Duration,
        own: &[(&str, &str)],
    ) -> Result<Self, KafkaError> {
        // The hash that Kafka's own producers use, so that keys meet in the same partitions.
        let common = [
            ("partitioner", "murmur2_random"),
            ("queue.buffering.max.kbytes", QUEUE_KILOBYTES),
            ("queue.buffering.max.messages", "1000000"),
        ];
        let own: Vec<(&str, &str)> = common.iter().chain(own).copied().collect();
        let client = connection.config(&own)?.create_with_context(connection.watch());
        let client = client.map_err(|error| connection.not_created(error))?;
        Ok(Producer { client, topic: topic.to_owned(), patience, sent: 0 })
    }

    /// Hands a message to the client.
    pub(super) fn send(&mut self, entry: &Entry<'_>) -> Result<(), KafkaError> {
        let topic = entry.topic.unwrap_or(&self.topic);
        let mut record = BaseRecord::<[u8], [u8]>::to(topic);
        record.partition = entry.partition;
        record.key = entry.key;
        record.payload = entry.value;
        record.timestamp = entry.timestamp_ms;
        if !entry.headers.is_empty() {
            let mut headers = OwnedHeaders::new_with_capacity(entry.headers.len());
            for (key, value) in &entry.headers {
                headers = headers.insert(Header { key, value: *value });
            }
            record.headers = Some(headers);
        }
        let mut since: Option<Instant> = None;
        loop {
            let Err((error, back)) = self.client.send(record) else { break };
            if code_of(&error) != Some(Code::QueueFull) {
                return Err(self.refused(topic, error));
            }
            if since.get_or_insert_with(Instant::now).elapsed() >= self.patience {
                let reason = self.watch().last_word();
                return Err(KafkaError::call(format!("send to topic {topic}"), reason, error));
            }
            self.client.poll(Duration::from_millis(10));
            record = back;
        }
        self.sent += 1;
        if self.sent >= POLL_MESSAGES {
            self.sent = 0;
            self.client.poll(Duration::ZERO);
        }
        Ok(())
    }

    /// What the client has reported.
    pub(super) fn watch(&self) -> Watch {
        use rdkafka::producer::Producer as _;
        (**self.client.client().context()).clone()
    }

    /// The first message that was not delivered, as an error.
    pub(super) fn check_delivered(&self) -> Result<(), KafkaError> {
        match self.watch().take_undelivered() {
            None => Ok(()),
            Some((topic, error)) => Err(self.refused(&topic, error)),
        }
    }

    /// The error of a message, by what it means.
    fn refused(&self, topic: &str, error: ClientError) -> KafkaError {
        match code_of(&error) {
            Some(
                Code::MessageSizeTooLarge
                | Code::InvalidMessageSize
                | Code::InvalidMessage
                | Code::InvalidRecord
                | Code::InvalidTimestamp,
            ) => KafkaError::Refused { topic: topic.to_owned(), reason: error.to_string() },
            Some(Code::UnknownTopic | Code::UnknownPartition | Code::UnknownTopicOrPartition) => {
                KafkaError::NotThere { topic: topic.to_owned() }
            }
            _ => KafkaError::call(format!("send to topic {topic}"), self.watch().last_word(), error),
        }
    }
}
