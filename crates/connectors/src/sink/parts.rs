//! The life of an output file: in progress → prepared → visible.
//!
//! Owns: when a file is renamed and synced, and what is cleaned up. Does *not* own: formats, names.
//!
//! ```text
//! write*  → close: append rest, sync file, rename to prepared     (at a size, or at the epoch's end)
//! prepare → sync directory, hand out (prepared name, visible name)
//! commit  → rename to visible, sync directory                     (after the checkpoint is durable)
//! ```
//!
//! Invariants: a name handed out by `prepare` leads to complete, durable content; a visible file is never
//! changed, replaced or removed; after a failure the writer takes nothing more.

use std::io;
use std::path::{Path, PathBuf};

use millpond_core::{Attempt, Epoch, SubtaskIndex};
use serde::{Deserialize, Serialize};

use super::committed::Committed;
use super::disk::Disk;
use super::names::{NameStyle, WriterId};
use crate::ConnectorError;

/// Bytes appended to a file at once.
const APPEND_BYTES: usize = 256 * 1024;

/// A complete file that waits for its checkpoint: what a file sink's `prepare` returns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreparedFile {
    /// The sink's directory when the file was written.
    pub directory: String,
    /// Hidden name of the prepared file in it.
    pub prepared: String,
    /// Name under which readers will see it.
    pub visible: String,
    /// Its size, in bytes.
    pub bytes: u64,
}

/// Where and how files are written.
#[derive(Clone, Debug)]
pub(crate) struct PartSettings {
    pub(crate) directory: PathBuf,
    pub(crate) style: NameStyle,
    pub(crate) roll_bytes: u64,
}

/// Writes one subtask's files.
pub(crate) struct PartWriter<D: Disk> {
    disk: D,
    committed: Committed,
    settings: PartSettings,
    writer: Option<OpenWriter>,
    current: Option<Part<D::File>>,
    /// Closed since the last `prepare`.
    closed: Vec<ClosedPart>,
    buffer: Vec<u8>,
    broken: bool,
}

#[derive(Clone)]
struct OpenWriter {
    id: WriterId,
    directory: String,
    sequence: u64,
    counter: u64,
}

struct Part<F> {
    file: F,
    sequence: u64,
    /// Bytes appended to the file; more wait in the buffer.
    appended: u64,
}

struct ClosedPart {
    prepared: String,
    bytes: u64,
}

impl<D: Disk> PartWriter<D> {
    pub(crate) fn new(disk: D, settings: PartSettings, committed: Committed) -> Self {
        let (writer, current, closed, buffer) = (None, None, Vec::new(), Vec::new());
        PartWriter { disk, committed, settings, writer, current, closed, buffer, broken: false }
    }

    pub(crate) fn settings_mut(&mut self) -> &mut PartSettings {
        &mut self.settings
    }

    /// Checks the settings and makes the directory.
    pub(crate) fn open(&mut self, subtask: SubtaskIndex, attempt: Attempt) -> Result<(), ConnectorError> {
        let path = &self.settings.directory;
        self.settings.style.check()?;
        if self.settings.roll_bytes == 0 {
            let reason = "files of 0 bytes cannot be written".to_owned();
            return Err(ConnectorError::Setting { setting: "roll_bytes", reason });
        }
        let directory = path.to_str().map(str::to_owned);
        let directory = directory.ok_or_else(|| ConnectorError::PathEncoding { path: path.clone() })?;
        self.disk.create_directory(path).map_err(|error| ConnectorError::io("create directory", path, error))?;
        let id = WriterId { subtask, attempt, unique: self.disk.unique() };
        self.writer = Some(OpenWriter { id, directory, sequence: 0, counter: 0 });
        Ok(())
    }

    /// Appends what `encode` makes of one record; it is told whether the record is the first of its file.
    pub(crate) fn write(
        &mut self,
        encode: impl FnOnce(bool, &mut Vec<u8>) -> Result<(), ConnectorError>,
    ) -> Result<(), ConnectorError> {
        self.unless_broken(|parts| parts.append(encode))
    }

    /// Closes all files of `epoch`. They are durable, and hidden.
    pub(crate) fn prepare(&mut self, epoch: Epoch) -> Result<Vec<PreparedFile>, ConnectorError> {
        self.unless_broken(|parts| parts.finish(epoch))
    }

    /// Makes a prepared file visible. It may have been written, and committed, by anybody before.
    pub(crate) fn commit(&mut self, file: &PreparedFile) -> Result<(), ConnectorError> {
        let directory = Path::new(&file.directory);
        let (prepared, committed) = (directory.join(&file.prepared), directory.join(&file.visible));
        // The order of these two looks matters: somebody else may be committing the same file.
        if self.exists(&committed)? {
            if self.exists(&prepared)? {
                return Err(ConnectorError::OutputExists { prepared, committed });
            }
        } else if let Err(error) = self.disk.rename(&prepared, &committed) {
            if error.kind() != io::ErrorKind::NotFound {
                return Err(ConnectorError::output("rename", &prepared, error));
            }
            if !self.exists(&committed)? {
                return Err(ConnectorError::OutputLost { prepared, committed });
            }
        }
        self.sync_directory(directory)?;
        self.committed.add(&prepared);
        Ok(())
    }

    /// Makes a file of a restored checkpoint visible. One that is gone and was visible before has been taken
    /// away since, as has all output of a `finished` job: nobody here needs it.
    pub(crate) fn commit_restored(&mut self, file: &PreparedFile, finished: bool) -> Result<(), ConnectorError> {
        match self.commit(file) {
            Err(ConnectorError::OutputLost { prepared, committed })
                if finished || self.committed.contains(&prepared) =>
            {
                tracing::warn!(file = %committed.display(), finished, "output that was committed is not there any more");
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Removes hidden files of attempts before this one. Nobody needs them once all that was restored
    /// is committed.
    pub(crate) fn clean_up(&mut self) -> Result<(), ConnectorError> {
        let attempt = self.opened()?.id.attempt;
        let directory = self.settings.directory.clone();
        let names = self.disk.list(&directory).map_err(|error| ConnectorError::output("list", &directory, error))?;
        let mut removed = false;
        for name in names {
            if self.settings.style.attempt_of_hidden(&name).is_none_or(|writer| writer >= attempt) {
                continue;
            }
            let path = directory.join(name);
            match self.disk.remove(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(ConnectorError::output("remove", &path, error));
                }
                _ => removed = true,
            }
        }
        if removed { self.sync_directory(&directory) } else { Ok(()) }
    }

    /// A failed step may have been done by half: what follows it could be lost or written twice.
    fn unless_broken<R>(
        &mut self,
        step: impl FnOnce(&mut Self) -> Result<R, ConnectorError>,
    ) -> Result<R, ConnectorError> {
        if self.broken {
            return Err(ConnectorError::Broken { path: self.settings.directory.clone() });
        }
        let outcome = step(self);
        if outcome.is_err() {
            self.broken = true;
            self.give_up_current();
        }
        outcome
    }

    /// The file in progress is of no use any more, and on a full disk the next attempt needs its space.
    fn give_up_current(&mut self) {
        let (Some(part), Some(writer)) = (self.current.take(), &self.writer) else { return };
        let path = self.settings.directory.join(self.settings.style.in_progress(writer.id, part.sequence));
        // One that stays is removed by a later attempt.
        let _ = self.disk.remove(&path);
    }

    fn append(
        &mut self,
        encode: impl FnOnce(bool, &mut Vec<u8>) -> Result<(), ConnectorError>,
    ) -> Result<(), ConnectorError> {
        let first = self.current.is_none();
        if first {
            self.current = Some(self.create()?);
        }
        encode(first, &mut self.buffer)?;
        if self.buffer.len() >= APPEND_BYTES {
            self.append_buffer()?;
        }
        let appended = self.current.as_ref().map_or(0, |part| part.appended);
        if appended + self.buffer.len() as u64 >= self.settings.roll_bytes {
            self.close()?;
        }
        Ok(())
    }

    fn create(&mut self) -> Result<Part<D::File>, ConnectorError> {
        let writer = self.writer.as_mut().ok_or(ConnectorError::NotOpen { sink: "files" })?;
        let sequence = writer.sequence;
        writer.sequence += 1;
        let path = self.settings.directory.join(self.settings.style.in_progress(writer.id, sequence));
        let file = self.disk.create(&path).map_err(|error| ConnectorError::output("create", &path, error))?;
        Ok(Part { file, sequence, appended: 0 })
    }

    fn append_buffer(&mut self) -> Result<(), ConnectorError> {
        let Some(part) = &mut self.current else {
            return Ok(());
        };
        self.disk
            .append(&mut part.file, &self.buffer)
            .map_err(|error| ConnectorError::output("write into", &self.settings.directory, error))?;
        part.appended += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn close(&mut self) -> Result<(), ConnectorError> {
        self.append_buffer()?;
        let id = self.opened()?.id;
        let Some(part) = &mut self.current else {
            return Ok(());
        };
        let PartSettings { directory, style, .. } = &self.settings;
        let from = directory.join(style.in_progress(id, part.sequence));
        self.disk.sync_file(&mut part.file).map_err(|error| ConnectorError::output("sync", &from, error))?;
        let prepared = style.prepared(id, part.sequence);
        let to = directory.join(&prepared);
        self.disk.rename(&from, &to).map_err(|error| ConnectorError::output("rename", &from, error))?;
        self.closed.push(ClosedPart { prepared, bytes: part.appended });
        self.current = None;
        Ok(())
    }

    fn finish(&mut self, epoch: Epoch) -> Result<Vec<PreparedFile>, ConnectorError> {
        self.close()?;
        if self.closed.is_empty() {
            return Ok(Vec::new());
        }
        let directory = self.settings.directory.clone();
        self.sync_directory(&directory)?;
        let closed = std::mem::take(&mut self.closed);
        closed.into_iter().map(|part| self.hand_out(part, epoch)).collect()
    }

    fn hand_out(&mut self, part: ClosedPart, epoch: Epoch) -> Result<PreparedFile, ConnectorError> {
        let mut writer = self.opened()?.clone();
        // A job started afresh counts from the beginning: what an earlier job left stays as it is.
        let visible = loop {
            let name = self.settings.style.visible(writer.id, epoch, writer.counter);
            writer.counter += 1;
            if !self.exists(&self.settings.directory.join(&name))? {
                break name;
            }
        };
        let directory = writer.directory.clone();
        self.writer = Some(writer);
        Ok(PreparedFile { directory, prepared: part.prepared, visible, bytes: part.bytes })
    }

    fn opened(&self) -> Result<&OpenWriter, ConnectorError> {
        self.writer.as_ref().ok_or(ConnectorError::NotOpen { sink: "files" })
    }

    fn exists(&mut self, path: &Path) -> Result<bool, ConnectorError> {
        self.disk.exists(path).map_err(|error| ConnectorError::output("look at", path, error))
    }

    fn sync_directory(&mut self, path: &Path) -> Result<(), ConnectorError> {
        self.disk.sync_directory(path).map_err(|error| ConnectorError::output("sync directory", path, error))
    }
}
