//! Starting one execution, step by step.

use millpond_core::{Attempt, Epoch};

use super::{Answer, CREATE_TRIES, LOOKS, Request, WriterId, words};
use crate::manifest::{Manifest, ManifestKind};

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
    /// What was imported from elsewhere ([`Starter::imported`]) under this attempt number, whatever
    /// manifests there are: superseded when the log has come to another number.
    Imported(Attempt),
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
    /// The content of [`StartFrom::Imported`]: its objects are stored.
    pub imported: Option<Box<Manifest>>,
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
                StartFrom::Imported(attempt) => return self.start_imported(0, Attempt(1), 1, attempt),
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
            (_, StartFrom::Imported(ours)) => {
                let (attempt, floor) = succession(newest, &read);
                return self.start_imported(newest, attempt, floor, ours);
            }
            // Starting from it would write again what was committed since.
            (Ok(manifest), StartFrom::After(ours)) if manifest.attempt < ours => {
                let newest = manifest.attempt;
                return Some(Start::NotStarted(format!(
                    "the newest manifest is of {newest}, though {ours} has written one"
                )));
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
            (Ok(_), StartFrom::Latest | StartFrom::Nothing | StartFrom::After(_) | StartFrom::Imported(_)) => {
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
        let (attempt, floor) = succession(newest, read);
        let floor = if read.is_ok() { floor } else { base.retained_from };
        self.create(newest, attempt, floor, base);
    }

    /// Takes over what was imported, if the number that it was imported under is the next one.
    fn start_imported(&mut self, newest: u64, next: Attempt, floor: u64, ours: Attempt) -> Option<Start> {
        match &self.starter.imported {
            Some(imported) if next == ours => {
                let base = Manifest::clone(imported);
                self.create(newest, next, floor, base);
                None
            }
            Some(_) => Some(Start::Superseded { ours, theirs: None, sequence: newest }),
            None => Some(Start::NotStarted("there is nothing imported to start from".to_owned())),
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

/// The attempt number and the floor of the log after its newest manifest. The attempt of an unreadable
/// one is unknown, but attempts never exceed sequence numbers.
pub(crate) fn succession(newest: u64, read: &Result<Manifest, String>) -> (Attempt, u64) {
    match read {
        Ok(manifest) => (manifest.attempt.next(), manifest.retained_from),
        Err(_) => (Attempt(newest + 1), 1),
    }
}
