//! **q16, report of the channels**: the same as q15 for each channel and day, with the last minute of the day in which
//! there was a bid. Distinct counts of many groups.

use millpond::prelude::*;

use super::distinct::{CountedBid, Counts, count_distinct};
use crate::Streams;

/// The counts of each channel and day since 1970-01-01, whenever they change.
#[must_use]
pub fn q16(streams: &Streams) -> Stream<Change<((String, i64), Counts)>> {
    let bids = streams.bids.map(|bid| (CountedBid::of(&bid), bid.channel));
    count_distinct("q16 counts", &bids.key_by(|(bid, channel)| (channel.clone(), bid.day)), |(bid, _)| *bid)
}
