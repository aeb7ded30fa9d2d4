//! Files as a sink, exactly once.

use std::fmt::Display;
use std::path::Path;

use millpond_core::{Data, Epoch, SubtaskIndex, UserResult};
use millpond_dataflow::{Sink, SinkContext};

use super::committed::Committed;
use super::disk::LocalDisk;
use super::encode::{Encode, EncodeCsv, EncodeJson, EncodeLines};
use super::names::NameStyle;
use super::parts::{PartSettings, PartWriter, PreparedFile};
use crate::error::Classify;

/// Size at which a file is closed unless set otherwise, in bytes.
const DEFAULT_ROLL_BYTES: u64 = 128 * 1024 * 1024;

/// Writes files into a directory, exactly once.
///
/// A file becomes visible, complete and for good, when the checkpoint of its epoch is durable. Until then
/// its name starts with a dot; readers ignore such names, as [`crate::FileSource`] does. Each subtask
/// closes its file at every epoch, and at a size; an epoch without records makes no file.
///
/// A relative directory is relative to the one that is current when the sink is declared.
///
/// A file must stay under its name until a later checkpoint has completed, or the job has finished: a
/// restore makes the files of its checkpoint visible once more, and one that is found under neither name
/// counts as lost, unless this process has committed it.
///
/// A directory and prefix belong to one sink of one job: a second job there would take hidden files of
/// the first for leftovers. What visible files hold is never touched, whoever wrote them.
///
/// ```
/// use millpond_connectors::FileSink;
/// let lines = FileSink::<String>::lines("out/words");
/// let orders = FileSink::<(u64, f64)>::json("out/orders").prefix("orders").roll_bytes(64 << 20);
/// # let _ = (lines, orders);
/// ```
#[must_use]
pub struct FileSink<T> {
    encoder: Box<dyn Encode<T>>,
    parts: PartWriter<LocalDisk>,
}

impl<T: Data> FileSink<T> {
    /// One record a line, as `{}` shows it. Extension `txt`.
    pub fn lines(directory: impl AsRef<Path>) -> Self
    where
        T: Display,
    {
        FileSink::new(directory.as_ref(), "txt", EncodeLines)
    }

    /// One JSON value a line. Extension `json`.
    pub fn json(directory: impl AsRef<Path>) -> Self {
        FileSink::new(directory.as_ref(), "json", EncodeJson)
    }

    /// Comma separated values; where records are structs, each file begins with the names of the
    /// columns. Extension `csv`.
    pub fn csv(directory: impl AsRef<Path>) -> Self {
        FileSink::new(directory.as_ref(), "csv", EncodeCsv::new())
    }

    fn new(directory: &Path, extension: &str, encoder: impl Encode<T> + 'static) -> Self {
        let style = NameStyle { prefix: "part".to_owned(), extension: extension.to_owned() };
        // Where prepared output lies must mean the same wherever a later attempt is started.
        let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
        let settings = PartSettings { directory, style, roll_bytes: DEFAULT_ROLL_BYTES };
        FileSink {
            encoder: Box::new(encoder),
            parts: PartWriter::new(LocalDisk, settings, Committed::of_this_process()),
        }
    }

    /// Begins file names with `prefix`; `part` unless set. Two sinks in one directory need two prefixes.
    pub fn prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.parts.settings_mut().style.prefix);
        self
    }

    /// Ends file names with `.extension`.
    pub fn extension(mut self, extension: &str) -> Self {
        extension.clone_into(&mut self.parts.settings_mut().style.extension);
        self
    }

    /// Closes a file once it has `bytes` bytes, and goes on in another one; 128 MiB unless set.
    pub fn roll_bytes(mut self, bytes: u64) -> Self {
        self.parts.settings_mut().roll_bytes = bytes;
        self
    }
}

impl<T: Data> Sink for FileSink<T> {
    type Record = T;
    type Committable = PreparedFile;

    fn open(&mut self, context: &SinkContext<'_>) -> UserResult {
        self.parts.open(SubtaskIndex(context.info.index), context.info.attempt).classify()
    }

    fn write(&mut self, record: T) -> UserResult {
        let encoder = &mut self.encoder;
        self.parts.write(|first, bytes| encoder.encode(&record, first, bytes)).classify()
    }

    fn prepare(&mut self, epoch: Epoch) -> UserResult<Vec<PreparedFile>> {
        self.parts.prepare(epoch).classify()
    }

    fn commit(&mut self, file: PreparedFile) -> UserResult {
        self.parts.commit(&file).classify()
    }

    fn commit_restored(&mut self, file: PreparedFile, finished: bool) -> UserResult {
        self.parts.commit_restored(&file, finished).classify()
    }

    fn clean_up(&mut self) -> UserResult {
        self.parts.clean_up().classify()
    }
}
