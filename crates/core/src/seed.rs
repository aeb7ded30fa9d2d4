//! Deterministic chance: one seed, one sequence, on every platform and version.

/// The splitmix64 finaliser (Steele, Lea, Flood: "Fast splittable pseudorandom number generators").
#[inline]
#[must_use]
pub const fn mix64(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The increment of the splitmix64 sequence.
pub const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The splitmix64 generator. Small, seekable, reproducible; not for secrets.
#[derive(Clone, Debug)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// A generator whose sequence is fixed by `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        SplitMix64 { state: seed }
    }

    /// The `index`-th output (from 0) of the generator seeded with 0.
    #[inline]
    #[must_use]
    pub const fn nth(index: u64) -> u64 {
        mix64(index.wrapping_add(1).wrapping_mul(GAMMA))
    }

    /// The next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GAMMA);
        mix64(self.state)
    }

    /// A number in `0..bound`; 0 when `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True in `per_mille` of 1,000 calls.
    #[inline]
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// An independent generator, derived from this one.
    pub fn split(&mut self) -> SplitMix64 {
        SplitMix64::new(self.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_is_the_published_one() {
        let mut rng = SplitMix64::new(0);
        assert_eq!(rng.next_u64(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(rng.next_u64(), 0x6e78_9e6a_a1b9_65f4);
        assert_eq!(SplitMix64::nth(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(SplitMix64::nth(1), 0x6e78_9e6a_a1b9_65f4);
    }
}
