//! Files as a source: one split a file, positions in bytes.
//!
//! Owns the settings and the reading of one file after another record. Does *not* own: which files
//! there are (`find`), their bytes (`bytes`), the formats (`lines`, `json`, `csv`).

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::path::Path;
use std::time::Duration;

use millpond_core::{Data, UserResult};
use millpond_dataflow::{Output, ReadStatus, RestoredSplits, Source, Split, SplitReader};

use super::bad::{BadRecordCounter, BadRecords, handle_bad_record};
use super::bytes::{FileBytes, Presence};
use super::decode::{Decode, Ending, Next};
use super::find::{Target, find_files};
use super::format::{Csv, Format, Json, Lines};
use super::resume::{identified, restored, resumed};
use super::split::FileSplit;
use crate::ConnectorError;
use crate::error::Classify;

/// Longest record unless set otherwise, in bytes.
const DEFAULT_MAX_RECORD_BYTES: usize = 16 * 1024 * 1024;

/// Reads files: one, those in a directory, or those that match a pattern such as `logs/*.csv`.
///
/// Files whose names end in `.gz` are decompressed. Files in a directory whose names start with a dot
/// are ignored, which is how a [`crate::FileSink`] hides output that is not committed.
///
/// A relative path is relative to the directory that is current when the source is declared. A job that
/// goes on from a checkpoint reads files that are new since as well, goes on with those that it has not
/// read to their end, and refuses to start when one of these is gone.
///
/// A file that is shorter than, or begins otherwise than, what was read of it before ends the attempt
/// with an error instead of silently giving other records.
///
/// ```
/// use millpond_connectors::{BadRecords, FileSource};
/// #[derive(Clone, serde::Serialize, serde::Deserialize)]
/// struct Order { id: u64, amount: f64 }
/// let lines = FileSource::lines("access.log");
/// let orders = FileSource::csv::<Order>("orders/*.csv.gz").delimiter(b';').bad_records(BadRecords::SideOutput);
/// # let _ = (lines, orders);
/// ```
#[must_use]
pub struct FileSource<F = Lines> {
    target: Target,
    format: F,
    settings: Settings,
}

#[derive(Clone)]
struct Settings {
    follow: Option<Duration>,
    bad_records: BadRecords,
    counter: BadRecordCounter,
    max_record_bytes: usize,
}

impl FileSource<Lines> {
    /// One record a line.
    pub fn lines(path: impl AsRef<Path>) -> FileSource<Lines> {
        FileSource::new(path.as_ref(), Lines)
    }

    /// One JSON value a line. Blank lines are skipped.
    pub fn json<T: Data>(path: impl AsRef<Path>) -> FileSource<Json<T>> {
        FileSource::new(path.as_ref(), Json(PhantomData))
    }

    /// Comma separated values. The first record of each file names the columns.
    pub fn csv<T: Data>(path: impl AsRef<Path>) -> FileSource<Csv<T>> {
        FileSource::new(path.as_ref(), Csv { delimiter: b',', has_header: true, records: PhantomData })
    }
}

impl<T> FileSource<Csv<T>> {
    /// The first record of a file is a record like all others: fields belong to columns by their order.
    pub fn without_header(mut self) -> Self {
        self.format.has_header = false;
        self
    }

    /// The byte between two fields; a comma unless set.
    pub fn delimiter(mut self, delimiter: u8) -> Self {
        self.format.delimiter = delimiter;
        self
    }
}

impl<F: Format> FileSource<F> {
    fn new(path: &Path, format: F) -> Self {
        let settings = Settings {
            follow: None,
            bad_records: BadRecords::default(),
            counter: BadRecordCounter::new(),
            max_record_bytes: DEFAULT_MAX_RECORD_BYTES,
        };
        FileSource { target: Target::new(path), format, settings }
    }

    /// Never ends: waits for files to grow, and looks for new files every `interval`. A last line without
    /// ending is not a record until its ending arrives. A file that is removed, or replaced by another
    /// one, has been read to its end; one made again under its name is a new file.
    pub fn follow(mut self, interval: Duration) -> Self {
        self.settings.follow = Some(interval);
        self
    }

    /// What to do with records that cannot be decoded; [`BadRecords::Fail`] unless set.
    pub fn bad_records(mut self, setting: BadRecords) -> Self {
        self.settings.bad_records = setting;
        self
    }

    /// Counts skipped records in `counter`, which the caller keeps a clone of.
    pub fn bad_record_counter(mut self, counter: &BadRecordCounter) -> Self {
        self.settings.counter = counter.clone();
        self
    }

    /// Longest record, in bytes without its line ending; a longer one is a bad record. 16 MiB unless set.
    pub fn max_record_bytes(mut self, bytes: usize) -> Self {
        self.settings.max_record_bytes = bytes;
        self
    }
}

impl<F: Format> FileSource<F> {
    /// The files that there are, each from its beginning.
    fn find(&self) -> Result<Vec<FileSplit>, ConnectorError> {
        let follow = self.settings.follow.is_some();
        let splits = find_files(&self.target, follow)?.into_iter().map(FileSplit::new);
        if follow { splits.filter_map(|split| identified(split).transpose()).collect() } else { Ok(splits.collect()) }
    }
}

impl<F: Format> Source for FileSource<F> {
    type Record = F::Record;
    type Split = FileSplit;
    type Reader = FileReader<F>;

    fn enumerate(&mut self) -> UserResult<Vec<FileSplit>> {
        self.find().classify()
    }

    fn restore(&mut self, known: &[String], ended: &BTreeSet<String>) -> UserResult<RestoredSplits<FileSplit>> {
        let follow = self.settings.follow.is_some();
        restored(self.target.path(), self.find(), follow, known, ended).classify()
    }

    fn resume(&mut self, splits: Vec<(FileSplit, String)>) -> UserResult<Vec<FileSplit>> {
        let found = if splits.is_empty() { Vec::new() } else { self.find().unwrap_or_default() };
        let found: BTreeSet<String> = found.into_iter().map(|split| split.id()).collect();
        resumed(self.target.path(), splits, &found).classify()
    }

    fn open_split(&mut self, split: FileSplit) -> UserResult<FileReader<F>> {
        self.format.check().classify()?;
        Ok(FileReader { split, format: self.format.clone(), settings: self.settings.clone(), open: None })
    }

    fn concurrent_splits(&self) -> usize {
        // A file that grows must be looked at again and again; the others are read one after the other,
        // which costs one buffer and keeps their order.
        if self.settings.follow.is_some() { usize::MAX } else { 1 }
    }

    fn discovery_interval(&self) -> Option<Duration> {
        self.settings.follow
    }
}

/// Reads one file. Opens it when it is read first, so that waiting files cost nothing.
pub struct FileReader<F: Format> {
    split: FileSplit,
    format: F,
    settings: Settings,
    open: Option<OpenFile<F::Decoder>>,
}

struct OpenFile<D> {
    bytes: FileBytes,
    decoder: D,
    ending: Ending,
    begun: bool,
}

impl<D: Decode> OpenFile<D> {
    fn open(split: &FileSplit, decoder: D, follow: bool) -> Result<Self, ConnectorError> {
        let bytes = FileBytes::open(&split.path, follow)?;
        if split.identity.is_some() && split.offset == 0 && bytes.identity()? != split.identity {
            return Err(ConnectorError::NotFound { path: split.path.clone().into() });
        }
        let ending = if follow { Ending::Open } else { Ending::Final };
        let mut open = OpenFile { bytes, decoder, ending, begun: false };
        if split.offset > 0 {
            open.bytes.check_is(split)?;
            open.begun = open.decoder.begin(&mut open.bytes, ending)?;
            if open.bytes.offset() < split.offset {
                open.bytes.seek(split)?;
            }
        }
        Ok(open)
    }

    fn next(&mut self) -> Result<Next<D::Record>, ConnectorError> {
        loop {
            if !self.begun {
                self.begun = self.decoder.begin(&mut self.bytes, self.ending)?;
            }
            let next = if self.begun { self.decoder.next(&mut self.bytes, self.ending)? } else { Next::Wait };
            if !matches!(next, Next::Wait) || self.bytes.presence()? == Presence::Same {
                return Ok(next);
            }
            // Nobody can finish the last line of a file that is gone.
            self.ending = Ending::Final;
        }
    }
}

impl<F: Format> SplitReader for FileReader<F> {
    type Record = F::Record;
    type Split = FileSplit;

    fn read(&mut self, limit: usize, output: &mut Output<F::Record>) -> UserResult<ReadStatus> {
        self.read_some(limit, output).classify()
    }

    fn split(&self) -> FileSplit {
        match &self.open {
            Some(open) => open.bytes.position(&self.split),
            None => self.split.clone(),
        }
    }
}

impl<F: Format> FileReader<F> {
    fn read_some(&mut self, limit: usize, output: &mut Output<F::Record>) -> Result<ReadStatus, ConnectorError> {
        let Settings { follow, bad_records, counter, max_record_bytes } = &self.settings;
        if self.open.is_none() {
            let decoder = self.format.decoder(*max_record_bytes);
            match OpenFile::open(&self.split, decoder, follow.is_some()) {
                Ok(open) => self.open = Some(open),
                // A file that came and went before anybody looked into it, or was made again since: that
                // one is a split of its own.
                Err(ConnectorError::NotFound { path }) if follow.is_some() && self.split.offset == 0 => {
                    tracing::info!(path = %path.display(), "was removed before it was read");
                    return Ok(ReadStatus::Finished);
                }
                Err(error) => return Err(error),
            }
        }
        let open = self.open.as_mut().expect("it was opened above");
        for _ in 0..limit {
            match open.next()? {
                Next::Record(record) => output.emit(record),
                Next::Bad(bad) => handle_bad_record(bad, &self.split.path, *bad_records, counter, output)?,
                Next::Wait => return Ok(ReadStatus::Idle),
                Next::End => return Ok(ReadStatus::Finished),
            }
        }
        Ok(ReadStatus::Ready)
    }
}
