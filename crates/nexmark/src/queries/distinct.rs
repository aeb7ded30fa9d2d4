//! What q15 and q16 are made of: how many bids, bidders and auctions there are, in all and by the level of the price.
//!
//! Everybody who has bid, and every auction, is an entry of a map, with the levels that were seen; so a count of distinct
//! ones is exact, and only entries that are new or see a new level are written.

use millpond::prelude::*;
use serde::{Deserialize, Serialize};

use super::time::{day_number, minute_number};
use crate::Bid;

/// In all, then below 100, below 10,000, and from 10,000 dollars on.
pub type ByLevel = [u64; 4];

/// The level of a price in cents, as an index of [`ByLevel`].
pub(crate) fn level(price: u64) -> usize {
    match price {
        0..10_000 => 1,
        10_000..1_000_000 => 2,
        _ => 3,
    }
}

/// Counts of a group of bids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Counts {
    /// Bids.
    pub bids: ByLevel,
    /// Different bidders.
    pub bidders: ByLevel,
    /// Different auctions.
    pub auctions: ByLevel,
    /// The last minute of the day in which there was a bid.
    pub last_minute: u32,
}

/// Somebody bids.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct CountedBid {
    pub(crate) bidder: u64,
    pub(crate) auction: u64,
    pub(crate) level: u8,
    /// Since 1970-01-01.
    pub(crate) day: i64,
    pub(crate) minute: u32,
}

impl CountedBid {
    pub(crate) fn of(bid: &Bid) -> Self {
        CountedBid {
            bidder: bid.bidder,
            auction: bid.auction,
            level: level(bid.price) as u8,
            day: day_number(bid.date_time),
            minute: minute_number(bid.date_time),
        }
    }
}

/// Which levels somebody has been seen at, as bits.
type Seen = MapState<u64, u8>;

/// Notes that `of` is seen at a level; counts what is new.
fn note<K: Key>(seen: Seen, of: u64, level: u8, counts: &mut ByLevel, context: &mut KeyedContext<'_, K>) -> UserResult {
    let bit = 1u8 << level;
    let before = seen.get(context, &of)?.copied().unwrap_or(0);
    if before & bit == 0 {
        counts[0] += u64::from(before == 0);
        counts[usize::from(level)] += 1;
        seen.put(context, of, before | bit)?;
    }
    Ok(())
}

/// The counts of each key, as changes; `counted` reads what is counted from a record.
#[track_caller]
pub(crate) fn count_distinct<K: Key, T: Data>(
    name: &str,
    bids: &KeyedStream<K, T>,
    counted: impl Fn(&T) -> CountedBid + 'static,
) -> Stream<Change<(K, Counts)>> {
    bids.process_with(
        name,
        |states| Ok((states.value::<Counts>("counts")?, states.map("bidders")?, states.map("auctions")?)),
        move |(counts, bidders, auctions), bid, context, output| {
            let bid = counted(&bid);
            let before = counts.get(context)?.copied();
            let mut after = before.unwrap_or_default();
            after.bids[0] += 1;
            after.bids[usize::from(bid.level)] += 1;
            note(*bidders, bid.bidder, bid.level, &mut after.bidders, context)?;
            note(*auctions, bid.auction, bid.level, &mut after.auctions, context)?;
            after.last_minute = after.last_minute.max(bid.minute);
            counts.set(context, after)?;
            let key = context.key()?;
            match before {
                None => output.emit(Change::insert((key.clone(), after))),
                Some(before) => {
                    output.emit(Change::update_before((key.clone(), before)));
                    output.emit(Change::update_after((key.clone(), after)));
                }
            }
            Ok(())
        },
    )
}
