//! Random numbers that are the same on every machine: SplitMix64, begun by the number of the event.

const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The random numbers of one event.
pub(crate) struct Random {
    state: u64,
}

impl Random {
    /// Those of event `number`.
    #[inline]
    pub(crate) fn of_event(number: u64) -> Self {
        Random { state: mix(number.wrapping_add(GAMMA)) }
    }

    /// 64 random bits.
    #[inline]
    pub(crate) fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GAMMA);
        mix(self.state)
    }

    /// A number in `0..bound`.
    #[inline]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// One of several things.
    #[inline]
    pub(crate) fn one_of<'t, T>(&mut self, things: &'t [T]) -> &'t T {
        &things[self.below(things.len() as u64) as usize]
    }

    /// A price in cents between 1 and 1,000,000 dollars; its logarithm is evenly spread.
    #[inline]
    pub(crate) fn price(&mut self) -> u64 {
        let unit = (self.bits() >> 11) as f64 / (1u64 << 53) as f64;
        (power_of_two(unit * LOG2_OF_MILLION) * 100.0 + 0.5) as u64
    }
}

const LOG2_OF_MILLION: f64 = 19.931_568_569_324_174;

/// 2 to the power of `exponent`, from 0 to 62, within a millionth. Only additions and products, so that it is the same
/// on every machine.
#[inline]
fn power_of_two(exponent: f64) -> f64 {
    let whole = exponent as u64;
    let x = (exponent - whole as f64) * std::f64::consts::LN_2;
    let series = 1.0 + x * (1.0 + x / 2.0 * (1.0 + x / 3.0 * (1.0 + x / 4.0 * (1.0 + x / 5.0 * (1.0 + x / 6.0)))));
    series * (1u64 << whole) as f64
}

#[inline]
const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two_are_right_within_a_millionth() {
        for step in 0..2_000 {
            let exponent = f64::from(step) / 100.0;
            let (found, right) = (power_of_two(exponent), exponent.exp2());
            assert!((found / right - 1.0).abs() < 1e-5, "{found} for {right}");
        }
    }

    #[test]
    fn prices_spread_over_six_decades() {
        let mut random = Random::of_event(1);
        let prices: Vec<u64> = (0..60_000).map(|_| random.price()).collect();
        for decade in 2..8 {
            let within = prices.iter().filter(|price| price.ilog10() == decade).count();
            assert!((9_000..11_000).contains(&within), "{within} of decade {decade}");
        }
    }
}
