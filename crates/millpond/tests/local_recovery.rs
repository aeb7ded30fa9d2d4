//! A restart on the same machine reads local copies of the checkpoint, as far as they are intact.

#![expect(clippy::unwrap_used, reason = "outside of test functions, but only called by them")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use millpond::prelude::*;
use millpond::storage::{Effect, FaultPlan, FaultRule, Faults, LocalStorage, Operation};
use millpond::{Clock, Components, JobError, JobOutcome, JobReport, JobSettings, ManualClock, RestartPolicy};

const RECORDS: u64 = 20_000;
const KEYS: u64 = 500;

struct World {
    directory: tempfile::TempDir,
    out: Collector<(u64, u64)>,
}

/// What happens to the storage while the job is restored from it.
#[derive(Clone, Copy, PartialEq)]
enum Remote {
    Whole,
    /// No run can be read.
    WithoutRuns,
}

impl World {
    fn new() -> World {
        World { directory: tempfile::tempdir().unwrap(), out: Collector::new() }
    }

    fn copies(&self) -> PathBuf {
        self.directory.path().join("copies")
    }

    /// One process: runs until the clock has let all records come, or with `stop` until some epochs are complete.
    fn run(&self, remote: Remote, local_recovery: bool, stop: bool) -> Result<JobReport, JobError> {
        let plan = FaultPlan::new(1);
        if remote == Remote::WithoutRuns {
            plan.add(FaultRule::new(Effect::FailBefore).on(Operation::ReadRange).under("counts/runs/"));
            plan.add(FaultRule::new(Effect::FailBefore).on(Operation::Read).under("counts/runs/"));
        }
        let storage = LocalStorage::open(self.directory.path().join("remote")).unwrap();
        let mut components = Components::new(Some(Arc::new(Faults::new(storage, plan))));
        components.copies_directory = local_recovery.then(|| self.copies());
        let clock = Arc::new(ManualClock::new(0));
        let (inside, pace) = (self.out.clone(), Arc::clone(&clock));
        let job = move |flow: &mut Dataflow| {
            let numbers = GeneratorSource::new(RECORDS, 2, |index| index);
            let numbers = numbers.rate_by(1_000, Arc::clone(&pace) as Arc<dyn Clock>);
            flow.source("numbers", numbers).key_by(|index| index % KEYS).count("counts").collect("out", &inside);
            Ok(())
        };
        let mut settings = JobSettings { name: "counts".to_owned(), workers: 2, ..JobSettings::default() };
        settings.restart = RestartPolicy::Never;
        settings.checkpoints.interval_ms = Some(20);
        settings.storage.patience_ms = 0;
        let own = components.clone();
        let thread = std::thread::spawn(move || millpond::run_with(job, &settings, &own));
        while !thread.is_finished() {
            if stop && components.status.snapshot().epoch >= 3 {
                components.stop.stop();
            }
            clock.advance(if stop { 20 } else { 1_000_000 });
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        thread.join().unwrap()
    }

    /// The output equals that of a run without a stop.
    fn check(&self) {
        let mut seen = self.out.take();
        seen.sort_unstable();
        let mut expected: Vec<_> = (0..RECORDS).map(|index| (index % KEYS, index / KEYS + 1)).collect();
        expected.sort_unstable();
        assert_eq!(seen, expected);
    }
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn local_copies_restore_a_job_although_no_run_can_be_read_from_storage() {
    let world = World::new();
    assert_eq!(world.run(Remote::Whole, true, true).unwrap().outcome, JobOutcome::Stopped);
    assert!(!files(&world.copies()).is_empty());
    let report = world.run(Remote::WithoutRuns, true, false).unwrap();
    assert_eq!(report.outcome, JobOutcome::Finished);
    world.check();
}

#[test]
fn without_copies_the_same_restore_fails() {
    let world = World::new();
    world.run(Remote::Whole, false, true).unwrap();
    let error = world.run(Remote::WithoutRuns, true, false).unwrap_err();
    assert_eq!(error.kind(), millpond::ErrorKind::Unavailable, "{error}");
}

#[test]
fn damaged_lost_and_foreign_copies_are_made_up_for_by_the_storage() {
    type Damage = fn(&Path);
    let damages: [Damage; 4] = [
        |path| std::fs::remove_file(path).unwrap(),
        |path| std::fs::write(path, b"").unwrap(),
        |path| {
            let mut bytes = std::fs::read(path).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(path, bytes).unwrap();
        },
        // The copy of a job of the same name that kept its checkpoints elsewhere.
        |path| std::fs::write(path, vec![7; usize::try_from(path.metadata().unwrap().len()).unwrap()]).unwrap(),
    ];
    for damage in damages {
        let world = World::new();
        world.run(Remote::Whole, true, true).unwrap();
        files(&world.copies()).iter().for_each(|path| damage(path));
        assert_eq!(world.run(Remote::Whole, true, false).unwrap().outcome, JobOutcome::Finished);
        world.check();
    }
}

#[test]
fn copies_follow_what_the_checkpoints_keep() {
    let world = World::new();
    world.run(Remote::Whole, true, true).unwrap();
    world.run(Remote::Whole, true, false).unwrap();
    let remote: usize = files(&world.directory.path().join("remote")).len();
    // Manifests have no copies, and what is deleted in storage has none either.
    assert!(files(&world.copies()).len() <= remote, "{:?}", files(&world.copies()));
    for copy in files(&world.copies()) {
        let name = copy.strip_prefix(world.copies()).unwrap();
        assert!(world.directory.path().join("remote").join(name).exists(), "{}", copy.display());
    }
}
