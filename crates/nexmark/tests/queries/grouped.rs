//! Queries over windows.

use millpond::prelude::*;
use millpond_nexmark::Bid;
use millpond_nexmark::queries as q;

use crate::support::{bids, check, grouped};

#[test]
fn q5_is_the_auctions_with_the_most_bids_of_each_ten_seconds() {
    let (first, last) = (bids().next().unwrap().date_time, bids().last().unwrap().date_time);
    let mut hot = Vec::new();
    let mut window_end = first.div_euclid(2_000) * 2_000 + 2_000;
    while window_end - 10_000 <= last {
        let inside = bids().filter(|bid| window_end - 10_000 <= bid.date_time && bid.date_time < window_end);
        let counts = grouped(inside, |bid| bid.auction).into_iter().map(|(auction, bids)| (auction, bids.len()));
        let counts: Vec<(u64, usize)> = counts.collect();
        let most = counts.iter().map(|(_, count)| *count).max().unwrap();
        let most = counts.into_iter().filter(|(_, count)| *count == most);
        hot.extend(most.map(|(auction, count)| q::HotItem { window_end, auction, bids: count as u64 }));
        window_end += 2_000;
    }
    check(q::q5, hot);
}

#[test]
fn q7_is_the_highest_bids_of_each_ten_seconds() {
    let windows = grouped(bids(), |bid| bid.date_time.div_euclid(10_000));
    let highest = windows.into_values().flat_map(|bids| {
        let price = bids.iter().map(|bid| bid.price).max().unwrap();
        bids.into_iter().filter(move |bid| bid.price == price).cloned().collect::<Vec<Bid>>()
    });
    check(q::q7, highest);
}

#[test]
fn q11_is_the_bids_of_each_bidder_without_a_break_of_ten_seconds() {
    let mut sessions = Vec::new();
    for (bidder, bids) in grouped(bids(), |bid| bid.bidder) {
        let times: Vec<i64> = bids.iter().map(|bid| bid.date_time).collect();
        for session in times.chunk_by(|one, next| next - one <= 10_000) {
            let window = Window::new(session[0], session[session.len() - 1] + 10_000);
            sessions.push(Windowed { key: bidder, window, value: session.len() as u64 });
        }
    }
    check(q::q11, sessions);
}

#[test]
fn q12_is_the_bids_of_each_bidder_in_ten_seconds_of_the_wall_clock() {
    // The clock of the tests stands still until all has been read.
    let window = Window::new(0, 10_000);
    let counts = grouped(bids(), |bid| bid.bidder).into_iter();
    check(q::q12, counts.map(|(key, bids)| Windowed { key, window, value: bids.len() as u64 }));
}
