//! Checks every byte of a run file.

use crc32fast::Hasher;

use crate::error::RunError;
use crate::footer::{self, HEADER_BYTES, SectionBlocks};
use crate::reader::RunReader;
use crate::source::ReadRange;
use crate::writer::{RunInfo, describe_run};
use millpond_core::KeyGroupRange;

const PIECE_BYTES: u64 = 1 << 20;

/// Reads the whole file and checks header, trailer, footer, the checksum of every block, the order of
/// all rows and every count; then compares with `expected`, if given. Returns what the file is.
///
/// # Errors
/// The first fault found: as [`RunReader::open`], or [`RunError::Mismatch`] when the file is sound but
/// not the expected one.
pub fn verify<R: ReadRange>(source: R, expected: Option<&RunInfo>) -> Result<RunInfo, RunError> {
    let reader = RunReader::open(source)?;
    footer::check_header(reader.name(), &reader.read(0, HEADER_BYTES)?)?;
    for section in reader.section_blocks() {
        verify_section(&reader, section)?;
    }
    let mut hasher = Hasher::new();
    let mut offset = 0;
    while offset < reader.bytes() {
        let length = PIECE_BYTES.min(reader.bytes() - offset);
        hasher.update(&reader.read(offset, length)?);
        offset += length;
    }
    let found = describe_run(reader.section_blocks(), reader.bytes(), hasher.finalize());
    match expected {
        Some(expected) => compare(reader.name(), expected, &found).map(|()| found),
        None => Ok(found),
    }
}

fn verify_section<R: ReadRange>(reader: &RunReader<R>, blocks: &SectionBlocks) -> Result<(), RunError> {
    let section = &blocks.section;
    let mut described = vec![0; section.descriptions.len()];
    let mut tombstones = 0;
    reader.scan::<RunError>(&section.name, KeyGroupRange::new(0, 1 << 16), |row| {
        tombstones += u64::from(row.value.is_none());
        described[row.description as usize] += 1;
        Ok(())
    })?;
    let counted = section.descriptions.iter().map(|description| description.rows);
    if tombstones != section.tombstones || !counted.eq(described) {
        let offset = blocks.blocks.first().map_or(0, |block| block.offset);
        return Err(footer::malformed(reader.name(), offset, "the counts of a section are not those of its rows"));
    }
    Ok(())
}

fn compare(file: &str, expected: &RunInfo, found: &RunInfo) -> Result<(), RunError> {
    let pairs = [
        ("size in bytes", expected.bytes.to_string(), found.bytes.to_string()),
        ("checksum", format!("{:08x}", expected.checksum), format!("{:08x}", found.checksum)),
        ("groups", expected.groups.to_string(), found.groups.to_string()),
        ("number of rows", expected.rows.to_string(), found.rows.to_string()),
        ("number of tombstones", expected.tombstones.to_string(), found.tombstones.to_string()),
        ("size before compression", expected.raw_bytes.to_string(), found.raw_bytes.to_string()),
        ("sections", expected.sections.join(", "), found.sections.join(", ")),
    ];
    match pairs.into_iter().find(|(_, expected, found)| expected != found) {
        Some((what, expected, found)) => Err(RunError::Mismatch { file: file.to_owned(), what, expected, found }),
        None => Ok(()),
    }
}
