//! **q21, channels by number**: every bid whose channel has a number, with that. Large channels have numbers of their own;
//! those of the others stand in the address. Text is searched.

use millpond::prelude::*;
use serde::{Deserialize, Serialize};

use crate::Streams;

/// A bid with the number of its channel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChannelBid {
    /// The auction.
    pub auction: u64,
    /// Who bids.
    pub bidder: u64,
    /// The price, in cents.
    pub price: u64,
    /// The channel.
    pub channel: String,
    /// Its number.
    pub channel_id: String,
}

/// Every bid whose channel has a number.
#[must_use]
pub fn q21(streams: &Streams) -> Stream<ChannelBid> {
    streams.bids.flat_map(|bid| {
        let channel_id = channel_id(&bid.channel, &bid.url)?.to_owned();
        Some(ChannelBid {
            auction: bid.auction,
            bidder: bid.bidder,
            price: bid.price,
            channel: bid.channel,
            channel_id,
        })
    })
}

const LARGE: [(&str, &str); 4] = [("apple", "0"), ("google", "1"), ("facebook", "2"), ("baidu", "3")];

fn channel_id<'b>(channel: &str, url: &'b str) -> Option<&'b str> {
    let large = LARGE.iter().find(|(name, _)| channel.eq_ignore_ascii_case(name));
    large.map(|(_, number)| *number).or_else(|| {
        let (_, number) = url.split_once("&channel_id=")?;
        number.split('&').next()
    })
}
