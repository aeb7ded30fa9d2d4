//! What can go wrong between processes.

use std::io;

use millpond_core::ErrorKind;
use millpond_socket::TlsError;

/// What can go wrong between processes.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// A line of the hosts file is no address.
    #[error("line {line} of the hosts is {text:?}, not HOST:PORT")]
    BadHost {
        /// Line number, from 1.
        line: usize,
        /// What stands there.
        text: String,
    },
    /// An address stands twice in the hosts file.
    #[error("{host} is process {first} and process {second} in the hosts")]
    DuplicateHost {
        /// The address.
        host: String,
        /// The first process with it.
        first: usize,
        /// The other.
        second: usize,
    },
    /// The hosts file has another number of processes than was asked for.
    #[error("the hosts name {hosts} processes, not {processes}")]
    HostCount {
        /// Hosts in the file.
        hosts: usize,
        /// Processes as set.
        processes: u32,
    },
    /// The index of this process is too large.
    #[error("there is no process {process} among {processes}: they are counted from 0")]
    NoSuchProcess {
        /// The index.
        process: u32,
        /// Number of processes.
        processes: u32,
    },
    /// Processes would be lost between two signs of life.
    #[error(
        "a process that is lost after {lost_after_ms} ms must give a sign of life at least twice in that time, not every {heartbeat_ms} ms"
    )]
    HastyLoss {
        /// Pause between signs of life, in milliseconds.
        heartbeat_ms: u64,
        /// How long silence may last, in milliseconds.
        lost_after_ms: u64,
    },
    /// The address of this process cannot be listened at.
    #[error("process {process} cannot listen at {address}{}", if in_use(.source) { ", which another process uses" } else { "" })]
    Listen {
        /// This process.
        process: u32,
        /// The address.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// The leading process did not let this one join.
    #[error("process 0 at {address} refuses process {process}: {reason}")]
    Refused {
        /// This process.
        process: u32,
        /// Where process 0 is.
        address: String,
        /// Why.
        reason: String,
    },
    /// Another process with the same index is part of the job.
    #[error("process {process} of the job runs already: {reason}")]
    Taken {
        /// The index.
        process: u32,
        /// What the leading process said.
        reason: String,
    },
    /// A process cannot be reached.
    #[error("cannot reach process {process} at {address}: {reason}")]
    Unreachable {
        /// The other process.
        process: u32,
        /// Its address.
        address: String,
        /// The last failure.
        reason: String,
    },
    /// This process and another do not trust each other, or only one of them uses TLS.
    #[error("this process and process {process} at {address} do not trust each other: {reason}")]
    Untrusted {
        /// The other process.
        process: u32,
        /// Its address.
        address: String,
        /// Why, as a sentence about the other.
        reason: String,
    },
    /// The certificates of this process are of no use.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Not all processes came in time.
    #[error("waited {waited_ms} ms for {}{}", missing(.processes), because(.last_refusal))]
    Missing {
        /// Who did not come.
        processes: Vec<u32>,
        /// How long was waited, in milliseconds.
        waited_ms: u64,
        /// Why somebody who came was sent away, if somebody was.
        last_refusal: Option<String>,
    },
    /// The attempt ended before its mesh was made.
    #[error("the attempt ended before all processes were connected")]
    Cancelled,
    /// A thread could not be started, or a socket not be set up.
    #[error("cannot set up a connection")]
    Socket(#[from] io::Error),
}

impl ClusterError {
    /// What to do next.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            ClusterError::BadHost { .. }
            | ClusterError::DuplicateHost { .. }
            | ClusterError::HostCount { .. }
            | ClusterError::NoSuchProcess { .. }
            | ClusterError::HastyLoss { .. }
            | ClusterError::Untrusted { .. }
            | ClusterError::Refused { .. } => ErrorKind::Invalid,
            ClusterError::Tls(error) => error.kind(),
            ClusterError::Taken { .. } => ErrorKind::Fenced,
            ClusterError::Listen { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput => ErrorKind::Invalid,
                _ => ErrorKind::Unavailable,
            },
            ClusterError::Unreachable { .. }
            | ClusterError::Missing { .. }
            | ClusterError::Cancelled
            | ClusterError::Socket(_) => ErrorKind::Unavailable,
        }
    }
}

fn in_use(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrInUse
}

fn missing(processes: &[u32]) -> String {
    let names: Vec<String> = processes.iter().map(u32::to_string).collect();
    format!("{} {}", if names.len() == 1 { "process" } else { "processes" }, names.join(", "))
}

fn because(refusal: &Option<String>) -> String {
    refusal.as_ref().map_or(String::new(), |reason| format!("; one was refused: {reason}"))
}
