mod csv;
mod files;
mod follow;
mod generated;
mod json_and_bad_records;
mod lines;
mod resumed;

use std::any::TypeId;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use millpond_core::{Data, ErrorKind, ManualClock};
use millpond_dataflow::output::SidePort;
use millpond_dataflow::{Output, Outputs, ReadStatus, Source, Split, SplitReader};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::*;
use crate::ConnectorError;
use crate::error::connector_error;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    id: u64,
    name: String,
}

fn order(id: u64, name: &str) -> Order {
    Order { id, name: name.to_owned() }
}

fn write(directory: &TempDir, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = directory.path().join(name);
    fs::write(&path, bytes).unwrap();
    path
}

fn append(path: &Path, bytes: &[u8]) {
    fs::OpenOptions::new().append(true).open(path).unwrap().write_all(bytes).unwrap();
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// What a reader gives in one call: the records, the bad records, and how it stands.
fn read_once<R: SplitReader>(reader: &mut R, limit: usize) -> (Vec<R::Record>, Vec<BadRecord>, ReadStatus) {
    let mut output = Output::new();
    output.listen(&[SidePort { name: BAD_RECORDS.name(), record_type: TypeId::of::<BadRecord>(), port: 1 }]);
    let status = reader.read(limit, &mut output).unwrap();
    let mut outputs = Outputs::default();
    output.flush(&mut outputs);
    let (mut records, mut bad) = (Vec::new(), Vec::new());
    for (port, element) in outputs.drain() {
        let Some(batch) = element.into_batch() else { continue };
        match port {
            0 => records.extend(batch.downcast::<R::Record>().records),
            _ => bad.extend(batch.downcast::<BadRecord>().records),
        }
    }
    (records, bad, status)
}

fn read_all<S: Source>(source: &mut S) -> (Vec<S::Record>, Vec<BadRecord>) {
    let (mut records, mut bad) = (Vec::new(), Vec::new());
    for split in source.enumerate().unwrap() {
        let mut reader = source.open_split(split).unwrap();
        loop {
            let (more, more_bad, status) = read_once(&mut reader, 3);
            records.extend(more);
            bad.extend(more_bad);
            if status != ReadStatus::Ready {
                break;
            }
        }
    }
    (records, bad)
}

fn reader_of<S: Source>(source: &mut S) -> S::Reader {
    let split = source.enumerate().unwrap().remove(0);
    source.open_split(split).unwrap()
}

/// The error of reading the first file of a source to its end.
fn failure<S: Source>(mut source: S) -> ConnectorError {
    let outcome = source.enumerate().and_then(|splits| {
        let mut reader = source.open_split(splits[0].clone())?;
        while reader.read(10, &mut Output::new())? == ReadStatus::Ready {}
        Ok(())
    });
    connector_error(outcome.unwrap_err())
}

/// The error of going on at `split`.
fn failure_at<S: Source>(mut source: S, split: S::Split) -> ConnectorError {
    let mut reader = source.open_split(split).unwrap();
    connector_error(reader.read(10, &mut Output::new()).unwrap_err())
}

/// Reads in calls of the given limits and goes on in a new reader after each of them.
fn read_with_restarts<S: Source>(source: &mut S, limits: &[usize]) -> Vec<S::Record> {
    let mut split = source.enumerate().unwrap().remove(0);
    let mut records = Vec::new();
    for limit in limits.iter().cycle() {
        let mut reader = source.open_split(split).unwrap();
        let (more, _, status) = read_once(&mut reader, *limit);
        records.extend(more);
        if status == ReadStatus::Finished {
            return records;
        }
        split = reader.split();
    }
    records
}
