//! **q1, currency conversion**: every bid with its price in euros, a dollar being 0.908 of them. A map.

use millpond::prelude::*;

use crate::{Bid, Streams};

/// Euros for a thousand dollars.
const EUROS: u64 = 908;

/// Every bid, its price in thousandths of euro cents.
#[must_use]
pub fn q1(streams: &Streams) -> Stream<Bid> {
    streams.bids.map(|bid| Bid { price: bid.price * EUROS, ..bid })
}
