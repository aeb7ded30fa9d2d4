//! **q19, the ten highest bids** of each auction, each with its rank. Of equal prices the earlier bid is first.

use std::cmp::Reverse;

use millpond::prelude::*;

use crate::{Bid, Streams};

const BIDS: usize = 10;

/// The ten highest bids of each auction so far, with their ranks, as changes.
#[must_use]
pub fn q19(streams: &Streams) -> Stream<Change<Ranked<Bid>>> {
    streams
        .bids
        .key_by(|bid| bid.auction)
        .top_n_ranked("q19 highest bids", BIDS, |bid| (Reverse(bid.price), bid.date_time, bid.bidder))
}
