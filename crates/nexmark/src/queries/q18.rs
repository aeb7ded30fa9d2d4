//! **q18, last bids**: the last bid of each bidder for each auction. A deduplication by event time.

use millpond::prelude::*;

use crate::{Bid, Streams};

/// The last bid of each bidder and auction so far, as changes.
#[must_use]
pub fn q18(streams: &Streams) -> Stream<Change<Bid>> {
    streams
        .bids
        .key_by(|bid| (bid.bidder, bid.auction))
        .deduplicate_last_with("q18 last bids", Deduplicate::by_event_time())
}
