//! Drives a job in a test: push records, move the clock, look at state and output, take checkpoints,
//! kill, restore, rescale. Deterministic, without threads.
//!
//! ```
//! use millpond_operators::{KeyedStreamOperators, StreamOperators};
//! use millpond_sim::{TestDriver, TestFlow, TestInput, TestOutput, TestStream};
//!
//! let (words, counts) = (TestInput::new(), TestOutput::new());
//! let job = |flow: &mut millpond_dataflow::Dataflow| {
//!     let words = flow.test_input("words", &words);
//!     words.key_by(|word: &String| word.clone()).count("count").test_output("counts", &counts);
//!     Ok(())
//! };
//! let mut driver = TestDriver::build(job)?;
//! words.push("a".to_owned());
//! driver.run()?;
//! assert_eq!(counts.take(), [("a".to_owned(), 1)]);
//!
//! // What comes after the checkpoint is lost with the driver, and is read again.
//! let snapshot = driver.checkpoint()?;
//! words.push("a".to_owned());
//! driver.run()?;
//! driver.kill();
//! let mut driver = TestDriver::builder().parallelism(2).restore(job, &snapshot)?;
//! driver.run()?;
//! assert_eq!(driver.keyed_state::<String, u64>("count", "accumulator", &"a".to_owned())?, Some(2));
//! # Ok::<(), millpond_sim::SimError>(())
//! ```
//!
//! Owns the order of steps: in rounds, every channel delivers what it holds, then every subtask works.
//! Does *not* own any behaviour of the job: subtasks, coordinator and checkpoints are the real ones.

mod input;
mod output;
mod state;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use millpond_checkpoint::{
    Action, CompactionPolicy, Coordinator, Event, Facts, PublishOutcome, PublishRight, Publisher, Reason, RestoreFrom,
    Settings, TriggerKind, WriterId,
};
use millpond_core::key_group::DEFAULT_MAX_PARALLELISM;
use millpond_core::{Clock, Epoch, ManualClock, MaxParallelism, SubtaskIndex, UserResult};
use millpond_dataflow::Dataflow;
use millpond_runtime::{
    EndKind, FlowLimits, Progress, RestoreError, RestorePoint, RunLimits, RunSettings, SnapshotKind, SubtaskUploads,
    UploadSettings,
};
use millpond_state::{ColdBacking, ColdStores, MemoryBudget, MemoryColdStores};
use millpond_storage::{MemorySnapshot, MemoryStorage, Storage};

pub use input::{TestFlow, TestInput};
pub use output::{TestOutput, TestStream};

use crate::error::SimError;
use crate::execution::{Execution, ExecutionSpec};

/// Name of the job in the driver's checkpoint storage.
const JOB: &str = "test";
/// A job that is not at rest after so many rounds never will be.
const MAX_ROUNDS: u64 = 1_000_000;
/// So long does the end wait for work that operators have elsewhere.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A checkpoint of a job under test. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Snapshot {
    storage: MemorySnapshot,
    epoch: Epoch,
}

impl Snapshot {
    /// Its epoch.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }
}

/// How a job under test is started.
#[derive(Clone)]
pub struct TestDriverBuilder {
    parallelism: u32,
    max_parallelism: Option<u32>,
    now_ms: i64,
    channel_records: u64,
    backend: Option<Arc<dyn ColdStores>>,
    memory_budget: Option<usize>,
}

impl Default for TestDriverBuilder {
    fn default() -> Self {
        let channel_records = FlowLimits::default().records;
        TestDriverBuilder {
            parallelism: 1,
            max_parallelism: None,
            now_ms: 0,
            channel_records,
            backend: None,
            memory_budget: None,
        }
    }
}

impl TestDriverBuilder {
    /// Number of subtasks of each operator that does not say otherwise; 1 when not given.
    #[must_use]
    pub fn parallelism(self, parallelism: u32) -> Self {
        TestDriverBuilder { parallelism, ..self }
    }

    /// Number of key groups; 1,024 when not given.
    #[must_use]
    pub fn max_parallelism(self, max_parallelism: u32) -> Self {
        TestDriverBuilder { max_parallelism: Some(max_parallelism), ..self }
    }

    /// What the clock shows at the start, in milliseconds; 0 when not given.
    #[must_use]
    pub fn time(self, now_ms: i64) -> Self {
        TestDriverBuilder { now_ms, ..self }
    }

    /// Records in flight on one channel, at most.
    #[must_use]
    pub fn channel_records(self, channel_records: u64) -> Self {
        TestDriverBuilder { channel_records, ..self }
    }

    /// Where keyed state goes that does not fit into the memory budget; a cold store in memory when not given.
    #[must_use]
    pub fn backend(self, stores: Arc<dyn ColdStores>) -> Self {
        TestDriverBuilder { backend: Some(stores), ..self }
    }

    /// Bytes of keyed state that may be in memory, over all subtasks; the rest goes to the cold store. With 0,
    /// whatever can leave memory leaves it after each batch. Without a budget everything stays in memory.
    #[must_use]
    pub fn memory_budget(self, bytes: usize) -> Self {
        TestDriverBuilder { memory_budget: Some(bytes), ..self }
    }

    fn cold(&self) -> Option<ColdBacking> {
        let budget = MemoryBudget::new(self.memory_budget?);
        let stores = self.backend.clone().unwrap_or_else(|| Arc::new(MemoryColdStores));
        Some(ColdBacking { stores, budget })
    }

    /// Starts `job` with an empty state.
    ///
    /// # Errors
    /// When the job cannot be built, or an operator cannot open.
    pub fn build(self, job: impl Fn(&mut Dataflow) -> UserResult) -> Result<TestDriver, SimError> {
        self.start(&job, MemoryStorage::new())
    }

    /// Starts `job` from a checkpoint, which may have been taken with another parallelism. The snapshot
    /// stays as it is; any number of drivers may start from it.
    ///
    /// # Errors
    /// As [`Self::build`], and when the checkpoint does not fit the job.
    pub fn restore(self, job: impl Fn(&mut Dataflow) -> UserResult, from: &Snapshot) -> Result<TestDriver, SimError> {
        self.start(&job, MemoryStorage::from_snapshot(from.storage.clone()))
    }

    fn start(self, job: &dyn Fn(&mut Dataflow) -> UserResult, storage: MemoryStorage) -> Result<TestDriver, SimError> {
        let given = self.max_parallelism.map(MaxParallelism::new).transpose()?;
        let fresh = given.map_or(DEFAULT_MAX_PARALLELISM, MaxParallelism::get);
        let shared: Arc<dyn Storage> = Arc::new(storage.clone());
        let publisher = Publisher::new(Arc::clone(&shared), JOB, WriterId(storage.snapshot().iter().count() as u64))?;
        let started = publisher.fence(RestoreFrom::Latest, fresh, self.now_ms)?;
        let base = started.base().clone();
        let max_parallelism = MaxParallelism::new(base.max_parallelism)?;
        if let Some(given) = given.filter(|given| *given != max_parallelism) {
            let (stored, given) = (max_parallelism.get(), given.get());
            return Err(RestoreError::MaxParallelism { stored, given }.into());
        }
        let attempt = started.right.attempt();
        let restore =
            (base.epoch > Epoch::ZERO).then(|| RestorePoint::new(Arc::new(base), shared, false).reading_in_order());
        let clock = Arc::new(ManualClock::new(self.now_ms));
        let execution = Execution::build(&ExecutionSpec {
            job,
            workers: self.parallelism,
            max_parallelism,
            attempt,
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            restore: restore.as_ref(),
            flow: FlowLimits { records: self.channel_records, ..FlowLimits::default() },
            cold: self.cold(),
            wire: false,
        })?;
        let uploads =
            UploadSettings { names: publisher.history().names().clone(), attempt, runs: RunSettings::default() };
        let uploads =
            execution.places.iter().map(|place| SubtaskUploads::new(uploads.clone(), SubtaskIndex(place.id.index)));
        let settings = Settings {
            retained: 1,
            compaction: CompactionPolicy { max_running: 0, ..CompactionPolicy::default() },
            ..Settings::default()
        };
        Ok(TestDriver {
            uploads: uploads.collect(),
            coordinator: Coordinator::new(settings, Facts::new(&started, execution.subtasks()))?,
            right: started.right,
            max_parallelism,
            publisher,
            storage,
            execution,
            clock,
            events: VecDeque::new(),
            ended: false,
        })
    }
}

/// A job under test. See the module's example.
pub struct TestDriver {
    execution: Execution,
    coordinator: Coordinator,
    publisher: Publisher<Arc<dyn Storage>>,
    right: PublishRight,
    storage: MemoryStorage,
    uploads: Vec<SubtaskUploads>,
    clock: Arc<ManualClock>,
    max_parallelism: MaxParallelism,
    events: VecDeque<Event>,
    ended: bool,
}

impl TestDriver {
    /// To start with more than one subtask, or another number of key groups.
    #[must_use]
    pub fn builder() -> TestDriverBuilder {
        TestDriverBuilder::default()
    }

    /// Starts `job` with one subtask of each operator and an empty state.
    ///
    /// # Errors
    /// As [`TestDriverBuilder::build`].
    pub fn build(job: impl Fn(&mut Dataflow) -> UserResult) -> Result<TestDriver, SimError> {
        TestDriverBuilder::default().build(job)
    }

    /// Starts `job` with one subtask of each operator from a checkpoint.
    ///
    /// # Errors
    /// As [`TestDriverBuilder::restore`].
    pub fn restore(job: impl Fn(&mut Dataflow) -> UserResult, from: &Snapshot) -> Result<TestDriver, SimError> {
        TestDriverBuilder::default().restore(job, from)
    }

    /// Runs until all records that were pushed are processed.
    ///
    /// # Errors
    /// [`SimError::Subtask`] when user code fails: after that the driver has ended. When the job does
    /// not come to rest, as with a source that never ends.
    pub fn run(&mut self) -> Result<(), SimError> {
        for _ in 0..MAX_ROUNDS {
            if !self.step()? {
                return Ok(());
            }
        }
        Err(SimError::Restless { steps: MAX_ROUNDS })
    }

    /// One round: channels deliver, then each subtask works a little. False when nothing was left to do.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn step(&mut self) -> Result<bool, SimError> {
        if self.ended {
            return Err(SimError::Ended);
        }
        let outcome = self.round();
        self.ended |= outcome.is_err();
        outcome
    }

    fn round(&mut self) -> Result<bool, SimError> {
        let mut active = false;
        let busy: Vec<usize> = self.execution.network.busy().collect();
        for channel in busy {
            active = true;
            while self.execution.deliver(channel)?.is_some() {}
        }
        for at in 0..self.execution.places.len() {
            active |= self.execution.step(at, &RunLimits::default())? == Progress::Ready;
            while let Some(snapshot) = self.execution.places[at].snapshots.pop_front() {
                active = true;
                let (subtask, epoch, kind) = (self.execution.places[at].id, snapshot.epoch, snapshot.kind);
                self.uploads[at].completed(self.execution.completed());
                let pieces = self.uploads[at].upload(snapshot, &self.storage)?;
                if kind == SnapshotKind::Part {
                    continue;
                }
                self.events.push_back(Event::Acknowledged { subtask, epoch, pieces });
            }
        }
        while let Some(event) = self.events.pop_front() {
            active = true;
            for action in self.coordinator.on(self.clock.now_ms(), event) {
                self.act(action)?;
            }
        }
        Ok(active || self.execution.network.busy().next().is_some())
    }

    fn act(&mut self, action: Action) -> Result<(), SimError> {
        match action {
            Action::Trigger { epoch, kind } => {
                let end = match kind {
                    TriggerKind::Periodic | TriggerKind::Manual => None,
                    TriggerKind::Stop => Some(EndKind::Suspend),
                    TriggerKind::Drain | TriggerKind::Final => Some(EndKind::Drain),
                };
                self.execution.trigger(epoch, end);
            }
            Action::Publish { manifest } => {
                let outcome = PublishOutcome::of(&self.publisher.publish(&self.right, &manifest));
                self.events.push_back(Event::PublishFinished { epoch: manifest.epoch, outcome });
            }
            Action::NotifyCompleted { epoch } => self.execution.complete(epoch),
            Action::Delete { objects } => {
                self.publisher.delete(&objects)?;
                self.events.push_back(Event::CleanupFinished);
            }
            Action::Fail { reason } => return Err(SimError::Checkpointing(reason)),
            Action::NotifyAborted { .. } | Action::Compact { .. } | Action::Finished { .. } => {}
        }
        Ok(())
    }

    fn trigger(&mut self, reason: Reason) -> Result<Snapshot, SimError> {
        self.run()?;
        self.events.push_back(Event::TriggerNow(reason));
        self.run()?;
        Ok(Snapshot { storage: self.storage.snapshot(), epoch: self.coordinator.completed() })
    }

    /// Processes what was pushed, takes a checkpoint, and lets sinks commit it.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn checkpoint(&mut self) -> Result<Snapshot, SimError> {
        self.trigger(Reason::Manual)
    }

    /// Processes what was pushed and stops with a last checkpoint, from which the job can go on.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn stop(&mut self) -> Result<Snapshot, SimError> {
        let snapshot = self.trigger(Reason::Stop)?;
        self.ended = true;
        Ok(snapshot)
    }

    /// Processes what was pushed and lets the input end: operators emit what they hold back, those that wait for
    /// other threads are waited for, and sinks commit everything. The job's state can still be looked at.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn finish(&mut self) -> Result<Snapshot, SimError> {
        self.run()?;
        self.wait_for_others()?;
        self.trigger(Reason::Final)?;
        self.wait_for_others()?;
        self.ended = true;
        Ok(Snapshot { storage: self.storage.snapshot(), epoch: self.coordinator.completed() })
    }

    /// Runs on until no operator has work under way elsewhere.
    fn wait_for_others(&mut self) -> Result<(), SimError> {
        while self.execution.is_waiting() {
            if !self.execution.bell.wait(LONGEST_WAIT) {
                return Err(SimError::Waiting { seconds: LONGEST_WAIT.as_secs() });
            }
            self.run()?;
        }
        Ok(())
    }

    /// The job dies as it stands: what no checkpoint holds is lost.
    pub fn kill(self) {
        drop(self);
    }

    /// Sets the clock, in milliseconds.
    pub fn set_time(&mut self, now_ms: i64) {
        self.clock.set(now_ms);
    }

    /// Moves the clock forward by `by_ms` milliseconds.
    pub fn advance_time(&mut self, by_ms: i64) {
        self.clock.advance(by_ms);
    }
}

#[cfg(test)]
mod tests {
    use millpond_operators::{KeyedStreamOperators, StreamOperators};

    use super::*;

    #[test]
    fn a_damaged_run_is_named_when_it_is_restored_into_a_cold_store() {
        let (numbers, counts) = (TestInput::new(), TestOutput::new());
        let job = |flow: &mut Dataflow| {
            let numbers = flow.test_input("numbers", &numbers);
            numbers.key_by(|number: &u64| *number).count("count").test_output("counts", &counts);
            Ok(())
        };
        let mut driver = TestDriver::build(job).unwrap();
        (0..1_000u64).for_each(|number| numbers.push(number));
        driver.run().unwrap();
        let snapshot = driver.checkpoint().unwrap();
        let storage = MemoryStorage::from_snapshot(snapshot.storage.clone());
        let (run, bytes) = snapshot.storage.iter().find(|(name, _)| name.as_str().contains("/runs/")).unwrap();
        let mut bytes = bytes.to_vec();
        bytes[40] ^= 1;
        storage.overwrite(run, &bytes);
        let damaged = Snapshot { storage: storage.snapshot(), epoch: snapshot.epoch };
        let error = TestDriver::builder().memory_budget(0).restore(job, &damaged).err().unwrap();
        let told = millpond_core::error::chain(&error);
        assert!(told.contains(&format!("run {run}")) && !told.contains("merged runs"), "{told}");
    }
}
