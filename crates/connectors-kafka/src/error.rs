//! What can go wrong between Millpond and Kafka, and what to do next.

use millpond_core::error::Classified;
use millpond_core::{ErrorKind, UserError, UserResult};
use rdkafka::error::{KafkaError as ClientError, RDKafkaErrorCode as Code};

/// A Kafka source or sink that cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum KafkaError {
    /// A setting that cannot be used.
    #[error("setting {setting} is invalid: {reason}")]
    Setting {
        /// Which one.
        setting: String,
        /// Which rule it breaks.
        reason: String,
    },
    /// No broker answers.
    #[error("no broker of {servers} answers within {waited_ms} ms{}", because(reason))]
    Unreachable {
        /// The bootstrap servers.
        servers: String,
        /// How long was waited.
        waited_ms: u128,
        /// What the client saw last, if anything.
        reason: String,
    },
    /// The brokers do not accept who we say we are.
    #[error("{servers} refuses the credentials{}", because(reason))]
    Credentials {
        /// The bootstrap servers.
        servers: String,
        /// What they said.
        reason: String,
    },
    /// One side speaks TLS and the other does not, or a certificate is not accepted.
    #[error("cannot agree with {servers} on TLS (setting security.protocol){}", because(reason))]
    Tls {
        /// The bootstrap servers.
        servers: String,
        /// What the client saw.
        reason: String,
    },
    /// We may not do this.
    #[error("{operation} is not permitted{}", because(reason))]
    NotPermitted {
        /// What was tried.
        operation: String,
        /// What the broker said.
        reason: String,
    },
    /// A topic that is not there.
    #[error("topic {topic} does not exist at {servers}")]
    NoTopic {
        /// The topic.
        topic: String,
        /// The bootstrap servers.
        servers: String,
    },
    /// A partition that is not there, or not any more.
    #[error("partition {partition} of topic {topic} does not exist; it was read up to offset {offset}")]
    NoPartition {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The next offset to read.
        offset: i64,
    },
    /// The offset at which reading should go on is not there any more, or not yet.
    #[error("offset {offset} of partition {partition} of topic {topic} is out of range: there are {low} to {high}")]
    OutOfRange {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The offset to go on from.
        offset: i64,
        /// The first offset that is there.
        low: i64,
        /// The offset after the last one.
        high: i64,
    },
    /// A group that has committed nothing, where that is where to start.
    #[error("group {group} has no committed offset for partition {partition} of topic {topic}")]
    NotCommitted {
        /// The group.
        group: String,
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
    },
    /// A message that cannot be decoded.
    #[error("bad message at offset {offset} of partition {partition} of topic {topic}: {cause}")]
    BadMessage {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The offset.
        offset: i64,
        /// What is wrong with it.
        cause: String,
    },
    /// A record that cannot be made a message.
    #[error("cannot make a message of a record")]
    Encode {
        /// What the encoder said.
        source: UserError,
    },
    /// A message that Kafka does not take.
    #[error("a message for topic {topic} is not taken{}", because(reason))]
    Refused {
        /// The topic.
        topic: String,
        /// Why.
        reason: String,
    },
    /// A topic or partition that the brokers do not know now, and perhaps only now.
    #[error("topic {topic}, or a partition of it, is not there")]
    NotThere {
        /// The topic.
        topic: String,
    },
    /// A stored entry that is none.
    #[error("an entry of the log of a sink, {bytes} bytes, cannot be read")]
    Entry {
        /// Its size.
        bytes: usize,
    },
    /// A call of the client that failed.
    #[error("cannot {operation}{}", because(reason))]
    Call {
        /// What was tried.
        operation: String,
        /// What the client saw besides.
        reason: String,
        /// Whether it may have happened nevertheless.
        uncertain: bool,
        /// What the client said.
        source: ClientError,
    },
    /// The sink is used before it was opened.
    #[error("the sink is not open")]
    NotOpen,
}

fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

impl KafkaError {
    /// What to do next.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            KafkaError::Setting { .. }
            | KafkaError::Credentials { .. }
            | KafkaError::Tls { .. }
            | KafkaError::NotPermitted { .. }
            | KafkaError::NoTopic { .. }
            | KafkaError::NoPartition { .. }
            | KafkaError::OutOfRange { .. }
            | KafkaError::NotCommitted { .. }
            | KafkaError::BadMessage { .. }
            | KafkaError::Encode { .. }
            | KafkaError::Refused { .. } => ErrorKind::Invalid,
            KafkaError::Unreachable { .. } | KafkaError::NotThere { .. } => ErrorKind::Unavailable,
            KafkaError::Call { uncertain: true, .. } => ErrorKind::Uncertain,
            KafkaError::Call { uncertain: false, .. } => ErrorKind::Unavailable,
            KafkaError::Entry { .. } => ErrorKind::Corrupt,
            KafkaError::NotOpen => ErrorKind::Bug,
        }
    }

    /// The error of a call, by what it means to the caller.
    pub(crate) fn call(operation: impl Into<String>, reason: String, source: ClientError) -> Self {
        let operation = operation.into();
        match code_of(&source) {
            Some(
                Code::TopicAuthorizationFailed
                | Code::GroupAuthorizationFailed
                | Code::ClusterAuthorizationFailed
                | Code::TransactionalIdAuthorizationFailed,
            ) => KafkaError::NotPermitted { operation, reason: source.to_string() },
            _ => KafkaError::Call { operation, reason, uncertain: false, source },
        }
    }

    /// The same, for a call that may have had its effect.
    pub(crate) fn uncertain(self) -> Self {
        match self {
            KafkaError::Call { operation, reason, source, .. } => {
                KafkaError::Call { operation, reason, uncertain: true, source }
            }
            other => other,
        }
    }
}

/// The code in a client's error.
pub(crate) fn code_of(error: &ClientError) -> Option<Code> {
    match error {
        ClientError::Transaction(error) => Some(error.code()),
        other => other.rdkafka_error_code(),
    }
}

/// What connectors return to whoever runs them: an error that says whether another attempt makes sense.
pub(crate) trait Classify<T> {
    /// Boxes the error together with its class.
    fn classify(self) -> UserResult<T>;
}

impl<T> Classify<T> for Result<T, KafkaError> {
    fn classify(self) -> UserResult<T> {
        self.map_err(|error| Classified::new(error.kind(), error).into())
    }
}
