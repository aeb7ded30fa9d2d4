//! The bytes of one file, decompressed, read forward through a buffer.
//!
//! Owns: the stream offset and line number of the next record, and the proof that a file is still the
//! one that was read before. Does *not* own: where a record ends (see `lines` and `csv`).
//!
//! ```text
//! file ─► (gunzip) ─► buffer: [ gone │ set aside │ pending │ free ]
//!                             offset ┘           └ unread data of the current record
//! ```
//!
//! Invariants: `offset` moves only by [`FileBytes::consume`], so it is always the start of a record;
//! `head` is the beginning of the stream without gaps.

use std::fs::{self, File, Metadata};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use millpond_core::codec::checksum;

use super::split::{FileSplit, identity_of};
use crate::ConnectorError;

/// Bytes read from a file at once; few in tests, so that small files have many seams.
const CHUNK_BYTES: usize = if cfg!(test) { 16 } else { 256 * 1024 };
/// How much of a file's beginning identifies it, in bytes.
const HEAD_BYTES: u64 = if cfg!(test) { 32 } else { 4 * 1024 };
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

enum Input {
    Plain(File),
    Gzip(Box<MultiGzDecoder<BufReader<File>>>),
}

/// What the path of a followed file leads to now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// The file being read.
    Same,
    /// Nothing, or another file, which is a split of its own: the file was removed.
    Removed,
}

/// An open file, with the position of the next record.
pub struct FileBytes {
    path: PathBuf,
    input: Input,
    follow: bool,
    buffer: Vec<u8>,
    /// Pending bytes are `buffer[start..end]`.
    start: usize,
    end: usize,
    /// Stream offset of `buffer[end]`.
    read_to: u64,
    /// Stream offset of the next record.
    offset: u64,
    /// Bytes after `offset` that have been set aside.
    set_aside: u64,
    /// Line of the next record, from 1.
    line: u64,
    /// The beginning of the stream, up to [`HEAD_BYTES`].
    head: Vec<u8>,
    mark_checked: bool,
}

impl FileBytes {
    /// Opens a file at its beginning. One that is followed is not compressed.
    pub(crate) fn open(path: &str, follow: bool) -> Result<Self, ConnectorError> {
        let path = PathBuf::from(path);
        let file = File::open(&path).map_err(|error| ConnectorError::io("open", &path, error))?;
        let metadata = file.metadata().map_err(|error| ConnectorError::io("look at", &path, error))?;
        // An empty file is empty in every format, though it is no gzip member.
        let input = if is_gzip(&path) && metadata.len() > 0 {
            Input::Gzip(Box::new(MultiGzDecoder::new(BufReader::with_capacity(64 * 1024, file))))
        } else {
            Input::Plain(file)
        };
        Ok(FileBytes {
            path,
            input,
            follow,
            buffer: Vec::new(),
            start: 0,
            end: 0,
            read_to: 0,
            offset: 0,
            set_aside: 0,
            line: 1,
            head: Vec::new(),
            mark_checked: false,
        })
    }

    /// Checks that this is the file in which `split` was reached. Call it right after `open`.
    pub(crate) fn check_is(&mut self, split: &FileSplit) -> Result<(), ConnectorError> {
        let head_bytes = split.offset.min(HEAD_BYTES);
        while self.read_to < head_bytes {
            if self.fill()? == 0 {
                return Err(self.shrunk(self.read_to, split.offset));
            }
        }
        if checksum(&self.head[..head_bytes as usize]) != split.head_checksum {
            return Err(ConnectorError::Replaced { path: self.path.clone(), position: split.offset });
        }
        Ok(())
    }

    /// Moves forward to a position reached before.
    pub(crate) fn seek(&mut self, split: &FileSplit) -> Result<(), ConnectorError> {
        self.skip_to(split.offset)?;
        self.offset = split.offset;
        self.set_aside = 0;
        self.line = split.line;
        self.mark_checked = self.mark_checked || split.offset > 0;
        Ok(())
    }

    /// The position of the next record.
    pub(crate) fn position(&self, split: &FileSplit) -> FileSplit {
        let head_bytes = self.offset.min(HEAD_BYTES) as usize;
        let head_checksum = checksum(&self.head[..head_bytes]);
        FileSplit { offset: self.offset, line: self.line, head_checksum, ..split.clone() }
    }

    /// Which file of its path is open.
    pub(crate) fn identity(&self) -> Result<Option<String>, ConnectorError> {
        let Input::Plain(file) = &self.input else { return Ok(None) };
        let metadata = file.metadata().map_err(|error| ConnectorError::io("look at", &self.path, error))?;
        Ok(Some(identity_of(&metadata)))
    }

    /// Path of the file.
    pub(crate) fn path(&self) -> String {
        self.path.display().to_string()
    }

    /// Stream offset of the next record.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Line of the next record, from 1.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// Bytes of the next record (and those after it) that are in memory and not set aside.
    pub(crate) fn pending(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Frees `count` pending bytes of a record that is too long to be kept; its position stays.
    pub(crate) fn set_aside(&mut self, count: usize) {
        self.start += count;
        self.set_aside += count as u64;
    }

    /// Moves behind a record of which `count` bytes are pending and which ends `lines` lines.
    pub(crate) fn consume(&mut self, count: usize, lines: u64) {
        debug_assert!(count <= self.end - self.start, "consumed more than was there");
        self.start += count;
        self.offset += self.set_aside + count as u64;
        self.set_aside = 0;
        self.line += lines;
    }

    /// Skips a byte order mark at the beginning of the file. False when it is not decided yet, because
    /// a followed file is still too short.
    pub(crate) fn skip_mark(&mut self) -> Result<bool, ConnectorError> {
        if self.mark_checked {
            return Ok(true);
        }
        while self.pending().len() < BYTE_ORDER_MARK.len() && BYTE_ORDER_MARK.starts_with(self.pending()) {
            if self.fill()? == 0 {
                self.mark_checked = !self.follow;
                return Ok(self.mark_checked);
            }
        }
        if self.pending().starts_with(BYTE_ORDER_MARK) {
            self.consume(BYTE_ORDER_MARK.len(), 0);
        }
        self.mark_checked = true;
        Ok(true)
    }

    /// Reads more bytes; 0 when the file ends here for now.
    pub(crate) fn fill(&mut self) -> Result<usize, ConnectorError> {
        if self.follow && self.size_on_disk()? == self.read_to {
            if self.start == self.end {
                // Many followed files are idle at once: they hold no buffers.
                (self.buffer, self.start, self.end) = (Vec::new(), 0, 0);
            }
            return Ok(0);
        }
        self.make_room();
        let free = &mut self.buffer[self.end..];
        let count = loop {
            let outcome = match &mut self.input {
                Input::Plain(file) => file.read(free),
                Input::Gzip(decoder) => decoder.read(free),
            };
            match outcome {
                Ok(count) => break count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.read_error(error)),
            }
        };
        if count == 0 {
            self.size_on_disk()?;
        }
        let missing = (HEAD_BYTES as usize).saturating_sub(self.head.len()).min(count);
        self.head.extend_from_slice(&self.buffer[self.end..self.end + missing]);
        self.end += count;
        self.read_to += count as u64;
        Ok(count)
    }

    /// Looks whether the path still leads to the file that is open.
    pub(crate) fn presence(&self) -> Result<Presence, ConnectorError> {
        let Input::Plain(file) = &self.input else {
            return Ok(Presence::Same);
        };
        let now = match fs::metadata(&self.path) {
            Ok(now) => now,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Presence::Removed),
            Err(error) => return Err(ConnectorError::io("look at", &self.path, error)),
        };
        let open = file.metadata().map_err(|error| ConnectorError::io("look at", &self.path, error))?;
        if same_file(&now, &open) {
            Ok(Presence::Same)
        } else if self.follow {
            Ok(Presence::Removed)
        } else {
            Err(ConnectorError::Replaced { path: self.path.clone(), position: self.offset })
        }
    }

    fn skip_to(&mut self, offset: u64) -> Result<(), ConnectorError> {
        let buffered_from = self.read_to - (self.end - self.start) as u64;
        if (buffered_from..=self.read_to).contains(&offset) {
            self.start += (offset - buffered_from) as usize;
            return Ok(());
        }
        let seekable = if let Input::Plain(file) = &mut self.input {
            let sought = file.seek(SeekFrom::Start(offset));
            sought.map_err(|error| ConnectorError::io("seek in", &self.path, error))?;
            true
        } else {
            false
        };
        if seekable {
            let size = self.size_on_disk()?;
            if size < offset {
                return Err(self.shrunk(size, offset));
            }
            (self.start, self.end, self.read_to) = (0, 0, offset);
            return Ok(());
        }
        while self.read_to < offset {
            self.start = self.end;
            if self.fill()? == 0 {
                return Err(self.shrunk(self.read_to, offset));
            }
        }
        self.start = self.end - (self.read_to - offset) as usize;
        Ok(())
    }

    /// Size of the open file, which must not be less than what was read of it.
    fn size_on_disk(&self) -> Result<u64, ConnectorError> {
        let Input::Plain(file) = &self.input else {
            return Ok(u64::MAX);
        };
        let metadata = file.metadata().map_err(|error| ConnectorError::io("look at", &self.path, error))?;
        if metadata.len() < self.read_to {
            return Err(self.shrunk(metadata.len(), self.read_to));
        }
        Ok(metadata.len())
    }

    /// Makes sure that there is free space behind the pending bytes.
    fn make_room(&mut self) {
        if self.start > 0 && self.buffer.len() - self.end < CHUNK_BYTES / 2 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.buffer.len() - self.end < CHUNK_BYTES / 2 {
            let grown = (self.buffer.len() * 2).max(CHUNK_BYTES);
            self.buffer.resize(grown, 0);
        }
    }

    fn read_error(&self, error: io::Error) -> ConnectorError {
        let damaged = matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData)
            || error.kind() == io::ErrorKind::UnexpectedEof;
        if damaged && matches!(self.input, Input::Gzip(_)) {
            return ConnectorError::DamagedGzip { path: self.path.clone(), position: self.read_to, source: error };
        }
        ConnectorError::io("read", &self.path, error)
    }

    fn shrunk(&self, size: u64, position: u64) -> ConnectorError {
        ConnectorError::Shrunk { path: self.path.clone(), size, position }
    }
}

/// Whether a file is compressed, by its name.
pub(crate) fn is_gzip(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"))
}

#[cfg(unix)]
fn same_file(a: &Metadata, b: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

#[cfg(not(unix))]
fn same_file(a: &Metadata, b: &Metadata) -> bool {
    // Without identities of files, one that is shorter than the open one is another one.
    a.len() >= b.len()
}
