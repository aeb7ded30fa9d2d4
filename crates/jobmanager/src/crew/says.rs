//! What the processes of a job say to each other. The bytes are in `docs/formats/cluster.md`.

use millpond_checkpoint::{OperatorPiece, SubtaskId};
use millpond_core::error::chain;
use millpond_core::{Epoch, ErrorKind};
use millpond_engine::EngineEvent;
use millpond_runtime::EndKind;
use serde::{Deserialize, Serialize};

/// What process 0 says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToMember {
    /// An attempt begins.
    Start(Box<StartOrder>),
    /// Sources shall close every epoch up to this; with an end, the stream ends there.
    Trigger { epoch: Epoch, end: Option<Ending> },
    /// This epoch is durable.
    Complete { epoch: Epoch },
    /// The last epoch is durable: commit it, and come to an end.
    Finish,
    /// The attempt has failed.
    Abort { attempt: u64 },
    /// About a value that was asked for.
    Value { attempt: u64, name: String, answer: ValueAnswer },
    /// The job has ended.
    End(JobEnd),
}

/// What an attempt begins with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StartOrder {
    pub(crate) attempt: u64,
    /// Tells attempts apart that have one number by mistake.
    pub(crate) token: u64,
    /// The manifest to restore from, as it is stored.
    pub(crate) manifest: Vec<u8>,
    /// Number of key groups.
    pub(crate) max_parallelism: u32,
    /// Whether checkpoints are stored.
    pub(crate) durable: bool,
    /// Workers of each process.
    pub(crate) workers: u32,
}

/// How the stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ending {
    Drain,
    Suspend,
}

impl From<EndKind> for Ending {
    fn from(end: EndKind) -> Self {
        match end {
            EndKind::Drain => Ending::Drain,
            EndKind::Suspend => Ending::Suspend,
        }
    }
}

impl From<Ending> for EndKind {
    fn from(end: Ending) -> Self {
        match end {
            Ending::Drain => EndKind::Drain,
            Ending::Suspend => EndKind::Suspend,
        }
    }
}

/// The answer to who asks for a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ValueAnswer {
    /// Here it is.
    Known(Vec<u8>),
    /// Nobody has it: compute it, and tell.
    Compute,
}

/// How the job has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum JobEnd {
    Finished { epoch: Epoch },
    Stopped { epoch: Epoch },
    Failed { kind: ErrorKind, reason: String },
}

/// What the others say to process 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FromMember {
    /// From the engine of this attempt.
    Event { attempt: u64, event: MemberEvent },
    /// Counters of this attempt.
    Stats { attempt: u64, stats: Stats },
    /// The engine of this attempt is gone, and has said all.
    Gone { attempt: u64, stats: Stats },
    /// Asks for a value that all must see alike.
    Ask { attempt: u64, name: String },
    /// The value that it was told to compute; `None` when that failed.
    Computed { attempt: u64, name: String, value: Option<Vec<u8>> },
    /// The job shall stop.
    Stop,
}

/// What a process counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stats {
    pub(crate) source_records: u64,
    pub(crate) state_entries: u64,
    pub(crate) state_bytes: u64,
}

/// An event of an engine, as it travels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum MemberEvent {
    Running,
    Acknowledged { subtask: SubtaskId, epoch: Epoch, pieces: Vec<OperatorPiece> },
    Declined { subtask: SubtaskId, epoch: Epoch, kind: ErrorKind, reason: String },
    CheckpointWanted,
    SourcesExhausted,
    Failed { kind: ErrorKind, reason: String },
}

impl From<EngineEvent> for MemberEvent {
    fn from(event: EngineEvent) -> Self {
        match event {
            EngineEvent::Running { .. } => MemberEvent::Running,
            EngineEvent::Acknowledged { subtask, epoch, pieces } => {
                MemberEvent::Acknowledged { subtask, epoch, pieces }
            }
            EngineEvent::Declined { subtask, epoch, kind, reason } => {
                MemberEvent::Declined { subtask, epoch, kind, reason }
            }
            EngineEvent::CheckpointWanted => MemberEvent::CheckpointWanted,
            EngineEvent::SourcesExhausted => MemberEvent::SourcesExhausted,
            EngineEvent::Failed(error) => MemberEvent::Failed { kind: error.kind(), reason: chain(&error) },
        }
    }
}

#[cfg(test)]
mod tests {
    use millpond_core::codec;

    use super::*;

    #[test]
    fn what_is_said_arrives() {
        let subtask = SubtaskId { chain: 1, index: 2 };
        let event = MemberEvent::Declined { subtask, epoch: Epoch(3), kind: ErrorKind::Fenced, reason: "r".to_owned() };
        let said = FromMember::Event { attempt: 7, event };
        assert_eq!(codec::decode::<FromMember>(&codec::encode(&said).unwrap()).unwrap(), said);
        let order =
            StartOrder { attempt: 1, token: 2, manifest: vec![3], max_parallelism: 4, durable: true, workers: 5 };
        for said in [ToMember::Start(Box::new(order)), ToMember::End(JobEnd::Finished { epoch: Epoch(9) })] {
            assert_eq!(codec::decode::<ToMember>(&codec::encode(&said).unwrap()).unwrap(), said);
        }
    }
}
