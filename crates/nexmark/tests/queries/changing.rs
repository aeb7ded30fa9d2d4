//! Queries whose results change until the end.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use millpond::prelude::*;
use millpond_nexmark::Bid;
use millpond_nexmark::queries as q;

use crate::support::{bids, check_changes, grouped};

/// 15 July 2015, whose first second is the eleventh of the events.
const SECOND_DAY: i64 = 16_631;

fn day(bid: &Bid) -> i64 {
    if bid.date_time < SECOND_DAY * 86_400_000 { SECOND_DAY - 1 } else { SECOND_DAY }
}

/// Of all bids, and of those of each level.
fn by_level(bids: &[&Bid], count: impl Fn(&[&Bid]) -> usize) -> [u64; 4] {
    let of_level = |least: u64, limit: u64| {
        let bids: Vec<&Bid> = bids.iter().copied().filter(|bid| least <= bid.price && bid.price < limit).collect();
        count(&bids) as u64
    };
    [of_level(0, u64::MAX), of_level(0, 10_000), of_level(10_000, 1_000_000), of_level(1_000_000, u64::MAX)]
}

fn counts(bids: &[&Bid]) -> q::Counts {
    let different =
        |of: fn(&Bid) -> u64| by_level(bids, |bids| bids.iter().map(|bid| of(bid)).collect::<BTreeSet<u64>>().len());
    q::Counts {
        bids: by_level(bids, |bids| bids.len()),
        bidders: different(|bid| bid.bidder),
        auctions: different(|bid| bid.auction),
        last_minute: bids.iter().map(|bid| bid.date_time / 60_000 % 1_440).max().unwrap() as u32,
    }
}

#[test]
fn q15_counts_bids_bidders_and_auctions_of_each_day() {
    let days = grouped(bids(), |bid| day(bid));
    assert_eq!(days.len(), 2);
    check_changes(q::q15, days.into_iter().map(|(day, bids)| (day, counts(&bids))));
}

#[test]
fn q16_counts_bids_bidders_and_auctions_of_each_channel_and_day() {
    let groups = grouped(bids(), |bid| (bid.channel.clone(), day(bid)));
    check_changes(q::q16, groups.into_iter().map(|(key, bids)| (key, counts(&bids))));
}

#[test]
fn q17_is_the_prices_of_each_auction_and_day() {
    let groups = grouped(bids(), |bid| (bid.auction, day(bid)));
    let prices = groups.into_iter().map(|(key, bids)| {
        let prices = || bids.iter().map(|bid| bid.price);
        let (min, max) = (prices().min().unwrap(), prices().max().unwrap());
        (key, q::Prices { bids: by_level(&bids, |bids| bids.len()), min, max, sum: prices().sum() })
    });
    check_changes(q::q17, prices);
}

#[test]
fn q18_is_the_last_bid_of_each_bidder_and_auction() {
    let groups = grouped(bids(), |bid| (bid.bidder, bid.auction));
    check_changes(q::q18, groups.into_values().map(|bids| (*bids.last().unwrap()).clone()));
}

#[test]
fn q19_is_the_ten_highest_bids_of_each_auction() {
    let ranked = grouped(bids(), |bid| bid.auction).into_values().flat_map(|mut bids| {
        bids.sort_by_key(|bid| (Reverse(bid.price), bid.date_time));
        bids.into_iter().take(10).zip(1..).map(|(bid, rank)| Ranked { rank, row: bid.clone() })
    });
    check_changes(q::q19, ranked);
}
