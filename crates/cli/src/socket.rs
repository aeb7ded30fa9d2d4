//! The control socket: how other processes of the same owner ask a running job for something.
//!
//! A Unix domain socket in the job's state directory, in a directory that only the owner may enter. One
//! connection carries one request, a line of JSON, and one answer, a line of JSON (`docs/control.md`).
//!
//! Owns the words on the line and who may say them. Does *not* own what is done (see `jobmanager`).

mod client;
mod server;

use millpond_checkpoint::SavepointReport;
use millpond_jobmanager::OperatorTime;
use serde::{Deserialize, Serialize};

pub(crate) use client::ask;
pub(crate) use server::ControlServer;

/// Directory of the socket in the state directory; only its owner may enter it.
const DIRECTORY: &str = "control";
/// Name of the socket.
const SOCKET: &str = "socket";
/// Longest line, in bytes.
const MAX_LINE_BYTES: u64 = 64 * 1024;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "do", deny_unknown_fields)]
pub(crate) enum Request {
    /// How is the job?
    Status {},
    /// Take a checkpoint now.
    Checkpoint {},
    /// Take a checkpoint now, and write it as a savepoint.
    Savepoint {
        /// Absolute path of the savepoint.
        to: String,
    },
    /// Go on with another number of workers in each process.
    Rescale {
        /// How many.
        workers: u32,
    },
    /// Stop with a last checkpoint.
    Stop {
        /// Whether operators emit what they hold before.
        #[serde(default)]
        drain: bool,
        /// Absolute path of a savepoint to write, if any.
        #[serde(default)]
        savepoint: Option<String>,
    },
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reply {
    /// It was done.
    Ok(Outcome),
    /// It was not.
    Error {
        /// Why, with all causes.
        message: String,
        /// What to do next: one of the kinds of errors.
        kind: String,
    },
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// The epoch that answers the request; of a status, the newest completed one.
    pub(crate) epoch: u64,
    /// The savepoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) savepoint: Option<Written>,
    /// After a change of the number of workers: how long no records flowed, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) still_ms: Option<u64>,
    /// How the job is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<Status>,
}

/// A savepoint that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Written {
    /// Where.
    pub(crate) path: String,
    /// Objects in it, its manifest not counted.
    pub(crate) objects: u64,
    /// Their size, in bytes.
    pub(crate) bytes: u64,
}

impl Written {
    pub(crate) fn new(path: String, report: &SavepointReport) -> Written {
        Written { path, objects: report.objects, bytes: report.bytes }
    }
}

/// A running job in a few numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Status {
    /// Which execution.
    pub(crate) attempt: u64,
    /// Restarts since the process began.
    pub(crate) restarts: u64,
    /// Records that sources have emitted in this process.
    pub(crate) records: u64,
    /// Live keyed entries.
    pub(crate) state_entries: u64,
    /// Memory of keyed state, in bytes, estimated.
    pub(crate) state_bytes: u64,
    /// Event time in each operator, as far as it runs in this process.
    #[serde(default)]
    pub(crate) operators: Vec<OperatorStatus>,
}

/// Event time in one operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OperatorStatus {
    /// Name of the operator.
    pub(crate) operator: String,
    /// The least watermark of its subtasks, in milliseconds; null as long as one has none.
    pub(crate) watermark_ms: Option<i64>,
    /// Records that came too late and were dropped.
    pub(crate) late_dropped: u64,
}

impl OperatorStatus {
    pub(crate) fn of(time: &OperatorTime) -> OperatorStatus {
        let OperatorTime { operator, watermark_ms, late_dropped } = time;
        OperatorStatus { operator: operator.to_string(), watermark_ms: *watermark_ms, late_dropped: *late_dropped }
    }
}

#[cfg(test)]
mod tests;
