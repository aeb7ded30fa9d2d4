//! **q7, highest bid**: which bids had the highest price of their ten seconds? Tumbling windows over all bids: every
//! subtask finds the highest of its own, and one the highest of these.

use std::time::Duration;

use millpond::prelude::*;

use crate::{Bid, Streams};

const SIZE: Duration = Duration::from_secs(10);

/// The bids with the highest price of each ten seconds.
#[must_use]
pub fn q7(streams: &Streams) -> Stream<Bid> {
    streams.bids.window_all(Windows::tumbling(SIZE)).aggregate_with("q7 highest", Highest, |_, bids, output| {
        bids.into_iter().for_each(|bid| output.emit(bid));
        Ok(())
    })
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
