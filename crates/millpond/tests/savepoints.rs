//! Savepoints as users meet them: on the command line, and from a program of their own.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod endless;
mod examples;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use endless::{Endless, lines};
use examples::example;
use millpond::checkpoint::savepoint::{MANIFEST_NAME, Savepoint};
use millpond::prelude::*;
use millpond::storage::{MemoryStorage, Storage};
use millpond::{
    Components, ControlError, JobControl, JobError, JobOutcome, JobReport, JobSettings, RestartPolicy, StartFrom,
    StopRequest,
};

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn ok(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(output));
    text(output)
}

/// Per key, the smallest and the largest count of the output, which must have none twice and none missing.
fn counted(directory: &Path) -> BTreeMap<u64, (u64, u64)> {
    let mut counts: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for line in lines(directory) {
        let (key, count): (u64, u64) = serde_json::from_str(&line).unwrap();
        counts.entry(key).or_default().push(count);
    }
    let ends = counts.into_iter().map(|(key, mut seen)| {
        seen.sort_unstable();
        let (first, last) = (seen[0], seen[seen.len() - 1]);
        assert!(seen.iter().copied().eq(first..=last), "key {key}: {seen:?}");
        (key, (first, last))
    });
    ends.collect()
}

#[test]
fn rs_24_a_savepoint_of_a_running_job_is_moved_and_starts_another_job_at_another_parallelism() {
    let directory = tempfile::tempdir().unwrap();
    let inside = directory.path();
    let mut job = Endless::start(inside, "-w 2");
    job.wait_for_epoch(2);
    let made = ok(&job.ask("savepoint create --live --to kept/one"));
    assert!(made.starts_with("savepoint of epoch "), "{made}");
    assert!(ok(&job.ask("savepoint list kept")).contains("kept/one"), "{made}");
    // A second one beside the running job, without asking it.
    ok(&example("endless", inside, "savepoint create --checkpoint-dir state/checkpoints --to kept/two")
        .output()
        .unwrap());
    let stopped = ok(&job.ask("stop --savepoint kept/last"));
    assert!(stopped.starts_with("stopped at epoch ") && stopped.contains("kept/last"), "{stopped}");
    assert_eq!(job.end().code(), Some(0));
    let before = counted(&inside.join("out"));
    assert!(before.values().all(|(first, _)| *first == 1));

    for kept in ["one", "two", "last"] {
        assert!(ok(&job.ask(&format!("savepoint verify kept/{kept}"))).contains("all is well"));
    }
    // Moved, and the job's own checkpoints are gone.
    assert!(Command::new("cp").args(["-r", "kept", "moved"]).current_dir(inside).status().unwrap().success());
    fs::remove_dir_all(inside.join("kept")).unwrap();
    fs::remove_dir_all(inside.join("state")).unwrap();
    let mut last = Endless::start_in(inside, "state-2", "out", "-w 3 --name another --from moved/last/savepoint");
    last.wait_for_epoch(1);
    ok(&last.ask("stop"));
    assert_eq!(last.end().code(), Some(0));
    let after = counted(&inside.join("out"));
    assert!(after.iter().all(|(key, (first, end))| *first == 1 && *end > before[key].1), "{before:?} {after:?}");
    // An older one, too; what it repeats is not looked at here.
    let mut one = Endless::start_in(inside, "state-3", "out", "-w 1 --name third --from moved/one");
    one.wait_for_epoch(1);
    ok(&one.ask("stop --drain"));
    assert_eq!(one.end().code(), Some(0));
    ok(&job.ask("savepoint dispose moved/one"));
    assert!(!inside.join("moved/one").exists());
    let again = job.ask("savepoint dispose moved/one");
    assert_eq!(again.status.code(), Some(2), "{}", text(&again));
}

#[test]
fn rs_22_a_claimed_savepoint_is_disposed_of_after_the_first_checkpoint_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let inside = directory.path();
    let mut job = Endless::start(inside, "-w 1");
    job.wait_for_epoch(1);
    ok(&job.ask("stop --savepoint kept"));
    job.end();
    ok(&job.ask("savepoint create --to copy"));
    for (state, claim, from) in [("state-1", "no-claim", "kept"), ("state-2", "claim", "copy")] {
        let mut job = Endless::start_in(inside, state, "out", &format!("-w 2 --from {from} --claim {claim}"));
        job.wait_for_epoch(1);
        ok(&job.ask("stop"));
        job.end();
    }
    assert!(inside.join("kept/savepoint").exists());
    assert!(!inside.join("copy/savepoint").exists());
    let refused = job.ask("run --claim claim");
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
}

#[test]
fn damage_is_named_object_by_object_and_orphans_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let inside = directory.path();
    let mut job = Endless::start(inside, "-w 2");
    job.wait_for_epoch(3);
    job.signal("TERM");
    job.end();
    assert!(ok(&job.ask("checkpoints verify")).contains("all is well"));
    assert!(ok(&job.ask("checkpoints fsck")).contains(" 0 faults"));
    let runs = inside.join("state/checkpoints/endless/runs");
    let operator = fs::read_dir(&runs).unwrap().next().unwrap().unwrap().path();
    let files: Vec<_> = fs::read_dir(&operator).unwrap().map(|file| file.unwrap().path()).collect();
    let named = |output: &Output| {
        let said = text(output);
        let named = files.iter().any(|file| said.contains(file.file_name().unwrap().to_str().unwrap()));
        assert!(named, "{said}");
        said
    };
    fs::write(operator.join("a0000000000-s00000-e0000000001-000000"), "left").unwrap();
    let found = ok(&job.ask("checkpoints fsck"));
    assert!(found.contains("orphan: ") && found.contains(" 1 orphans"), "{found}");
    ok(&job.ask("checkpoints fsck --delete-orphans"));
    assert!(ok(&job.ask("checkpoints fsck")).contains(" 0 orphans"));

    for file in &files {
        let mut bytes = fs::read(file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(file, &bytes).unwrap();
    }
    let damaged = job.ask("checkpoints verify");
    assert_eq!(damaged.status.code(), Some(4));
    assert!(named(&damaged).contains("is damaged"));
    files.iter().for_each(|file| fs::remove_file(file).unwrap());
    for command in ["checkpoints verify", "checkpoints fsck"] {
        let missing = job.ask(command);
        assert_eq!(missing.status.code(), Some(4));
        assert!(named(&missing).contains("is missing"));
    }
    assert!(ok(&job.ask("checkpoints")).contains("[damaged: "));
    let refused = job.ask("savepoint create --to nowhere");
    assert_eq!(refused.status.code(), Some(4), "{}", text(&refused));
    assert!(!inside.join("nowhere").exists());
}

#[test]
fn nobody_answers_when_no_job_runs() {
    let directory = tempfile::tempdir().unwrap();
    for command in
        ["stop --state-dir state", "savepoint create --live --state-dir state", "savepoint create --state-dir state"]
    {
        let refused = example("endless", directory.path(), command).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{command}: {}", text(&refused));
    }
}

#[test]
fn a_finished_job_that_is_started_again_says_so_and_does_not_look_for_its_output() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.txt"), "to be\n").unwrap();
    let run = || example("wordcount", directory.path(), "--state-dir state -w 1 -- a.txt out").output().unwrap();
    ok(&run());
    fs::remove_dir_all(directory.path().join("out")).unwrap();
    assert!(ok(&run()).contains("has finished already"));
    let anew =
        example("wordcount", directory.path(), "--state-dir state -w 1 --from none -- a.txt out").output().unwrap();
    assert!(ok(&anew).contains("output that was committed since will be there twice"));
}

/// Counts numbers without an end, in memory.
struct InMemory {
    storage: Arc<MemoryStorage>,
    out: Collector<(u64, u64)>,
}

impl InMemory {
    fn new() -> InMemory {
        InMemory { storage: Arc::default(), out: Collector::new() }
    }

    fn components(&self) -> Components {
        Components::new(Some(Arc::clone(&self.storage) as Arc<dyn Storage>))
    }

    /// Runs the job on a thread while `meanwhile` asks for something.
    fn run<R>(
        &self,
        settings: &JobSettings,
        components: &Components,
        meanwhile: impl FnOnce(&JobControl) -> R,
    ) -> (Result<JobReport, JobError>, R) {
        let out = self.out.clone();
        let job = move |flow: &mut Dataflow| {
            let numbers = flow.source("numbers", GeneratorSource::new(u64::MAX, 4, |index| index).rate(20_000));
            numbers.key_by(|number| number % 7).count("counts").collect("out", &out);
            Ok(())
        };
        std::thread::scope(|scope| {
            let running = scope.spawn(|| millpond::run_with(job, settings, components));
            // Should an assertion fail, the job must not run for ever.
            let _stop = StopOnPanic(components);
            let said = meanwhile(&components.control);
            (running.join().unwrap(), said)
        })
    }
}

struct StopOnPanic<'a>(&'a Components);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop.stop();
        }
    }
}

fn settings(workers: u32, from: StartFrom) -> JobSettings {
    JobSettings { workers, max_parallelism: Some(16), restart: RestartPolicy::Never, from, ..JobSettings::default() }
}

#[test]
fn sp_a_program_takes_savepoints_stops_with_one_and_starts_from_it() {
    let first = InMemory::new();
    let components = first.components();
    let (shelf, last): (Arc<MemoryStorage>, Arc<MemoryStorage>) = (Arc::default(), Arc::default());
    let (report, epochs) = first.run(&settings(2, StartFrom::Latest), &components, |control| {
        let checkpoint = control.checkpoint().unwrap();
        let done = control.savepoint(Arc::clone(&shelf) as Arc<dyn Storage>).unwrap();
        let refused = control.savepoint(Arc::clone(&shelf) as Arc<dyn Storage>).unwrap_err();
        assert!(matches!(refused, ControlError::Savepoint(_)), "{refused}");
        let request = StopRequest { drain: false, savepoint: Some(Arc::clone(&last) as Arc<dyn Storage>) };
        let stopped = control.stop(request).unwrap();
        assert!(matches!(control.checkpoint(), Err(ControlError::Ended)));
        (checkpoint.epoch, done.epoch, stopped.epoch)
    });
    let report = report.unwrap();
    assert_eq!((report.outcome, report.epoch), (JobOutcome::Stopped, epochs.2));
    assert!(epochs.0 < epochs.1 && epochs.1 < epochs.2, "{epochs:?}");
    assert_eq!(Savepoint::read(&last).unwrap().epoch, epochs.2);

    // Into a job of its own: what it writes joins on to what was written.
    let second = InMemory { storage: Arc::default(), out: first.out.clone() };
    let mut components = second.components();
    components.origin = Some(Arc::clone(&last) as Arc<dyn Storage>);
    let from = StartFrom::Foreign { object: MANIFEST_NAME.to_owned(), claim: true };
    let (report, ()) = second.run(&settings(3, from), &components, |control| {
        control.checkpoint().unwrap();
        control.stop(StopRequest { drain: true, savepoint: None }).unwrap();
    });
    assert_eq!(report.unwrap().outcome, JobOutcome::Stopped);
    assert!(last.list("").unwrap().is_empty(), "a claimed savepoint goes once there is a checkpoint");
    let mut counts: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (key, count) in first.out.take() {
        counts.entry(key).or_default().push(count);
    }
    for (key, mut seen) in counts {
        seen.sort_unstable();
        assert!(seen.iter().copied().eq(1..=seen.len() as u64), "key {key}: {seen:?}");
    }
    assert!(Savepoint::read(&shelf).is_ok());
}

#[test]
fn rs_26_a_stop_whose_savepoint_cannot_be_written_leaves_the_job_running() {
    let job = InMemory::new();
    let components = job.components();
    let taken: Arc<MemoryStorage> = Arc::default();
    taken.create(&millpond::storage::ObjectName::new("mine").unwrap(), b"mine").unwrap();
    let (report, ()) = job.run(&settings(1, StartFrom::Latest), &components, |control| {
        let request = StopRequest { drain: false, savepoint: Some(Arc::clone(&taken) as Arc<dyn Storage>) };
        let refused = control.stop(request).unwrap_err();
        assert!(matches!(refused, ControlError::Savepoint(_)), "{refused}");
        control.checkpoint().unwrap();
        control.stop(StopRequest::default()).unwrap();
    });
    assert_eq!(report.unwrap().outcome, JobOutcome::Stopped);
}

#[test]
fn a_job_without_checkpoints_has_no_savepoints() {
    let job = InMemory::new();
    let components = Components::new(None);
    let (report, ()) = job.run(&settings(1, StartFrom::Latest), &components, |control| {
        let shelf: Arc<MemoryStorage> = Arc::default();
        assert!(matches!(control.savepoint(shelf), Err(ControlError::NotDurable)));
        control.stop(StopRequest::default()).unwrap();
    });
    assert_eq!(report.unwrap().outcome, JobOutcome::Stopped);
}
