//! **q5, hot items**: which auctions have had the most bids in the last ten seconds, every two seconds? Sliding windows
//! of a count, then the best of each window, all of them when they are equal.

use std::time::Duration;

use millpond::prelude::*;
use serde::{Deserialize, Serialize};

use crate::Streams;

const SIZE: Duration = Duration::from_secs(10);
const SLIDE: Duration = Duration::from_secs(2);

/// An auction that had the most bids.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HotItem {
    /// The first time after the ten seconds, in milliseconds.
    pub window_end: i64,
    /// The auction.
    pub auction: u64,
    /// How many bids it had.
    pub bids: u64,
}

/// The auctions with the most bids in each ten seconds.
#[must_use]
pub fn q5(streams: &Streams) -> Stream<HotItem> {
    let counts = streams
        .bids
        .map(|bid| bid.auction)
        .key_by(|auction| *auction)
        .window(Windows::sliding(SIZE, SLIDE))
        .count("q5 count");
    // The counts of a window have its last time: those of one fall into one piece of the length of the slide.
    counts
        .map(|counted| HotItem { window_end: counted.window.end, auction: counted.key, bids: counted.value })
        .key_by(|item| item.window_end)
        .window(Windows::tumbling(SLIDE))
        .aggregate_with("q5 most", Most, |_, _, items, output| {
            items.into_iter().for_each(|item| output.emit(item));
            Ok(())
        })
}

/// The items with the most bids.
struct Most;

impl AggregateFunction for Most {
    type Input = HotItem;
    type Accumulator = Vec<HotItem>;
    type Output = Vec<HotItem>;

    fn create_accumulator(&self) -> Vec<HotItem> {
        Vec::new()
    }

    fn add(&self, item: HotItem, most: &mut Vec<HotItem>) {
        let bids = most.first().map_or(0, |first| first.bids);
        if item.bids > bids {
            most.clear();
        }
        if item.bids >= bids {
            most.push(item);
        }
    }

    fn result(&self, most: &Vec<HotItem>) -> Vec<HotItem> {
        most.clone()
    }

    fn merge(&self, mut most: Vec<HotItem>, other: Vec<HotItem>) -> Vec<HotItem> {
        other.into_iter().for_each(|item| self.add(item, &mut most));
        most
    }
}
