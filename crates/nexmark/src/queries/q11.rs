//! **q11, sessions of bidders**: how many bids has each bidder made in each session? A session ends when there was no bid
//! for ten seconds.

use std::time::Duration;

use millpond::prelude::*;

use crate::Streams;

const GAP: Duration = Duration::from_secs(10);

/// Bids of each bidder and session.
#[must_use]
pub fn q11(streams: &Streams) -> Stream<Windowed<u64, u64>> {
    streams.bids.map(|bid| bid.bidder).key_by(|bidder| *bidder).window(Windows::session(GAP)).count("q11 sessions")
}
