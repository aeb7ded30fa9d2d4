//! **q2, selection**: the prices that are bid for some auctions, namely for those whose number is a multiple of 123. A
//! filter.

use millpond::prelude::*;
use serde::{Deserialize, Serialize};

use crate::Streams;

/// A price that is bid for an auction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BidPrice {
    /// The auction.
    pub auction: u64,
    /// The price, in cents.
    pub price: u64,
}

/// The prices that are bid for every 123rd auction.
#[must_use]
pub fn q2(streams: &Streams) -> Stream<BidPrice> {
    streams
        .bids
        .filter(|bid| bid.auction.is_multiple_of(123))
        .map(|bid| BidPrice { auction: bid.auction, price: bid.price })
}
