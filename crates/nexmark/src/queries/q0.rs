//! **q0, pass through**: every bid as it is. Shows what the engine costs on its own.

use millpond::prelude::*;

use crate::{Bid, Streams};

/// Every bid.
#[must_use]
pub fn q0(streams: &Streams) -> Stream<Bid> {
    streams.bids.map(|bid| bid)
}
