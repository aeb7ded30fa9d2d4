//! Reads a run: the footer once, then only the blocks that are asked for.
//!
//! A [`Cursor`] walks the rows of one section within a range of key groups. It fetches neighbouring
//! blocks together, up to the reader's read-ahead, checks each block's checksum before decoding it,
//! and holds one decoded block.

use std::ops::{Deref, Range};

use millpond_core::{KeyGroup, KeyGroupRange};

use crate::block::{BlockRows, BlockShape};
use crate::error::RunError;
use crate::footer::{self, BlockEntry, Encoding, HEADER_BYTES, Section, SectionBlocks, TRAILER_BYTES};
use crate::row::RowRef;
use crate::source::ReadRange;

/// How much is read from the end of a file at first: most often trailer and footer at once.
const TAIL_BYTES: u64 = 64 << 10;
const READ_AHEAD_BYTES: u64 = 256 << 10;

/// An open run file.
#[derive(Debug)]
pub struct RunReader<R> {
    source: R,
    size: u64,
    sections: Vec<SectionBlocks>,
    read_ahead_bytes: u64,
}

impl<R: ReadRange> RunReader<R> {
    /// Reads and checks trailer and footer; the header too if the file is small.
    ///
    /// # Errors
    /// When the file cannot be read, is not a run, is damaged, or has another format version.
    pub fn open(source: R) -> Result<Self, RunError> {
        let failed = |error| RunError::Size { file: source.name().to_owned(), source: error };
        let size = source.size().map_err(failed)?;
        RunReader::open_end(source, size).map(|(reader, _)| reader)
    }

    /// Like [`Self::open`] for the file that a manifest names with its size in bytes and the CRC-32 of them all.
    /// Another sound file in its place is refused before any row is read: the checksum of the whole follows
    /// from those of its parts, which footer and trailer hold.
    ///
    /// # Errors
    /// As [`Self::open`], and [`RunError::Mismatch`] when it is another file; a wrong size shows as a missing magic
    /// number or a failed read.
    pub fn open_stated(source: R, size: u64, checksum: u32) -> Result<Self, RunError> {
        let (reader, found) = RunReader::open_end(source, size)?;
        if found == checksum {
            return Ok(reader);
        }
        let (expected, found) = (format!("{checksum:08x}"), format!("{found:08x}"));
        Err(RunError::Mismatch { file: reader.name().to_owned(), what: "checksum", expected, found })
    }

    /// Reads the end of the file; returns also the checksum that the whole file has.
    fn open_end(source: R, size: u64) -> Result<(Self, u32), RunError> {
        let file = source.name().to_owned();
        if size < HEADER_BYTES + TRAILER_BYTES {
            return Err(footer::malformed(&file, 0, "the file is shorter than header and trailer"));
        }
        let tail_start = size.saturating_sub(TAIL_BYTES);
        let tail = read(&source, tail_start, size - tail_start)?;
        let (before, trailer) = tail.split_at(tail.len() - TRAILER_BYTES as usize);
        let place = footer::decode_trailer(&file, size, trailer)?;
        if tail_start == 0 {
            footer::check_header(&file, &tail[..HEADER_BYTES as usize])?;
        }
        let sections = if place.length <= before.len() as u64 {
            footer::decode_footer(&file, place, &before[before.len() - place.length as usize..])?
        } else {
            footer::decode_footer(&file, place, &read(&source, place.offset, place.length)?)?
        };
        let checksum = footer::file_checksum(&sections, place, trailer);
        Ok((RunReader { source, size, sections, read_ahead_bytes: READ_AHEAD_BYTES }, checksum))
    }

    /// Sets how many bytes of neighbouring blocks a cursor fetches at once (default 256 KiB); a
    /// single block is fetched whatever its size.
    #[must_use]
    pub fn with_read_ahead(mut self, bytes: u64) -> Self {
        self.read_ahead_bytes = bytes;
        self
    }

    /// The file's name.
    pub fn name(&self) -> &str {
        self.source.name()
    }

    /// The file's size in bytes.
    pub const fn bytes(&self) -> u64 {
        self.size
    }

    /// The sections that have rows here, in the order of their names.
    pub fn sections(&self) -> impl ExactSizeIterator<Item = &Section> {
        self.sections.iter().map(|section| &section.section)
    }

    /// The section called `name`, if it has rows here.
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.find(name).map(|section| &section.section)
    }

    /// The rows of `section` in `groups`, in order; none if there is no such section.
    pub fn cursor(&self, section: &str, groups: KeyGroupRange) -> Cursor<&Self> {
        Cursor::over(self, section, groups)
    }

    /// How many bytes the blocks of `section` have, as stored and before compression.
    #[must_use]
    pub fn section_bytes(&self, section: &str) -> (u64, u64) {
        let blocks = self.find(section).map_or(&[][..], |found| &found.blocks);
        blocks.iter().fold((0, 0), |(stored, raw), block| {
            (stored + u64::from(block.stored_bytes), raw + u64::from(block.raw_bytes))
        })
    }

    /// Visits the rows of `section` in `groups` in order, tombstones included, and returns how many
    /// there were; none if there is no such section.
    ///
    /// # Errors
    /// When a block cannot be read or is damaged, or when `visit` fails.
    pub fn scan<E: From<RunError>>(
        &self,
        section: &str,
        groups: KeyGroupRange,
        mut visit: impl FnMut(RowRef<'_>) -> Result<(), E>,
    ) -> Result<u64, E> {
        let mut cursor = self.cursor(section, groups);
        cursor.announce();
        let mut rows = 0;
        while cursor.advance()? {
            visit(cursor.block.row())?;
            rows += 1;
        }
        Ok(rows)
    }

    pub(crate) fn section_blocks(&self) -> &[SectionBlocks] {
        &self.sections
    }

    pub(crate) fn read(&self, offset: u64, length: u64) -> Result<Vec<u8>, RunError> {
        read(&self.source, offset, length)
    }

    fn find(&self, name: &str) -> Option<&SectionBlocks> {
        self.position(name).map(|index| &self.sections[index])
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.sections.binary_search_by(|section| section.section.name.as_str().cmp(name)).ok()
    }
}

/// The blocks that hold a group of the range, or may.
fn intersecting(blocks: &[BlockEntry], groups: KeyGroupRange) -> Range<usize> {
    let start = blocks.partition_point(|block| u32::from(block.last_group) < groups.start);
    let end = blocks.partition_point(|block| u32::from(block.first_group) < groups.end);
    start..end.max(start)
}

fn read<R: ReadRange>(source: &R, offset: u64, length: u64) -> Result<Vec<u8>, RunError> {
    let file = || source.name().to_owned();
    let bytes = source.read_range(offset, length).map_err(|error| RunError::Read {
        file: file(),
        offset,
        length,
        source: error,
    })?;
    if bytes.len() as u64 == length {
        Ok(bytes)
    } else {
        Err(RunError::ShortRead { file: file(), offset, expected: length, found: bytes.len() as u64 })
    }
}

/// Walks rows in order. `P` points to the [`RunReader`]: a reference, or an `Arc` for a cursor that
/// lives on its own.
#[derive(Debug)]
pub struct Cursor<P> {
    reader: P,
    groups: KeyGroupRange,
    /// Index of the section; of none if there are no blocks either.
    section: usize,
    /// Blocks of the section that are not begun yet.
    blocks: Range<usize>,
    descriptions: u32,
    /// Fetched bytes, from this offset of the file on.
    window: Vec<u8>,
    window_start: u64,
    /// Where the current block lies, for messages.
    block_offset: u64,
    block: BlockRows,
    at_row: bool,
}

impl<R: ReadRange, P: Deref<Target = RunReader<R>>> Cursor<P> {
    /// The rows of `section` in `groups`, in order; none if `reader` has no such section.
    pub fn over(reader: P, section: &str, groups: KeyGroupRange) -> Self {
        let (section, blocks, descriptions) = match reader.position(section) {
            Some(index) => {
                let found = &reader.sections[index];
                (index, intersecting(&found.blocks, groups), found.section.descriptions.len() as u32)
            }
            None => (0, 0..0, 0),
        };
        Cursor {
            reader,
            groups,
            section,
            blocks,
            descriptions,
            window: Vec::new(),
            window_start: 0,
            block_offset: 0,
            block: BlockRows::default(),
            at_row: false,
        }
    }

    /// The run that is read.
    pub(crate) fn reader(&self) -> &RunReader<R> {
        &self.reader
    }

    /// Goes to the next row; false when there is none, or none since an error.
    ///
    /// # Errors
    /// When a block cannot be read or is damaged.
    #[inline]
    pub fn advance(&mut self) -> Result<bool, RunError> {
        let result = self.step();
        self.at_row = matches!(result, Ok(true));
        if !self.at_row {
            self.blocks = 0..0;
            self.block.buffer().clear();
            self.block.begin(BlockShape::default());
        }
        result
    }

    /// The row that the cursor stands on; `None` before the first and after the last.
    #[inline]
    #[must_use]
    pub fn current(&self) -> Option<RowRef<'_>> {
        self.at_row.then(|| self.block.row())
    }

    /// Group (2 bytes, big-endian) and key of the current row: comparing these bytes compares rows.
    #[inline]
    pub(crate) fn ordered_key(&self) -> &[u8] {
        self.block.ordered_key()
    }

    #[inline]
    fn step(&mut self) -> Result<bool, RunError> {
        loop {
            match self.block.advance() {
                Ok(true) => {}
                Ok(false) if self.begin_block()? => continue,
                Ok(false) => return Ok(false),
                Err(reason) => {
                    return Err(footer::malformed(self.reader.name(), self.block_offset, reason));
                }
            }
            let KeyGroup(group) = self.block.group();
            if u32::from(group) >= self.groups.end {
                return Ok(false);
            }
            if u32::from(group) >= self.groups.start {
                return Ok(true);
            }
        }
    }

    /// Tells the file what a walk from here to the end will read, so that it may begin to.
    pub fn announce(&self) {
        let Some(section) = self.reader.sections.get(self.section) else { return };
        let (mut ranges, mut ahead) = (Vec::new(), &section.blocks[self.blocks.clone()]);
        while let Some(first) = ahead.first() {
            let (count, bytes) = window(ahead, self.reader.read_ahead_bytes);
            ranges.push((first.offset, bytes));
            ahead = &ahead[count..];
        }
        self.reader.source.expect_reads(&ranges);
    }

    /// Fetches (if needed), checks and unpacks the next block; false when there is none.
    fn begin_block(&mut self) -> Result<bool, RunError> {
        let ahead = match self.reader.sections.get(self.section) {
            Some(section) => &section.blocks[self.blocks.clone()],
            None => &[],
        };
        let Some(entry) = ahead.first() else {
            return Ok(false);
        };
        let name = self.reader.name();
        let window_end = self.window_start + self.window.len() as u64;
        if entry.offset < self.window_start || entry.offset + u64::from(entry.stored_bytes) > window_end {
            self.window_start = entry.offset;
            self.window = self.reader.read(entry.offset, window(ahead, self.reader.read_ahead_bytes).1)?;
        }
        let start = (entry.offset - self.window_start) as usize;
        let stored = &self.window[start..start + entry.stored_bytes as usize];
        footer::check_sum(name, entry.offset, stored, entry.checksum)?;
        unpack(entry, stored, self.block.buffer()).map_err(|reason| footer::malformed(name, entry.offset, reason))?;
        self.block.begin(BlockShape {
            rows: entry.rows,
            first_group: entry.first_group,
            last_group: entry.last_group,
            descriptions: self.descriptions,
        });
        self.block_offset = entry.offset;
        self.blocks.start += 1;
        Ok(true)
    }
}

/// How many of the blocks `ahead`, at least one, are read at once, and their bytes together.
fn window(ahead: &[BlockEntry], read_ahead_bytes: u64) -> (usize, u64) {
    let (mut count, mut bytes) = (0, 0);
    for block in ahead {
        let with_block = bytes + u64::from(block.stored_bytes);
        if count > 0 && with_block > read_ahead_bytes {
            break;
        }
        (count, bytes) = (count + 1, with_block);
    }
    (count, bytes)
}

fn unpack(entry: &BlockEntry, stored: &[u8], raw: &mut Vec<u8>) -> Result<(), &'static str> {
    raw.clear();
    match entry.encoding {
        Encoding::Plain => raw.extend_from_slice(stored),
        Encoding::Lz4 => {
            raw.resize(entry.raw_bytes as usize, 0);
            match lz4_flex::block::decompress_into(stored, raw) {
                Ok(bytes) if bytes == raw.len() => {}
                Ok(_) => return Err("a block has fewer bytes than the index says"),
                Err(_) => return Err("a block cannot be decompressed"),
            }
        }
    }
    Ok(())
}
