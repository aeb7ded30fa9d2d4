//! **q4, average price of a category**: what did things of each category go for, on average, in the auctions that have
//! ended? A join over time, the best bid of each auction, and a mean that changes with every auction that ends.

use millpond::prelude::*;

use super::winning::{Listing, Offer, winning_bids};
use crate::{Auction, Bid, Streams};

/// The mean winning price of each category, in cents, whenever it changes.
#[must_use]
pub fn q4(streams: &Streams) -> Stream<Change<(u64, f64)>> {
    let listings = streams.auctions.map(|Auction { id, date_time, expires, category, .. }| Listing {
        auction: id,
        opens: date_time,
        closes: expires,
        item: category,
    });
    let offers =
        streams.bids.map(|Bid { auction, price, date_time, .. }| Offer { auction, price, time_ms: date_time, bid: () });
    winning_bids("q4 winning bids", &listings, &offers)
        .map(|(listing, offer)| (listing.item, offer.price))
        .as_inserts()
        .key_by_row(|(category, _)| *category)
        .average_rows("q4 average", |(_, price)| *price as i64)
}
