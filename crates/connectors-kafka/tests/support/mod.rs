//! A real broker (noida-db, started by `scripts/servers/kafka`), and an independent look at it with the bare client.

#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "only called by tests")]
#![allow(dead_code, clippy::allow_attributes, clippy::allow_attributes_without_reason)]

pub(crate) mod refusing;
#[path = "../../../../scripts/servers/server.rs"]
mod server;

use std::sync::Arc;
use std::time::{Duration, Instant};

use millpond::storage::{MemoryStorage, Storage};
use millpond::{Components, JobError, JobReport, JobSettings, RestartPolicy};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};
use server::Server;

/// The longest wait for a broker in tests: they fail after it, they do not wait for it.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A broker that runs until it is dropped.
pub(crate) struct Broker {
    server: Server,
    pub(crate) servers: String,
}

impl Broker {
    /// Starts it; `None`, and a loud word, where it cannot be installed.
    pub(crate) fn start() -> Option<Broker> {
        let server = Server::start("kafka")?;
        eprintln!("runs against {}", server.text("broker"));
        let servers = server.text("servers").to_owned();
        Some(Broker { server, servers })
    }

    pub(crate) fn stop(&self) {
        assert!(self.server.stop().success());
    }

    /// Starts it again, on the same data and port.
    pub(crate) fn restart(&mut self) {
        self.server.restart();
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.servers);
        config
    }

    /// Makes a topic with so many partitions.
    pub(crate) fn topic(&self, name: &str, partitions: i32) {
        self.topic_with(name, partitions, &[]);
    }

    /// Makes a topic with settings of its own.
    pub(crate) fn topic_with(&self, name: &str, partitions: i32, settings: &[(&str, &str)]) {
        use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
        let admin: AdminClient<_> = self.config().create().unwrap();
        let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        let topic = settings.iter().fold(topic, |topic, (name, value)| topic.set(name, value));
        let made = block_on(admin.create_topics([&topic], &AdminOptions::new())).unwrap();
        assert!(made.iter().all(Result::is_ok), "{made:?}");
        self.await_partitions(name, partitions);
    }

    pub(crate) fn add_partitions(&self, name: &str, partitions: i32) {
        use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions};
        let admin: AdminClient<_> = self.config().create().unwrap();
        let more = NewPartitions::new(name, partitions as usize);
        let made = block_on(admin.create_partitions([&more], &AdminOptions::new())).unwrap();
        assert!(made.iter().all(Result::is_ok), "{made:?}");
        self.await_partitions(name, partitions);
    }

    pub(crate) fn delete_topic(&self, name: &str) {
        use rdkafka::admin::{AdminClient, AdminOptions};
        let admin: AdminClient<_> = self.config().create().unwrap();
        let gone = block_on(admin.delete_topics(&[name], &AdminOptions::new())).unwrap();
        assert!(gone.iter().all(Result::is_ok), "{gone:?}");
    }

    fn await_partitions(&self, topic: &str, partitions: i32) {
        let consumer: BaseConsumer = self.config().create().unwrap();
        until("the topic is there", || {
            let metadata = consumer.fetch_metadata(Some(topic), LONG).unwrap();
            metadata.topics().iter().any(|found| found.partitions().len() == partitions as usize)
        });
    }

    /// Writes values to a partition, without transactions.
    pub(crate) fn write(&self, topic: &str, partition: i32, values: impl IntoIterator<Item = String>) {
        let producer: BaseProducer = self.config().set("linger.ms", "5").create().unwrap();
        for value in values {
            let record = BaseRecord::<str, str>::to(topic).partition(partition).payload(&value);
            producer.send(record).map_err(|(error, _)| error).unwrap();
        }
        producer.flush(LONG).unwrap();
    }

    /// A producer with an id of transactions.
    pub(crate) fn transactional(&self, id: &str) -> BaseProducer {
        let producer: BaseProducer = self.config().set("transactional.id", id).create().unwrap();
        producer.init_transactions(LONG).unwrap();
        producer
    }

    /// Everything committed in a topic, in the order of each partition.
    pub(crate) fn read(&self, topic: &str) -> Vec<Seen> {
        self.read_as(topic, "read_committed")
    }

    pub(crate) fn read_as(&self, topic: &str, isolation: &str) -> Vec<Seen> {
        let consumer: BaseConsumer = self
            .config()
            .set("group.id", "a reader of tests")
            .set("enable.auto.commit", "false")
            .set("isolation.level", isolation)
            .set("enable.partition.eof", "true")
            .create()
            .unwrap();
        let metadata = consumer.fetch_metadata(Some(topic), LONG).unwrap();
        let partitions: Vec<i32> = metadata.topics()[0].partitions().iter().map(|found| found.id()).collect();
        let mut assigned = TopicPartitionList::new();
        for partition in &partitions {
            assigned.add_partition_offset(topic, *partition, Offset::Beginning).unwrap();
        }
        consumer.assign(&assigned).unwrap();
        let (mut seen, mut ended) = (Vec::new(), std::collections::BTreeSet::new());
        let started = Instant::now();
        while ended.len() < partitions.len() {
            assert!(started.elapsed() < LONG, "the topic has no end");
            match consumer.poll(Duration::from_millis(100)) {
                Some(Ok(message)) => seen.push(Seen::new(&message)),
                Some(Err(rdkafka::error::KafkaError::PartitionEOF(partition))) => drop(ended.insert(partition)),
                Some(Err(error)) => eprintln!("reader: {error}"),
                None => {}
            }
        }
        seen.sort_by_key(|seen| (seen.partition, seen.offset));
        seen
    }

    /// What a group has committed for a partition.
    pub(crate) fn committed(&self, group: &str, topic: &str, partition: i32) -> Option<i64> {
        let consumer: BaseConsumer = self.config().set("group.id", group).create().unwrap();
        let mut asked = TopicPartitionList::new();
        asked.add_partition(topic, partition);
        let found = consumer.committed_offsets(asked, LONG).unwrap();
        match found.find_partition(topic, partition).unwrap().offset() {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        }
    }
}

/// A message that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) key: Option<String>,
    pub(crate) value: String,
    pub(crate) headers: Vec<(String, String)>,
}

impl Seen {
    fn new(message: &BorrowedMessage<'_>) -> Seen {
        let headers = message.headers().into_iter().flat_map(|headers| {
            let all: Vec<_> = headers.iter().map(|one| (one.key.to_owned(), one.value.map(<[u8]>::to_vec))).collect();
            all
        });
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Seen {
            partition: message.partition(),
            offset: message.offset(),
            key: message.key().map(text),
            value: message.payload().map(text).unwrap_or_default(),
            headers: headers.map(|(name, value)| (name, value.as_deref().map(text).unwrap_or_default())).collect(),
        }
    }
}

/// Waits until `done`.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < LONG, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a future of the client, which has threads of its own.
fn block_on<F: std::future::Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::task::Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park_timeout(Duration::from_millis(50)),
        }
    }
}

/// A job of tests: its settings, and its storage.
pub(crate) struct Job {
    pub(crate) settings: JobSettings,
    pub(crate) components: Components,
}

impl Job {
    /// With checkpoints in `storage` every `interval_ms`.
    pub(crate) fn new(storage: &MemoryStorage, workers: u32, interval_ms: u64) -> Job {
        let shared: Arc<dyn Storage> = Arc::new(storage.clone());
        let mut settings = JobSettings { workers, max_parallelism: Some(64), ..JobSettings::default() };
        settings.checkpoints.interval_ms = Some(interval_ms);
        settings.restart = RestartPolicy::Never;
        Job { settings, components: Components::new(Some(shared)) }
    }

    pub(crate) fn run(
        &self,
        job: impl Fn(&mut millpond::dataflow::Dataflow) -> millpond::UserResult + Send + Sync + 'static,
    ) -> Result<JobReport, JobError> {
        millpond::run_with(job, &self.settings, &self.components)
    }
}

/// An error with all its causes.
pub(crate) fn chain(error: &JobError) -> String {
    millpond_core::error::chain(error)
}
