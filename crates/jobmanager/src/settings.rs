//! Settings of a job: data that can be printed and compared.

use millpond_cluster::ClusterSettings;
use millpond_engine::UploadLimits;
use serde::{Deserialize, Serialize};

use crate::restart::RestartPolicy;

/// Where a job starts from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartFrom {
    /// The newest checkpoint in the job's own checkpoint storage; an empty state when there is none.
    #[default]
    Latest,
    /// An empty state, whatever checkpoints there are.
    Nothing,
    /// The checkpoint in the object of this name, in the job's own checkpoint storage.
    Object(String),
    /// The checkpoint of this epoch, in the job's own checkpoint storage.
    Epoch(u64),
    /// The savepoint, or checkpoint of any job, whose manifest is this object of
    /// [`Components::origin`](crate::Components::origin).
    Foreign {
        /// The manifest: `savepoint`, or the name of a manifest in a checkpoint storage.
        object: String,
        /// Whether the job owns the savepoint from now on, and disposes of it once it has a checkpoint of
        /// its own. Else its files are only read.
        claim: bool,
    },
}

/// How patient a job is with its checkpoint storage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StorageSettings {
    /// The time that one call has, in milliseconds; large objects have a second more per MiB.
    pub timeout_ms: u64,
    /// How long a call that fails is repeated before it counts as failed, in milliseconds. An outage that is
    /// shorter makes checkpoints late and fails nothing.
    pub patience_ms: u64,
}

impl Default for StorageSettings {
    fn default() -> Self {
        StorageSettings { timeout_ms: 60_000, patience_ms: 120_000 }
    }
}

/// Where keyed state lives while the job runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// In memory, all of it.
    #[default]
    Heap,
    /// In memory up to a budget, the rest in RocksDB on the local disk. Needs
    /// [`Components::cold_backend`](crate::Components::cold_backend).
    Rocksdb,
}

impl Backend {
    /// All of them.
    pub const ALL: [Backend; 2] = [Backend::Heap, Backend::Rocksdb];

    /// Its name in settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Backend::Heap => "heap",
            Backend::Rocksdb => "rocksdb",
        }
    }
}

impl std::fmt::Display for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// How a job runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobSettings {
    /// Identifies the job in checkpoint storage.
    pub name: String,
    /// Number of workers: threads that process records; of each process, where there are several.
    pub workers: u32,
    /// Where the processes of the job are; `None` for a job in one process.
    pub cluster: Option<ClusterSettings>,
    /// Number of key groups; `None` for what the checkpoint says, else 1,024. Never changes for a job.
    pub max_parallelism: Option<u32>,
    /// Where keyed state lives.
    pub backend: Backend,
    /// Bytes of memory that the whole process shall keep to, at least [`MemoryPlan::LEAST`](crate::MemoryPlan::LEAST);
    /// `None` for half of what the machine or its container has. Of no effect with [`Backend::Heap`].
    pub memory: Option<u64>,
    /// How checkpoints are taken.
    pub checkpoints: millpond_checkpoint::Settings,
    /// What happens when an attempt fails.
    pub restart: RestartPolicy,
    /// Where to start from.
    pub from: StartFrom,
    /// Whether state in the checkpoint that the job does not know may be dropped.
    pub allow_dropped_state: bool,
    /// How patient the job is with its checkpoint storage.
    pub storage: StorageSettings,
    /// How snapshots are uploaded.
    pub uploads: UploadLimits,
    /// Records in flight on one channel, at most.
    pub channel_records: u64,
    /// Bytes in flight on one channel, at most.
    pub channel_bytes: u64,
}

impl Default for JobSettings {
    fn default() -> Self {
        let flow = millpond_runtime::FlowLimits::default();
        JobSettings {
            name: "job".to_owned(),
            workers: 1,
            cluster: None,
            max_parallelism: None,
            backend: Backend::default(),
            memory: None,
            checkpoints: millpond_checkpoint::Settings::default(),
            restart: RestartPolicy::default(),
            from: StartFrom::default(),
            allow_dropped_state: false,
            storage: StorageSettings::default(),
            uploads: UploadLimits::default(),
            channel_records: flow.records,
            channel_bytes: flow.bytes,
        }
    }
}

impl JobSettings {
    /// Workers of all processes.
    #[must_use]
    pub fn total_workers(&self) -> u32 {
        self.workers.saturating_mul(self.cluster.as_ref().map_or(1, |cluster| cluster.processes().max(1)))
    }
}
