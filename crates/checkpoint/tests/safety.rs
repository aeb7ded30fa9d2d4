//! Whatever is done in whatever order, nothing that a retained manifest, a copy under way or a savepoint
//! names is deleted.
//!
//! Random sequences of epochs, compactions, deletions, savepoints from inside and from outside, imports,
//! new executions beside old ones that do not know yet, and crashes at any storage call, against real
//! publishers and coordinators. After every step the storage is looked at.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeSet, VecDeque};

use millpond_checkpoint::savepoint::{self, Savepoint};
use millpond_checkpoint::{
    Action, Blob, CheckpointError, CompactionPlan, CompactionPolicy, Coordinator, DataObject, Event, Facts, History,
    Manifest, OperatorPiece, PublishOutcome, PublishRight, Publisher, Reason, RestoreFrom, RunRef, Settings, SubtaskId,
    Whole, Writer, WriterId,
};
use millpond_core::codec::checksum;
use millpond_core::{KeyGroupRange, SplitMix64, SubtaskIndex};
use millpond_storage::{Effect, FaultPlan, FaultRule, Faults, MemoryStorage, Storage};

const SUBTASKS: u32 = 2;

type Disk = Faults<MemoryStorage>;

/// One execution, which may have been fenced without knowing.
struct Execution {
    publisher: Publisher<Disk>,
    right: PublishRight,
    coordinator: Coordinator,
    deletions: VecDeque<Vec<millpond_storage::ObjectName>>,
    merges: VecDeque<CompactionPlan>,
    copies: Vec<(u64, Manifest, MemoryStorage)>,
    /// Runs of each subtask since the last completed epoch.
    runs: Vec<Vec<RunRef>>,
    counter: u32,
}

struct World {
    random: SplitMix64,
    memory: MemoryStorage,
    faults: FaultPlan,
    executions: Vec<Execution>,
    savepoints: Vec<MemoryStorage>,
    writers: u64,
    now_ms: i64,
    done: [u64; 7],
}

impl World {
    fn new(seed: u64) -> World {
        World {
            random: SplitMix64::new(seed),
            memory: MemoryStorage::new(),
            faults: FaultPlan::new(seed),
            executions: Vec::new(),
            savepoints: Vec::new(),
            writers: 0,
            now_ms: 0,
            done: [0; 7],
        }
    }

    fn step(&mut self) {
        self.faults.clear();
        if self.random.chance(150) {
            let effects = [Effect::FailBefore, Effect::FailAfter, Effect::LoseRequest, Effect::Full];
            let effect = effects[self.random.below(4) as usize];
            self.faults.add(FaultRule::new(effect).after(self.random.below(6)).times(1 + self.random.below(4)));
        }
        let at = self.random.below(self.executions.len().max(1) as u64) as usize;
        let choice = self.random.below(100);
        if self.executions.is_empty() || choice < 4 {
            return self.start();
        }
        match choice {
            4..8 => self.import(),
            8..12 => self.copy_from_outside(),
            12..14 => self.dispose(),
            14..16 => drop(self.executions.swap_remove(at)),
            16..50 => self.epoch(at),
            50..65 => self.merge(at),
            65..80 => self.delete(at),
            80..86 => self.look(at),
            _ => self.copy(at),
        }
        self.check();
    }

    fn publisher(&mut self) -> Publisher<Disk> {
        self.writers += 1;
        let disk = Faults::new(self.memory.clone(), self.faults.clone());
        Publisher::new(disk, "job", WriterId(self.writers)).unwrap()
    }

    fn start(&mut self) {
        let publisher = self.publisher();
        if let Ok(started) = publisher.fence(RestoreFrom::Latest, 4, 0) {
            self.begin(publisher, &started);
        }
    }

    fn import(&mut self) {
        let Some(shelf) = self.savepoints.last().cloned() else { return };
        let Ok(savepoint) = Savepoint::read(&shelf) else { return };
        let publisher = self.publisher();
        if let Ok(started) = publisher.fence_imported(&shelf, &savepoint.to_manifest(), 0) {
            self.done[0] += 1;
            self.begin(publisher, &started);
        }
    }

    fn begin(&mut self, publisher: Publisher<Disk>, started: &millpond_checkpoint::Started) {
        let subtasks: BTreeSet<SubtaskId> = (0..SUBTASKS).map(|index| SubtaskId { chain: 0, index }).collect();
        let compaction = CompactionPolicy { fan_in: 2, min_bytes: 0, max_depth: 4, ..CompactionPolicy::default() };
        let settings = Settings { retained: 1, compaction, tolerable_failures: u32::MAX, ..Settings::default() };
        self.executions.push(Execution {
            publisher,
            right: started.right.clone(),
            coordinator: Coordinator::new(settings, Facts::new(started, subtasks)).unwrap(),
            deletions: VecDeque::new(),
            merges: VecDeque::new(),
            copies: Vec::new(),
            runs: vec![Vec::new(); SUBTASKS as usize],
            counter: 0,
        });
    }

    /// Lets an execution hear something and carries out what may not wait.
    fn tell(&mut self, at: usize, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let x = &mut self.executions[at];
            self.now_ms += 2_000;
            for action in x.coordinator.on(self.now_ms, event) {
                match action {
                    Action::Publish { manifest } => {
                        let outcome = PublishOutcome::of(&x.publisher.publish(&x.right, &manifest));
                        events.push_back(Event::PublishFinished { epoch: manifest.epoch, outcome });
                    }
                    Action::NotifyCompleted { epoch } => {
                        self.done[1] += 1;
                        x.runs.iter_mut().for_each(|runs| runs.retain(|run| run.epoch > epoch));
                        if self.random.chance(300) {
                            let newest = x.coordinator.log().last().unwrap().clone();
                            x.copies.push((x.coordinator.pin(), newest, MemoryStorage::new()));
                        }
                    }
                    Action::Delete { objects } => x.deletions.push_back(objects),
                    Action::Compact { plan } => x.merges.push_back(plan),
                    Action::Trigger { .. } | Action::NotifyAborted { .. } => {}
                    Action::Fail { .. } | Action::Finished { .. } => {}
                }
            }
        }
    }

    fn epoch(&mut self, at: usize) {
        self.tell(at, Event::TriggerNow(Reason::Manual));
        let Some(epoch) = self.executions[at].coordinator.in_flight().pop() else { return };
        for index in 0..SUBTASKS {
            let x = &mut self.executions[at];
            x.counter += 1;
            let data = DataObject {
                operator: "o".to_owned(),
                attempt: x.right.attempt(),
                writer: Writer::Subtask(SubtaskIndex(index)),
                epoch,
                counter: x.counter,
            };
            let names = x.publisher.history().names();
            let (object, blob) = (names.run(&data).unwrap(), names.blob(&data).unwrap());
            let bytes = object.as_str().as_bytes().to_vec();
            let storage = x.publisher.history().storage();
            if storage.create(&object, &bytes).is_err() || storage.create(&blob, b"blob").is_err() {
                continue;
            }
            x.runs[index as usize].push(RunRef {
                object,
                bytes: bytes.len() as u64,
                raw_bytes: 1,
                rows: 10,
                tombstones: 0,
                groups: KeyGroupRange::new(2 * index, 2 * index + 2),
                checksum: checksum(&bytes),
                epoch,
                level: 0,
            });
            let runs = x.runs[index as usize].clone();
            // Every third epoch holds all there is.
            let since = runs.iter().rev().map(|run| run.epoch).find(|epoch| epoch.0.is_multiple_of(3));
            let whole = since.map(|since| Whole { since, groups: KeyGroupRange::new(2 * index, 2 * index + 2) });
            let piece = OperatorPiece {
                operator: "o".to_owned(),
                states: Vec::new(),
                runs,
                blob: Some(Blob::stored(blob, b"blob")),
                whole,
            };
            let subtask = SubtaskId { chain: 0, index };
            self.tell(at, Event::Acknowledged { subtask, epoch, pieces: vec![piece] });
        }
        // What nobody has acknowledged is given up, so that the next epoch can begin.
        let subtask = SubtaskId { chain: 0, index: 0 };
        let reason = millpond_checkpoint::DeclineReason::NotReady;
        self.tell(at, Event::Declined { subtask, epoch, reason });
    }

    fn merge(&mut self, at: usize) {
        let x = &mut self.executions[at];
        let Some(plan) = x.merges.pop_front() else { return };
        let object = x.publisher.history().names().run(&plan.output(x.right.attempt(), 0)).unwrap();
        let bytes = object.as_str().as_bytes().to_vec();
        let created = x.publisher.history().storage().create(&object, &bytes);
        let groups = KeyGroupRange::new(
            plan.inputs.iter().map(|run| run.groups.start).min().unwrap(),
            plan.inputs.iter().map(|run| run.groups.end).max().unwrap(),
        );
        let output = RunRef {
            object,
            bytes: bytes.len() as u64,
            raw_bytes: 1,
            rows: 10,
            tombstones: 0,
            groups,
            checksum: checksum(&bytes),
            epoch: plan.epoch,
            level: plan.level,
        };
        self.done[2] += u64::from(created.is_ok());
        let outcome = created.map(|()| vec![output]).map_err(|error| error.to_string());
        self.tell(at, Event::Compacted { plan: plan.id, outcome });
    }

    fn delete(&mut self, at: usize) {
        let x = &mut self.executions[at];
        let Some(objects) = x.deletions.pop_front() else { return };
        self.done[3] += objects.len() as u64;
        let _ = x.publisher.delete(&objects);
        self.tell(at, Event::CleanupFinished);
    }

    fn look(&mut self, at: usize) {
        if let Ok(existing) = self.executions[at].publisher.objects() {
            self.tell(at, Event::Found { existing });
        }
    }

    /// A savepoint by the execution itself. While it owns the job, nothing that it needs may be gone.
    fn copy(&mut self, at: usize) {
        let x = &mut self.executions[at];
        let Some((sequence, manifest, target)) = x.copies.pop() else { return };
        let ours = x.right.attempt().0;
        let owns = self.history().latest_attempt() == Some(ours);
        let x = &mut self.executions[at];
        match savepoint::write(x.publisher.history().storage(), &manifest, "job/", &target, 0) {
            Ok(_) => {
                self.done[4] += 1;
                self.savepoints.push(target);
            }
            Err(CheckpointError::Gone { object }) => assert!(!owns, "{object} was pinned and is gone"),
            Err(_) => self.savepoints.extend(Savepoint::read(&target).is_ok().then_some(target)),
        }
        self.tell(at, Event::Unpin { sequence });
    }

    /// A savepoint by somebody who only reads: what is gone meanwhile is noticed.
    fn copy_from_outside(&mut self) {
        let disk = Faults::new(self.memory.clone(), self.faults.clone());
        let Ok(Some(newest)) = History::new(disk, "job").unwrap().latest() else { return };
        let target = MemoryStorage::new();
        let steps = self.random.below(4);
        for _ in 0..steps {
            // The job goes on between the look and the copy.
            let at = self.random.below(self.executions.len() as u64) as usize;
            self.epoch(at);
            self.delete(at);
        }
        let disk = Faults::new(self.memory.clone(), self.faults.clone());
        if savepoint::write(&disk, &newest, "job/", &target, 0).is_ok() {
            self.done[5] += 1;
        }
        self.savepoints.extend(Savepoint::read(&target).is_ok().then_some(target));
    }

    fn dispose(&mut self) {
        if !self.savepoints.is_empty() {
            let at = self.random.below(self.savepoints.len() as u64) as usize;
            let shelf = Faults::new(self.savepoints[at].clone(), self.faults.clone());
            self.done[6] += u64::from(savepoint::dispose(&shelf).is_ok());
            if Savepoint::read(&self.savepoints[at]).is_err() {
                self.savepoints.swap_remove(at);
            }
        }
    }

    fn history(&self) -> Look {
        Look(History::new(self.memory.clone(), "job").unwrap())
    }

    fn check(&self) {
        for manifest in self.history().retained() {
            check_whole(&manifest, &self.memory, "the log");
        }
        for shelf in &self.savepoints {
            check_whole(&Savepoint::read(shelf).unwrap().to_manifest(), shelf, "a savepoint");
        }
    }
}

struct Look(History<MemoryStorage>);

impl Look {
    fn retained(&self) -> Vec<Manifest> {
        self.0.entries().unwrap().into_iter().map(|entry| entry.manifest.unwrap()).collect()
    }

    fn latest_attempt(&self) -> Option<u64> {
        self.retained().last().map(|newest| newest.attempt.0)
    }
}

fn check_whole(manifest: &Manifest, storage: &MemoryStorage, of: &str) {
    for (object, bytes) in manifest.sizes() {
        let found = storage.size(object);
        assert_eq!(found.ok(), Some(bytes), "{object} of {of}, {}", manifest.epoch);
    }
}

fn seeds() -> u64 {
    std::env::var("MILLPOND_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(40)
}

#[test]
fn nothing_that_a_manifest_a_copy_or_a_savepoint_names_is_ever_deleted() {
    let mut done = [0; 7];
    for seed in 0..seeds() {
        let outcome = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            for _ in 0..250 {
                world.step();
            }
            world.done
        });
        match outcome {
            Ok(more) => done.iter_mut().zip(more).for_each(|(sum, more)| *sum += more),
            Err(_) => panic!("seed {seed}"),
        }
    }
    // Imports, epochs, merges, deletions, savepoints from inside and outside, disposals: all of them happened.
    assert!(done.iter().all(|count| *count > 0), "{done:?}");
}
