//! **q15, report of the day**: how many bids, different bidders and different auctions has each day had, in all and for
//! three levels of the price? Distinct counts of one large group.

use millpond::prelude::*;

use super::distinct::{CountedBid, Counts, count_distinct};
use crate::Streams;

/// The counts of each day since 1970-01-01, whenever they change.
#[must_use]
pub fn q15(streams: &Streams) -> Stream<Change<(i64, Counts)>> {
    let bids = streams.bids.map(|bid| CountedBid::of(&bid));
    count_distinct("q15 counts", &bids.key_by(|bid| bid.day), |bid| *bid)
}
