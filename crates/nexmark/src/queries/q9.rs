//! **q9, winning bids**: each auction that had a bid, with the one that won. See `winning`.

use millpond::prelude::*;
use serde::{Deserialize, Serialize};

use super::winning::{Listing, Offer, winning_bids};
use crate::{Auction, Bid, Streams};

/// An auction that has ended, and the bid that won.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WinningBid {
    /// The auction.
    pub auction: Auction,
    /// Its highest bid, of equal ones the earliest.
    pub bid: Bid,
}

/// Each auction that had a bid, with the one that won.
#[must_use]
pub fn q9(streams: &Streams) -> Stream<WinningBid> {
    let listings = streams.auctions.map(|auction| Listing {
        auction: auction.id,
        opens: auction.date_time,
        closes: auction.expires,
        item: auction,
    });
    let offers = streams.bids.map(|bid| Offer { auction: bid.auction, price: bid.price, time_ms: bid.date_time, bid });
    winning_bids("q9 winning bids", &listings, &offers)
        .map(|(listing, offer)| WinningBid { auction: listing.item, bid: offer.bid })
}
