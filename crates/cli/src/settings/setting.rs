//! The table of settings: one name each, spelt alike in files, variables and flags.

use std::fmt;

/// A setting of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Setting {
    /// Name of the job.
    Name,
    /// Number of workers.
    Workers,
    /// Number of key groups.
    MaxParallelism,
    /// The job's local directory.
    StateDir,
    /// Where keyed state lives.
    Backend,
    /// Memory of the process.
    Memory,
    /// Where checkpoints go.
    CheckpointDir,
    /// Whether what checkpoints hold is also kept on the local disk.
    LocalRecovery,
    /// Time between checkpoints.
    CheckpointInterval,
    /// Least time between the end of a checkpoint and the next.
    MinPause,
    /// How long a checkpoint may take.
    Timeout,
    /// Checkpoints in flight.
    MaxConcurrent,
    /// Failed checkpoints in a row that the job survives.
    TolerableFailures,
    /// Checkpoints that are kept.
    Retain,
    /// How much beside live state is too much.
    ExcessLimit,
    /// Where to start from.
    From,
    /// Who owns the savepoint to start from.
    Claim,
    /// Whether unknown state in the checkpoint may be dropped.
    AllowDroppedState,
    /// What happens when an attempt fails.
    Restart,
    /// The time that a call to checkpoint storage has.
    StorageTimeout,
    /// How long a failing call to checkpoint storage is repeated.
    StoragePatience,
    /// Threads that store snapshots.
    UploadThreads,
    /// Bytes of snapshots of failed checkpoints that may wait for storage.
    UploadKeptBytes,
    /// Records in flight on one channel.
    ChannelRecords,
    /// Bytes in flight on one channel.
    ChannelBytes,
    /// Number of processes.
    Processes,
    /// Which of them this is.
    Process,
    /// Where the processes are.
    Hosts,
    /// Where this process listens.
    Listen,
    /// How long a process waits for the others.
    PeerWait,
    /// Time between signs of life.
    Heartbeat,
    /// Silence after which a process is lost.
    LostAfter,
    /// The certificate of this process.
    TlsCertificate,
    /// Its private key.
    TlsKey,
    /// Who signs the certificates of the processes.
    TlsCa,
    /// The name in the certificates of all processes.
    TlsName,
    /// What is logged.
    Log,
    /// How it is logged.
    LogFormat,
    /// Whether progress is shown on a terminal.
    Progress,
}

/// How a value stands in a TOML file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A string.
    Text,
    /// A whole number.
    Number,
    /// `true` or `false`.
    Switch,
}

impl Setting {
    /// Every setting, in the order in which they are printed.
    pub const ALL: [Setting; 39] = [
        Setting::Name,
        Setting::Workers,
        Setting::MaxParallelism,
        Setting::StateDir,
        Setting::Backend,
        Setting::Memory,
        Setting::CheckpointDir,
        Setting::LocalRecovery,
        Setting::CheckpointInterval,
        Setting::MinPause,
        Setting::Timeout,
        Setting::MaxConcurrent,
        Setting::TolerableFailures,
        Setting::Retain,
        Setting::ExcessLimit,
        Setting::From,
        Setting::Claim,
        Setting::AllowDroppedState,
        Setting::Restart,
        Setting::StorageTimeout,
        Setting::StoragePatience,
        Setting::UploadThreads,
        Setting::UploadKeptBytes,
        Setting::ChannelRecords,
        Setting::ChannelBytes,
        Setting::Processes,
        Setting::Process,
        Setting::Hosts,
        Setting::Listen,
        Setting::PeerWait,
        Setting::Heartbeat,
        Setting::LostAfter,
        Setting::TlsCertificate,
        Setting::TlsKey,
        Setting::TlsCa,
        Setting::TlsName,
        Setting::Log,
        Setting::LogFormat,
        Setting::Progress,
    ];

    /// The name in a TOML file, and of the flag without its dashes.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Setting::Name => "name",
            Setting::Workers => "workers",
            Setting::MaxParallelism => "max-parallelism",
            Setting::StateDir => "state-dir",
            Setting::Backend => "backend",
            Setting::Memory => "memory",
            Setting::CheckpointDir => "checkpoint-dir",
            Setting::LocalRecovery => "local-recovery",
            Setting::CheckpointInterval => "checkpoint-interval",
            Setting::MinPause => "min-pause",
            Setting::Timeout => "timeout",
            Setting::MaxConcurrent => "max-concurrent",
            Setting::TolerableFailures => "tolerable-failures",
            Setting::Retain => "retain",
            Setting::ExcessLimit => "excess-limit",
            Setting::From => "from",
            Setting::Claim => "claim",
            Setting::AllowDroppedState => "allow-dropped-state",
            Setting::Restart => "restart",
            Setting::StorageTimeout => "storage-timeout",
            Setting::StoragePatience => "storage-patience",
            Setting::UploadThreads => "upload-threads",
            Setting::UploadKeptBytes => "upload-kept-bytes",
            Setting::ChannelRecords => "channel-records",
            Setting::ChannelBytes => "channel-bytes",
            Setting::Processes => "processes",
            Setting::Process => "process",
            Setting::Hosts => "hosts",
            Setting::Listen => "listen",
            Setting::PeerWait => "peer-wait",
            Setting::Heartbeat => "heartbeat",
            Setting::LostAfter => "lost-after",
            Setting::TlsCertificate => "tls-certificate",
            Setting::TlsKey => "tls-key",
            Setting::TlsCa => "tls-ca",
            Setting::TlsName => "tls-name",
            Setting::Log => "log",
            Setting::LogFormat => "log-format",
            Setting::Progress => "progress",
        }
    }

    /// The name of the environment variable: `MILLPOND_CHECKPOINT_INTERVAL`.
    #[must_use]
    pub fn variable(self) -> String {
        format!("MILLPOND_{}", self.key().replace('-', "_").to_uppercase())
    }

    /// How its value stands in a TOML file.
    #[must_use]
    pub(crate) const fn shape(self) -> Shape {
        match self {
            Setting::Workers
            | Setting::MaxParallelism
            | Setting::MaxConcurrent
            | Setting::TolerableFailures
            | Setting::Retain
            | Setting::ExcessLimit
            | Setting::UploadThreads
            | Setting::ChannelRecords
            | Setting::Processes => Shape::Number,
            Setting::LocalRecovery | Setting::AllowDroppedState | Setting::Progress => Shape::Switch,
            _ => Shape::Text,
        }
    }

    /// The setting with this name in a TOML file.
    #[must_use]
    pub fn from_key(key: &str) -> Option<Setting> {
        Setting::ALL.into_iter().find(|setting| setting.key() == key)
    }

    /// The setting of this environment variable.
    #[must_use]
    pub fn from_variable(variable: &str) -> Option<Setting> {
        Setting::ALL.into_iter().find(|setting| setting.variable() == variable)
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_found_by_its_key_and_its_variable() {
        for setting in Setting::ALL {
            assert_eq!(Setting::from_key(setting.key()), Some(setting));
            assert_eq!(Setting::from_variable(&setting.variable()), Some(setting));
        }
        assert_eq!(Setting::CheckpointInterval.variable(), "MILLPOND_CHECKPOINT_INTERVAL");
    }
}
