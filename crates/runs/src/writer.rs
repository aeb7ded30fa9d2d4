//! Turns rows in order into run files.
//!
//! Owns where blocks and files are cut. A block holds rows of one section. A file that has reached the target size
//! is cut where the next key group or the next section begins, so that files of one section share no key group; a
//! key group that is very large is cut a quarter of the target later all the same. A section stands in a
//! file only if it has rows there.

use millpond_core::codec::checksum;
use millpond_core::{KeyGroup, KeyGroupRange};
use serde::{Deserialize, Serialize};

use crate::block::BlockBuilder;
use crate::buffer::RowBuffer;
use crate::compress::Compressor;
use crate::error::RunError;
use crate::footer::{self, BlockEntry, Description, Section, SectionBlocks};
use crate::row::RowRef;
use crate::settings::RunSettings;
use crate::sort;
use crate::spare::{self, MIN_FILE_BYTES};

/// Most bytes that are set aside for a file before they are needed.
const MAX_RESERVE: u64 = 128 << 20;

/// A state that rows are written for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SectionInfo {
    /// The state's name, unique among the sections of a run.
    pub name: String,
    /// Kept in the footer and given back on reading; opaque here (kind and schemas as JSON).
    pub description: String,
}

/// What a manifest says about a run file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunInfo {
    /// From the smallest to the largest key group of any row.
    pub groups: KeyGroupRange,
    /// Number of rows, tombstones included.
    pub rows: u64,
    /// Number of tombstones.
    pub tombstones: u64,
    /// Size of the file, in bytes.
    pub bytes: u64,
    /// Size of its blocks before compression, in bytes.
    pub raw_bytes: u64,
    /// CRC-32 of the whole file.
    pub checksum: u32,
    /// The sections that have rows in the file, in the order of their names.
    pub sections: Vec<String>,
}

/// A whole run file, ready to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedRun {
    /// The file's bytes, in a buffer that may have room for more; [`crate::give_back`] it when they are stored.
    pub bytes: Vec<u8>,
    /// What to write about it in a manifest.
    pub info: RunInfo,
}

/// Sorts the rows and encodes them into files of about the target size; none if there are no rows.
/// `sections` is indexed by [`crate::StateIndex`]; sections without rows are left out.
///
/// # Errors
/// When a setting is out of bounds, two sections have the same name, a row is of a state that
/// `sections` does not have, or a row was too large.
pub fn write_runs(
    buffer: RowBuffer,
    sections: &[SectionInfo],
    settings: &RunSettings,
) -> Result<Vec<EncodedRun>, RunError> {
    let mut runs = Vec::new();
    write_each_run(buffer, sections, settings, |mut run| {
        run.bytes.shrink_to_fit();
        runs.push(run);
    })?;
    Ok(runs)
}

/// As [`write_runs`], but gives each file to `emit` as soon as it is encoded: one is in memory at a time.
///
/// # Errors
/// As [`write_runs`], before the first file is given out.
pub fn write_each_run(
    buffer: RowBuffer,
    sections: &[SectionInfo],
    settings: &RunSettings,
    mut emit: impl FnMut(EncodedRun),
) -> Result<(), RunError> {
    settings.check()?;
    buffer.check()?;
    if buffer.is_empty() {
        return Ok(());
    }
    let (ordered, ranks) = ranked(sections)?;
    let mut writer = RunWriter::new(settings, buffer.bytes() as u64);
    let mut begun = None;
    sort::for_each_winner(buffer, &ranks, |row| {
        if begun != Some(row.rank) {
            begun = Some(row.rank);
            let section = ordered[usize::from(row.rank)];
            writer
                .begin_section(&section.name, std::slice::from_ref(&section.description))
                .into_iter()
                .for_each(&mut emit);
        }
        let row = RowRef { group: KeyGroup(row.group), key: row.key, value: row.value, description: 0 };
        writer.push(row).into_iter().for_each(&mut emit);
    })?;
    writer.finish().into_iter().for_each(emit);
    Ok(())
}

/// The sections ordered by name, and the place of each in that order.
fn ranked(sections: &[SectionInfo]) -> Result<(Vec<&SectionInfo>, Vec<u16>), RunError> {
    let last = usize::from(u16::MAX);
    if sections.len() > last {
        let (given, max) = (sections.len() as u64, last as u64);
        return Err(RunError::Setting { setting: "number of sections", given, min: 0, max });
    }
    let mut states: Vec<usize> = (0..sections.len()).collect();
    states.sort_by_key(|state| &sections[*state].name);
    let mut ranks = vec![0; sections.len()];
    for (rank, state) in states.iter().enumerate() {
        ranks[*state] = rank as u16;
    }
    let ordered: Vec<&SectionInfo> = states.iter().map(|state| &sections[*state]).collect();
    match ordered.windows(2).find(|pair| pair[0].name == pair[1].name) {
        Some(pair) => Err(RunError::DuplicateSection { name: pair[0].name.clone() }),
        None => Ok((ordered, ranks)),
    }
}

/// Writes rows in order to one file after the other.
pub(crate) struct RunWriter<'s> {
    settings: &'s RunSettings,
    compressor: Compressor,
    block: BlockBuilder,
    /// The section of the rows that are being pushed, empty of rows and blocks.
    section: Section,
    /// Of the block being built: tombstones, and rows per description.
    tombstones: u64,
    described: Vec<u64>,
    /// The file being built.
    file: Vec<u8>,
    sections: Vec<SectionBlocks>,
    /// Bytes that a file is expected to have at most.
    file_bytes: usize,
}

impl<'s> RunWriter<'s> {
    /// For rows of about `row_bytes` bytes in all.
    pub(crate) fn new(settings: &'s RunSettings, row_bytes: u64) -> Self {
        RunWriter {
            settings,
            compressor: Compressor::new(settings.compression),
            block: BlockBuilder::default(),
            section: Section { name: String::new(), descriptions: Vec::new(), tombstones: 0 },
            tombstones: 0,
            described: Vec::new(),
            file: Vec::new(),
            sections: Vec::new(),
            file_bytes: expected_bytes(settings, row_bytes),
        }
    }

    /// Rows that follow belong to this section, which comes after all before. Returns a file if one
    /// is finished.
    pub(crate) fn begin_section(&mut self, name: &str, descriptions: &[String]) -> Option<EncodedRun> {
        let finished = self.end_block();
        let finished = if self.has_target_size() { finished.or_else(|| self.end_file()) } else { finished };
        let describe = |text: &String| Description { text: text.clone(), rows: 0 };
        self.section =
            Section { name: name.to_owned(), descriptions: descriptions.iter().map(describe).collect(), tombstones: 0 };
        self.described = vec![0; descriptions.len()];
        self.compressor.begin();
        finished
    }

    /// Appends a row, greater than all rows of the section so far. Returns a file if one is finished.
    #[inline]
    pub(crate) fn push(&mut self, row: RowRef<'_>) -> Option<EncodedRun> {
        let finished = self.make_room(row.group);
        self.block.push(row, self.described.len() > 1);
        self.described[row.description as usize] += 1;
        self.tombstones += u64::from(row.value.is_none());
        finished
    }

    /// Ends the file here. Returns it, if there are rows for it.
    pub(crate) fn cut(&mut self) -> Option<EncodedRun> {
        self.end_block().or_else(|| self.end_file())
    }

    /// Returns the last file, if there are rows for it.
    pub(crate) fn finish(mut self) -> Option<EncodedRun> {
        self.cut()
    }

    /// Ends the block if it is full, and the file too if a row of `group` is better the first of another one.
    #[inline]
    fn make_room(&mut self, group: KeyGroup) -> Option<EncodedRun> {
        if self.block.rows() == 0 {
            return None;
        }
        if self.has_target_size() && self.block.last_group() != group.0 {
            return self.cut();
        }
        if self.block.len() >= self.settings.block_bytes { self.end_block() } else { None }
    }

    #[inline]
    fn has_target_size(&self) -> bool {
        self.file.len() as u64 >= self.settings.target_file_bytes
    }

    fn end_block(&mut self) -> Option<EncodedRun> {
        if self.block.rows() == 0 {
            return None;
        }
        if self.file.is_empty() {
            self.file = spare::take_file(self.file_bytes);
            self.file.extend_from_slice(&footer::header());
        }
        let offset = self.file.len();
        let encoding = self.compressor.append(self.block.raw(), &mut self.file);
        let stored = &self.file[offset..];
        let entry = BlockEntry {
            offset: offset as u64,
            stored_bytes: stored.len() as u32,
            raw_bytes: self.block.len() as u32,
            encoding,
            checksum: checksum(stored),
            rows: self.block.rows(),
            first_group: self.block.first_group(),
            last_group: self.block.last_group(),
        };
        self.block.clear();
        self.index_block(entry);
        let target = self.settings.target_file_bytes;
        if self.file.len() as u64 >= target.saturating_add(target / 4) { self.end_file() } else { None }
    }

    fn index_block(&mut self, entry: BlockEntry) {
        let continued = self.sections.last().is_some_and(|last| last.section.name == self.section.name);
        if !continued {
            self.sections.push(SectionBlocks { section: self.section.clone(), blocks: Vec::new() });
        }
        let current = self.sections.last_mut().expect("a section was added if there was none");
        current.blocks.push(entry);
        current.section.tombstones += std::mem::take(&mut self.tombstones);
        for (description, rows) in current.section.descriptions.iter_mut().zip(&mut self.described) {
            description.rows += std::mem::take(rows);
        }
    }

    fn end_file(&mut self) -> Option<EncodedRun> {
        if self.sections.is_empty() {
            return None;
        }
        let mut bytes = std::mem::take(&mut self.file);
        let sections = std::mem::take(&mut self.sections);
        let checksum = footer::append_footer(&sections, &mut bytes);
        if bytes.len() < MIN_FILE_BYTES {
            bytes.shrink_to_fit();
        }
        self.compressor.begin();
        let info = describe_run(&sections, bytes.len() as u64, checksum);
        Some(EncodedRun { bytes, info })
    }
}

/// About how large a file can become: it is cut a quarter above the target at the latest, after a block; blocks and footer
/// have a little more than the rows.
fn expected_bytes(settings: &RunSettings, row_bytes: u64) -> usize {
    let target = settings.target_file_bytes;
    let cut = target.saturating_add(target / 4).saturating_add(target / 256 + 2 * settings.block_bytes as u64);
    let all = row_bytes.saturating_add(row_bytes / 16);
    cut.min(all).min(MAX_RESERVE) as usize
}

/// Sums up a file for the manifest.
pub(crate) fn describe_run(sections: &[SectionBlocks], bytes: u64, checksum: u32) -> RunInfo {
    let blocks = || sections.iter().flat_map(|section| &section.blocks);
    let first = blocks().map(|block| u32::from(block.first_group)).min().unwrap_or(0);
    let end = blocks().map(|block| u32::from(block.last_group) + 1).max().unwrap_or(0);
    RunInfo {
        groups: KeyGroupRange::new(first, end),
        rows: sections.iter().map(|section| section.section.rows()).sum(),
        tombstones: sections.iter().map(|section| section.section.tombstones).sum(),
        bytes,
        raw_bytes: blocks().map(|block| u64::from(block.raw_bytes)).sum(),
        checksum,
        sections: sections.iter().map(|section| section.section.name.clone()).collect(),
    }
}
