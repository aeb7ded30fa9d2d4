//! Settings of a job that runs in several processes: data that can be printed and compared.

use std::time::Duration;

use millpond_socket::{Security, TlsSettings};
use serde::{Deserialize, Serialize};

use crate::error::ClusterError;
use crate::greeting::Fact;
use crate::hosts::host_name;

/// Where the processes of a job are, and how patient they are with each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterSettings {
    /// Index of this process; 0 leads the job.
    pub process: u32,
    /// The address `HOST:PORT` of each process, by index.
    pub hosts: Vec<String>,
    /// The address to listen at, where that is not the one by which the others find this process.
    pub listen: Option<String>,
    /// How long a process waits for the others before it gives up, in milliseconds.
    pub wait_ms: u64,
    /// Who has nothing to say for so long says that, in milliseconds.
    pub heartbeat_ms: u64,
    /// Who has said nothing for so long is lost, in milliseconds.
    pub lost_after_ms: u64,
    /// Certificates, for connections under mutual TLS; `None` for connections that everybody may read and open.
    pub tls: Option<TlsSettings>,
    /// What must be the same in all processes, beside what the job manager compares by itself.
    pub facts: Vec<Fact>,
}

impl Default for ClusterSettings {
    fn default() -> Self {
        ClusterSettings {
            process: 0,
            hosts: Vec::new(),
            listen: None,
            wait_ms: 60_000,
            heartbeat_ms: 500,
            lost_after_ms: 4_000,
            tls: None,
            facts: Vec::new(),
        }
    }
}

impl ClusterSettings {
    /// Number of processes.
    #[must_use]
    pub fn processes(&self) -> u32 {
        u32::try_from(self.hosts.len()).unwrap_or(u32::MAX)
    }

    /// The address of a process; empty when there is no such process.
    #[must_use]
    pub fn host(&self, process: u32) -> &str {
        self.hosts.get(process as usize).map_or("", String::as_str)
    }

    /// The address at which this process listens.
    #[must_use]
    pub fn own_address(&self) -> &str {
        self.listen.as_deref().unwrap_or_else(|| self.host(self.process))
    }

    /// Reads the certificates, if there are any, and checks them.
    ///
    /// # Errors
    /// When one of the files is wrong, the program was built without TLS, or the settings do not fit each other ([`Self::check`]).
    pub fn security(&self) -> Result<Security, ClusterError> {
        self.check()?;
        Ok(Security::open(self.tls.as_ref(), host_name(self.host(self.process)))?)
    }

    /// How long a process waits for the others.
    #[must_use]
    pub fn wait(&self) -> Duration {
        Duration::from_millis(self.wait_ms)
    }

    /// The pause between signs of life.
    #[must_use]
    pub fn heartbeat(&self) -> Duration {
        Duration::from_millis(self.heartbeat_ms.max(1))
    }

    /// How long silence may last.
    #[must_use]
    pub fn lost_after(&self) -> Duration {
        Duration::from_millis(self.lost_after_ms.max(1))
    }

    /// Whether the numbers fit each other.
    ///
    /// # Errors
    /// When this process is not among the hosts, or silence counts as loss before the next sign of life is due.
    pub fn check(&self) -> Result<(), ClusterError> {
        let (process, processes) = (self.process, self.processes());
        if process >= processes {
            return Err(ClusterError::NoSuchProcess { process, processes });
        }
        let (heartbeat_ms, lost_after_ms) = (self.heartbeat_ms, self.lost_after_ms);
        if lost_after_ms < heartbeat_ms.saturating_mul(2) {
            return Err(ClusterError::HastyLoss { heartbeat_ms, lost_after_ms });
        }
        Ok(())
    }
}
