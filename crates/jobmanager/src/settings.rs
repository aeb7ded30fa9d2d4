//! Settings of a job: data that can be printed and compared.

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
}

/// How a job runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobSettings {
    /// Identifies the job in checkpoint storage.
    pub name: String,
    /// Number of workers: threads that process records.
    pub workers: u32,
    /// Number of key groups; `None` for what the checkpoint says, else 1,024. Never changes for a job.
    pub max_parallelism: Option<u32>,
    /// How checkpoints are taken.
    pub checkpoints: millpond_checkpoint::Settings,
    /// What happens when an attempt fails.
    pub restart: RestartPolicy,
    /// Where to start from.
    pub from: StartFrom,
    /// Whether state in the checkpoint that the job does not know may be dropped.
    pub allow_dropped_state: bool,
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
            max_parallelism: None,
            checkpoints: millpond_checkpoint::Settings::default(),
            restart: RestartPolicy::default(),
            from: StartFrom::default(),
            allow_dropped_state: false,
            channel_records: flow.records,
            channel_bytes: flow.bytes,
        }
    }
}
