//! Local files of RocksDB that are damaged, cut, deleted, foreign or out of room under a running job: it ends with the
//! right output, after a restart or without, never with a wrong one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use millpond::prelude::*;
use millpond::storage::{MemoryStorage, Storage};
use millpond::{Backend, Components, ErrorKind, JobError, JobReport, JobSettings, RestartPolicy};

/// Keys; with their payload, they do not fit into the memory given.
const KEYS: u64 = 60_000;
const PAYLOAD: usize = 1_000;
const RECORDS: u64 = 4 * KEYS;
/// The record at which something happens to the local files, once.
const WHEN: u64 = 2 * KEYS + KEYS / 2;

type Counts = BTreeMap<u64, u64>;

/// Counts each key beside a payload that must stay what it is, else sets `wrong`; calls `sabotage` once on the way.
fn job(
    out: &Collector<(u64, u64)>,
    wrong: &Arc<AtomicBool>,
    sabotage: Arc<dyn Fn() + Send + Sync>,
) -> impl Fn(&mut Dataflow) -> UserResult + Send + Sync + use<> {
    let (out, wrong) = (out.clone(), Arc::clone(wrong));
    let done = Arc::new(AtomicBool::new(false));
    move |flow| {
        let (sabotage, done, wrong) = (Arc::clone(&sabotage), Arc::clone(&done), Arc::clone(&wrong));
        let keyed = flow.from_iter("numbers", 0..RECORDS).key_by(|number| number % KEYS);
        let counted = keyed.process_with(
            "payloads",
            |states| states.value::<(u64, Vec<u8>)>("payload"),
            move |state, number, context, output| {
                if number == WHEN && !done.swap(true, Ordering::SeqCst) {
                    sabotage();
                }
                let key = number % KEYS;
                let (count, right) = state.modify(context, |held| {
                    let (count, payload) = held.get_or_insert_with(|| (0, vec![key as u8; PAYLOAD]));
                    *count += 1;
                    (*count, payload.len() == PAYLOAD && payload.iter().all(|byte| *byte == key as u8))
                })?;
                // Not a panic, which a restart would hide.
                wrong.fetch_or(!right, Ordering::SeqCst);
                output.emit((key, count));
                Ok(())
            },
        );
        counted.collect("out", &out);
        Ok(())
    }
}

fn run(
    local: &Path,
    restarts: u32,
    sabotage: impl Fn() + Send + Sync + 'static,
) -> (Result<JobReport, JobError>, Counts) {
    let (out, wrong) = (Collector::new(), Arc::new(AtomicBool::new(false)));
    let mut components = Components::new(Some(Arc::new(MemoryStorage::new()) as Arc<dyn Storage>));
    components.local_directory = Some(local.to_owned());
    let mut settings = JobSettings {
        workers: 2,
        backend: Backend::Rocksdb,
        memory: Some(millpond::MemoryPlan::LEAST),
        restart: RestartPolicy::Fixed { restarts, delay_ms: 10 },
        ..JobSettings::default()
    };
    settings.checkpoints.interval_ms = Some(100);
    let outcome = millpond::run_with(job(&out, &wrong, Arc::new(sabotage)), &settings, &components);
    // Whatever was committed was committed once.
    assert!(!wrong.load(Ordering::SeqCst), "a key held a payload that was not its own");
    let (mut counts, mut seen) = (Counts::new(), BTreeSet::new());
    for (key, count) in out.take() {
        assert!(seen.insert((key, count)), "key {key} counts {count} twice");
        let newest = counts.entry(key).or_default();
        *newest = count.max(*newest);
    }
    (outcome, counts)
}

#[track_caller]
fn assert_right(outcome: Result<JobReport, JobError>, counts: &Counts) {
    outcome.unwrap();
    assert_eq!(counts.len() as u64, KEYS);
    assert!(counts.values().all(|count| *count == RECORDS / KEYS), "every key was counted to its end");
}

fn tables(local: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(local.join("database")).into_iter().flatten().flatten().map(|entry| entry.path());
    files.filter(|file| file.extension().is_some_and(|ending| ending == "sst")).collect()
}

#[test]
fn damaged_files_cost_a_restart_and_never_a_wrong_value() {
    let parent = tempfile::tempdir().unwrap();
    let local = parent.path().join("cold");
    let (of_job, touched) = (local.clone(), Arc::new(AtomicU32::new(0)));
    let count = Arc::clone(&touched);
    let (outcome, counts) = run(&local, 5, move || {
        for file in tables(&of_job) {
            let Ok(mut bytes) = fs::read(&file) else { continue };
            for position in (1_000..bytes.len()).step_by(10_000) {
                bytes[position] ^= 0x55;
            }
            // In place: files that are open see it too.
            if let Ok(mut open) = fs::OpenOptions::new().write(true).open(&file) {
                let _ = std::io::Write::write_all(&mut open, &bytes);
                count.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    assert!(touched.load(Ordering::SeqCst) > 0, "rows went to disk");
    assert!(outcome.as_ref().is_ok_and(|report| report.restarts > 0), "damage is noticed: {outcome:?}");
    assert_right(outcome, &counts);
}

#[test]
fn files_that_are_cut_cost_a_restart_and_never_a_wrong_value() {
    let parent = tempfile::tempdir().unwrap();
    let local = parent.path().join("cold");
    let of_job = local.clone();
    let (outcome, counts) = run(&local, 5, move || {
        for file in tables(&of_job) {
            let length = fs::metadata(&file).map_or(0, |data| data.len());
            let _ = fs::OpenOptions::new().write(true).open(&file).and_then(|file| file.set_len(length / 2));
        }
    });
    assert_right(outcome, &counts);
}

#[test]
fn a_deleted_directory_costs_a_restart_and_never_a_wrong_value() {
    let parent = tempfile::tempdir().unwrap();
    let local = parent.path().join("cold");
    let of_job = local.clone();
    let (outcome, counts) = run(&local, 5, move || {
        // Background threads may make a file meanwhile.
        for _ in 0..100 {
            if fs::remove_dir_all(of_job.join("database")).is_ok() {
                break;
            }
        }
    });
    assert_right(outcome, &counts);
}

#[test]
fn files_of_another_job_or_an_older_epoch_are_never_read() {
    let parent = tempfile::tempdir().unwrap();
    let (first, second) = (parent.path().join("first"), parent.path().join("second"));
    // The files of a job in the middle of its run, as a killed process leaves them.
    let (of_job, to) = (first.clone(), second.join("database"));
    let copied = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&copied);
    let (outcome, counts) = run(&first, 0, move || {
        let _ = fs::create_dir_all(&to);
        for entry in fs::read_dir(of_job.join("database")).into_iter().flatten().flatten() {
            let done = fs::copy(entry.path(), to.join(entry.file_name()));
            count.fetch_add(u32::from(done.is_ok()), Ordering::SeqCst);
        }
    });
    assert_right(outcome, &counts);
    assert!(copied.load(Ordering::SeqCst) > 2, "there was a database to copy");
    let (outcome, counts) = run(&second, 0, || {});
    assert_right(outcome, &counts);
}

#[test]
fn a_full_disk_ends_the_job_with_a_typed_error_and_never_a_wrong_value() {
    let parent = tempfile::tempdir().unwrap();
    for megabytes in [2, 8, 20, 40] {
        let small = parent.path().join(format!("{megabytes}"));
        fs::create_dir(&small).unwrap();
        let size = format!("size={megabytes}m");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&small).status();
        if !mounted.is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED: a full disk needs the right to mount a small file system");
            return;
        }
        let (outcome, counts) = run(&small.join("cold"), 2, || {});
        let _ = Command::new("umount").arg("--lazy").arg(&small).status();
        assert!(counts.values().all(|count| *count <= RECORDS / KEYS));
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let words = chain(&error).to_lowercase();
        assert!(words.contains("space") || words.contains("storage is full"), "{megabytes} MB: {words}");
    }
}

/// An error with all its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
