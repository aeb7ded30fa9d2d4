//! **q17, report of the auctions**: how many bids has each auction had on each day, in all and for three levels of the
//! price, and what were the least, the greatest and the mean price, and their sum? One accumulator per group.

use millpond::prelude::*;
use serde::{Deserialize, Serialize};

use super::distinct::{ByLevel, level};
use super::time::day_number;
use crate::{Bid, Streams};

/// The prices of an auction on a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Prices {
    /// Bids, in all and by level.
    pub bids: ByLevel,
    /// The least price, in cents.
    pub min: u64,
    /// The greatest.
    pub max: u64,
    /// The sum.
    pub sum: u64,
}

impl Prices {
    /// The mean price, in cents.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.bids[0] as f64
    }
}

/// The prices of each auction and day since 1970-01-01, whenever they change.
#[must_use]
pub fn q17(streams: &Streams) -> Stream<Change<((u64, i64), Prices)>> {
    let prices = streams.bids.map(|Bid { auction, price, date_time, .. }| (auction, day_number(date_time), price));
    prices.key_by(|(auction, day, _)| (*auction, *day)).aggregate_to_changes("q17 prices", Collect)
}

/// Brings the prices of a group together.
struct Collect;

impl AggregateFunction for Collect {
    /// Auction, day and price.
    type Input = (u64, i64, u64);
    type Accumulator = Prices;
    type Output = Prices;

    fn create_accumulator(&self) -> Prices {
        Prices { bids: [0; 4], min: u64::MAX, max: 0, sum: 0 }
    }

    fn add(&self, (_, _, price): (u64, i64, u64), prices: &mut Prices) {
        prices.bids[0] += 1;
        prices.bids[level(price)] += 1;
        prices.min = prices.min.min(price);
        prices.max = prices.max.max(price);
        prices.sum += price;
    }

    fn result(&self, prices: &Prices) -> Prices {
        *prices
    }

    fn merge(&self, one: Prices, other: Prices) -> Prices {
        let bids = std::array::from_fn(|level| one.bids[level] + other.bids[level]);
        Prices { bids, min: one.min.min(other.min), max: one.max.max(other.max), sum: one.sum + other.sum }
    }
}
