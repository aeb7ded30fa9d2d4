//! Files of lines, JSON and CSV: split into records, and gone on with in the middle.

use std::cell::RefCell;
use std::io::Write;

use millpond_connectors::{BadRecords, FileSource, Format};
use millpond_core::Data;
use millpond_dataflow::{Output, Outputs, ReadStatus, Source, SplitReader};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

/// Longest record, in bytes; short, so that the limit is met.
const LONGEST: usize = 64;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Row {
    id: u32,
    name: String,
    #[serde(default)]
    delay: Option<f64>,
}

thread_local! {
    static FILE: RefCell<Option<NamedTempFile>> = const { RefCell::new(None) };
}

/// Calls `check` with the path of a file that holds `bytes`.
fn with_file(bytes: &[u8], check: impl FnOnce(&std::path::Path)) {
    FILE.with_borrow_mut(|file| {
        let file = file.get_or_insert_with(|| NamedTempFile::new().expect("there is room for a file"));
        let path = file.path().to_owned();
        let mut to = std::fs::File::create(&path).expect("the file is ours");
        to.write_all(bytes).expect("there is room for a few bytes");
        check(&path);
    });
}

/// What a reader gives in one call, and how it stands; `None` after an error.
fn read_once<R: SplitReader>(reader: &mut R, limit: usize) -> Option<(Vec<R::Record>, ReadStatus)> {
    let mut output = Output::new();
    let status = reader.read(limit, &mut output).ok()?;
    let mut outputs = Outputs::default();
    output.flush(&mut outputs);
    let batches = outputs.drain().filter_map(|(_, element)| element.into_batch());
    let records = batches.flat_map(|batch| batch.downcast::<R::Record>().records).collect();
    Some((records, status))
}

/// Reads a file at once, and again with a new reader after every call: both give the same.
fn same_either_way<F: Format>(source: impl Fn() -> FileSource<F>)
where
    F::Record: Data + PartialEq + std::fmt::Debug,
{
    let mut whole = source();
    let split = whole.enumerate().expect("the file is there").remove(0);
    let mut reader = whole.open_split(split.clone()).expect("the format is right");
    let mut at_once = Vec::new();
    let mut failed = false;
    loop {
        match read_once(&mut reader, 100) {
            Some((records, status)) => {
                at_once.extend(records);
                if status != ReadStatus::Ready {
                    break;
                }
            }
            None => {
                failed = true;
                break;
            }
        }
    }
    let mut again = Vec::new();
    let mut split = split;
    loop {
        let mut reader = source().open_split(split.clone()).expect("the format is right");
        let Some((records, status)) = read_once(&mut reader, 1) else {
            assert!(failed, "a reader that begins in the middle reads what another has read");
            break;
        };
        again.extend(records);
        if status != ReadStatus::Ready {
            assert!(!failed, "what one reader refuses another does too");
            break;
        }
        let next = reader.split();
        assert!(next.offset > split.offset, "a call that may be repeated makes progress");
        split = next;
    }
    assert!(again.starts_with(&at_once) || at_once.starts_with(&again), "{again:?} is not {at_once:?}");
    assert!(failed || again == at_once, "{again:?} is not {at_once:?}");
}

/// A file of lines.
pub(crate) fn lines(bytes: &[u8]) {
    let source = |path: &std::path::Path| {
        FileSource::lines(path).max_record_bytes(LONGEST).bad_records(BadRecords::SkipAndCount)
    };
    with_file(bytes, |path| same_either_way(|| source(path)));
}

/// A file of JSON values.
pub(crate) fn json(bytes: &[u8]) {
    let source = |path: &std::path::Path| {
        FileSource::json::<Row>(path).max_record_bytes(LONGEST).bad_records(BadRecords::SkipAndCount)
    };
    with_file(bytes, |path| same_either_way(|| source(path)));
}

/// A file of comma separated values, by header and without.
pub(crate) fn csv(bytes: &[u8]) {
    let source = |path: &std::path::Path| {
        FileSource::csv::<Row>(path).max_record_bytes(LONGEST).bad_records(BadRecords::SkipAndCount)
    };
    with_file(bytes, |path| {
        same_either_way(|| source(path));
        same_either_way(|| {
            let source = FileSource::csv::<(String, Option<i64>)>(path).without_header().delimiter(b';');
            source.max_record_bytes(LONGEST).bad_records(BadRecords::SkipAndCount)
        });
    });
}

pub(crate) fn line_seeds() -> Vec<Vec<u8>> {
    let text = "\u{feff}to be\r\nor not\n\nto be, that is the question whether it is nobler in the mind to suffer\nend";
    vec![text.as_bytes().to_vec(), b"a\nb\n\xff\xfe\nc".to_vec()]
}

pub(crate) fn json_seeds() -> Vec<Vec<u8>> {
    let text = "{\"id\":1,\"name\":\"be\"}\n\n{\"id\":2,\"name\":\"\\u00fc\",\"delay\":1.5}\r\n{\"id\":-1}\n[1]\n{\"id\":3,\"name\":\"\"}";
    vec![text.as_bytes().to_vec()]
}

pub(crate) fn csv_seeds() -> Vec<Vec<u8>> {
    let quoted = "id,name,delay\n1,be,\n2,\"to, \"\"quote\"\"\nover lines\",2.5\r\n3,x\n4,\"unended";
    vec![quoted.as_bytes().to_vec(), b"a;1\n\"b;\";\nc;x\n;2".to_vec(), b"name,id\nx,9\n".to_vec()]
}
