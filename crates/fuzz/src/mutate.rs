//! Changes bytes at random, as fuzzers do.

use millpond_core::SplitMix64;

/// Numbers at which decoders go wrong.
const EDGES: [u64; 12] =
    [0, 1, 0x7f, 0x80, 0xff, 0x100, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 0x7fff_ffff_ffff_ffff, u64::MAX];

/// Makes changed bytes from sound ones; the same seed makes the same.
pub struct Mutator {
    random: SplitMix64,
    sound: Vec<Vec<u8>>,
}

impl Mutator {
    /// Changes `sound`, which is not empty.
    #[must_use]
    pub fn new(seed: u64, sound: Vec<Vec<u8>>) -> Mutator {
        Mutator { random: SplitMix64::new(seed), sound }
    }

    /// The next changed bytes.
    pub fn next_bytes(&mut self) -> Vec<u8> {
        let mut bytes = self.pick();
        for _ in 0..1 + self.random.below(4) {
            self.change(&mut bytes);
        }
        bytes
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound.max(1) as u64) as usize
    }

    fn pick(&mut self) -> Vec<u8> {
        let at = self.below(self.sound.len());
        self.sound.get(at).cloned().unwrap_or_default()
    }

    fn change(&mut self, bytes: &mut Vec<u8>) {
        let (at, length) = (self.below(bytes.len() + 1), self.below(40));
        let end = (at + length).min(bytes.len());
        match self.random.below(9) {
            0 | 1 if at < bytes.len() => bytes[at] ^= 1 << self.random.below(8),
            2 if at < bytes.len() => bytes[at] = self.random.below(256) as u8,
            3 => bytes.truncate(at),
            4 => drop(bytes.drain(at..end)),
            5 => {
                let piece: Vec<u8> = bytes[at..end].to_vec();
                let to = self.below(bytes.len() + 1);
                bytes.splice(to..to, piece);
            }
            6 => {
                let other = self.pick();
                let from = self.below(other.len() + 1);
                bytes.splice(at..end, other[from..].iter().copied());
            }
            7 => self.put_edge(bytes, at),
            _ => {
                let noise: Vec<u8> = (0..length).map(|_| self.random.below(256) as u8).collect();
                bytes.splice(at..end, noise);
            }
        }
    }

    /// Writes a number at an edge over what stands at `at`, fixed or as a varint.
    fn put_edge(&mut self, bytes: &mut Vec<u8>, at: usize) {
        let edge = EDGES[self.below(EDGES.len())];
        let mut written = Vec::new();
        match self.random.below(4) {
            0 => written.extend_from_slice(&edge.to_le_bytes()),
            1 => written.extend_from_slice(&(edge as u32).to_le_bytes()),
            2 => written.extend_from_slice(edge.to_string().as_bytes()),
            _ => millpond_core::codec::put_varint(edge, &mut written),
        }
        let end = (at + written.len()).min(bytes.len());
        bytes.splice(at..end, written);
    }
}
