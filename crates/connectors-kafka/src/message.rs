//! Messages as they are read and as they are written.

use rdkafka::message::{BorrowedMessage, Headers, Message as _};
use serde::{Deserialize, Serialize};

/// A header: name and value.
pub type Header = (String, Option<Vec<u8>>);

/// A message that is being read.
pub struct KafkaMessage<'a> {
    inner: &'a BorrowedMessage<'a>,
}

impl<'a> KafkaMessage<'a> {
    pub(crate) fn new(inner: &'a BorrowedMessage<'a>) -> Self {
        KafkaMessage { inner }
    }

    /// Its topic.
    #[must_use]
    pub fn topic(&self) -> &str {
        self.inner.topic()
    }

    /// Its partition.
    #[must_use]
    pub fn partition(&self) -> i32 {
        self.inner.partition()
    }

    /// Its offset.
    #[must_use]
    pub fn offset(&self) -> i64 {
        self.inner.offset()
    }

    /// Its timestamp, in milliseconds since 1970-01-01 UTC.
    #[must_use]
    pub fn timestamp_ms(&self) -> Option<i64> {
        self.inner.timestamp().to_millis()
    }

    /// Its key.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        self.inner.key()
    }

    /// Its value; `None` for a tombstone.
    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        self.inner.payload()
    }

    /// Its headers, in order; one name may occur more than once.
    pub fn headers(&self) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
        self.inner.headers().into_iter().flat_map(|headers| headers.iter().map(|header| (header.key, header.value)))
    }

    /// The message as data.
    #[must_use]
    pub fn to_owned(&self) -> KafkaRecord {
        KafkaRecord {
            topic: self.topic().to_owned(),
            partition: self.partition(),
            offset: self.offset(),
            timestamp_ms: self.timestamp_ms(),
            key: self.key().map(<[u8]>::to_vec),
            value: self.value().map(<[u8]>::to_vec),
            headers: self.headers().map(|(name, value)| (name.to_owned(), value.map(<[u8]>::to_vec))).collect(),
        }
    }
}

/// A message that was read, with all that is known of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KafkaRecord {
    /// Its topic.
    pub topic: String,
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// Its timestamp, in milliseconds since 1970-01-01 UTC.
    pub timestamp_ms: Option<i64>,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its value; `None` for a tombstone.
    pub value: Option<Vec<u8>>,
    /// Its headers, in order.
    pub headers: Vec<Header>,
}

/// A message that could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadMessage {
    /// The message.
    pub message: KafkaRecord,
    /// What is wrong with it.
    pub error: String,
}

/// A message to write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Where it goes, when not to the sink's topic.
    pub topic: Option<String>,
    /// Its partition. Unless set, the hash of the key decides, as with Kafka's own producer; without a key
    /// messages are spread.
    pub partition: Option<i32>,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its value; `None` for a tombstone.
    pub value: Option<Vec<u8>>,
    /// Its timestamp, in milliseconds since 1970-01-01 UTC. Unless set, the record's event time, if it has one, else
    /// the time of sending.
    pub timestamp_ms: Option<i64>,
    /// Its headers, in order.
    pub headers: Vec<Header>,
}

impl Message {
    /// A message with a value.
    #[must_use]
    pub fn new(value: impl Into<Vec<u8>>) -> Self {
        Message { value: Some(value.into()), ..Message::default() }
    }

    /// With a key.
    #[must_use]
    pub fn key(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// With one more header.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push((name.to_owned(), Some(value.into())));
        self
    }
}
