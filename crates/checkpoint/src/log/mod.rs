//! The log of manifests as two pure step machines: start an execution, publish an epoch.
//!
//! Each machine names the one [`Request`] it waits for and takes its [`Answer`]; it does no I/O, so
//! that tests can put anything between two steps. Owns the decision who is fenced. Does *not* own
//! storage, bytes or names ([`crate::publisher`] does).
//!
//! Invariants: nobody creates a manifest except in the slot after one that it has seen; nobody
//! trusts a created slot before a list has shown that no higher one exists; an answer that does not
//! tell whether a slot was created is resolved by reading the slot, never by assuming.

mod fence;
mod publish;

use millpond_core::Attempt;
use millpond_storage::ObjectName;
use serde::{Deserialize, Serialize};

use crate::manifest::Manifest;
use crate::names::{JobObject, Names, Writer};
pub(crate) use fence::succession;
pub use fence::{FenceSteps, Start, StartFrom, Starter};
pub use publish::{Publication, PublishSteps};

/// Identifies one publisher among all that ever existed. Random 64 bits, handed in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WriterId(pub u64);

/// How often a create that may have happened is repeated before the doubt is passed on.
pub const CREATE_TRIES: u32 = 3;
/// How often a start looks at the log again before it gives up.
pub const LOOKS: u32 = 64;

/// What a machine wants done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Which sequence numbers exist?
    List,
    /// What is in this slot?
    Read(u64),
    /// Create the machine's manifest in the slot of its sequence number.
    Create,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// To `List`: all sequence numbers, ascending.
    Listed(Vec<u64>),
    /// To `Read`.
    Found(Box<Manifest>),
    /// To `Read`: there is nothing.
    Absent,
    /// To `Read`: there is something that cannot be decoded, and why.
    Unreadable(String),
    /// To `Create`.
    Created,
    /// To `Create`: the slot was taken.
    Taken,
    /// It did not happen, and why.
    NotDone(String),
    /// It may have happened or may still happen, and why.
    Unknown(String),
}

/// The first of `objects` that an execution after `newest` has written. What a start copies from elsewhere lies
/// there before any manifest does, and proves nothing.
pub(crate) fn beyond_log(names: &Names, objects: Vec<ObjectName>, newest: Attempt) -> Option<ObjectName> {
    objects.into_iter().find(|object| match names.parse(object) {
        Some(JobObject::Run(data) | JobObject::Blob(data)) => {
            data.attempt > newest && !matches!(data.writer, Writer::Import { .. })
        }
        Some(JobObject::Manifest(_)) | None => false,
    })
}

fn words(answer: Answer) -> String {
    match answer {
        Answer::NotDone(reason) | Answer::Unknown(reason) | Answer::Unreadable(reason) => reason,
        other => format!("unexpected answer {other:?}"),
    }
}
