//! Publishing one manifest, step by step.

use millpond_core::Attempt;

use super::{Answer, CREATE_TRIES, Request, words};
use crate::manifest::Manifest;

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
