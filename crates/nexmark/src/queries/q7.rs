//! **q7, highest bid**: which bids had the highest price of their ten seconds? Tumbling windows over all bids, in two
//! stages, so that the first is spread over all subtasks.

use std::time::Duration;

use millpond::prelude::*;

use crate::{Bid, Streams};

const SIZE: Duration = Duration::from_secs(10);
/// Parts of the first stage.
const PARTS: u64 = 64;

/// The bids with the highest price of each ten seconds.
#[must_use]
pub fn q7(streams: &Streams) -> Stream<Bid> {
    let emit = |bids: Vec<Bid>, output: &mut Output<Bid>| {
        bids.into_iter().for_each(|bid| output.emit(bid));
        Ok(())
    };
    streams
        .bids
        .key_by(|bid| bid.auction % PARTS)
        .window(Windows::tumbling(SIZE))
        .aggregate_with("q7 highest of a part", Highest, move |_, _, bids, output| emit(bids, output))
        .key_by(|_| ())
        .window(Windows::tumbling(SIZE))
        .aggregate_with("q7 highest", Highest, move |(), _, bids, output| emit(bids, output))
}

/// The bids with the highest price.
struct Highest;

impl AggregateFunction for Highest {
    type Input = Bid;
    type Accumulator = Vec<Bid>;
    type Output = Vec<Bid>;

    fn create_accumulator(&self) -> Vec<Bid> {
        Vec::new()
    }

    fn add(&self, bid: Bid, highest: &mut Vec<Bid>) {
        let price = highest.first().map_or(0, |first| first.price);
        if bid.price > price {
            highest.clear();
        }
        if bid.price >= price {
            highest.push(bid);
        }
    }

    fn result(&self, highest: &Vec<Bid>) -> Vec<Bid> {
        highest.clone()
    }

    fn merge(&self, mut highest: Vec<Bid>, other: Vec<Bid>) -> Vec<Bid> {
        other.into_iter().for_each(|bid| self.add(bid, &mut highest));
        highest
    }
}
