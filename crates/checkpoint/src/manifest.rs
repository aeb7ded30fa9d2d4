//! The manifest: the only thing that makes an epoch exist.
//!
//! Owns what a manifest says. Does not own how it is spelt in bytes ([`crate::format`]) or where
//! it is stored ([`crate::names`], [`crate::publisher`]).

use std::collections::BTreeSet;

use millpond_core::codec::checksum;
use millpond_core::hash::hash_bytes;
use millpond_core::{Attempt, Epoch, KeyGroupRange};
use millpond_storage::ObjectName;
use serde::{Deserialize, Serialize};

use crate::log::WriterId;

/// Largest operator state of one subtask that is kept inside the manifest, in bytes (SN-16).
pub const INLINE_BLOB_LIMIT: usize = 20 * 1024;

/// Why a manifest was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ManifestKind {
    /// An execution started: it repeats what it starts from and fences off older attempts.
    Fence,
    /// An epoch completed.
    Checkpoint,
}

/// One entry of a job's log: everything needed to restore.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Manifest {
    /// Name of the job.
    pub job: String,
    /// Version of Millpond that wrote it.
    pub millpond_version: String,
    /// Place in the log, from 1.
    pub sequence: u64,
    /// Lowest sequence that still belongs to the log. What lies below is to be deleted, or is
    /// what a fenced writer left after the deletion; either way it is never read.
    pub retained_from: u64,
    /// The execution that wrote it.
    pub attempt: Attempt,
    /// The process that wrote it: tells two writers of the same would-be attempt apart.
    pub writer: WriterId,
    /// Why it was written.
    pub kind: ManifestKind,
    /// The newest completed epoch; [`Epoch::ZERO`] when there is none yet.
    pub epoch: Epoch,
    /// When the epoch was triggered (of a fence: when it was written), in milliseconds since 1970 UTC.
    pub created_ms: i64,
    /// From trigger to the last acknowledgement, in milliseconds; 0 for a fence.
    pub duration_ms: u64,
    /// Whether this is the final checkpoint of a bounded job: there is nothing left to run.
    pub finished: bool,
    /// Whether all output of `epoch` is known to be committed: a finished job has nothing left to do.
    #[serde(default, skip_serializing_if = "is_false")]
    pub committed: bool,
    /// Number of key groups, fixed for the job's life.
    pub max_parallelism: u32,
    /// State, per operator, sorted by name.
    pub operators: Vec<OperatorManifest>,
}

/// The state of one operator.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OperatorManifest {
    /// The operator's name, by which it is matched on restore.
    pub name: String,
    /// Number of subtasks when the epoch was taken.
    pub parallelism: u32,
    /// Keyed states that the runs may hold, sorted by name.
    pub states: Vec<KeyedStateInfo>,
    /// Live runs, oldest first.
    pub runs: Vec<RunRef>,
    /// Operator state of old subtask `i`, as opaque bytes.
    pub subtasks: Vec<Option<Blob>>,
}

/// A keyed state, as declared when it was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KeyedStateInfo {
    /// Its name.
    pub name: String,
    /// What kind of state it is and which types it has; opaque here.
    pub description: String,
}

/// A run: an immutable file of sorted rows of keyed state.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RunRef {
    /// Where it is.
    pub object: ObjectName,
    /// Its size in storage, in bytes.
    pub bytes: u64,
    /// Its size before compression, in bytes.
    pub raw_bytes: u64,
    /// Number of rows, tombstones included.
    pub rows: u64,
    /// Number of rows that delete.
    pub tombstones: u64,
    /// Covers the key groups of all its rows.
    pub groups: KeyGroupRange,
    /// CRC-32 of the whole file.
    pub checksum: u32,
    /// Newest epoch whose changes it holds.
    pub epoch: Epoch,
    /// 0 as written by a subtask; of a compaction, one more than its inputs.
    pub level: u8,
}

/// Operator state of one subtask.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Blob {
    /// The bytes themselves, at most [`INLINE_BLOB_LIMIT`].
    Inline(#[serde(with = "hex")] Vec<u8>),
    /// The bytes are an object of their own.
    Object {
        /// Where it is.
        object: ObjectName,
        /// Its size, in bytes.
        bytes: u64,
        /// CRC-32 of the bytes. Operator state ends with its own CRC-32, so that this is the same for all of it: it
        /// does not tell one blob from another.
        checksum: u32,
        /// XXH3-64 of the bytes. Absent in what first builds wrote.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hash: Option<u64>,
    },
}

/// What the bytes of an object are, as a manifest states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stated {
    /// How many there are.
    pub bytes: u64,
    /// Their CRC-32.
    pub checksum: u32,
    /// Their XXH3-64, where it is stated.
    pub hash: Option<u64>,
}

impl Stated {
    /// Whether `found` are the bytes.
    ///
    /// # Errors
    /// In which way they are not, for a message that names the object.
    pub fn check(&self, found: &[u8]) -> Result<(), String> {
        let Stated { bytes, checksum: stated, hash } = *self;
        let (length, sum) = (found.len() as u64, checksum(found));
        if length != bytes || sum != stated {
            return Err(format!(
                "it has {length} bytes and checksum {sum:08x}, the manifest says {bytes} and {stated:08x}"
            ));
        }
        match hash {
            Some(stated) if stated != hash_bytes(found) => {
                let hash = hash_bytes(found);
                Err(format!("it has {length} bytes and hash {hash:016x}, the manifest says {bytes} and {stated:016x}"))
            }
            _ => Ok(()),
        }
    }
}

/// What one subtask adds to one operator: part of an acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OperatorPiece {
    /// The operator's name.
    pub operator: String,
    /// Keyed states declared by now.
    pub states: Vec<KeyedStateInfo>,
    /// All runs since the newest epoch that the subtask knows to be completed, oldest first.
    pub runs: Vec<RunRef>,
    /// Operator state as of the epoch.
    pub blob: Option<Blob>,
    /// From which of `runs` on they hold everything, if they do.
    pub whole: Option<Whole>,
}

/// Says that the runs of a subtask since an epoch hold every live row of an operator: what is older is not needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Whole {
    /// The epoch, which was frozen when every live row had changed since the freeze before.
    pub since: Epoch,
    /// The key groups of which this is said: those of the subtask.
    pub groups: KeyGroupRange,
}

impl Manifest {
    /// The manifest before any manifest: sequence, attempt and epoch 0.
    #[must_use]
    pub fn empty(job: &str, max_parallelism: u32) -> Manifest {
        Manifest {
            job: job.to_owned(),
            millpond_version: env!("CARGO_PKG_VERSION").to_owned(),
            sequence: 0,
            retained_from: 1,
            attempt: Attempt(0),
            writer: WriterId(0),
            kind: ManifestKind::Fence,
            epoch: Epoch::ZERO,
            created_ms: 0,
            duration_ms: 0,
            finished: false,
            committed: false,
            max_parallelism,
            operators: Vec::new(),
        }
    }

    /// The data objects it names.
    pub fn objects(&self) -> impl Iterator<Item = &ObjectName> {
        self.operators.iter().flat_map(OperatorManifest::objects)
    }

    /// The data objects it names, with their sizes in bytes.
    pub fn sizes(&self) -> impl Iterator<Item = (&ObjectName, u64)> {
        self.operators.iter().flat_map(|operator| {
            let runs = operator.runs.iter().map(|run| (&run.object, run.bytes));
            let blobs = operator.subtasks.iter().flatten();
            runs.chain(blobs.filter_map(|blob| Some((blob.object()?, blob.bytes()))))
        })
    }

    /// Size of all state it names, in bytes.
    #[must_use]
    pub fn state_bytes(&self) -> u64 {
        let runs = self.operators.iter().flat_map(|operator| &operator.runs).map(|run| run.bytes);
        let blobs = self.operators.iter().flat_map(|operator| operator.subtasks.iter().flatten()).map(Blob::bytes);
        runs.chain(blobs).fold(0, u64::saturating_add)
    }

    /// The operator with this name.
    #[must_use]
    pub fn operator(&self, name: &str) -> Option<&OperatorManifest> {
        self.operators.iter().find(|operator| operator.name == name)
    }

    /// What makes it impossible, if anything: checked whenever one is read.
    pub(crate) fn fault(&self) -> Option<String> {
        if self.retained_from > self.sequence || self.retained_from == 0 {
            return Some(format!("retained_from {} is not in 1..={}", self.retained_from, self.sequence));
        }
        operators_fault(&self.operators, self.max_parallelism, self.epoch)
    }
}

/// What makes the state of a checkpoint or savepoint impossible, if anything.
pub(crate) fn operators_fault(operators: &[OperatorManifest], max_parallelism: u32, epoch: Epoch) -> Option<String> {
    let mut names = BTreeSet::new();
    let mut objects = BTreeSet::new();
    for operator in operators {
        let name = &operator.name;
        if !names.insert(name) {
            return Some(format!("operator {name:?} is listed twice"));
        }
        if operator.subtasks.len() != operator.parallelism as usize {
            let (given, parallelism) = (operator.subtasks.len(), operator.parallelism);
            return Some(format!("operator {name:?} has {given} subtasks and parallelism {parallelism}"));
        }
        for run in &operator.runs {
            if run.groups.start > run.groups.end || run.groups.end > max_parallelism {
                return Some(format!("run {:?} has {} of {}", run.object, run.groups, max_parallelism));
            }
            if run.tombstones > run.rows || run.epoch > epoch || !objects.insert(&run.object) {
                return Some(format!("run {:?} is impossible or listed twice", run.object));
            }
        }
    }
    None
}

impl OperatorManifest {
    /// The data objects it names.
    pub fn objects(&self) -> impl Iterator<Item = &ObjectName> {
        let runs = self.runs.iter().map(|run| &run.object);
        runs.chain(self.subtasks.iter().flatten().filter_map(Blob::object))
    }
}

impl RunRef {
    /// What its bytes are.
    #[must_use]
    pub fn stated(&self) -> Stated {
        Stated { bytes: self.bytes, checksum: self.checksum, hash: None }
    }
}

impl Blob {
    /// The reference to an object of these bytes.
    #[must_use]
    pub fn stored(object: ObjectName, bytes: &[u8]) -> Blob {
        let (length, hash) = (bytes.len() as u64, Some(hash_bytes(bytes)));
        Blob::Object { object, bytes: length, checksum: checksum(bytes), hash }
    }

    /// Its object and what the bytes of that are, if it has one of its own.
    #[must_use]
    pub fn stated(&self) -> Option<(&ObjectName, Stated)> {
        match self {
            Blob::Inline(_) => None,
            Blob::Object { object, bytes, checksum, hash } => {
                Some((object, Stated { bytes: *bytes, checksum: *checksum, hash: *hash }))
            }
        }
    }

    /// Whether `found`, read from its object, are its bytes.
    ///
    /// # Errors
    /// In which way they are not.
    pub fn check(&self, found: &[u8]) -> Result<(), String> {
        self.stated().map_or(Ok(()), |(_, stated)| stated.check(found))
    }

    /// Its object, if it has one of its own.
    #[must_use]
    pub fn object(&self) -> Option<&ObjectName> {
        match self {
            Blob::Inline(_) => None,
            Blob::Object { object, .. } => Some(object),
        }
    }

    /// Its size, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Blob::Inline(bytes) => bytes.len() as u64,
            Blob::Object { bytes, .. } => *bytes,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// Bytes as a string of lowercase hexadecimal digits.
mod hex {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        let digit = |value: u8| char::from_digit(u32::from(value), 16).expect("a nibble is below 16");
        let text: String = bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect();
        serializer.serialize_str(&text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
        match digits {
            Some(digits) if digits.len() % 2 == 0 => {
                Ok(digits.chunks_exact(2).map(|two| two[0] << 4 | two[1]).collect())
            }
            _ => Err(D::Error::custom("inline bytes are not an even number of hexadecimal digits")),
        }
    }
}
