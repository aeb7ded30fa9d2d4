//! Kafka as a source and as a sink.
//!
//! Owns: partitions and their offsets, messages, transactions of Kafka. Does *not* own: the client protocol (that is
//! librdkafka), who reads which partition, when a checkpoint is durable, what a logged sink is (see `operators`).
//!
//! The guarantees, and what happens on each failure, are described in `docs/kafka.md`.

mod client;
mod error;
mod message;
mod sink;
mod source;

pub use error::KafkaError;
pub use message::{BadMessage, Header, KafkaMessage, KafkaRecord, Message};
pub use sink::{Delivery, KafkaSink, KafkaSinks, RefusedMessages};
pub use source::{BAD_MESSAGES, KafkaReader, KafkaSource, KafkaSplit, Missing, StartAt, StopAt};
