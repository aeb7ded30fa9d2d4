//! **q6, average price of a seller**: what did the last ten auctions of each seller go for, on average? As q4, with a
//! ranking of the auctions by their end, over whose changes the mean is taken.

use std::cmp::Reverse;

use millpond::prelude::*;
use serde::{Deserialize, Serialize};

use super::winning::{Listing, Offer, winning_bids};
use crate::{Auction, Bid, Streams};

const AUCTIONS: usize = 10;

/// An auction that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Sale {
    seller: u64,
    auction: u64,
    closed: i64,
    price: u64,
}

/// The mean winning price of the last ten auctions of each seller, in cents, whenever it changes.
#[must_use]
pub fn q6(streams: &Streams) -> Stream<Change<(u64, f64)>> {
    let listings = streams.auctions.map(|Auction { id, date_time, expires, seller, .. }| Listing {
        auction: id,
        opens: date_time,
        closes: expires,
        item: seller,
    });
    let offers =
        streams.bids.map(|Bid { auction, price, date_time, .. }| Offer { auction, price, time_ms: date_time, bid: () });
    winning_bids("q6 winning bids", &listings, &offers)
        .map(|(listing, offer)| Sale {
            seller: listing.item,
            auction: listing.auction,
            closed: listing.closes,
            price: offer.price,
        })
        .key_by(|sale| sale.seller)
        .top_n("q6 last auctions", AUCTIONS, |sale| Reverse((sale.closed, sale.auction)))
        .key_by_row(|sale| sale.seller)
        .average_rows("q6 average", |sale| sale.price as i64)
}
