//! A real PostgreSQL (started by `scripts/servers/postgres`), and a look at it with the bare client.

#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "only called by tests")]
#![allow(dead_code, clippy::allow_attributes, clippy::allow_attributes_without_reason)]

pub(crate) mod proxy;
#[path = "../../../../scripts/servers/server.rs"]
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millpond::storage::{MemoryStorage, Storage};
use millpond::{Components, JobError, JobReport, JobSettings, RestartPolicy, StopSignal};
use server::Server;
use tokio_postgres::{NoTls, SimpleQueryMessage};

/// The longest wait for a server in tests: they fail after it, they do not wait for it.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A server that runs until it is dropped.
pub(crate) struct Database {
    server: Server,
    pub(crate) url: String,
}

impl Database {
    /// Starts it; `None`, and a loud word, where it is not installed.
    pub(crate) fn start() -> Option<Database> {
        let server = Server::start("postgres")?;
        eprintln!("runs against PostgreSQL {}", server.text("version"));
        let url = server.text("url").to_owned();
        Some(Database { server, url })
    }

    pub(crate) fn stop(&self) {
        assert!(self.server.stop().success());
    }

    /// Starts it again, on the same data and port.
    pub(crate) fn restart(&mut self) {
        self.server.restart();
    }

    /// Host and port, as errors name them.
    pub(crate) fn server(&self) -> String {
        format!("127.0.0.1:{}", self.server.facts["port"])
    }

    pub(crate) fn directory(&self) -> &std::path::Path {
        self.server.directory()
    }

    pub(crate) fn port(&self) -> u16 {
        u16::try_from(self.server.facts["port"].as_u64().unwrap()).unwrap()
    }

    /// The address of a proxy in front of it.
    pub(crate) fn through(&self, proxy: &proxy::Proxy) -> String {
        self.url.replace(&self.server(), &format!("127.0.0.1:{}", proxy.port))
    }

    /// Stops all its processes, as if the machine had stood still, until the answer is dropped.
    pub(crate) fn hang(&self) -> Hanging {
        let postmaster = self.server.facts["pid"].as_u64().unwrap().to_string();
        send("STOP", &[postmaster.as_str()]);
        let children = std::process::Command::new("ps").args(["-o", "pid=", "--ppid", &postmaster]).output().unwrap();
        let children = String::from_utf8(children.stdout).unwrap();
        let mut pids: Vec<String> = children.split_whitespace().map(str::to_owned).collect();
        pids.push(postmaster);
        send("STOP", &pids);
        Hanging { pids }
    }

    /// Executes statements; the rows of the last query, with `|` between values and `-` for null.
    pub(crate) fn sql(&self, statements: &str) -> Vec<String> {
        self.try_sql(statements).unwrap()
    }

    pub(crate) fn try_sql(&self, statements: &str) -> Result<Vec<String>, tokio_postgres::Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await?;
            let connection = tokio::spawn(connection);
            let messages = client.simple_query(statements).await?;
            drop(client);
            let _ = connection.await;
            let mut rows = Vec::new();
            for message in messages {
                match message {
                    SimpleQueryMessage::Row(row) => {
                        let values = (0..row.len()).map(|at| row.get(at).unwrap_or("-"));
                        rows.push(values.collect::<Vec<_>>().join("|"));
                    }
                    SimpleQueryMessage::RowDescription(_) => rows.clear(),
                    _ => {}
                }
            }
            Ok(rows)
        })
    }
}

/// Processes that are stopped until this is dropped.
pub(crate) struct Hanging {
    pids: Vec<String>,
}

impl Drop for Hanging {
    fn drop(&mut self) {
        send("CONT", &self.pids);
    }
}

/// Sends a signal. A process may have ended meanwhile.
fn send(signal: &str, pids: &[impl AsRef<std::ffi::OsStr>]) {
    let _ = std::process::Command::new("kill").arg(format!("-{signal}")).args(pids).status().unwrap();
}

/// Waits until `done`.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < LONG, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
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

    /// Runs it on a thread of its own.
    pub(crate) fn spawn(
        self,
        job: impl Fn(&mut millpond::dataflow::Dataflow) -> millpond::UserResult + Send + Sync + 'static,
    ) -> Running {
        let stop = Arc::clone(&self.components.stop);
        Running { stop, thread: std::thread::spawn(move || self.run(job)) }
    }
}

/// A job that runs.
pub(crate) struct Running {
    stop: Arc<StopSignal>,
    thread: std::thread::JoinHandle<Result<JobReport, JobError>>,
}

impl Running {
    /// Ends it with a last checkpoint.
    pub(crate) fn stop(self) -> Result<JobReport, JobError> {
        self.stop.stop();
        self.thread.join().unwrap()
    }

    pub(crate) fn wait(self) -> Result<JobReport, JobError> {
        self.thread.join().unwrap()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.thread.is_finished()
    }
}

/// True so many times, each time when at least two epochs were completed since the last.
pub(crate) fn after_epochs(job: &Job, times: u64) -> impl Fn() -> bool + Send + Sync + 'static {
    let (status, failed, last) = (Arc::clone(&job.components.status), AtomicU64::new(0), AtomicU64::new(0));
    move || {
        let epoch = status.snapshot().epoch;
        let fails = failed.load(Ordering::SeqCst) < times && epoch >= last.load(Ordering::SeqCst) + 2;
        if fails {
            last.store(epoch, Ordering::SeqCst);
            failed.fetch_add(1, Ordering::SeqCst);
        }
        fails
    }
}

/// An error with all its causes.
pub(crate) fn chain(error: &JobError) -> String {
    millpond_core::error::chain(error)
}
