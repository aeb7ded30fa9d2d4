//! **q12, bids by the wall clock**: how many bids has each bidder made in each ten seconds of processing time? What comes
//! out depends on when it runs; windows that are open when the input ends are dropped, as all processing timers are.

use std::time::Duration;

use millpond::prelude::*;

use crate::Streams;

const SIZE: Duration = Duration::from_secs(10);

/// Bids of each bidder in each ten seconds of processing time.
#[must_use]
pub fn q12(streams: &Streams) -> Stream<Windowed<u64, u64>> {
    let bidders = streams.bids.map(|bid| bid.bidder);
    bidders.key_by(|bidder| *bidder).window(Windows::tumbling(SIZE).processing_time()).count("q12 windows")
}
