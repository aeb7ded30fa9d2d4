//! Queries that look at one bid at a time.

use millpond_nexmark::Bid;
use millpond_nexmark::queries as q;

use crate::support::{bids, check};

#[test]
fn q0_passes_every_bid_once() {
    check(q::q0, bids().cloned());
}

#[test]
fn q1_converts_every_price() {
    check(q::q1, bids().map(|bid| Bid { price: bid.price * 908, ..bid.clone() }));
}

#[test]
fn q2_selects_every_123rd_auction() {
    let selected = bids().filter(|bid| bid.auction.is_multiple_of(123));
    check(q::q2, selected.map(|bid| q::BidPrice { auction: bid.auction, price: bid.price }));
}

#[test]
fn q10_logs_every_bid_with_its_day_and_minute() {
    // The first ten seconds are the end of a day.
    let logged = bids().map(|bid| {
        let second = bid.date_time / 1_000 % 86_400;
        let day = if second > 80_000 { "2015-07-14" } else { "2015-07-15" };
        q::LoggedBid {
            auction: bid.auction,
            bidder: bid.bidder,
            price: bid.price,
            date_time: bid.date_time,
            extra: bid.extra.clone(),
            day: day.to_owned(),
            minute: format!("{:02}:{:02}", second / 3_600, second / 60 % 60),
        }
    });
    check(q::q10, logged);
}

#[test]
fn q13_gives_every_bid_the_value_of_its_row() {
    let with_values = bids().map(|bid| q::SideBid {
        auction: bid.auction,
        bidder: bid.bidder,
        price: bid.price,
        date_time: bid.date_time,
        value: format!("value {}", bid.auction % 10_000),
    });
    check(q::q13, with_values);
}

#[test]
fn q14_finds_dear_bids_and_the_time_of_day() {
    let dear = bids().filter(|bid| (1_000_001..50_000_000).contains(&(bid.price * 908 / 1_000)));
    // All events are around midnight.
    let dear = dear.map(|bid| q::DearBid {
        auction: bid.auction,
        bidder: bid.bidder,
        price: bid.price * 908,
        time_of_day: q::TimeOfDay::Night,
        date_time: bid.date_time,
        extra: bid.extra.clone(),
        letters_c: bid.extra.matches('c').count() as u64,
    });
    check(q::q14, dear);
}

#[test]
fn q21_finds_the_numbers_of_channels() {
    let numbered = bids().filter_map(|bid| {
        let channel_id = match bid.channel.as_str() {
            "Apple" => "0",
            "Google" => "1",
            "Facebook" => "2",
            "Baidu" => "3",
            _ => &bid.url[bid.url.find("channel_id=")? + "channel_id=".len()..],
        };
        Some(q::ChannelBid {
            auction: bid.auction,
            bidder: bid.bidder,
            price: bid.price,
            channel: bid.channel.clone(),
            channel_id: channel_id.to_owned(),
        })
    });
    let numbered: Vec<q::ChannelBid> = numbered.collect();
    assert!(numbered.len() < bids().count(), "some channels have no number");
    check(q::q21, numbered);
}

#[test]
fn q22_finds_the_directories_of_addresses() {
    let paths = bids().map(|bid| {
        let path = bid.url.strip_prefix("https://www.nexmark.com/").unwrap();
        let mut directories = path.splitn(4, '/').map(str::to_owned);
        q::BidPath {
            auction: bid.auction,
            bidder: bid.bidder,
            price: bid.price,
            channel: bid.channel.clone(),
            directories: std::array::from_fn(|_| directories.next().unwrap()),
        }
    });
    check(q::q22, paths);
}
