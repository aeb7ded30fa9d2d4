mod memory_disk;
mod on_a_real_disk;

use std::fs;
use std::path::Path;

use millpond_core::{Attempt, Data, Epoch, ErrorKind, MaxParallelism, SubtaskIndex};
use millpond_dataflow::{Sink, SinkContext, SubtaskInfo};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use self::memory_disk::{Crash, MemoryDisk};
use super::FileSink;
use super::committed::Committed;
use super::disk::Disk;
use super::names::NameStyle;
use super::parts::{PartSettings, PartWriter, PreparedFile};
use crate::ConnectorError;
use crate::error::connector_error;

fn parts(disk: &MemoryDisk) -> PartWriter<MemoryDisk> {
    let style = NameStyle { prefix: "part".to_owned(), extension: "txt".to_owned() };
    PartWriter::new(disk.clone(), PartSettings { directory: "out".into(), style, roll_bytes: 12 }, Committed::default())
}

fn opened(disk: &MemoryDisk, attempt: u64) -> PartWriter<MemoryDisk> {
    let mut parts = parts(disk);
    parts.open(SubtaskIndex(0), Attempt(attempt)).unwrap();
    parts
}

fn write_line(parts: &mut PartWriter<MemoryDisk>, line: &str) -> Result<(), ConnectorError> {
    parts.write(|_, bytes| {
        bytes.extend_from_slice(line.as_bytes());
        bytes.push(b'\n');
        Ok(())
    })
}

const EPOCHS: u64 = 4;
const LINES_PER_EPOCH: u64 = 5;

/// The last published checkpoint of a job with one subtask.
#[derive(Clone, Default)]
struct Published {
    epoch: u64,
    pending: Vec<PreparedFile>,
}

/// One attempt, from the published checkpoint to the end or to the first failure.
fn run_attempt(disk: &MemoryDisk, attempt: u64, published: &mut Published) -> Result<(), ConnectorError> {
    let mut parts = parts(disk);
    for file in &published.pending {
        parts.commit(file)?;
    }
    parts.open(SubtaskIndex(0), Attempt(attempt))?;
    for epoch in published.epoch + 1..=EPOCHS {
        if epoch != 2 {
            for line in 0..LINES_PER_EPOCH {
                write_line(&mut parts, &format!("{epoch}:{line}"))?;
            }
        }
        let pending = parts.prepare(Epoch(epoch))?;
        *published = Published { epoch, pending };
        for file in &published.pending {
            parts.commit(file)?;
        }
        parts.clean_up()?;
    }
    parts.clean_up()
}

/// What readers see, by epoch.
fn visible_lines(disk: &MemoryDisk) -> Vec<String> {
    let mut lines: Vec<String> =
        disk.files(false).iter().flat_map(|(_, text)| text.lines()).map(str::to_owned).collect();
    lines.sort();
    lines
}

fn expected_lines(epochs: u64) -> Vec<String> {
    let epochs = (1..=epochs).filter(|epoch| *epoch != 2);
    epochs.flat_map(|epoch| (0..LINES_PER_EPOCH).map(move |line| format!("{epoch}:{line}"))).collect()
}

/// Runs attempts that stop after the given numbers of steps, then one that does not. False when the
/// first attempt came to its end.
fn run_with_stops(stops: &[u64], crash: Crash) -> bool {
    let disk = MemoryDisk::default();
    let mut published = Published::default();
    let mut attempt = 1;
    for steps in stops {
        disk.stop_after(Some(*steps));
        if run_attempt(&disk, attempt, &mut published).is_ok() {
            assert_eq!(visible_lines(&disk), expected_lines(EPOCHS));
            return attempt > 1;
        }
        disk.crash(crash);
        let visible = visible_lines(&disk);
        let allowed = expected_lines(published.epoch);
        assert!(visible.iter().all(|line| allowed.contains(line)), "stops {stops:?}: {visible:?} is too much");
        attempt += 1;
    }
    disk.stop_after(None);
    run_attempt(&disk, attempt, &mut published).unwrap();
    disk.crash(crash);
    assert_eq!(visible_lines(&disk), expected_lines(EPOCHS), "stops {stops:?}, {crash:?}");
    assert_eq!(disk.files(true), [], "stops {stops:?}, {crash:?}");
    true
}

#[test]
fn tp_06_the_output_is_exactly_once_whatever_the_step_it_stops_after() {
    for crash in [Crash::Process, Crash::Power] {
        let mut steps = 0;
        while run_with_stops(&[steps], crash) {
            steps += 1;
        }
        assert!(steps > 40, "only {steps} steps were tried");
    }
}

#[test]
fn tp_06_the_output_is_exactly_once_when_the_next_attempt_stops_too() {
    for crash in [Crash::Process, Crash::Power] {
        for first in 0..60 {
            for second in 0..30 {
                run_with_stops(&[first, second], crash);
            }
        }
    }
}

#[test]
fn tp_03_nothing_is_visible_before_commit_and_all_of_it_after() {
    let disk = MemoryDisk::default();
    let mut parts = opened(&disk, 3);
    for line in ["first", "second", "third"] {
        write_line(&mut parts, line).unwrap();
    }
    let prepared = parts.prepare(Epoch(9)).unwrap();
    assert!(disk.files(false).is_empty());
    for file in &prepared {
        parts.commit(file).unwrap();
        parts.commit(file).unwrap();
    }
    let expected = [("part-0-3-9-0.txt", "first\nsecond\n"), ("part-0-3-9-1.txt", "third\n")];
    assert_eq!(disk.files(false), expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
    assert_eq!(prepared.iter().map(|file| file.bytes).collect::<Vec<_>>(), [13, 6]);
}

#[test]
fn output_taken_away_is_lost_unless_it_is_known_to_have_been_visible_or_the_job_has_finished() {
    let disk = MemoryDisk::default();
    let mut parts = opened(&disk, 1);
    write_line(&mut parts, "first").unwrap();
    let prepared = parts.prepare(Epoch(1)).unwrap().remove(0);
    parts.commit(&prepared).unwrap();
    disk.clone().remove(&Path::new("out").join(&prepared.visible)).unwrap();
    parts.commit_restored(&prepared, false).unwrap();
    let mut other_process = opened(&disk, 2);
    let lost = other_process.commit_restored(&prepared, false).unwrap_err();
    assert!(matches!(lost, ConnectorError::OutputLost { .. }), "{lost}");
    other_process.commit_restored(&prepared, true).unwrap();
}

#[test]
fn an_epoch_without_records_takes_no_step_and_makes_no_file() {
    let disk = MemoryDisk::default();
    let mut parts = opened(&disk, 1);
    disk.stop_after(Some(0));
    assert_eq!(parts.prepare(Epoch(1)).unwrap(), []);
}

#[test]
fn ex_06_a_writer_left_over_from_an_older_attempt_leaves_no_trace() {
    let disk = MemoryDisk::default();
    let (mut old, mut new) = (opened(&disk, 1), opened(&disk, 2));
    write_line(&mut old, "old").unwrap();
    write_line(&mut new, "new").unwrap();
    let never_published = old.prepare(Epoch(1)).unwrap();
    write_line(&mut old, "older").unwrap();
    let prepared = new.prepare(Epoch(1)).unwrap();
    new.commit(&prepared[0]).unwrap();
    new.clean_up().unwrap();
    assert!(old.prepare(Epoch(2)).is_err());
    assert!(old.commit(&never_published[0]).is_err());
    old.clean_up().unwrap();
    assert_eq!(disk.files(false), [("part-0-2-1-0.txt".to_owned(), "new\n".to_owned())]);
    assert_eq!(disk.files(true), []);
}

#[test]
fn clean_up_leaves_this_attempt_and_later_ones_alone() {
    let disk = MemoryDisk::default();
    let (mut old, mut new) = (opened(&disk, 1), opened(&disk, 2));
    write_line(&mut new, "new").unwrap();
    let prepared = new.prepare(Epoch(1)).unwrap();
    old.clean_up().unwrap();
    new.clean_up().unwrap();
    new.commit(&prepared[0]).unwrap();
    assert_eq!(disk.files(false).len(), 1);
}

#[test]
fn lost_output_is_told_and_foreign_files_are_not_replaced() {
    let disk = MemoryDisk::default();
    let mut parts = opened(&disk, 1);
    write_line(&mut parts, "mine").unwrap();
    let file = parts.prepare(Epoch(1)).unwrap().remove(0);
    let mut foreign = disk.clone().create(&Path::new("out").join(&file.visible)).unwrap();
    disk.clone().append(&mut foreign, b"theirs").unwrap();
    let error = parts.commit(&file).unwrap_err();
    assert!(matches!(error, ConnectorError::OutputExists { .. }), "{error}");
    assert_eq!(disk.files(false)[0].1, "theirs");
    assert_eq!(disk.files(true)[0].1, "mine\n");

    let lost = PreparedFile { visible: "part-0-1-1-99.txt".to_owned(), prepared: ".gone".to_owned(), ..file };
    let error = parts.commit(&lost).unwrap_err();
    assert!(matches!(error, ConnectorError::OutputLost { .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

#[test]
fn a_job_started_afresh_writes_beside_what_is_there() {
    let disk = MemoryDisk::default();
    for _ in 0..2 {
        let mut parts = opened(&disk, 1);
        write_line(&mut parts, "x").unwrap();
        let prepared = parts.prepare(Epoch(1)).unwrap();
        parts.commit(&prepared[0]).unwrap();
    }
    let names: Vec<String> = disk.files(false).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["part-0-1-1-0.txt", "part-0-1-1-1.txt"]);
}

#[test]
fn a_full_disk_is_told_and_nothing_is_prepared_after_it() {
    let disk = MemoryDisk::default();
    let mut parts = opened(&disk, 1);
    write_line(&mut parts, "kept").unwrap();
    disk.set_full(true);
    let error = parts.prepare(Epoch(1)).unwrap_err();
    assert!(matches!(error, ConnectorError::DiskFull { .. }), "{error}");
    disk.set_full(false);
    assert!(matches!(parts.prepare(Epoch(1)), Err(ConnectorError::Broken { .. })));
    assert!(matches!(write_line(&mut parts, "more"), Err(ConnectorError::Broken { .. })));
    assert!(disk.files(false).is_empty());
    assert!(disk.files(true).is_empty(), "what cannot be used any more gives its space back");
}
