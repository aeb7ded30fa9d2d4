//! **q22, directories of addresses**: every bid with the first three directories of its address. Text is cut up.

use millpond::prelude::*;
use serde::{Deserialize, Serialize};

use crate::Streams;

/// A bid and where its address leads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BidPath {
    /// The auction.
    pub auction: u64,
    /// Who bids.
    pub bidder: u64,
    /// The price, in cents.
    pub price: u64,
    /// The channel.
    pub channel: String,
    /// The first directories of the address; empty where there is none.
    pub directories: [String; 3],
}

/// Every bid with the first three directories of its address.
#[must_use]
pub fn q22(streams: &Streams) -> Stream<BidPath> {
    streams.bids.map(|bid| {
        // Scheme, nothing, and host come first.
        let mut pieces = bid.url.split('/').skip(3);
        let directories = std::array::from_fn(|_| pieces.next().unwrap_or_default().to_owned());
        BidPath { auction: bid.auction, bidder: bid.bidder, price: bid.price, channel: bid.channel, directories }
    })
}
