//! The edge that writes: carries out what the step machines of [`crate::log`] ask for.
//!
//! Owns the order of storage calls and the translation of their errors. Does *not* decide anything.
//! The right to publish is a value, [`PublishRight`], and only a successful start makes one.

use millpond_core::{Attempt, Epoch, ErrorKind};
use millpond_storage::{ObjectName, Storage, StorageError};

use crate::error::CheckpointError;
use crate::format;
use crate::history::History;
use crate::log::{Answer, FenceSteps, Publication, PublishSteps, Request, Start, Starter, beyond_log, succession};
use crate::manifest::Manifest;
use crate::savepoint::Import;

pub use crate::log::{StartFrom as RestoreFrom, WriterId};

/// Writes the manifests of one job. Calls block; make them from a background thread.
#[derive(Clone, Debug)]
pub struct Publisher<S> {
    history: History<S>,
    writer: WriterId,
}

/// Proves that its holder started the attempt. It ends when a newer attempt starts; nobody is told,
/// the next publication finds out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PublishRight {
    attempt: Attempt,
    writer: WriterId,
}

impl PublishRight {
    /// The attempt it stands for.
    #[must_use]
    pub fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// Who holds it.
    #[must_use]
    pub fn writer(&self) -> WriterId {
        self.writer
    }
}

/// A started execution: what it may do and what it starts from.
#[derive(Clone, Debug)]
pub struct Started {
    /// The right to publish.
    pub right: PublishRight,
    /// The log, oldest first, without unreadable manifests; the last one is our fence, which holds
    /// the content to restore. Hand it to [`crate::Facts`].
    pub log: Vec<Manifest>,
    /// Sequence numbers of manifests in the log that cannot be read.
    pub unreadable: Vec<u64>,
}

impl Started {
    /// Our fence: what to restore from.
    #[must_use]
    pub fn base(&self) -> &Manifest {
        self.log.last().expect("start_log ends every log with the fence")
    }
}

impl<S: Storage> Publisher<S> {
    /// A publisher for `job`. `writer` must be random: it tells this process from all others.
    ///
    /// # Errors
    /// [`CheckpointError::Name`] when the job's name cannot stand in an object name.
    pub fn new(storage: S, job: &str, writer: WriterId) -> Result<Publisher<S>, CheckpointError> {
        Ok(Publisher { history: History::new(storage, job)?, writer })
    }

    /// Who publishes.
    #[must_use]
    pub fn writer(&self) -> WriterId {
        self.writer
    }

    /// The reading side: latest, list, load.
    #[must_use]
    pub fn history(&self) -> &History<S> {
        &self.history
    }

    /// Checks, before a start from the newest manifest, that the end of the log has not been taken away. Every
    /// execution writes a manifest before anything else; so data of a later one than the newest manifest's, or
    /// of any where there is no manifest, shows that manifests are gone. An end within one execution is not noticed.
    ///
    /// # Errors
    /// [`CheckpointError::LogCut`] when it has; else when storage fails.
    pub fn check_log_end(&self) -> Result<(), CheckpointError> {
        // Data first: what is written meanwhile has a manifest by then.
        let objects = self.objects()?;
        let newest = match self.history.sequences()?.last() {
            None => Attempt(0),
            Some((newest, _)) => match self.history.read(*newest) {
                Ok(Some(manifest)) => manifest.attempt,
                // Whoever starts is told of damage; what was just subsumed has a successor.
                Ok(None) | Err(CheckpointError::Damaged { .. } | CheckpointError::UnsupportedVersion { .. }) => {
                    return Ok(());
                }
                Err(other) => return Err(other),
            },
        };
        match beyond_log(self.history.names(), objects, newest) {
            Some(object) => Err(CheckpointError::LogCut { job: self.history.names().job().to_owned(), object }),
            None => Ok(()),
        }
    }

    /// Starts an execution: writes the next manifest as a fence with a new attempt number, which
    /// repeats the content of what it starts from. `max_parallelism` counts only when there is no
    /// manifest yet.
    ///
    /// # Errors
    /// [`CheckpointError::NewestDamaged`], [`CheckpointError::NoSuchEpoch`],
    /// [`CheckpointError::Contended`], or when storage fails; [`CheckpointError::Fenced`] when
    /// somebody else started at the same time and won, or (with [`RestoreFrom::After`]) has taken over.
    /// After an error nothing is owned.
    pub fn fence(&self, from: RestoreFrom, max_parallelism: u32, now_ms: i64) -> Result<Started, CheckpointError> {
        self.start(from, None, max_parallelism, now_ms)
    }

    /// Starts an execution from `foreign`, a savepoint or a checkpoint of any job, whose objects are in
    /// `source`: copies them under the job's own names, then fences as [`Self::fence`] does, whatever
    /// manifests there are. From then on nothing refers to `source` any more.
    ///
    /// # Errors
    /// [`CheckpointError::Gone`] or [`CheckpointError::DamagedObject`] when an object of `source` is
    /// missing or damaged; [`CheckpointError::Fenced`] when somebody else started meanwhile; else as
    /// [`Self::fence`]. After an error nothing is owned.
    pub fn fence_imported<F: Storage>(
        &self,
        source: &F,
        foreign: &Manifest,
        now_ms: i64,
    ) -> Result<Started, CheckpointError> {
        let attempt = match self.history.sequences()?.last() {
            None => Attempt(1),
            Some((newest, _)) => {
                let read = match self.history.read(*newest) {
                    Ok(Some(manifest)) => Ok(manifest),
                    Ok(None) => Err(String::new()),
                    Err(error) if error.kind() == ErrorKind::Unavailable => return Err(error),
                    Err(error) => Err(error.to_string()),
                };
                succession(*newest, &read).0
            }
        };
        let import = Import::plan(self.history.names(), attempt, self.writer, foreign)?;
        import.carry_out(source, self.history.storage())?;
        let content = Box::new(import.content);
        self.start(RestoreFrom::Imported(attempt), Some(content), foreign.max_parallelism, now_ms)
    }

    fn start(
        &self,
        from: RestoreFrom,
        imported: Option<Box<Manifest>>,
        max_parallelism: u32,
        now_ms: i64,
    ) -> Result<Started, CheckpointError> {
        let job = self.history.names().job().to_owned();
        let mut steps = FenceSteps::new(Starter { job, writer: self.writer, max_parallelism, now_ms, from, imported });
        let mut failure = None;
        let start = loop {
            let answer = self.carry_out(steps.request(), steps.manifest(), &mut failure)?;
            if let Some(start) = steps.answer(answer) {
                break start;
            }
        };
        let job = || self.history.names().job().to_owned();
        match start {
            Start::Fenced(fence) => self.started(*fence),
            Start::NewestUnreadable { sequence, reason, older } => {
                Err(CheckpointError::NewestDamaged { object: self.history.names().manifest(sequence), reason, older })
            }
            Start::NoSuchEpoch(epoch) => Err(CheckpointError::NoSuchEpoch { job: job(), epoch }),
            Start::Superseded { ours, theirs, sequence } => Err(CheckpointError::Fenced { ours, theirs, sequence }),
            Start::Contended => Err(CheckpointError::Contended { job: job(), looks: crate::log::LOOKS }),
            Start::NotStarted(reason) => {
                Err(failure.map_or(CheckpointError::NotStarted { job: job(), reason }, CheckpointError::from))
            }
        }
    }

    /// Publishes the manifest of a completed epoch: the one commit point. Publishing the same
    /// manifest again is harmless and gives the same answer.
    ///
    /// # Errors
    /// [`CheckpointError::Fenced`]: stop. [`CheckpointError::Uncertain`]: call again with the same
    /// manifest, or let the attempt end. Any other: it did not happen.
    pub fn publish(&self, right: &PublishRight, manifest: &Manifest) -> Result<(), CheckpointError> {
        if (manifest.attempt, manifest.writer) != (right.attempt, right.writer) {
            return Err(CheckpointError::WrongRight { given: manifest.attempt, right: right.attempt });
        }
        let object = self.history.names().manifest(manifest.sequence);
        let mut steps = PublishSteps::new(manifest.clone());
        let mut failure = None;
        loop {
            let answer = self.carry_out(steps.request(), Some(steps.manifest()), &mut failure)?;
            return match steps.answer(answer) {
                None => continue,
                Some(Publication::Published) => Ok(()),
                Some(Publication::Fenced { theirs, sequence }) => {
                    Err(CheckpointError::Fenced { ours: right.attempt, theirs, sequence })
                }
                Some(Publication::Unknown(reason)) => Err(CheckpointError::Uncertain { object, reason }),
                Some(Publication::NotDone(reason)) => {
                    Err(failure.map_or(CheckpointError::Uncertain { object, reason }, CheckpointError::from))
                }
            };
        }
    }

    /// Every object of the job, for [`crate::Event::Found`].
    ///
    /// # Errors
    /// When storage cannot be listed.
    pub fn objects(&self) -> Result<Vec<ObjectName>, CheckpointError> {
        let listed = self.history.storage().list(self.history.names().prefix())?;
        Ok(listed.into_iter().map(|info| info.name).collect())
    }

    /// Deletes objects, in order, as [`crate::Action::Delete`] says.
    ///
    /// # Errors
    /// The first failure, after everything was tried. What stays is found again as garbage later.
    pub fn delete(&self, objects: &[ObjectName]) -> Result<(), CheckpointError> {
        let mut result = Ok(());
        for object in objects {
            if let Err(error) = self.history.storage().delete(object)
                && result.is_ok()
            {
                result = Err(error.into());
            }
        }
        result
    }

    /// One request of a machine against storage. Only an impossible manifest ends it here.
    fn carry_out(
        &self,
        request: Request,
        manifest: Option<&Manifest>,
        failure: &mut Option<StorageError>,
    ) -> Result<Answer, CheckpointError> {
        let answer = match (request, manifest) {
            (Request::List, _) => {
                self.history.sequences().map(|slots| Answer::Listed(slots.into_iter().map(|(slot, _)| slot).collect()))
            }
            (Request::Read(sequence), _) => match self.history.read(sequence) {
                Ok(Some(manifest)) => Ok(Answer::Found(Box::new(manifest))),
                Ok(None) => Ok(Answer::Absent),
                Err(error @ (CheckpointError::Damaged { .. } | CheckpointError::UnsupportedVersion { .. })) => {
                    Ok(Answer::Unreadable(error.without_object()))
                }
                Err(other) => Err(other),
            },
            (Request::Create, Some(manifest)) => {
                let bytes = format::encode(manifest)?;
                let name = self.history.names().manifest(manifest.sequence);
                match self.history.storage().create(&name, &bytes) {
                    Ok(()) => Ok(Answer::Created),
                    Err(StorageError::AlreadyExists { .. }) => Ok(Answer::Taken),
                    Err(other) => Err(other.into()),
                }
            }
            (Request::Create, None) => {
                let reason = "there is no manifest to create".to_owned();
                return Err(CheckpointError::Encode { epoch: Epoch::ZERO, reason });
            }
        };
        Ok(answer.unwrap_or_else(|error| {
            let reason = error.to_string();
            let unknown = error.kind() == ErrorKind::Uncertain;
            if let CheckpointError::Storage(storage) = error {
                *failure = Some(storage);
            }
            if unknown { Answer::Unknown(reason) } else { Answer::NotDone(reason) }
        }))
    }

    /// The log below a fresh fence. Nobody deletes from it: only the owner may, and that is us.
    fn started(&self, fence: Manifest) -> Result<Started, CheckpointError> {
        let right = PublishRight { attempt: fence.attempt, writer: fence.writer };
        let mut started = Started { right, log: Vec::new(), unreadable: Vec::new() };
        for sequence in fence.retained_from..fence.sequence {
            match self.history.read(sequence) {
                Ok(Some(manifest)) => started.log.push(manifest),
                Ok(None) => {}
                Err(CheckpointError::Damaged { .. } | CheckpointError::UnsupportedVersion { .. }) => {
                    started.unreadable.push(sequence);
                }
                Err(other) => return Err(other),
            }
        }
        started.log.push(fence);
        Ok(started)
    }
}
