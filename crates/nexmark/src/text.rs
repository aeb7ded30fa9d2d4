//! Names, letters and addresses.

use std::sync::OnceLock;

use crate::random::Random;

pub(crate) const STATES: [&str; 6] = ["AZ", "CA", "ID", "OR", "WA", "WY"];

pub(crate) const CITIES: [&str; 10] =
    ["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne"];

pub(crate) const FIRST_NAMES: [&str; 11] =
    ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"];

pub(crate) const LAST_NAMES: [&str; 9] =
    ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"];

/// The channels of half of all bids.
const HOT_CHANNELS: [&str; 4] = ["Google", "Facebook", "Baidu", "Apple"];

/// Number of the other channels.
const CHANNELS: u64 = 10_000;

/// A channel and the address of its bids.
pub(crate) struct Channel {
    pub(crate) name: String,
    pub(crate) url: String,
}

struct Channels {
    hot: Vec<Channel>,
    others: Vec<Channel>,
}

/// The channel of a bid.
pub(crate) fn channel(random: &mut Random) -> &'static Channel {
    static ALL: OnceLock<Channels> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let hot = HOT_CHANNELS.iter().zip(CHANNELS..);
        let hot = hot.map(|(name, number)| Channel { name: (*name).to_owned(), url: base_url(number) });
        let others = (0..CHANNELS).map(|number| Channel { name: format!("channel-{number}"), url: url(number) });
        Channels { hot: hot.collect(), others: others.collect() }
    });
    let hot = random.below(2) > 0;
    random.one_of(if hot { &all.hot } else { &all.others })
}

/// Three directories and a page, fixed by the number of the channel.
fn base_url(channel: u64) -> String {
    let mut random = Random::of_event(!channel);
    let mut directory = || {
        let length = 3 + random.below(3) as usize;
        letters(&mut random, length)
    };
    let (first, second, third) = (directory(), directory(), directory());
    format!("https://www.nexmark.com/{first}/{second}/{third}/item.htm?query=1")
}

/// The same, for nine of ten with the number of the channel.
fn url(channel: u64) -> String {
    let url = base_url(channel);
    let scrambled = (channel as u32).reverse_bits() >> 1;
    if channel.is_multiple_of(10) { url } else { format!("{url}&channel_id={scrambled}") }
}

/// So many random letters from a to z.
#[inline]
pub(crate) fn letters(random: &mut Random, length: usize) -> String {
    let mut text = Vec::with_capacity(length.next_multiple_of(8));
    while text.len() < length {
        text.extend_from_slice(&eight_letters(random.bits()));
    }
    text.truncate(length);
    String::from_utf8(text).expect("letters from a to z are UTF-8")
}

/// Each byte times 26 / 256, from the letter a on: four bytes at a time, in lanes of 16 bits.
#[inline]
fn eight_letters(bits: u64) -> [u8; 8] {
    const LOW: u64 = 0x00ff_00ff_00ff_00ff;
    let even = ((bits & LOW) * 26) >> 8 & LOW;
    let odd = ((bits >> 8 & LOW) * 26) & !LOW;
    (0x6161_6161_6161_6161 + (even | odd)).to_le_bytes()
}

/// At least 3 and less than `limit` random letters.
pub(crate) fn some_letters(random: &mut Random, limit: u64) -> String {
    let length = 3 + random.below(limit - 3);
    letters(random, length as usize)
}

/// Letters that bring a record of `size` bytes to `average` bytes, give or take a fifth of what is missing.
#[inline]
pub(crate) fn extra(random: &mut Random, size: usize, average: usize) -> String {
    let missing = average.saturating_sub(size);
    let fifth = (missing + 2) / 5;
    let length = missing - fifth + random.below(2 * fifth.max(1) as u64) as usize;
    letters(random, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_letters_are_each_byte_scaled_to_the_alphabet() {
        let mut random = Random::of_event(3);
        for bits in (0..1_000).map(|_| random.bits()).chain([0, u64::MAX]) {
            let each = bits.to_le_bytes().map(|byte| b'a' + (u32::from(byte) * 26 / 256) as u8);
            assert_eq!(eight_letters(bits), each);
        }
        assert_eq!(letters(&mut random, 13).len(), 13);
    }
}
