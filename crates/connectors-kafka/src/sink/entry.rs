//! A message in the log of a sink: what is written when the record comes, and read when it is sent.
//!
//! ```text
//! flags (1) · topic? · partition? · timestamp? · key? · value? · number of headers · (name · value?)*
//! ```
//!
//! Numbers are varints (signed ones zigzag), bytes and texts have their length before them. An optional field is there
//! when its flag is set; the value of a header has a length that is one more than its size, 0 for none.

use millpond_core::codec::{put_varint, take_varint};

use crate::KafkaError;
use crate::message::Message;

const TOPIC: u8 = 1;
const PARTITION: u8 = 2;
const TIMESTAMP: u8 = 4;
const KEY: u8 = 8;
const VALUE: u8 = 16;

/// A message as it lies in the log.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub(super) topic: Option<&'a str>,
    pub(super) partition: Option<i32>,
    pub(super) timestamp_ms: Option<i64>,
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
    pub(super) headers: Vec<(&'a str, Option<&'a [u8]>)>,
}

/// Appends a message; `time` is the record's event time, if it has one.
pub(super) fn encode(message: &Message, time: Option<i64>, bytes: &mut Vec<u8>) {
    let timestamp = message.timestamp_ms.or(time);
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    bytes.push(
        flag(message.topic.is_some(), TOPIC)
            | flag(message.partition.is_some(), PARTITION)
            | flag(timestamp.is_some(), TIMESTAMP)
            | flag(message.key.is_some(), KEY)
            | flag(message.value.is_some(), VALUE),
    );
    if let Some(topic) = &message.topic {
        put_bytes(topic.as_bytes(), bytes);
    }
    if let Some(partition) = message.partition {
        put_signed(i64::from(partition), bytes);
    }
    if let Some(timestamp) = timestamp {
        put_signed(timestamp, bytes);
    }
    for field in [&message.key, &message.value].into_iter().flatten() {
        put_bytes(field, bytes);
    }
    put_varint(message.headers.len() as u64, bytes);
    for (name, value) in &message.headers {
        put_bytes(name.as_bytes(), bytes);
        match value {
            None => put_varint(0, bytes),
            Some(value) => {
                put_varint(value.len() as u64 + 1, bytes);
                bytes.extend_from_slice(value);
            }
        }
    }
}

/// The mirror of [`encode`].
pub(super) fn decode(bytes: &[u8]) -> Result<Entry<'_>, KafkaError> {
    Input { rest: bytes }.entry().ok_or(KafkaError::Entry { bytes: bytes.len() })
}

fn put_bytes(from: &[u8], bytes: &mut Vec<u8>) {
    put_varint(from.len() as u64, bytes);
    bytes.extend_from_slice(from);
}

fn put_signed(value: i64, bytes: &mut Vec<u8>) {
    put_varint(((value << 1) ^ (value >> 63)) as u64, bytes);
}

struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    fn entry(mut self) -> Option<Entry<'a>> {
        let (flags, rest) = self.rest.split_first()?;
        self.rest = rest;
        let has = |flag: u8| flags & flag != 0;
        let mut entry = Entry::default();
        if has(TOPIC) {
            entry.topic = Some(self.text()?);
        }
        if has(PARTITION) {
            entry.partition = Some(i32::try_from(self.signed()?).ok()?);
        }
        if has(TIMESTAMP) {
            entry.timestamp_ms = Some(self.signed()?);
        }
        if has(KEY) {
            entry.key = Some(self.bytes()?);
        }
        if has(VALUE) {
            entry.value = Some(self.bytes()?);
        }
        for _ in 0..self.varint()? {
            let name = self.text()?;
            let value = match self.varint()? {
                0 => None,
                length => Some(self.take(length - 1)?),
            };
            entry.headers.push((name, value));
        }
        self.rest.is_empty().then_some(entry)
    }

    fn varint(&mut self) -> Option<u64> {
        let (value, rest) = take_varint(self.rest)?;
        self.rest = rest;
        Some(value)
    }

    fn signed(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn take(&mut self, length: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(usize::try_from(length).ok()?)?;
        self.rest = rest;
        Some(taken)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.varint()?;
        self.take(length)
    }

    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message() -> impl Strategy<Value = Message> {
        let bytes = || proptest::option::of(proptest::collection::vec(any::<u8>(), 0..20));
        let headers = proptest::collection::vec(("[a-z]{0,5}", bytes()), 0..4);
        let topic = proptest::option::of("[a-z.]{1,9}");
        (topic, any::<Option<i32>>(), bytes(), bytes(), any::<Option<i64>>(), headers).prop_map(
            |(topic, partition, key, value, timestamp_ms, headers)| Message {
                topic,
                partition,
                key,
                value,
                timestamp_ms,
                headers,
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_to_the_log_is_read_from_it(message in message(), time in any::<Option<i64>>()) {
            let mut bytes = Vec::new();
            encode(&message, time, &mut bytes);
            let entry = decode(&bytes).unwrap();
            prop_assert_eq!(entry.topic, message.topic.as_deref());
            prop_assert_eq!(entry.partition, message.partition);
            prop_assert_eq!(entry.timestamp_ms, message.timestamp_ms.or(time));
            prop_assert_eq!(entry.key, message.key.as_deref());
            prop_assert_eq!(entry.value, message.value.as_deref());
            let headers: Vec<_> = message.headers.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect();
            prop_assert_eq!(entry.headers, headers);
        }

        #[test]
        fn bytes_that_are_no_entry_are_an_error_and_never_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn the_bytes_of_an_entry_stay_as_they_are() {
        let mut bytes = Vec::new();
        encode(&Message::new("v").key("k").header("h", "x"), Some(-3), &mut bytes);
        assert_eq!(bytes, [0b11100, 5, 1, b'k', 1, b'v', 1, 1, b'h', 2, b'x']);
    }
}
