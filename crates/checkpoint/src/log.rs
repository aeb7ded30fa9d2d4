//! The log of manifests as two pure step machines: start an execution, publish an epoch.
//!
//! Each machine names the one [`Request`] it waits for and takes its [`Answer`]; it does no I/O, so
//! that tests can put anything between two steps. Owns the decision who is fenced. Does *not* own
//! storage, bytes or names ([`crate::publisher`] does).
//!
//! Invariants: nobody creates a manifest except in the slot after one that it has seen; nobody
//! trusts a created slot before a list has shown that no higher one exists; an answer that does not
//! tell whether a slot was created is resolved by reading the slot, never by assuming.

use millpond_core::{Attempt, Epoch};
use serde::{Deserialize, Serialize};

use crate::manifest::{Manifest, ManifestKind};

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

/// How a publication ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Publication {
    /// The manifest is in the log, and nothing newer is.
    Published,
    /// Somebody else owns the log.
    Fenced {
        /// Their attempt, when it could be read.
        theirs: Option<Attempt>,
        /// The slot that proves it.
        sequence: u64,
    },
    /// The manifest is not in the log and never will be by this call.
    NotDone(String),
    /// It may be, or become, part of the log.
    Unknown(String),
}

/// Publishes one manifest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PublishSteps {
    manifest: Manifest,
    phase: PublishPhase,
    creates: u32,
    in_doubt: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum PublishPhase {
    Creating,
    LookingBack,
    LookingUp,
    Naming(u64),
}

impl PublishSteps {
    /// Begins to publish `manifest` in the slot of its sequence number.
    #[must_use]
    pub fn new(manifest: Manifest) -> PublishSteps {
        PublishSteps { manifest, phase: PublishPhase::Creating, creates: 1, in_doubt: false }
    }

    /// The manifest to create.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// What to do next.
    #[must_use]
    pub fn request(&self) -> Request {
        match self.phase {
            PublishPhase::Creating => Request::Create,
            PublishPhase::LookingBack => Request::Read(self.manifest.sequence),
            PublishPhase::LookingUp => Request::List,
            PublishPhase::Naming(sequence) => Request::Read(sequence),
        }
    }

    /// Takes the answer to [`Self::request`]; the end, if this was it.
    pub fn answer(&mut self, answer: Answer) -> Option<Publication> {
        match self.phase {
            PublishPhase::Creating => self.created(answer),
            PublishPhase::LookingBack => self.looked_back(answer),
            PublishPhase::LookingUp => self.looked_up(answer),
            PublishPhase::Naming(sequence) => {
                let theirs = match answer {
                    Answer::Found(manifest) => Some(manifest.attempt),
                    _ => None,
                };
                Some(Publication::Fenced { theirs, sequence })
            }
        }
    }

    fn created(&mut self, answer: Answer) -> Option<Publication> {
        match answer {
            Answer::Created => self.phase = PublishPhase::LookingUp,
            Answer::Taken => self.phase = PublishPhase::LookingBack,
            Answer::NotDone(reason) if !self.in_doubt => return Some(Publication::NotDone(reason)),
            Answer::NotDone(reason) => return Some(Publication::Unknown(reason)),
            other => {
                self.in_doubt = true;
                if self.creates >= CREATE_TRIES {
                    return Some(Publication::Unknown(words(other)));
                }
                self.phase = PublishPhase::LookingBack;
            }
        }
        None
    }

    /// The slot was taken, or may have been filled by us.
    fn looked_back(&mut self, answer: Answer) -> Option<Publication> {
        match answer {
            Answer::Found(found) if self.is_ours(&found) => self.phase = PublishPhase::LookingUp,
            Answer::Found(found) => {
                return Some(Publication::Fenced { theirs: Some(found.attempt), sequence: found.sequence });
            }
            // Either our create has not landed, or the slot was taken and has been collected since:
            // creating again is right in both cases, because a list follows it.
            Answer::Absent if self.creates < CREATE_TRIES => {
                self.creates += 1;
                self.phase = PublishPhase::Creating;
            }
            other => return Some(Publication::Unknown(words(other))),
        }
        None
    }

    /// Our manifest is in its slot. If the slot had been collected before, a higher one exists.
    fn looked_up(&mut self, answer: Answer) -> Option<Publication> {
        match answer {
            Answer::Listed(sequences) => match sequences.last() {
                Some(&newest) if newest > self.manifest.sequence => {
                    self.phase = PublishPhase::Naming(newest);
                    None
                }
                _ => Some(Publication::Published),
            },
            other => Some(Publication::Unknown(words(other))),
        }
    }

    fn is_ours(&self, found: &Manifest) -> bool {
        let ours = &self.manifest;
        (found.writer, found.attempt, found.epoch, found.kind) == (ours.writer, ours.attempt, ours.epoch, ours.kind)
    }
}

/// What an execution starts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StartFrom {
    /// The newest manifest, or nothing when there is none.
    #[default]
    Latest,
    /// The newest manifest that holds this epoch.
    Epoch(Epoch),
    /// Nothing, whatever manifests there are: epochs begin anew, attempts go on.
    Nothing,
    /// The newest manifest, by whoever ran this attempt last: refused when another writer has started
    /// a newer one since, so that a failed execution does not take the job back from its successor.
    After(Attempt),
}

/// How a start ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Start {
    /// This fence is the newest manifest; its attempt owns the job.
    Fenced(Box<Manifest>),
    /// The newest manifest cannot be read, and no older one was asked for explicitly.
    NewestUnreadable {
        /// Its sequence number.
        sequence: u64,
        /// What is wrong with it.
        reason: String,
        /// Newest epoch that an older manifest still holds.
        older: Option<Epoch>,
    },
    /// The epoch that was asked for is not in the log.
    NoSuchEpoch(Epoch),
    /// Storage failed; nothing is owned. A fence that may have been written harms nobody.
    NotStarted(String),
    /// The fence was written, and a newer attempt started before we could be sure of it. Looking
    /// again by itself would let two starters fence each other off for ever.
    Superseded {
        /// The attempt that never ran; of a restart, the one that ran last.
        ours: Attempt,
        /// The attempt that owns the job, when its manifest was read.
        theirs: Option<Attempt>,
        /// The slot that proves it.
        sequence: u64,
    },
    /// The log moved at every look.
    Contended,
}

/// Facts of the process that starts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Starter {
    /// The job.
    pub job: String,
    /// Who writes.
    pub writer: WriterId,
    /// Number of key groups of a job without manifests.
    pub max_parallelism: u32,
    /// The time now, in milliseconds since 1970 UTC.
    pub now_ms: i64,
    /// What to start from.
    pub from: StartFrom,
}

/// Starts one execution: fences off all older ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FenceSteps {
    starter: Starter,
    phase: FencePhase,
    fence: Option<Manifest>,
    creates: u32,
    looks: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum FencePhase {
    Listing,
    Reading(u64),
    Searching(Box<Search>),
    Creating,
    LookingBack,
    LookingUp,
}

/// Goes down the log to find an older manifest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Search {
    newest: u64,
    /// The newest manifest, or why it cannot be read.
    read: Result<Manifest, String>,
    at: u64,
}

impl FenceSteps {
    /// Begins to start an execution.
    #[must_use]
    pub fn new(starter: Starter) -> FenceSteps {
        FenceSteps { starter, phase: FencePhase::Listing, fence: None, creates: 0, looks: 1 }
    }

    /// The fence to create.
    #[must_use]
    pub fn manifest(&self) -> Option<&Manifest> {
        self.fence.as_ref()
    }

    /// What to do next.
    #[must_use]
    pub fn request(&self) -> Request {
        let slot = self.fence.as_ref().map_or(0, |fence| fence.sequence);
        match &self.phase {
            FencePhase::Listing | FencePhase::LookingUp => Request::List,
            FencePhase::Reading(sequence) => Request::Read(*sequence),
            FencePhase::Searching(search) => Request::Read(search.at),
            FencePhase::Creating => Request::Create,
            FencePhase::LookingBack => Request::Read(slot),
        }
    }

    /// Takes the answer to [`Self::request`]; the end, if this was it.
    pub fn answer(&mut self, answer: Answer) -> Option<Start> {
        if let Answer::NotDone(reason) | Answer::Unknown(reason) = &answer
            && self.phase != FencePhase::Creating
        {
            return Some(Start::NotStarted(reason.clone()));
        }
        match std::mem::replace(&mut self.phase, FencePhase::Listing) {
            FencePhase::Listing => self.listed(answer),
            FencePhase::Reading(sequence) => self.read(sequence, answer),
            FencePhase::Searching(search) => self.searched(*search, answer),
            FencePhase::Creating => {
                let created = matches!(answer, Answer::Created);
                self.phase = if created { FencePhase::LookingUp } else { FencePhase::LookingBack };
                None
            }
            FencePhase::LookingBack => self.looked_back(answer),
            FencePhase::LookingUp => self.looked_up(answer),
        }
    }

    fn listed(&mut self, answer: Answer) -> Option<Start> {
        let Answer::Listed(sequences) = answer else {
            return Some(Start::NotStarted(words(answer)));
        };
        match sequences.last() {
            Some(&newest) => self.phase = FencePhase::Reading(newest),
            None => match self.starter.from {
                StartFrom::Epoch(epoch) => return Some(Start::NoSuchEpoch(epoch)),
                // Starting afresh would write again what was committed before.
                StartFrom::After(ours) => {
                    return Some(Start::NotStarted(format!("no manifest is left, though {ours} has written one")));
                }
                StartFrom::Latest | StartFrom::Nothing => {
                    let empty = self.empty();
                    self.create(0, Attempt(1), 1, empty);
                }
            },
        }
        None
    }

    fn read(&mut self, newest: u64, answer: Answer) -> Option<Start> {
        let read = match answer {
            Answer::Found(manifest) => Ok(*manifest),
            Answer::Unreadable(reason) => Err(reason),
            // Collected between list and read: there is a newer one.
            _ => return self.look_again(),
        };
        match (&read, self.starter.from) {
            (_, StartFrom::Nothing) => {
                let empty = self.empty();
                self.start_from(newest, &read, empty);
            }
            (Ok(manifest), StartFrom::After(ours))
                if manifest.attempt > ours && manifest.writer != self.starter.writer =>
            {
                return Some(Start::Superseded { ours, theirs: Some(manifest.attempt), sequence: newest });
            }
            (Ok(manifest), StartFrom::Latest | StartFrom::After(_)) => {
                self.start_from(newest, &read, manifest.clone());
            }
            (Ok(manifest), StartFrom::Epoch(epoch)) if manifest.epoch == epoch => {
                self.start_from(newest, &read, manifest.clone());
            }
            _ => return self.search(Search { newest, read, at: newest }),
        }
        None
    }

    /// Goes one slot down, as long as there is one that belongs to the log.
    fn search(&mut self, mut search: Search) -> Option<Start> {
        let floor = search.read.as_ref().map_or(1, |newest| newest.retained_from);
        search.at -= 1;
        if search.at >= floor.max(1) {
            self.phase = FencePhase::Searching(Box::new(search));
            return None;
        }
        Some(match (search.read, self.starter.from) {
            (_, StartFrom::Epoch(epoch)) => Start::NoSuchEpoch(epoch),
            (Err(reason), _) => Start::NewestUnreadable { sequence: search.newest, reason, older: None },
            (Ok(_), StartFrom::Latest | StartFrom::Nothing | StartFrom::After(_)) => {
                Start::NotStarted("a readable newest manifest was searched past".to_owned())
            }
        })
    }

    fn searched(&mut self, search: Search, answer: Answer) -> Option<Start> {
        let Answer::Found(manifest) = answer else {
            return self.search(search);
        };
        match (self.starter.from, &search.read) {
            (StartFrom::Latest | StartFrom::After(_), Err(reason)) if manifest.epoch > Epoch::ZERO => {
                let (sequence, reason) = (search.newest, reason.clone());
                Some(Start::NewestUnreadable { sequence, reason, older: Some(manifest.epoch) })
            }
            (StartFrom::Epoch(epoch), read) if manifest.epoch == epoch => {
                self.start_from(search.newest, read, *manifest);
                None
            }
            _ => self.search(search),
        }
    }

    fn empty(&self) -> Manifest {
        Manifest::empty(&self.starter.job, self.starter.max_parallelism)
    }

    fn start_from(&mut self, newest: u64, read: &Result<Manifest, String>, base: Manifest) {
        match read {
            Ok(manifest) => self.create(newest, manifest.attempt.next(), manifest.retained_from, base),
            // The unreadable one's attempt is unknown, but attempts never exceed sequence numbers.
            Err(_) => {
                let floor = base.retained_from;
                self.create(newest, Attempt(newest + 1), floor, base);
            }
        }
    }

    fn create(&mut self, newest: u64, attempt: Attempt, retained_from: u64, base: Manifest) {
        self.fence = Some(Manifest {
            millpond_version: env!("CARGO_PKG_VERSION").to_owned(),
            sequence: newest + 1,
            retained_from,
            attempt,
            writer: self.starter.writer,
            kind: ManifestKind::Fence,
            created_ms: self.starter.now_ms,
            duration_ms: 0,
            ..base
        });
        self.creates = 1;
        self.phase = FencePhase::Creating;
    }

    fn looked_back(&mut self, answer: Answer) -> Option<Start> {
        match answer {
            Answer::Found(found) if self.is_ours(&found) => {
                self.fence = Some(*found);
                self.phase = FencePhase::LookingUp;
            }
            Answer::Absent if self.creates < CREATE_TRIES => {
                self.creates += 1;
                self.phase = FencePhase::Creating;
            }
            Answer::Absent => return Some(Start::NotStarted("creating the fence stays without effect".to_owned())),
            _ => return self.look_again(),
        }
        None
    }

    fn looked_up(&mut self, answer: Answer) -> Option<Start> {
        let fence = self.fence.take()?;
        match answer {
            Answer::Listed(sequences) => Some(match sequences.last() {
                Some(&sequence) if sequence > fence.sequence => {
                    Start::Superseded { ours: fence.attempt, theirs: None, sequence }
                }
                _ => Start::Fenced(Box::new(fence)),
            }),
            other => Some(Start::NotStarted(words(other))),
        }
    }

    fn look_again(&mut self) -> Option<Start> {
        self.looks += 1;
        self.fence = None;
        self.phase = FencePhase::Listing;
        (self.looks > LOOKS).then_some(Start::Contended)
    }

    /// Two processes may try the same attempt number in the same slot: only the writer tells.
    fn is_ours(&self, found: &Manifest) -> bool {
        self.fence.as_ref().is_some_and(|ours| {
            (found.writer, found.attempt, found.kind, found.epoch) == (ours.writer, ours.attempt, ours.kind, ours.epoch)
                && found.operators == ours.operators
        })
    }
}

fn words(answer: Answer) -> String {
    match answer {
        Answer::NotDone(reason) | Answer::Unknown(reason) | Answer::Unreadable(reason) => reason,
        other => format!("unexpected answer {other:?}"),
    }
}
