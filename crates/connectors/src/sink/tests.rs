use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use millpond_core::{Attempt, Data, Epoch, ErrorKind, MaxParallelism, SubtaskIndex};
use millpond_dataflow::{Sink, SinkContext, SubtaskInfo};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::FileSink;
use super::disk::Disk;
use super::names::NameStyle;
use super::parts::{PartSettings, PartWriter, PreparedFile};
use crate::ConnectorError;

/// A file system in memory that stops at a chosen step, and can lose what was not synced.
#[derive(Clone, Default)]
struct MemoryDisk(Rc<RefCell<Memory>>);

#[derive(Default)]
struct Memory {
    contents: Vec<Content>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    steps: u64,
    stop_at: Option<u64>,
    full: bool,
    writers: u64,
}

#[derive(Default)]
struct Content {
    bytes: Vec<u8>,
    durable: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum Crash {
    /// The process ends; what it did stays.
    Process,
    /// The machine stops; what was not synced is gone.
    Power,
}

impl MemoryDisk {
    /// Takes one step of the process; from the chosen one on, all fail.
    fn step(&self) -> io::Result<std::cell::RefMut<'_, Memory>> {
        let mut memory = self.0.borrow_mut();
        if memory.stop_at.is_some_and(|at| memory.steps >= at) {
            return Err(io::Error::other("stopped"));
        }
        memory.steps += 1;
        Ok(memory)
    }

    fn stop_after(&self, steps: Option<u64>) {
        let mut memory = self.0.borrow_mut();
        memory.stop_at = steps.map(|steps| memory.steps + steps);
    }

    fn crash(&self, crash: Crash) {
        let memory = &mut *self.0.borrow_mut();
        if let Crash::Power = crash {
            memory.names = memory.durable_names.clone();
            for content in &mut memory.contents {
                content.bytes.clone_from(&content.durable);
            }
        }
    }

    fn files(&self, hidden: bool) -> Vec<(String, String)> {
        let memory = self.0.borrow();
        let named = memory.names.iter().map(|(path, index)| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (
                name,
                String::from_utf8(memory.contents[*index].bytes.clone()).unwrap(),
            )
        });
        named
            .filter(|(name, _)| name.starts_with('.') == hidden)
            .collect()
    }
}

impl Disk for MemoryDisk {
    type File = usize;

    fn create_directory(&mut self, _path: &Path) -> io::Result<()> {
        self.step().map(drop)
    }

    fn create(&mut self, path: &Path) -> io::Result<usize> {
        let mut memory = self.step()?;
        if memory.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let index = memory.contents.len();
        memory.contents.push(Content::default());
        memory.names.insert(path.to_owned(), index);
        Ok(index)
    }

    fn append(&mut self, file: &mut usize, bytes: &[u8]) -> io::Result<()> {
        let half = &bytes[..bytes.len() / 2];
        let outcome = self.step().map(drop);
        let mut memory = self.0.borrow_mut();
        let full = memory.full;
        // A write that fails may have been done by half.
        let written = if outcome.is_err() || full {
            half
        } else {
            bytes
        };
        memory.contents[*file].bytes.extend_from_slice(written);
        if full {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            outcome
        }
    }

    fn sync_file(&mut self, file: &mut usize) -> io::Result<()> {
        let mut memory = self.step()?;
        let content = &mut memory.contents[*file];
        content.durable.clone_from(&content.bytes);
        Ok(())
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let mut memory = self.step()?;
        let index = memory.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        memory.names.insert(to.to_owned(), index);
        Ok(())
    }

    fn sync_directory(&mut self, _path: &Path) -> io::Result<()> {
        let mut memory = self.step()?;
        memory.durable_names = memory.names.clone();
        Ok(())
    }

    fn exists(&mut self, path: &Path) -> io::Result<bool> {
        Ok(self.step()?.names.contains_key(path))
    }

    fn list(&mut self, _path: &Path) -> io::Result<Vec<String>> {
        let memory = self.step()?;
        Ok(memory
            .names
            .keys()
            .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
            .collect())
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.step()?
            .names
            .remove(path)
            .map(drop)
            .ok_or(io::ErrorKind::NotFound.into())
    }

    fn unique(&mut self) -> u64 {
        let mut memory = self.0.borrow_mut();
        memory.writers += 1;
        memory.writers
    }
}

fn parts(disk: &MemoryDisk) -> PartWriter<MemoryDisk> {
    let style = NameStyle {
        prefix: "part".to_owned(),
        extension: "txt".to_owned(),
    };
    PartWriter::new(
        disk.clone(),
        PartSettings {
            directory: "out".into(),
            style,
            roll_bytes: 12,
        },
    )
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
fn run_attempt(
    disk: &MemoryDisk,
    attempt: u64,
    published: &mut Published,
) -> Result<(), ConnectorError> {
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
    let mut lines: Vec<String> = disk
        .files(false)
        .iter()
        .flat_map(|(_, text)| text.lines())
        .map(str::to_owned)
        .collect();
    lines.sort();
    lines
}

fn expected_lines(epochs: u64) -> Vec<String> {
    let epochs = (1..=epochs).filter(|epoch| *epoch != 2);
    epochs
        .flat_map(|epoch| (0..LINES_PER_EPOCH).map(move |line| format!("{epoch}:{line}")))
        .collect()
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
        assert!(
            visible.iter().all(|line| allowed.contains(line)),
            "stops {stops:?}: {visible:?} is too much"
        );
        attempt += 1;
    }
    disk.stop_after(None);
    run_attempt(&disk, attempt, &mut published).unwrap();
    disk.crash(crash);
    assert_eq!(
        visible_lines(&disk),
        expected_lines(EPOCHS),
        "stops {stops:?}, {crash:?}"
    );
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
    let expected = [
        ("part-0-3-9-0.txt", "first\nsecond\n"),
        ("part-0-3-9-1.txt", "third\n"),
    ];
    assert_eq!(
        disk.files(false),
        expected.map(|(name, text)| (name.to_owned(), text.to_owned()))
    );
    assert_eq!(
        prepared.iter().map(|file| file.bytes).collect::<Vec<_>>(),
        [13, 6]
    );
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
    assert_eq!(
        disk.files(false),
        [("part-0-2-1-0.txt".to_owned(), "new\n".to_owned())]
    );
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
    let mut foreign = disk
        .clone()
        .create(&Path::new("out").join(&file.visible))
        .unwrap();
    disk.clone().append(&mut foreign, b"theirs").unwrap();
    let error = parts.commit(&file).unwrap_err();
    assert!(
        matches!(error, ConnectorError::OutputExists { .. }),
        "{error}"
    );
    assert_eq!(disk.files(false)[0].1, "theirs");
    assert_eq!(disk.files(true)[0].1, "mine\n");

    let lost = PreparedFile {
        visible: "part-0-1-1-99.txt".to_owned(),
        prepared: ".gone".to_owned(),
        ..file
    };
    let error = parts.commit(&lost).unwrap_err();
    assert!(
        matches!(error, ConnectorError::OutputLost { .. }),
        "{error}"
    );
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
    let names: Vec<String> = disk
        .files(false)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["part-0-1-1-0.txt", "part-0-1-1-1.txt"]);
}

#[test]
fn a_full_disk_is_told_and_nothing_is_prepared_after_it() {
    let disk = MemoryDisk::default();
    let mut parts = opened(&disk, 1);
    write_line(&mut parts, "kept").unwrap();
    disk.0.borrow_mut().full = true;
    let error = parts.prepare(Epoch(1)).unwrap_err();
    assert!(matches!(error, ConnectorError::DiskFull { .. }), "{error}");
    disk.0.borrow_mut().full = false;
    assert!(matches!(
        parts.prepare(Epoch(1)),
        Err(ConnectorError::Broken { .. })
    ));
    assert!(matches!(
        write_line(&mut parts, "more"),
        Err(ConnectorError::Broken { .. })
    ));
    assert!(disk.files(false).is_empty());
}

mod on_a_real_disk {
    use super::*;

    #[derive(Clone, Serialize, Deserialize)]
    struct Order {
        id: u64,
        name: String,
    }

    fn orders() -> Vec<Order> {
        vec![
            Order {
                id: 1,
                name: "a,b".to_owned(),
            },
            Order {
                id: 2,
                name: "c".to_owned(),
            },
        ]
    }

    fn info() -> SubtaskInfo {
        SubtaskInfo {
            operator: "out".into(),
            index: 3,
            parallelism: 4,
            max_parallelism: MaxParallelism::new(16).unwrap(),
            attempt: Attempt(2),
        }
    }

    fn open<T: Data>(sink: &mut FileSink<T>) -> millpond_core::UserResult {
        sink.open(&SinkContext {
            info: &info(),
            restored: false,
        })
    }

    /// The visible files after one epoch with these records.
    fn written<T: Data>(
        mut sink: FileSink<T>,
        directory: &Path,
        records: Vec<T>,
    ) -> Vec<(String, String)> {
        open(&mut sink).unwrap();
        for record in records {
            sink.write(record).unwrap();
        }
        for file in sink.prepare(Epoch(5)).unwrap() {
            sink.commit(file).unwrap();
        }
        sink.clean_up().unwrap();
        let mut files: Vec<(String, String)> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| {
                (
                    path.file_name().unwrap().to_str().unwrap().to_owned(),
                    fs::read_to_string(path).unwrap(),
                )
            })
            .collect();
        files.sort();
        files
    }

    fn file(name: &str, text: &str) -> (String, String) {
        (name.to_owned(), text.to_owned())
    }

    #[test]
    fn lines_in_a_directory_that_is_made() {
        let directory = TempDir::new().unwrap();
        let out = directory.path().join("a/b");
        let files = written(FileSink::lines(&out), &out, vec![1, 2]);
        assert_eq!(files, [file("part-3-2-5-0.txt", "1\n2\n")]);
    }

    #[test]
    fn json_with_a_prefix_of_its_own() {
        let out = TempDir::new().unwrap();
        let files = written(
            FileSink::json(out.path()).prefix("orders"),
            out.path(),
            orders(),
        );
        assert_eq!(
            files,
            [file(
                "orders-3-2-5-0.json",
                "{\"id\":1,\"name\":\"a,b\"}\n{\"id\":2,\"name\":\"c\"}\n"
            )]
        );
    }

    #[test]
    fn fs_02_every_rolled_csv_file_has_the_header() {
        let out = TempDir::new().unwrap();
        let files = written(
            FileSink::csv(out.path()).roll_bytes(10).extension("data"),
            out.path(),
            orders(),
        );
        let expected = [
            file("part-3-2-5-0.data", "id,name\n1,\"a,b\"\n"),
            file("part-3-2-5-1.data", "id,name\n2,c\n"),
        ];
        assert_eq!(files, expected);
    }

    #[test]
    fn leftovers_of_older_attempts_go_and_other_hidden_files_stay() {
        let out = TempDir::new().unwrap();
        let theirs = [
            ".part-0-2-00000000000000aa-0.txt.prepared",
            ".part-0-x-1-1.txt.prepared",
            ".keep",
        ];
        for name in theirs
            .into_iter()
            .chain([".part-0-1-00000000000000aa-0.txt.prepared"])
        {
            fs::write(out.path().join(name), "").unwrap();
        }
        let files = written(FileSink::<u32>::lines(out.path()), out.path(), vec![]);
        let mut expected = theirs.map(|name| file(name, ""));
        expected.sort();
        assert_eq!(files, expected);
    }

    #[test]
    fn a_target_that_is_a_file_is_a_typed_error_and_stays_as_it_is() {
        let directory = TempDir::new().unwrap();
        let target = directory.path().join("target");
        fs::write(&target, "precious").unwrap();
        for path in [target.clone(), target.join("below")] {
            let error = open(&mut FileSink::<u32>::lines(path)).unwrap_err();
            let error = error.downcast::<ConnectorError>().unwrap();
            assert!(
                matches!(*error, ConnectorError::NotADirectory { .. }),
                "{error}"
            );
        }
        assert_eq!(fs::read_to_string(target).unwrap(), "precious");
    }

    #[test]
    fn settings_that_cannot_be_used_are_refused() {
        let out = TempDir::new().unwrap();
        for mut sink in [
            FileSink::<u32>::lines(out.path()).roll_bytes(0),
            FileSink::lines(out.path()).prefix("a/b"),
        ] {
            let error = open(&mut sink).unwrap_err();
            assert!(matches!(
                *error.downcast::<ConnectorError>().unwrap(),
                ConnectorError::Setting { .. }
            ));
        }
    }

    #[test]
    fn what_a_file_sink_wrote_a_file_source_reads() {
        use crate::source::FileSource;
        use millpond_dataflow::{Output, Outputs, Source, SplitReader};
        let out = TempDir::new().unwrap();
        let strange = Order {
            id: 7,
            name: "line\nbreak, \"quote\"\r".to_owned(),
        };
        written(FileSink::csv(out.path()), out.path(), vec![strange.clone()]);
        let mut source = FileSource::csv::<Order>(out.path());
        let split = source.enumerate().unwrap().remove(0);
        let (mut output, mut outputs) = (Output::new(), Outputs::default());
        source
            .open_split(split)
            .unwrap()
            .read(9, &mut output)
            .unwrap();
        output.flush(&mut outputs);
        let records = outputs
            .drain()
            .next()
            .unwrap()
            .1
            .downcast::<Order>()
            .records;
        assert_eq!((records.len(), &records[0].name), (1, &strange.name));
    }
}
