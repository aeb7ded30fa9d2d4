//! Connections: settings that all clients share, what the client library reports, and the first contact.
//!
//! Invariant: the first contact ends within its deadline, with an error that says what is wrong.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError as ClientError, RDKafkaErrorCode as Code};
use rdkafka::message::DeliveryResult;
use rdkafka::metadata::Metadata;
use rdkafka::producer::ProducerContext;
use rdkafka::{ClientContext, TopicPartitionList};

use crate::KafkaError;
use crate::error::code_of;

/// Where the brokers are, how to reach them, and how long that may take.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) servers: String,
    /// Properties of librdkafka.
    pub(crate) properties: BTreeMap<String, String>,
    /// How long a call may take that has to be answered before the job goes on.
    pub(crate) deadline: Duration,
}

/// Time for the first contact unless set otherwise.
const DEADLINE: Duration = Duration::from_secs(10);
/// How long a topic may be unknown before it counts as missing.
const UNKNOWN_TOPIC: Duration = Duration::from_secs(3);
/// Between two questions for an unknown topic.
const UNKNOWN_TOPIC_PAUSE: Duration = Duration::from_millis(200);
/// How long one wait for an event of the client is.
const EVENT_WAIT: Duration = Duration::from_millis(50);

impl Connection {
    pub(crate) fn new(servers: &str) -> Self {
        Connection { servers: servers.to_owned(), properties: BTreeMap::new(), deadline: DEADLINE }
    }

    /// Sets a property that the user may set, but Millpond does not.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.properties.insert(name.to_owned(), value.to_owned());
    }

    /// Values that the client must not show.
    fn secrets(&self) -> Arc<[String]> {
        const NAMES: [&str; 6] = ["password", "secret", "token", "key.pem", "jaas", "oauthbearer.config"];
        let is_secret = |name: &str| NAMES.iter().any(|part| name.contains(part));
        let found = self.properties.iter().filter(|(name, value)| is_secret(name) && !value.is_empty());
        found.map(|(_, value)| value.clone()).collect()
    }

    /// A place for what a client of this connection reports.
    pub(crate) fn watch(&self) -> Watch {
        Watch { seen: Arc::default(), secrets: self.secrets() }
    }

    /// The properties for a client, those of `own` last: what is Millpond's to decide cannot be set otherwise.
    pub(crate) fn config(&self, own: &[(&str, &str)]) -> Result<ClientConfig, KafkaError> {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.servers).set_log_level(RDKafkaLogLevel::Info);
        for (name, value) in &self.properties {
            if own.iter().any(|(theirs, _)| theirs == name) {
                let reason = "it is decided by other settings of the source or sink".to_owned();
                return Err(KafkaError::Setting { setting: name.clone(), reason });
            }
            config.set(name, value);
        }
        for (name, value) in own {
            config.set(*name, *value);
        }
        Ok(config)
    }

    /// A consumer. No broker is asked yet.
    pub(crate) fn consumer(&self, own: &[(&str, &str)]) -> Result<BaseConsumer<Watch>, KafkaError> {
        self.config(own)?.create_with_context(self.watch()).map_err(|error| self.not_created(error))
    }

    /// The error of a client that could not be made.
    pub(crate) fn not_created(&self, error: ClientError) -> KafkaError {
        match error {
            ClientError::ClientConfig(_, reason, setting, value) => {
                // The value may be a secret, under a name that is spelt wrongly.
                let reason = if value.is_empty() { reason } else { reason.replace(&value, "…") };
                KafkaError::Setting { setting, reason }
            }
            ClientError::ClientCreation(reason) => {
                KafkaError::Setting { setting: "of the client".to_owned(), reason: self.watch().clean(&reason) }
            }
            other => KafkaError::call("make a client", String::new(), other),
        }
    }

    /// Asks for the partitions of a topic. One that is not there is asked for again for a moment: a broker that has just
    /// started may not know its topics yet.
    pub(crate) fn partitions(&self, consumer: &BaseConsumer<Watch>, topic: &str) -> Result<Vec<i32>, KafkaError> {
        let started = Instant::now();
        loop {
            match self.partitions_now(consumer, topic) {
                Err(KafkaError::NoTopic { .. }) if started.elapsed() < UNKNOWN_TOPIC.min(self.deadline) => {
                    std::thread::sleep(UNKNOWN_TOPIC_PAUSE);
                }
                other => return other,
            }
        }
    }

    /// Asks once for the partitions of a topic.
    pub(crate) fn partitions_now(&self, consumer: &BaseConsumer<Watch>, topic: &str) -> Result<Vec<i32>, KafkaError> {
        let metadata = self.metadata(consumer, topic)?;
        let found = metadata.topics().iter().find(|found| found.name() == topic);
        let missing = || KafkaError::NoTopic { topic: topic.to_owned(), servers: self.servers.clone() };
        let found = found.ok_or_else(missing)?;
        match found.error().map(Code::from) {
            None => {}
            Some(Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::InvalidTopic) => return Err(missing()),
            Some(code) => {
                let source = ClientError::MetadataFetch(code);
                return Err(KafkaError::call(format!("look at topic {topic}"), String::new(), source));
            }
        }
        let mut partitions: Vec<i32> = found.partitions().iter().map(|partition| partition.id()).collect();
        partitions.sort_unstable();
        if partitions.is_empty() { Err(missing()) } else { Ok(partitions) }
    }

    fn metadata(&self, consumer: &BaseConsumer<Watch>, topic: &str) -> Result<Metadata, KafkaError> {
        let started = Instant::now();
        let watch = consumer.context();
        loop {
            let left = self.deadline.saturating_sub(started.elapsed());
            // In short steps: what the client notices meanwhile may say that waiting is in vain.
            let step = left.min(Duration::from_secs(1)).max(Duration::from_millis(1));
            let error = match consumer.fetch_metadata(Some(topic), step) {
                Ok(metadata) => return Ok(metadata),
                Err(error) => error,
            };
            while let Some(event) = consumer.poll(EVENT_WAIT) {
                drop(event);
            }
            watch.verdict(&self.servers)?;
            let passing = matches!(
                code_of(&error),
                Some(Code::BrokerTransportFailure | Code::OperationTimedOut | Code::AllBrokersDown | Code::Resolve)
            );
            if !passing {
                return Err(KafkaError::call(format!("look at topic {topic}"), watch.last_word(), error));
            }
            if started.elapsed() >= self.deadline {
                return Err(self.unreachable(started, watch));
            }
        }
    }

    /// The error of a deadline that has passed without an answer.
    pub(crate) fn unreachable(&self, since: Instant, watch: &Watch) -> KafkaError {
        let waited_ms = since.elapsed().as_millis();
        KafkaError::Unreachable { servers: self.servers.clone(), waited_ms, reason: watch.last_word() }
    }
}

/// What the client library reports, kept and sent to the log.
#[derive(Clone, Default)]
pub(crate) struct Watch {
    seen: Arc<Mutex<Seen>>,
    /// What is never shown, whatever the client says.
    secrets: Arc<[String]>,
}

#[derive(Default)]
struct Seen {
    /// What was said last about a connection.
    last_word: String,
    tls: Option<String>,
    credentials: Option<String>,
    /// The first message that was not delivered since somebody asked.
    undelivered: Option<(String, ClientError)>,
}

impl Watch {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The words without secrets.
    pub(crate) fn clean(&self, words: &str) -> String {
        self.secrets.iter().fold(words.to_owned(), |words, secret| words.replace(secret, "…"))
    }

    /// What was said last about a connection.
    pub(crate) fn last_word(&self) -> String {
        self.seen().last_word.clone()
    }

    /// Takes the first message that was not delivered: its topic, and why.
    pub(crate) fn take_undelivered(&self) -> Option<(String, ClientError)> {
        self.seen().undelivered.take()
    }

    /// What waiting would not mend.
    pub(crate) fn verdict(&self, servers: &str) -> Result<(), KafkaError> {
        let seen = self.seen();
        let servers = servers.to_owned();
        if let Some(reason) = seen.credentials.clone() {
            return Err(KafkaError::Credentials { servers, reason });
        }
        match seen.tls.clone() {
            Some(reason) => Err(KafkaError::Tls { servers, reason }),
            None => Ok(()),
        }
    }

    fn hear(&self, words: &str) {
        let mut seen = self.seen();
        let lower = words.to_lowercase();
        words.trim().clone_into(&mut seen.last_word);
        let has = |parts: &[&str]| parts.iter().any(|part| lower.contains(part));
        if has(&["ssl handshake failed: disconnected", "transport failure"]) {
            // A broker that goes away in the middle of a handshake has not refused anything.
            return;
        }
        if has(&["ssl handshake failed", "connecting to a ssl listener", "connecting to a plaintext listener"])
            || has(&["certificate verify failed", "broker certificate could not be verified"])
        {
            seen.tls = Some(words.trim().to_owned());
        } else if has(&["authentication fail", "authentication error", "sasl_handshake", "sasl mechanism"])
            || has(&["saslauthenticate", "unsupported_sasl"])
        {
            seen.credentials = Some(words.trim().to_owned());
        }
    }
}

impl ClientContext for Watch {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        // Threads and addresses of the client come first, in brackets.
        let message = self.clean(message);
        let words = message.rsplit_once("]: ").map_or(message.as_str(), |(_, words)| words);
        if (level as i32) <= (RDKafkaLogLevel::Error as i32) || facility == "FAIL" {
            self.hear(words);
            tracing::warn!(facility, "kafka client: {words}");
        } else {
            tracing::debug!(facility, "kafka client: {words}");
        }
    }

    fn error(&self, error: ClientError, reason: &str) {
        let reason = &self.clean(reason);
        match code_of(&error) {
            Some(Code::Authentication | Code::SaslAuthenticationFailed) => {
                self.seen().credentials.get_or_insert_with(|| reason.clone());
            }
            Some(Code::SSL) => {
                self.seen().tls.get_or_insert_with(|| reason.clone());
            }
            Some(Code::PartitionEOF) => return,
            _ => {}
        }
        tracing::debug!(error = %error, "kafka client: {reason}");
    }

    fn stats_raw(&self, _statistics: &[u8]) {}
}

impl ConsumerContext for Watch {
    fn commit_callback(&self, result: Result<(), ClientError>, offsets: &TopicPartitionList) {
        if let Err(error) = result
            && offsets.count() > 0
        {
            // Only for people who watch the lag; positions are in checkpoints (KF-03).
            tracing::warn!(%error, "offsets are not committed to the group");
        }
    }
}

impl ProducerContext for Watch {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, _opaque: ()) {
        if let Err((error, message)) = result {
            let topic = rdkafka::Message::topic(message).to_owned();
            self.seen().undelivered.get_or_insert_with(|| (topic, error.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(line: &str) -> Result<(), KafkaError> {
        let watch = Watch::default();
        watch.log(RDKafkaLogLevel::Error, "FAIL", line);
        watch.verdict("broker:9092")
    }

    #[test]
    fn what_the_client_says_of_credentials_and_tls_is_told_apart_from_what_passes() {
        let refused = "[thrd:sasl_plaintext://broker:9092/bootstrap]: sasl_plaintext://broker:9092/bootstrap: SASL \
                       authentication error: Invalid username or password (after 10ms in state AUTH_REQ)";
        assert!(matches!(after(refused), Err(KafkaError::Credentials { .. })));
        let plain = "[thrd:ssl://broker:9092/bootstrap]: ssl://broker:9092/bootstrap: SSL handshake failed: \
                     error:0A00010B:SSL routines::wrong version number: connecting to a PLAINTEXT broker listener?";
        assert!(matches!(after(plain), Err(KafkaError::Tls { .. })));
        let encrypted = "[thrd:broker:9092/bootstrap]: broker:9092/bootstrap: Disconnected while requesting ApiVersion: \
                         might be caused by incorrect security.protocol configuration (connecting to a SSL listener?)";
        assert!(matches!(after(encrypted), Err(KafkaError::Tls { .. })));
        let refused = "[thrd:broker:9092/bootstrap]: broker:9092/bootstrap: Connect to ipv4#127.0.0.1:9092 failed: \
                       Connection refused (after 0ms in state CONNECT)";
        assert!(after(refused).is_ok());
        for went_away in [
            "[thrd:ssl://broker:9092/bootstrap]: ssl://broker:9092/bootstrap: SSL handshake failed: Disconnected: connecting \
             to a PLAINTEXT broker listener? (after 3ms in state SSL_HANDSHAKE)",
            "[thrd:sasl_plaintext://broker:9092/bootstrap]: sasl_plaintext://broker:9092/bootstrap: SASL authentication error: \
             SaslAuthenticateRequest failed: Local: Broker transport failure (after 3ms in state AUTH_REQ)",
        ] {
            assert!(after(went_away).is_ok(), "{went_away}");
        }
    }

    #[test]
    fn secrets_are_not_in_what_the_client_says_whatever_it_says() {
        let mut connection = Connection::new("broker:9092");
        connection.set("sasl.password", "hunter2");
        connection.set("ssl.key.pem", "MIIEv");
        connection.set("sasl.username", "anna");
        let watch = connection.watch();
        watch.log(RDKafkaLogLevel::Error, "FAIL", "[thrd:x]: x: anna with hunter2 and hunter2, key MIIEv, is refused");
        assert_eq!(watch.last_word(), "x: anna with … and …, key …, is refused");
        watch.error(ClientError::Global(Code::Authentication), "hunter2 is not the password");
        let error = watch.verdict("broker:9092").unwrap_err().to_string();
        assert_eq!(error, "broker:9092 refuses the credentials: … is not the password");
    }

    #[test]
    fn errors_of_credentials_and_tls_are_heard_as_codes_as_well() {
        for (code, credentials) in [(Code::Authentication, true), (Code::SSL, false)] {
            let watch = Watch::default();
            watch.error(ClientError::Global(code), "no");
            let verdict = watch.verdict("broker:9092");
            assert_eq!(matches!(verdict, Err(KafkaError::Credentials { .. })), credentials);
            assert_eq!(matches!(verdict, Err(KafkaError::Tls { .. })), !credentials);
        }
    }
}
