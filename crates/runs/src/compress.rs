//! Appends blocks to a file, compressed where that makes them smaller.
//!
//! Owns the compressor's memory. Does *not* decide where blocks end. Whether a block is tried depends only on the blocks
//! of its file and section before it: the same rows give the same bytes.

use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};

use crate::footer::Encoding;
use crate::settings::Compression;

/// After so many blocks in a row that did not become smaller, only some are tried.
const FAILURES: u32 = 4;
/// One of so many, until one becomes smaller.
const PROBE_EVERY: u32 = 8;

pub(crate) struct Compressor {
    compression: Compression,
    table: CompressTable,
    /// Where blocks are compressed to; as large as the largest needed so far.
    room: Vec<u8>,
    /// How many blocks were stored as they are since the last that became smaller.
    plain: u32,
}

impl Compressor {
    pub(crate) fn new(compression: Compression) -> Self {
        Compressor { compression, table: CompressTable::default(), room: Vec::new(), plain: 0 }
    }

    /// The next block is the first of a file or section.
    pub(crate) fn begin(&mut self) {
        self.plain = 0;
    }

    /// Appends a block to `file`.
    pub(crate) fn append(&mut self, raw: &[u8], file: &mut Vec<u8>) -> Encoding {
        if let Some(compressed) = self.compress(raw) {
            file.extend_from_slice(compressed);
            self.plain = 0;
            return Encoding::Lz4;
        }
        file.extend_from_slice(raw);
        self.plain = self.plain.saturating_add(1);
        Encoding::Plain
    }

    /// The block in fewer bytes, if it was tried and is smaller.
    fn compress(&mut self, raw: &[u8]) -> Option<&[u8]> {
        let probed = self.plain < FAILURES || (self.plain - FAILURES) % PROBE_EVERY == PROBE_EVERY - 1;
        if self.compression == Compression::None || !probed {
            return None;
        }
        let needed = get_maximum_output_size(raw.len());
        if self.room.len() < needed {
            self.room.resize(needed, 0);
        }
        let bytes = compress_into_with_table(raw, &mut self.room, &mut self.table).ok()?;
        (bytes < raw.len()).then(|| &self.room[..bytes])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_core::SplitMix64;

    fn random(rng: &mut SplitMix64) -> Vec<u8> {
        (0..1_000).map(|_| rng.next_u64() as u8).collect()
    }

    fn lengths(compressor: &mut Compressor, block: &[u8], times: usize) -> Vec<usize> {
        let encoded = |_| {
            let mut file = Vec::new();
            compressor.append(block, &mut file);
            file.len()
        };
        (0..times).map(encoded).collect()
    }

    #[test]
    fn after_blocks_that_do_not_become_smaller_one_of_eight_is_tried_until_one_does() {
        let mut compressor = Compressor::new(Compression::Lz4);
        let random = random(&mut SplitMix64::new(1));
        let text = [7; 1_000];
        assert_eq!(lengths(&mut compressor, &random, 4), [1_000; 4]);
        let mut found = lengths(&mut compressor, &text, 9);
        assert_eq!(found[..7], [1_000; 7], "not tried");
        assert!(found.drain(7..).all(|bytes| bytes < 100), "the eighth is tried, and then all");
        assert_eq!(lengths(&mut compressor, &random, 4), [1_000; 4]);
        compressor.begin();
        assert!(lengths(&mut compressor, &text, 1)[0] < 100, "another file or section is tried at once");
    }

    #[test]
    fn blocks_of_all_sizes_are_the_same_again_when_unpacked() {
        let mut compressor = Compressor::new(Compression::Lz4);
        let mut rng = SplitMix64::new(2);
        for bytes in [1, 100_000, 10, 3_000, 200_000, 64] {
            let raw: Vec<u8> = (0..bytes).map(|_| rng.next_u64() as u8 & 3).collect();
            let mut file = b"before".to_vec();
            let encoding = compressor.append(&raw, &mut file);
            let stored = &file[6..];
            let found = match encoding {
                Encoding::Plain => stored.to_vec(),
                Encoding::Lz4 => lz4_flex::block::decompress(stored, bytes).unwrap(),
            };
            assert_eq!(found, raw);
        }
    }
}
