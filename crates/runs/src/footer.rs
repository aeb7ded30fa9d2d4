//! The frame of a run file: header, footer (sections and block index) and trailer.
//!
//! Owns every byte that is not in a block; `docs/formats/runs.md` describes them. Decoding checks all
//! that can be checked without reading a block, and allocates in proportion to the bytes it is given.

use crc32fast::Hasher;
use millpond_core::codec::{checksum, put_varint, take_varint};

use crate::error::RunError;

/// The version of the format that this program writes, and the only one it reads.
pub const FORMAT_VERSION: u32 = 1;
/// First bytes of the header and last bytes of the trailer.
pub(crate) const MAGIC: [u8; 8] = *b"mpondrun";
pub(crate) const HEADER_BYTES: u64 = 16;
pub(crate) const TRAILER_BYTES: u64 = 36;
/// An LZ4 block cannot grow by more than this factor (and a few bytes).
const LZ4_MAX_RATIO: u64 = 255;

/// What the caller stored about a section, and for how many rows it is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The text as it was given: opaque here.
    pub text: String,
    /// How many rows of the section, tombstones included, were written with it.
    pub rows: u64,
}

/// One named state in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The state's name.
    pub name: String,
    /// Usually one; several after merging runs that were written with different descriptions.
    /// [`crate::RowRef::description`] is an index into this list.
    pub descriptions: Vec<Description>,
    /// How many of the rows are tombstones.
    pub tombstones: u64,
}

impl Section {
    /// How many rows there are, tombstones included.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.descriptions.iter().map(|description| description.rows).sum()
    }
}

/// How a block is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Plain,
    Lz4,
}

/// A block in the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockEntry {
    pub(crate) offset: u64,
    pub(crate) stored_bytes: u32,
    pub(crate) raw_bytes: u32,
    pub(crate) encoding: Encoding,
    pub(crate) checksum: u32,
    pub(crate) rows: u32,
    pub(crate) first_group: u16,
    pub(crate) last_group: u16,
}

/// A section with its blocks, in file order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SectionBlocks {
    pub(crate) section: Section,
    pub(crate) blocks: Vec<BlockEntry>,
}

/// Where the footer lies, from the trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FooterPlace {
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) checksum: u32,
}

/// The first bytes of every file.
pub(crate) fn header() -> [u8; HEADER_BYTES as usize] {
    let mut bytes = [0; HEADER_BYTES as usize];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    let sum = checksum(&bytes[..12]);
    bytes[12..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Checks the first bytes of a file.
pub(crate) fn check_header(file: &str, bytes: &[u8]) -> Result<(), RunError> {
    let (front, sum) = bytes.split_at(12);
    if front[..8] != MAGIC {
        return Err(RunError::NotARun { file: file.to_owned(), offset: 0 });
    }
    check_sum(file, 0, front, u32_at(sum, 0))?;
    check_version(file, u32_at(front, 8))
}

/// Appends footer and trailer to a file that holds header and blocks; returns the checksum of the whole file.
pub(crate) fn append_footer(sections: &[SectionBlocks], file: &mut Vec<u8>) -> u32 {
    let offset = file.len();
    put_varint(sections.len() as u64, file);
    for SectionBlocks { section, blocks } in sections {
        put_text(&section.name, file);
        put_varint(section.descriptions.len() as u64, file);
        for description in &section.descriptions {
            put_text(&description.text, file);
            put_varint(description.rows, file);
        }
        put_varint(section.tombstones, file);
        put_varint(blocks.len() as u64, file);
        for block in blocks {
            put_varint(u64::from(block.stored_bytes), file);
            put_varint(u64::from(block.raw_bytes), file);
            file.push(match block.encoding {
                Encoding::Plain => 0,
                Encoding::Lz4 => 1,
            });
            file.extend_from_slice(&block.checksum.to_le_bytes());
            put_varint(u64::from(block.rows), file);
            put_varint(u64::from(block.first_group), file);
            put_varint(u64::from(block.last_group - block.first_group), file);
        }
    }
    let length = file.len() - offset;
    let footer_sum = checksum(&file[offset..]);
    let trailer = file.len();
    file.extend_from_slice(&(offset as u64).to_le_bytes());
    file.extend_from_slice(&(length as u64).to_le_bytes());
    file.extend_from_slice(&footer_sum.to_le_bytes());
    file.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    let trailer_sum = checksum(&file[trailer..]);
    file.extend_from_slice(&trailer_sum.to_le_bytes());
    file.extend_from_slice(&MAGIC);
    let place = FooterPlace { offset: offset as u64, length: length as u64, checksum: footer_sum };
    file_checksum(sections, place, &file[trailer..])
}

/// Decodes the last [`TRAILER_BYTES`] bytes of a file of `size` bytes.
pub(crate) fn decode_trailer(file: &str, size: u64, bytes: &[u8]) -> Result<FooterPlace, RunError> {
    let start = size - TRAILER_BYTES;
    if bytes[28..] != MAGIC {
        return Err(RunError::NotARun { file: file.to_owned(), offset: start + 28 });
    }
    check_sum(file, start, &bytes[..24], u32_at(bytes, 24))?;
    check_version(file, u32_at(bytes, 20))?;
    let place = FooterPlace { offset: u64_at(bytes, 0), length: u64_at(bytes, 8), checksum: u32_at(bytes, 16) };
    let fits = place.offset >= HEADER_BYTES && place.offset.checked_add(place.length) == Some(start);
    if fits { Ok(place) } else { Err(malformed(file, start, "the footer does not end where the trailer begins")) }
}

/// The checksum of the whole file, from those of its parts.
pub(crate) fn file_checksum(sections: &[SectionBlocks], place: FooterPlace, trailer: &[u8]) -> u32 {
    let mut whole = Hasher::new();
    whole.update(&header());
    for block in sections.iter().flat_map(|section| &section.blocks) {
        whole.combine(&Hasher::new_with_initial_len(block.checksum, u64::from(block.stored_bytes)));
    }
    whole.combine(&Hasher::new_with_initial_len(place.checksum, place.length));
    whole.update(trailer);
    whole.finalize()
}

/// Decodes the footer at `place`.
pub(crate) fn decode_footer(file: &str, place: FooterPlace, bytes: &[u8]) -> Result<Vec<SectionBlocks>, RunError> {
    check_sum(file, place.offset, bytes, place.checksum)?;
    let mut fields = Fields { rest: bytes };
    let result = decode_sections(&mut fields, place.offset);
    let sections = result.map_err(|reason| malformed(file, place.offset, reason))?;
    if fields.rest.is_empty() {
        Ok(sections)
    } else {
        Err(malformed(file, place.offset, "there are bytes after the last section"))
    }
}

fn decode_sections(fields: &mut Fields<'_>, footer_offset: u64) -> Result<Vec<SectionBlocks>, &'static str> {
    let count = fields.number()?;
    let mut sections: Vec<SectionBlocks> = Vec::new();
    let mut offset = HEADER_BYTES;
    for _ in 0..count {
        let decoded = decode_section(fields, &mut offset)?;
        if sections.last().is_some_and(|last| last.section.name >= decoded.section.name) {
            return Err("the sections are not in the order of their names");
        }
        sections.push(decoded);
    }
    if offset == footer_offset { Ok(sections) } else { Err("the blocks do not end where the footer begins") }
}

fn decode_section(fields: &mut Fields<'_>, offset: &mut u64) -> Result<SectionBlocks, &'static str> {
    let name = fields.text()?;
    let mut descriptions = Vec::new();
    for _ in 0..fields.number()? {
        descriptions.push(Description { text: fields.text()?, rows: fields.number()? });
    }
    let tombstones = fields.number()?;
    let mut blocks: Vec<BlockEntry> = Vec::new();
    for _ in 0..fields.number()? {
        let block = decode_block(fields, *offset)?;
        if blocks.last().is_some_and(|last| last.last_group > block.first_group) {
            return Err("the blocks of a section are not in the order of their groups");
        }
        *offset = offset.checked_add(u64::from(block.stored_bytes)).ok_or("the blocks are too long")?;
        blocks.push(block);
    }
    let described = descriptions.iter().try_fold(0u64, |sum, description| sum.checked_add(description.rows));
    let counted: u64 = blocks.iter().map(|block| u64::from(block.rows)).sum();
    if described != Some(counted) || tombstones > counted || counted == 0 {
        return Err("the numbers of rows of a section do not agree");
    }
    Ok(SectionBlocks { section: Section { name, descriptions, tombstones }, blocks })
}

fn decode_block(fields: &mut Fields<'_>, offset: u64) -> Result<BlockEntry, &'static str> {
    let stored_bytes = fields.number_u32()?;
    let raw_bytes = fields.number_u32()?;
    let encoding = match fields.take(1)? {
        [0] => Encoding::Plain,
        [1] => Encoding::Lz4,
        _ => return Err("a block has an unknown encoding"),
    };
    let checksum = u32_at(fields.take(4)?, 0);
    let rows = fields.number_u32()?;
    let first_group = fields.number_u32()?;
    let last_group = first_group.checked_add(fields.number_u32()?);
    let groups = u16::try_from(first_group).ok().zip(last_group.and_then(|last| u16::try_from(last).ok()));
    let (first_group, last_group) = groups.ok_or("a block has a group above 65535")?;
    let possible = match encoding {
        Encoding::Plain => stored_bytes == raw_bytes,
        Encoding::Lz4 => u64::from(raw_bytes) <= u64::from(stored_bytes) * LZ4_MAX_RATIO,
    };
    if !possible || rows == 0 || rows > raw_bytes {
        return Err("the sizes of a block are impossible");
    }
    Ok(BlockEntry { offset, stored_bytes, raw_bytes, encoding, checksum, rows, first_group, last_group })
}

/// Takes fields from the front of the footer.
struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], &'static str> {
        let (field, rest) = self.rest.split_at_checked(bytes).ok_or("the footer is cut off")?;
        self.rest = rest;
        Ok(field)
    }

    fn number(&mut self) -> Result<u64, &'static str> {
        let (value, rest) = take_varint(self.rest).ok_or("a number is cut off or too large")?;
        self.rest = rest;
        Ok(value)
    }

    fn number_u32(&mut self) -> Result<u32, &'static str> {
        u32::try_from(self.number()?).map_err(|_| "a number is too large")
    }

    fn text(&mut self) -> Result<String, &'static str> {
        let bytes = usize::try_from(self.number()?).map_err(|_| "a number is too large")?;
        let text = std::str::from_utf8(self.take(bytes)?).map_err(|_| "a text is not UTF-8")?;
        Ok(text.to_owned())
    }
}

fn put_text(text: &str, bytes: &mut Vec<u8>) {
    put_varint(text.len() as u64, bytes);
    bytes.extend_from_slice(text.as_bytes());
}

pub(crate) fn check_sum(file: &str, offset: u64, bytes: &[u8], expected: u32) -> Result<(), RunError> {
    let found = checksum(bytes);
    if found == expected {
        return Ok(());
    }
    Err(RunError::Checksum { file: file.to_owned(), offset, length: bytes.len() as u64, expected, found })
}

pub(crate) fn malformed(file: &str, offset: u64, reason: &'static str) -> RunError {
    RunError::Malformed { file: file.to_owned(), offset, reason }
}

fn check_version(file: &str, version: u32) -> Result<(), RunError> {
    if version == FORMAT_VERSION {
        return Ok(());
    }
    Err(RunError::UnsupportedVersion { file: file.to_owned(), version, supported: FORMAT_VERSION })
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
