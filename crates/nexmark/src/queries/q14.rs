//! **q14, calculation**: dear bids with the time of day at which they came, and the number of letters c in their extra
//! text. A filter and a function of the user's.

use millpond::prelude::*;
use serde::{Deserialize, Serialize};

use super::time::hour;
use crate::Streams;

/// When in the day a bid comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TimeOfDay {
    /// From 8 until before 19 o'clock.
    Day,
    /// From 20 until before 7 o'clock.
    Night,
    /// In between.
    Other,
}

/// A dear bid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DearBid {
    /// The auction.
    pub auction: u64,
    /// Who bids.
    pub bidder: u64,
    /// The price, in thousandths of euro cents.
    pub price: u64,
    /// When in the day.
    pub time_of_day: TimeOfDay,
    /// When, in milliseconds since 1970-01-01 UTC.
    pub date_time: i64,
    /// The extra text.
    pub extra: String,
    /// How many of its letters are a c.
    pub letters_c: u64,
}

/// Bids of more than 10,000 and less than 500,000 euros.
#[must_use]
pub fn q14(streams: &Streams) -> Stream<DearBid> {
    streams.bids.flat_map(|bid| {
        let price = bid.price * 908;
        let dear = price > 1_000_000_000 && price < 50_000_000_000;
        dear.then(|| DearBid {
            auction: bid.auction,
            bidder: bid.bidder,
            price,
            time_of_day: time_of_day(bid.date_time),
            date_time: bid.date_time,
            letters_c: count_letter(&bid.extra, b'c'),
            extra: bid.extra,
        })
    })
}

fn time_of_day(time_ms: i64) -> TimeOfDay {
    match hour(time_ms) {
        8..=18 => TimeOfDay::Day,
        0..=6 | 20.. => TimeOfDay::Night,
        _ => TimeOfDay::Other,
    }
}

/// The user's function.
fn count_letter(text: &str, letter: u8) -> u64 {
    text.bytes().filter(|byte| *byte == letter).count() as u64
}
