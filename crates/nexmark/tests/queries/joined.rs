//! Queries in which auctions meet people or bids.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use millpond::prelude::*;
use millpond_nexmark::queries as q;
use millpond_nexmark::{Auction, Bid};

use crate::support::{auctions, bids, check, check_changes, grouped, persons};

#[test]
fn q3_finds_what_is_sold_nearby() {
    let mut items = Vec::new();
    for person in persons().filter(|person| ["OR", "ID", "CA"].contains(&person.state.as_str())) {
        for auction in auctions().filter(|auction| auction.seller == person.id && auction.category == 10) {
            items.push(q::LocalItem {
                name: person.name.clone(),
                city: person.city.clone(),
                state: person.state.clone(),
                auction: auction.id,
            });
        }
    }
    check(q::q3, items);
}

/// Each auction that had a bid while it ran, with the best.
fn winners() -> Vec<(&'static Auction, &'static Bid)> {
    let by_auction = grouped(bids(), |bid| bid.auction);
    let mut winners = Vec::new();
    for auction in auctions() {
        let bids = by_auction.get(&auction.id).into_iter().flatten();
        let in_time = bids.filter(|bid| auction.date_time <= bid.date_time && bid.date_time <= auction.expires);
        winners.extend(in_time.max_by_key(|bid| (bid.price, Reverse(bid.date_time))).map(|bid| (auction, *bid)));
    }
    winners
}

fn mean(prices: &[u64]) -> f64 {
    prices.iter().sum::<u64>() as f64 / prices.len() as f64
}

/// Means as whole numbers that can be compared, bit by bit.
fn exact(means: Stream<Change<(u64, f64)>>) -> Stream<Change<(u64, u64)>> {
    means.map_rows(|(key, mean)| (key, mean.to_bits()))
}

#[test]
fn q4_is_the_mean_of_the_winning_bids_of_each_category() {
    let by_category = grouped(winners(), |(auction, _)| auction.category);
    let means = by_category.into_iter().map(|(category, winners)| {
        let prices: Vec<u64> = winners.iter().map(|(_, bid)| bid.price).collect();
        (category, mean(&prices).to_bits())
    });
    check_changes(|streams| exact(q::q4(streams)), means);
}

#[test]
fn q6_is_the_mean_of_the_last_ten_auctions_of_each_seller() {
    let by_seller = grouped(winners(), |(auction, _)| auction.seller);
    let means = by_seller.into_iter().map(|(seller, mut winners)| {
        winners.sort_by_key(|(auction, _)| (auction.expires, auction.id));
        let last = &winners[winners.len().saturating_sub(10)..];
        let prices: Vec<u64> = last.iter().map(|(_, bid)| bid.price).collect();
        (seller, mean(&prices).to_bits())
    });
    check_changes(|streams| exact(q::q6(streams)), means);
}

#[test]
fn q9_is_each_auction_with_its_winning_bid() {
    let winners = winners().into_iter();
    check(q::q9, winners.map(|(auction, bid)| q::WinningBid { auction: auction.clone(), bid: bid.clone() }));
}

#[test]
fn q8_is_who_registers_and_sells_in_the_same_ten_seconds() {
    let start = |time_ms: i64| time_ms.div_euclid(10_000) * 10_000;
    let new = persons().filter(|person| {
        auctions().any(|auction| auction.seller == person.id && start(auction.date_time) == start(person.date_time))
    });
    let new = new.map(|person| q::NewSeller {
        id: person.id,
        name: person.name.clone(),
        window_start: start(person.date_time),
    });
    check(q::q8, new);
}

#[test]
fn q20_is_every_bid_with_its_auction_of_category_10() {
    let known: BTreeMap<u64, &Auction> = auctions().map(|auction| (auction.id, auction)).collect();
    let expanded = bids().filter_map(|bid| {
        let auction = known.get(&bid.auction).filter(|auction| auction.category == 10)?;
        Some(q::ExpandedBid { bid: bid.clone(), auction: (*auction).clone() })
    });
    check(q::q20, expanded);
}
