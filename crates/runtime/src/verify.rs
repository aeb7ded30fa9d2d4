//! Reads everything that a checkpoint names, down to the last row, and says what is wrong.
//!
//! Owns which bytes must agree with what. Does *not* own which checkpoints are looked at, nor what is
//! done about damage.

use std::collections::BTreeMap;
use std::sync::Arc;

use millpond_checkpoint::{Blob, Manifest, RunRef};
use millpond_core::error::chain;
use millpond_runs::{RunInfo, StoredRun};
use millpond_state::OperatorStateSnapshot;
use millpond_storage::{ObjectName, Storage, StorageError};

/// What is wrong with one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The object; of operator state inside the manifest, none.
    pub object: Option<ObjectName>,
    /// The operator whose state it holds.
    pub operator: String,
    /// What is wrong.
    pub problem: Problem,
}

/// In which way something is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It is not there.
    Missing,
    /// It is not what the manifest says, or its content contradicts itself.
    Damaged(String),
    /// Storage did not let it be read.
    Unreadable(String),
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Problem::Missing => f.write_str("is missing"),
            Problem::Damaged(reason) => write!(f, "is damaged: {reason}"),
            Problem::Unreadable(reason) => write!(f, "cannot be read: {reason}"),
        }
    }
}

/// Verifies checkpoints one after the other; what several of them name is read once.
#[derive(Default)]
pub struct Verifier {
    known: BTreeMap<ObjectName, Option<Problem>>,
    bytes: u64,
}

impl Verifier {
    /// A verifier that has read nothing.
    #[must_use]
    pub fn new() -> Verifier {
        Verifier::default()
    }

    /// Objects read so far.
    #[must_use]
    pub fn objects(&self) -> usize {
        self.known.len()
    }

    /// Their size as manifests state it, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads everything that `manifest` names in `storage`; returns all that is wrong with it.
    pub fn verify(&mut self, manifest: &Manifest, storage: &Arc<dyn Storage>) -> Vec<Damage> {
        let mut damages = Vec::new();
        for operator in &manifest.operators {
            let mut note = |object: Option<&ObjectName>, problem: Option<Problem>| {
                damages.extend(problem.map(|problem| Damage {
                    object: object.cloned(),
                    operator: operator.name.clone(),
                    problem,
                }));
            };
            for run in &operator.runs {
                note(Some(&run.object), self.check(&run.object, run.bytes, || check_run(run, storage)));
            }
            for blob in operator.subtasks.iter().flatten() {
                match blob {
                    Blob::Inline(bytes) => note(None, check_states(bytes)),
                    Blob::Object { object, bytes, .. } => {
                        let problem = self.check(object, *bytes, || check_blob(object, blob, storage));
                        note(Some(object), problem);
                    }
                }
            }
        }
        damages
    }

    fn check(&mut self, object: &ObjectName, bytes: u64, read: impl FnOnce() -> Option<Problem>) -> Option<Problem> {
        if let Some(known) = self.known.get(object) {
            return known.clone();
        }
        let problem = read();
        self.bytes = self.bytes.saturating_add(bytes);
        self.known.insert(object.clone(), problem.clone());
        problem
    }
}

fn check_run(run: &RunRef, storage: &Arc<dyn Storage>) -> Option<Problem> {
    match storage.size(&run.object) {
        Err(error) => return Some(unreadable(&error)),
        Ok(size) if size != run.bytes => {
            return Some(Problem::Damaged(format!("it has {size} bytes, the manifest says {}", run.bytes)));
        }
        Ok(_) => {}
    }
    let source = StoredRun::new(Arc::clone(storage), run.object.clone());
    match millpond_runs::verify(source, None) {
        Err(error) if error.kind() == millpond_core::ErrorKind::Unavailable => Some(Problem::Unreadable(chain(&error))),
        Err(error) => Some(Problem::Damaged(chain(&error))),
        Ok(found) => differs(run, &found).map(Problem::Damaged),
    }
}

/// What the file is and the manifest does not say.
fn differs(run: &RunRef, found: &RunInfo) -> Option<String> {
    let pairs = [
        ("checksum", format!("{:08x}", run.checksum), format!("{:08x}", found.checksum)),
        ("rows", run.rows.to_string(), found.rows.to_string()),
        ("tombstones", run.tombstones.to_string(), found.tombstones.to_string()),
        ("key groups", run.groups.to_string(), found.groups.to_string()),
        ("bytes before compression", run.raw_bytes.to_string(), found.raw_bytes.to_string()),
    ];
    let wrong = pairs.into_iter().find(|(_, stated, found)| stated != found)?;
    Some(format!("its {} are {}, the manifest says {}", wrong.0, wrong.2, wrong.1))
}

fn check_blob(object: &ObjectName, blob: &Blob, storage: &Arc<dyn Storage>) -> Option<Problem> {
    let found = match storage.read(object) {
        Ok(found) => found,
        Err(error) => return Some(unreadable(&error)),
    };
    match blob.check(&found) {
        Err(reason) => Some(Problem::Damaged(reason)),
        Ok(()) => check_states(&found),
    }
}

fn check_states(bytes: &[u8]) -> Option<Problem> {
    OperatorStateSnapshot::decode(bytes).err().map(|error| Problem::Damaged(chain(&error)))
}

fn unreadable(error: &StorageError) -> Problem {
    match error {
        StorageError::NotFound { .. } => Problem::Missing,
        other => Problem::Unreadable(chain(other)),
    }
}
